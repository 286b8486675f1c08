"""Offsets: what groups have consumed and what queues hold (codes 14, 15, 29 to 32; remoting:2.4)."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.headers import (
    GetEarliestMsgStoretimeRequest,
    GetEarliestMsgStoretimeResponse,
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetMinOffsetRequest,
    GetMinOffsetResponse,
    Header,
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    SearchOffsetRequest,
    SearchOffsetResponse,
    UpdateConsumerOffsetRequest,
    from_ext,
    to_ext,
)
from sparrowmq.transport.slices import finished

if TYPE_CHECKING:
    from sparrowmq.broker.tables.shared_tables import SharedTables
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.transport.connection import Connection

BOUNDARIES = ("LOWER", "UPPER")


def memory_bytes() -> int:
    """The machine's memory; the reference estimates from it what is still cached (broker:5.2)."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def answer(command: Command, header: Header | None = None, body: bytes = b"") -> Command:
    """A successful answer with typed header fields and a body."""
    ext = {} if header is None else to_ext(header)
    return Command(ResponseCode.SUCCESS, command.opaque, FLAG_RESPONSE, ext, body)


def refusal(command: Command, code: int, remark: str) -> Command:
    """An answer with an error code and the reason."""
    return Command(code, command.opaque, FLAG_RESPONSE, remark=remark)


def is_young(store: MessageStore, queue: ConsumeQueue, cached_bytes: int) -> bool:
    """Whether a queue begins at 0 and has no messages older than the last `cached_bytes` of the log.

    It may be empty: a client that gets no offset would ask for the queue's end a moment later, and skip
    messages sent in between.
    """
    if queue.min_offset > 0:
        return False
    if queue.committed == 0:
        return True
    first = queue.entry(0)  # a damaged record also has a position
    if first is None or first.physical_offset < store.min_position:
        return False
    return store.position - first.physical_offset <= cached_bytes


class OffsetRequests:
    """Handlers of consumer offsets and queue offsets."""

    def __init__(self, store: MessageStore, tables: SharedTables, *, cached_ratio: int) -> None:
        self._store = store
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._cached_bytes = memory_bytes() * cached_ratio // 100

    def query(self, connection: Connection, command: Command) -> Command:
        """14: a group's offset; 0 for a new group on an empty or young queue, else 22 (broker:5.5)."""
        request = from_ext(QueryConsumerOffsetRequest, command.ext)
        offset = self._offsets.query(request.topic, request.consumer_group, request.queue_id)
        if request.topic in self._topics.deleting:  # in a later topic of this name it would skip messages
            offset = None
        if offset is None and request.set_zero_if_not_found is not False:
            queue = self._queue(request.topic, request.queue_id)
            offset = 0 if queue is not None and self._is_young(queue) else None
        topic = None if request.birth is None else self._topics.get(request.topic)
        birth = None if topic is None else topic.birth or None
        if offset is None:
            remark = "Not found, maybe this group consumer boot first"
            refused = refusal(command, ResponseCode.QUERY_NOT_FOUND, remark)
            if birth is not None:
                refused.ext["birth"] = str(birth)
            return refused
        return answer(command, QueryConsumerOffsetResponse(offset=offset, birth=birth))

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, even without messages since the start; None when the topic has no such queue."""
        found = self._topics.get(topic)
        if found is None or not 0 <= queue_id < found.queue_count:
            return None
        return found.queues[queue_id]

    def _is_young(self, queue: ConsumeQueue) -> bool:
        return is_young(self._store, queue, self._cached_bytes)

    def update(self, connection: Connection, command: Command) -> Command:
        """15: store a group's offset. It creates no group: 26 if the group is unknown (broker:5.5)."""
        request = from_ext(UpdateConsumerOffsetRequest, command.ext)
        topic = self._topics.get(request.topic)
        if topic is None:
            remark = f"Topic {request.topic} not exist!"
            return refusal(command, ResponseCode.TOPIC_NOT_EXIST, remark)
        if not 0 <= request.queue_id < topic.queue_count:
            remark = (
                f"queueId {request.queue_id}: topic {request.topic} has queues 0 to {topic.queue_count - 1}"
            )
            return refusal(command, ResponseCode.INVALID_PARAMETER, remark)
        if request.consumer_group not in self._groups.configs:
            remark = f"Group {request.consumer_group} not exist!"
            return refusal(command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if request.commit_offset < 0:
            remark = f"commitOffset {request.commit_offset}: offsets start at 0"
            return refusal(command, ResponseCode.INVALID_PARAMETER, remark)
        if topic.is_earlier(request.birth):
            remark = f"commitOffset {request.commit_offset}: topic {request.topic} was created again since"
            return refusal(command, ResponseCode.PULL_OFFSET_MOVED, remark)
        group, queue_id = request.consumer_group, request.queue_id
        end = topic.queues[queue_id].max_offset
        if request.commit_offset > end:  # of an earlier life of the queue
            remark = f"commitOffset {request.commit_offset}: the queue ends at {end}"
            return refusal(command, ResponseCode.INVALID_PARAMETER, remark)
        if not self._offsets.commit(request.topic, group, queue_id, request.commit_offset):
            return refusal(command, ResponseCode.SYSTEM_BUSY, self._offsets.too_many)
        return answer(command)

    def max_offset(self, connection: Connection, command: Command) -> Command:
        """30: the offset at which the next message of a queue will be readable."""
        request = from_ext(GetMaxOffsetRequest, command.ext)
        queue = self._store.find_queue(request.topic, request.queue_id)
        return answer(command, GetMaxOffsetResponse(offset=queue.confirmed_offset if queue else 0))

    def min_offset(self, connection: Connection, command: Command) -> Command:
        """31: the first offset of a queue that can still be read."""
        request = from_ext(GetMinOffsetRequest, command.ext)
        queue = self._store.find_queue(request.topic, request.queue_id)
        return answer(command, GetMinOffsetResponse(offset=queue.min_offset if queue else 0))

    def search(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """29: the first offset stored at or after a time; `UPPER`: the last at or before it (broker:3.7)."""
        request = from_ext(SearchOffsetRequest, command.ext)
        boundary = (request.boundary_type or "LOWER").upper()
        if boundary not in BOUNDARIES:
            remark = f"boundaryType {request.boundary_type!r} is neither LOWER nor UPPER"
            return refusal(command, ResponseCode.INVALID_PARAMETER, remark)
        queue = self._store.find_queue(request.topic, request.queue_id)
        if queue is None:
            return answer(command, SearchOffsetResponse(offset=0))
        return finished(self._search(command, queue, request.timestamp, boundary))

    def _search(
        self, command: Command, queue: ConsumeQueue, timestamp: int, boundary: str
    ) -> Generator[None, None, Command]:
        offset = yield from self._store.searching(queue, timestamp, boundary)
        return answer(command, SearchOffsetResponse(offset=min(offset, queue.confirmed_offset)))

    def earliest(self, connection: Connection, command: Command) -> Command:
        """32: the store time of a queue's first message, epoch ms; -1 if there is none."""
        request = from_ext(GetEarliestMsgStoretimeRequest, command.ext)
        queue = self._store.find_queue(request.topic, request.queue_id)
        stored = None if queue is None else self._store.store_time(queue, queue.min_offset)
        return answer(command, GetEarliestMsgStoretimeResponse(timestamp=-1 if stored is None else stored))
