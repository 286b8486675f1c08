"""One POP in progress: the messages that it took from each queue, their check points, and the
response. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING

from msgspec import UNSET

from sparrowmq.broker.pop.waiting import ALL_QUEUES, WaitKey
from sparrowmq.core.errors import RecordError
from sparrowmq.core.message import PROPERTY_POP_CK
from sparrowmq.protocol.pop.headers import PopMessageResponse
from sparrowmq.protocol.pop.receipts import Receipt, message_offset_info, retry_flag, start_offset_info
from sparrowmq.protocol.pop.records import CheckPoint
from sparrowmq.protocol.properties import find
from sparrowmq.protocol.record import encode_record

if TYPE_CHECKING:
    from sparrowmq.broker.members.filters import PullFilter
    from sparrowmq.broker.tables.topics import Topic
    from sparrowmq.protocol.frame import Command
    from sparrowmq.protocol.pop.headers import PopMessageRequest
    from sparrowmq.protocol.record import StoredRecord
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.transport.connection import Connection

_size_and_offset = Struct(">i16xq").unpack_from
"""Size and queue offset at the start of a record."""
_RECEIPT: bytes = PROPERTY_POP_CK.encode()


@dataclass(slots=True)
class QueueBatch:
    """The messages of one queue in a POP; `next_offset` is where the next POP of the queue begins."""

    queue: ConsumeQueue
    start_offset: int
    next_offset: int
    offsets: list[int] = field(default_factory=list)
    buffers: list[memoryview] = field(default_factory=list)
    is_retry: bool = False


@dataclass(slots=True)
class Pop:
    """One POP in progress. `rest` counts the messages that remain in the queues that it read."""

    connection: Connection
    command: Command
    request: PopMessageRequest
    topic: Topic
    wanted: PullFilter
    born_time: int
    pop_time: int
    revive_queue: int
    batches: list[QueueBatch] = field(default_factory=list)
    count: int = 0
    size: int = 0
    rest: int = 0
    is_missed: bool = False
    """Whether another POP was reading one of its queues."""

    @property
    def found(self) -> list[QueueBatch]:
        """The queues that had messages."""
        return [batch for batch in self.batches if batch.offsets]

    def check_points(self, broker_name: str, birth: Callable[[str], int]) -> list[CheckPoint]:
        """A check point for each queue that had messages; `birth` gives that of a topic."""
        return [
            CheckPoint(
                broker_name=broker_name,
                group=self.request.consumer_group,
                differences=[offset - batch.start_offset for offset in batch.offsets],
                invisible_time=self.request.invisible_time,
                count=len(batch.offsets),
                pop_time=self.pop_time,
                queue_id=batch.queue.queue_id,
                start_offset=batch.start_offset,
                topic=batch.queue.topic,
                birth=birth(batch.queue.topic) or UNSET,
            )
            for batch in self.found
        ]

    def response(self, order_counts: Sequence[str] | None) -> PopMessageResponse:
        """The header of the answer."""
        places = [(retry_flag(one.queue.topic), one.queue.queue_id, one) for one in self.found]
        return PopMessageResponse(
            pop_time=self.pop_time,
            invisible_time=self.request.invisible_time,
            revive_qid=self.revive_queue,
            rest_num=self.rest,
            start_offset_info=";".join(
                start_offset_info(flag, queue_id, one.start_offset) for flag, queue_id, one in places
            ),
            msg_offset_info=";".join(
                message_offset_info(flag, queue_id, one.offsets) for flag, queue_id, one in places
            ),
            order_count_info=None if order_counts is None else ";".join(order_counts),
        )

    def receipt(self, batch: QueueBatch, record: StoredRecord, broker_name: str) -> Receipt:
        """The receipt of one message."""
        return Receipt(
            batch.start_offset,
            self.pop_time,
            self.request.invisible_time,
            self.revive_queue,
            retry_flag(batch.queue.topic),
            broker_name,
            record.queue_id,
            record.queue_offset,
        )

    @property
    def key(self) -> WaitKey:
        """The key by which the request waits when there are no messages."""
        return WaitKey(
            self.request.topic, self.request.consumer_group, max(ALL_QUEUES, self.request.queue_id)
        )


def offsets_in(buffers: Sequence[memoryview]) -> list[int]:
    """The queue offsets of the records of a read."""
    found = []
    for buffer in buffers:
        position, end = 0, len(buffer)
        while position < end:  # the read has verified the sizes
            size, offset = _size_and_offset(buffer, position)
            found.append(offset)
            position += size
    return found


def renamed(record: StoredRecord, topic: str, receipt: Receipt) -> bytes:
    """A record under another topic's name, with a receipt unless it already has one or there is no room."""
    properties = record.properties
    if find(properties, _RECEIPT) is None:
        end = b"" if not properties or properties.endswith(b"\x02") else b"\x02"
        properties += b"%s%s\x01%s\x02" % (end, _RECEIPT, receipt.encode().encode())
    try:
        return _record(record, topic, properties)
    except RecordError:
        return _record(record, topic, record.properties)


def _record(record: StoredRecord, topic: str, properties: bytes) -> bytes:
    return encode_record(
        topic=topic.encode(),
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        body=record.body,
        properties=properties,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_timestamp=record.store_timestamp,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        prepared_offset=record.prepared_offset,
    )
