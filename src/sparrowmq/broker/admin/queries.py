"""Messages by key, unique key and physical offset; entries of a queue (12, 33, 321; remoting:2.4)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from sparrowmq.broker.base.offsets import answer, refusal
from sparrowmq.core.errors import NoRoomError
from sparrowmq.protocol.bodies.queues import ConsumeQueueData, QueryConsumeQueueBody
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers import (
    QueryConsumeQueueRequest,
    QueryMessageRequest,
    QueryMessageResponse,
    ViewMessageRequest,
    from_ext,
)
from sparrowmq.protocol.java_json import dumps
from sparrowmq.store.index.index import KEY, TAG, UNIQUE
from sparrowmq.store.message_store import QUERY_BYTES_MAX
from sparrowmq.transport.slices import shared

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparrowmq.broker.housekeeping.indexing import Indexer
    from sparrowmq.broker.tables.clients import ClientTable
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.core.subscription import SubscriptionData
    from sparrowmq.protocol.frame import Command
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.transport.connection import Connection

UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""A field in addition to the header's own: `true` requests a search by unique key."""

KINDS: Final = (KEY, TAG, UNIQUE)
KEY_CHARS_MAX: Final = 0xFFFF
"""Maximum length of topic and key in a query: no record has longer ones, and hashing takes time."""
ENTRIES_MAX: Final = 1000
"""Maximum number of queue entries in one answer to code 321."""


QUERIES_MAX: Final = 4
"""Maximum number of queries by key that collect messages at the same time; others wait."""


def _need_room(connection: Connection) -> None:
    """Refuse a query if there is no memory for its answer. Raises `NoRoomError`."""
    if connection.closed or not connection.has_room(QUERY_BYTES_MAX):
        raise NoRoomError(
            "a query by key was refused: the memory for clients of this broker, or for this client, is used "
            "up (connectionMemoryMax); read the pending responses, or try again later"
        )


class Queries:
    """Finds messages. `filters` gives the filter of a topic and a group."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        indexer: Indexer,
        clients: ClientTable,
        filters: Callable[[str, str], object | None],
    ) -> None:
        self._settings = settings
        self._store = store
        self._indexer = indexer
        self._clients = clients
        self._filters = filters
        self._looking = asyncio.Semaphore(QUERIES_MAX)

    def apply(self, settings: BrokerSettings) -> None:
        """Apply changed settings."""
        self._settings = settings

    async def by_key(self, connection: Connection, command: Command) -> Command:
        """12: messages of a topic with a key, unique key or tag."""
        request = from_ext(QueryMessageRequest, command.ext)
        kind = request.index_type or KEY
        if kind not in KINDS:
            remark = f"indexType {kind!r} is none of {', '.join(KINDS)}"
            return refusal(command, ResponseCode.INVALID_PARAMETER, remark)
        count = min(request.max_num, self._settings.max_msgs_num_batch)
        if command.ext.get(UNIQUE_KEY_QUERY, "").lower() == "true":
            count = self._settings.default_query_max_num
        records: list[bytes] = []
        whole = True
        if len(request.topic) + len(request.key) <= KEY_CHARS_MAX:
            await self._indexer.catch_up()
            begin, end = request.begin_timestamp, request.end_timestamp
            async with self._looking:
                _need_room(connection)
                records, whole = await shared().result(
                    self._store.query(request.topic, request.key, count, begin, end, kind=kind)
                )
        if not records:
            remark = "can not find message, maybe time range not correct"
            if not whole:
                remark += "; too many messages have the same hash: ask for a shorter time range"
            return refusal(command, ResponseCode.QUERY_NOT_FOUND, remark)
        place = self._store.index.place
        header = QueryMessageResponse(
            index_last_update_timestamp=place.end_timestamp, index_last_update_phyoffset=place.end_offset
        )
        return answer(command, header, b"".join(records))

    def by_offset(self, connection: Connection, command: Command) -> Command:
        """33: the message whose record starts at a physical offset."""
        offset = from_ext(ViewMessageRequest, command.ext).offset
        record = self._store.read_record(offset)
        if record is None:
            remark = f"can not find message by the offset, {offset}"
            return refusal(command, ResponseCode.SYSTEM_ERROR, remark)
        return answer(command, body=record)

    def entries(self, connection: Connection, command: Command) -> Command:
        """321: entries of a queue from an offset on, with a group's subscription and filter if one is named.

        As at RocketMQ's broker without `enableConsumeQueueExt`, no filter is tried on the entries.
        """
        request = from_ext(QueryConsumeQueueRequest, command.ext)
        queue = self._store.find_queue(request.topic, request.queue_id)
        if queue is None:
            remark = f"{request.topic}/{request.queue_id} is not exist!"
            return refusal(command, ResponseCode.SYSTEM_ERROR, remark)
        first = max(request.index, queue.min_offset)
        last = min(first + min(max(request.count, 0), ENTRIES_MAX), queue.max_offset)
        found = []
        for offset in range(first, last):
            entry = queue.entry(offset)
            if entry is not None:
                found.append(
                    ConsumeQueueData(
                        physic_offset=entry.physical_offset,
                        physic_size=entry.size,
                        tags_code=entry.tags_code,
                    )
                )
        subscription, told = self._subscription(request.topic, request.consumer_group)
        body = QueryConsumeQueueBody(
            queue_data=found,
            max_queue_index=queue.max_offset,
            min_queue_index=queue.min_offset,
            filter_data=told,
        )
        return answer(command, body=body.encode_with(subscription))

    def _subscription(self, topic: str, group: str | None) -> tuple[SubscriptionData | None, str | None]:
        """A group's subscription to a topic, and its filter as text."""
        if group is None:
            return None, None
        online = self._clients.consumers.get(group)
        subscription = None if online is None else online.subscriptions.get(topic)
        if subscription is None:
            return None, f"{group}@{topic} is not online!"
        filter_data = self._filters(topic, group)
        return subscription, dumps(msgspec.to_builtins(filter_data)).decode()
