"""Offsets: what groups have consumed and what queues hold (codes 14, 15, 29 to 32; remoting:2.4)."""

from __future__ import annotations

import os
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

if TYPE_CHECKING:
    from sparrowmq.broker.groups import GroupTable
    from sparrowmq.broker.topics import TopicTable
    from sparrowmq.store.consume_queue import ConsumeQueue
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.offsets import ConsumerOffsets
    from sparrowmq.transport.connection import Connection

BOUNDARIES = ("LOWER", "UPPER")


def memory_bytes() -> int:
    """The machine's memory; the reference takes a share of it for what is still cached (broker:5.2)."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def answer(command: Command, header: Header | None = None, body: bytes = b"") -> Command:
    """A successful answer with typed header fields and a body."""
    ext = {} if header is None else to_ext(header)
    return Command(ResponseCode.SUCCESS, command.opaque, FLAG_RESPONSE, ext, body)


def refusal(command: Command, code: ResponseCode, remark: str) -> Command:
    """An answer with an error code and the reason."""
    return Command(code, command.opaque, FLAG_RESPONSE, remark=remark)


class Progress:
    """Handlers of consumer offsets and queue offsets."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        *,
        cached_ratio: int,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._cached_bytes = memory_bytes() * cached_ratio // 100

    def query(self, connection: Connection, command: Command) -> Command:
        """14: a group's offset; 0 for a new group on a young queue, else 22 (broker:5.5)."""
        request = from_ext(QueryConsumerOffsetRequest, command.ext)
        offset = self._offsets.query(request.topic, request.consumer_group, request.queue_id)
        if offset is None and request.set_zero_if_not_found is not False:
            queue = self._store.find_queue(request.topic, request.queue_id)
            offset = 0 if queue is not None and self._is_young(queue) else None
        if offset is None:
            remark = "Not found, maybe this group consumer boot first"
            return refusal(command, ResponseCode.QUERY_NOT_FOUND, remark)
        return answer(command, QueryConsumerOffsetResponse(offset=offset))

    def _is_young(self, queue: ConsumeQueue) -> bool:
        if queue.min_offset > 0 or queue.max_offset == 0:
            return False
        first = queue.physical_offset(0)
        return first is not None and self._store.position - first <= self._cached_bytes

    def update(self, connection: Connection, command: Command) -> Command:
        """15: store a group's offset. It makes no group: 26 for one that is unknown (broker:5.5)."""
        request = from_ext(UpdateConsumerOffsetRequest, command.ext)
        topic = self._topics.get(request.topic)
        if topic is None:
            remark = f"Topic {request.topic} not exist!"
            return refusal(command, ResponseCode.TOPIC_NOT_EXIST, remark)
        if not 0 <= request.queue_id < len(topic.queues):
            remark = (
                f"queueId {request.queue_id}: topic {request.topic} has queues 0 to {len(topic.queues) - 1}"
            )
            return refusal(command, ResponseCode.INVALID_PARAMETER, remark)
        if request.consumer_group not in self._groups.configs:
            remark = f"Group {request.consumer_group} not exist!"
            return refusal(command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if request.commit_offset < 0:
            remark = f"commitOffset {request.commit_offset}: offsets begin at 0"
            return refusal(command, ResponseCode.INVALID_PARAMETER, remark)
        self._offsets.commit(request.topic, request.consumer_group, request.queue_id, request.commit_offset)
        return answer(command)

    def max_offset(self, connection: Connection, command: Command) -> Command:
        """30: the offset the next message of a queue will be readable at."""
        request = from_ext(GetMaxOffsetRequest, command.ext)
        queue = self._store.find_queue(request.topic, request.queue_id)
        return answer(command, GetMaxOffsetResponse(offset=queue.max_offset if queue else 0))

    def min_offset(self, connection: Connection, command: Command) -> Command:
        """31: the first offset of a queue that still can be read."""
        request = from_ext(GetMinOffsetRequest, command.ext)
        queue = self._store.find_queue(request.topic, request.queue_id)
        return answer(command, GetMinOffsetResponse(offset=queue.min_offset if queue else 0))

    def search(self, connection: Connection, command: Command) -> Command:
        """29: the first offset stored at or after a time; `UPPER`: the last at or before (broker:3.7)."""
        request = from_ext(SearchOffsetRequest, command.ext)
        boundary = (request.boundary_type or "LOWER").upper()
        if boundary not in BOUNDARIES:
            remark = f"boundaryType {request.boundary_type!r} is neither LOWER nor UPPER"
            return refusal(command, ResponseCode.INVALID_PARAMETER, remark)
        queue = self._store.find_queue(request.topic, request.queue_id)
        offset = 0 if queue is None else self._store.offset_by_time(queue, request.timestamp, boundary)
        return answer(command, SearchOffsetResponse(offset=offset))

    def earliest(self, connection: Connection, command: Command) -> Command:
        """32: the store time of a queue's first message, epoch ms; -1 without any."""
        request = from_ext(GetEarliestMsgStoretimeRequest, command.ext)
        queue = self._store.find_queue(request.topic, request.queue_id)
        stored = None if queue is None else self._store.store_time(queue, queue.min_offset)
        return answer(command, GetEarliestMsgStoretimeResponse(timestamp=-1 if stored is None else stored))
