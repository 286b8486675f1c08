"""Messages by key and by id, and their traces (client:F)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime

from sparrowmq.client.admin import queries
from sparrowmq.client.admin.calls import AdminPart
from sparrowmq.client.admin.trace import MESSAGES_MAX, traces_of
from sparrowmq.client.base.settings import check_range
from sparrowmq.core.clock import epoch_ms
from sparrowmq.core.errors import ClientError, NoRouteError, TransportError
from sparrowmq.core.message import ReceivedMessage
from sparrowmq.core.names import TRACE_TOPIC
from sparrowmq.core.route import BrokerData
from sparrowmq.protocol.trace import Trace


class MessageAdmin(AdminPart):
    """The stored messages and their traces."""

    async def query(
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
            self._calls.running(),
            topic,
            key,
            count=count,
            span_ms=(epoch_ms("begin", begin), epoch_ms("end", end)),
            unique=unique,
            decompress=decompress,
        )

    async def get(
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
        `query`.
        """
        instance = self._calls.running()
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

    async def get_by_offset_id(
        self, offset_message_id: str, *, decompress: bool = True
    ) -> ReceivedMessage | None:
        """The message with an offset id, from the broker whose address the id contains; None if it was
        deleted. If that broker cannot be connected, all brokers are asked for it: it may have another address
        now.

        `decompress` as in `query`. Raises `ClientError` for an invalid offset id, `TransportError`
        when the broker cannot be reached and no other has the message.
        """

        async def others() -> Iterable[BrokerData]:
            return (await self._calls.cluster_info()).brokers.values()

        instance = self._calls.running()
        return await queries.by_offset_id(instance, offset_message_id, "", others, decompress=decompress)

    async def trace(self, message_id: str, *, topic: str = TRACE_TOPIC) -> list[Trace]:
        """The trace of a message, by its unique id or a key, in order of time.

        Empty when no client with tracing handled it, when the records are not written yet (clients collect
        them for some seconds), or when there is no trace topic. The end of a consumption follows its
        beginning.
        """
        try:
            messages = await self.query(topic, message_id, count=MESSAGES_MAX, decompress=False)
        except NoRouteError:
            return []
        return await asyncio.to_thread(traces_of, message_id, messages)
