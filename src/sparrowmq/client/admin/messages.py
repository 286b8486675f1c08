"""Finding messages by key and by id (client:F)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sparrowmq.client.admin import queries
from sparrowmq.client.admin.calls import AdminCalls
from sparrowmq.client.base.settings import check_range
from sparrowmq.core.clock import epoch_ms
from sparrowmq.core.errors import ClientError, TransportError
from sparrowmq.core.message import ReceivedMessage
from sparrowmq.core.route import BrokerData


class MessageAdmin(AdminCalls):
    """The part of `Admin` for messages."""

    async def query_messages(
        self,
        topic: str,
        key: str,
        *,
        count: int = 32,
        begin: datetime | int = 0,
        end: datetime | int = queries.TIME_MAX,
        unique: bool = False,
        decompress: bool = True,
    ) -> list[ReceivedMessage]:
        """Messages of `topic` with the key `key`, oldest first; an empty list if there are none.

        With `unique`, `key` is a unique id: the result has the original message and its copies, such as
        retries. Each broker returns at most the newest `count` messages, and no more than its
        `maxMsgsNumBatch` (64). The search covers store times from `begin` to `end`: aware
        datetimes or epoch milliseconds. Without `decompress`, bodies are as they are stored. Raises
        `NoRouteError`, and `ClientError` for a blank key.
        """
        check_range("count", count, 1, queries.COUNT_MAX)
        if not key.strip():
            raise ClientError("the key is blank; no message has a blank key")
        return await queries.query(
            self._running(),
            topic,
            key,
            count=count,
            span_ms=(epoch_ms("begin", begin), epoch_ms("end", end)),
            unique=unique,
            decompress=decompress,
        )

    async def message_by_id(
        self,
        topic: str,
        message_id: str,
        *,
        begin: datetime | int = 0,
        end: datetime | int = queries.TIME_MAX,
        decompress: bool = True,
    ) -> ReceivedMessage | None:
        """The message of `topic` with that id, or None if it does not exist or was deleted.

        The id is one from a send result: the unique id or the offset id. `decompress` as in
        `query_messages`.
        """
        instance = self._running()
        found = await queries.query(
            instance,
            topic,
            message_id,
            count=32,
            span_ms=(epoch_ms("begin", begin), epoch_ms("end", end)),
            unique=True,
            decompress=decompress,
        )
        if found:
            return found[-1]

        async def others() -> Iterable[BrokerData]:
            route = await instance.update_route(topic)
            return () if route is None else route.brokers

        try:
            message = await queries.by_offset_id(instance, message_id, topic, others, decompress=decompress)
        except (ClientError, TransportError):
            return None  # a unique id may look like an offset id with a nonexistent address
        return message if message is not None and message.topic == topic else None

    async def message_by_offset_id(
        self, offset_message_id: str, *, decompress: bool = True
    ) -> ReceivedMessage | None:
        """The message with an offset id, from the broker whose address the id contains; None if it was
        deleted. If that broker cannot be connected, all brokers are asked for it: it may have another address
        now.

        `decompress` as in `query_messages`. Raises `ClientError` for an invalid offset id, `TransportError`
        when the broker cannot be reached and no other has the message.
        """

        async def others() -> Iterable[BrokerData]:
            return (await self.cluster_info()).brokers.values()

        instance = self._running()
        return await queries.by_offset_id(instance, offset_message_id, "", others, decompress=decompress)
