"""Messages by key, unique key and physical offset; entries of a queue (12, 33, 321; remoting:2.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrowmq.broker.progress import answer, refusal
from sparrowmq.protocol.bodies.queues import ConsumeQueueData, QueryConsumeQueueBody
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers import (
    QueryConsumeQueueRequest,
    QueryMessageRequest,
    QueryMessageResponse,
    ViewMessageRequest,
    from_ext,
)
from sparrowmq.store.index import KEY, TAG, UNIQUE

if TYPE_CHECKING:
    from sparrowmq.broker.indexing import Indexer
    from sparrowmq.core.settings import BrokerSettings
    from sparrowmq.protocol.frame import Command
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.transport.connection import Connection

UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""A field beside the header's own: `true` asks for a unique key."""

KINDS: Final = (KEY, TAG, UNIQUE)
ENTRIES_MAX: Final = 1000
"""Entries of a queue that one answer to code 321 holds."""


class Queries:
    """Looking messages up."""

    def __init__(self, settings: BrokerSettings, store: MessageStore, indexer: Indexer) -> None:
        self.settings = settings
        self._store = store
        self._indexer = indexer

    async def by_key(self, connection: Connection, command: Command) -> Command:
        """12: messages with a key, unique key or tag; others with the same hash may be among them."""
        request = from_ext(QueryMessageRequest, command.ext)
        kind = request.index_type or KEY
        if kind not in KINDS:
            remark = f"indexType {kind!r} is none of {', '.join(KINDS)}"
            return refusal(command, ResponseCode.INVALID_PARAMETER, remark)
        count = min(request.max_num, self.settings.max_msgs_num_batch)
        if command.ext.get(UNIQUE_KEY_QUERY, "").lower() == "true":
            count = self.settings.default_query_max_num
        await self._indexer.catch_up()
        records = []
        if count > 0:
            begin, end = request.begin_timestamp, request.end_timestamp
            records = self._store.query(request.topic, request.key, count, begin, end, kind=kind)
        if not records:
            remark = "can not find message, maybe time range not correct"
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
        """321: entries of a queue from an offset on."""
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
                        eval=True,
                    )
                )
        body = QueryConsumeQueueBody(
            queue_data=found, max_queue_index=queue.max_offset, min_queue_index=queue.min_offset
        )
        return answer(command, body=body.encode())
