"""The broker's own writes: retries, dead letters, delayed deliveries, transaction records.

What a client sent was within the limits of clients when it was accepted. Its later copies only have to fit a
file of the log, so that a lowered `maxMessageSize` loses none of them.

They go into the log like sends, a chunk at a time, and wake the pulls that wait for them. A put does not wait
for the disk; with `SYNC_FLUSH` it becomes visible when it is flushed, and handlers that answer a request
about it use `answer_flushed` or `when_flushed`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from sparrowmq.core.errors import (
    InvalidMessageError,
    NoTopicError,
    RecordError,
    SparrowError,
    StoreError,
)
from sparrowmq.core.hashing import tags_code
from sparrowmq.core.message import (
    PROPERTY_CLUSTER,
    PROPERTY_ERROR,
    PROPERTY_MSG_REGION,
    PROPERTY_TRACE_ON,
)
from sparrowmq.protocol import properties as property_string
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.record import StoredRecord, decode_record
from sparrowmq.store.log.commit_log import PLACE
from sparrowmq.store.queues.reads import GetStatus
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.broker.base.durability import Durability
    from sparrowmq.broker.base.flushing import Flusher
    from sparrowmq.broker.tables.topics import TopicTable
    from sparrowmq.core.clock import Clock
    from sparrowmq.protocol.frame import Command
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue

log = logging.getLogger("sparrowmq.broker")
NEW_FILES_MAX: Final = 8
"""Maximum number of queue files that sends and ends of transactions create, or continue to reserve, per turn
of the loop: each takes some 0.3 ms.
"""
OPTIONAL_PROPERTIES: Final = (
    PROPERTY_ERROR,
    PROPERTY_MSG_REGION,
    PROPERTY_TRACE_ON,
    PROPERTY_CLUSTER,
    "TIMER_ENQUEUE_MS",
    "TIMER_DEQUEUE_MS",
    "TIMER_ROLL_TIMES",
)
"""Properties that a copy goes without if it does not fit otherwise: they only inform."""
LOST_ALONE: Final = (RecordError, NoTopicError)
"""Why one message cannot be put, whereas others can."""
NOT_FLUSHED: Final = "FLUSH_DISK_TIMEOUT: stored, but not flushed to disk in time"


class InnerMessage(msgspec.Struct, gc=False):
    """A message the broker writes itself. `properties` is the encoded string, times are epoch ms.

    `tags_code` is the code in its queue entry; None means the hash of its tags.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int = 0
    prepared_offset: int = 0
    tags_code: int | None = None

    @classmethod
    def copy_of(cls, record: StoredRecord, topic: str, queue_id: int) -> InnerMessage:
        """The message of a stored record, for another queue; everything that consumers see is preserved."""
        return cls(
            topic,
            queue_id,
            record.body,
            record.properties,
            record.flag,
            record.sys_flag,
            record.born_timestamp,
            record.born_host,
            record.reconsume_times,
            record.prepared_offset,
        )


class Placed(NamedTuple):
    """Where a message was stored."""

    physical_offset: int
    queue_offset: int


class Scan(NamedTuple):
    """Records in queue order, and the queue offset at which to continue."""

    records: list[StoredRecord]
    next_offset: int


def code_of_tags(properties: bytes) -> int:
    """The tag code of a property string (broker:3.1)."""
    tags = property_string.find(properties, b"TAGS") if b"TAGS\x01" in properties else None
    return 0 if tags is None else tags_code(tags.decode("utf-8", "replace"))


def without_optional(properties: bytes) -> bytes:
    """A property string without `OPTIONAL_PROPERTIES`."""
    own = property_string.decode(properties)
    for name in OPTIONAL_PROPERTIES:
        own.pop(name, None)
    return property_string.encode(own)


class InnerStore:
    """Writes and reads messages on the broker's own behalf."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        flusher: Flusher,
        durability: Durability,
        clock: Clock,
        *,
        wake: Callable[[set[ConsumeQueue]], None],
        topic_made: Callable[[], None],
    ) -> None:
        self._store = store
        self._topics = topics
        self._flusher = flusher
        self._durability = durability
        self._clock = clock
        self._wake = wake
        self._topic_made = topic_made
        self._occasional = OccasionalLog(log)

    def put(
        self,
        messages: Sequence[InnerMessage],
        *,
        last: Callable[[Sequence[Placed]], InnerMessage] | None = None,
    ) -> list[Placed]:
        """Store the messages as one chunk, in order, and wake the pulls that wait for them.

        `last` makes one more message, the chunk's last, from the places of the others.

        Topics that RocketMQ creates itself (retry, dead letters, system) are created if missing. Raises
        `StoreError`, of which `NoTopicError` for any other unknown topic, or `RecordError` for a message that
        does not fit a record, or what `last` raises; then no message is stored.
        """
        self.check()
        queues = [self.queue(message.topic, message.queue_id) for message in messages]
        store, now = self._store, self._clock.now_ms()
        placed: list[Placed] = []
        try:
            for message, queue in zip(messages, queues, strict=True):
                placed.append(self._place(message, queue, now))
            if last is not None:
                message = last(placed)
                queues.append(self.queue(message.topic, message.queue_id))
                placed.append(self._place(message, queues[-1], now))
        except Exception:
            store.drop_chunk()
            raise
        store.commit_chunk()
        self.wake_after(set(queues))
        return placed

    def put_those_that_fit(self, messages: Sequence[InnerMessage], kind: str) -> None:
        """Like `put`, but a message that does not fit a record is stored without its optional properties.

        One that still does not fit, or whose topic was deleted, keeps none of the others back: it is counted
        and logged with `kind`, such as "a timed message". Raises `StoreError`.
        """
        try:
            self.put(messages)
        except LOST_ALONE:
            for message in messages:
                self._put_if_it_fits(message, kind)

    def _put_if_it_fits(self, message: InnerMessage, kind: str) -> None:
        try:
            self.put([message])
        except LOST_ALONE:
            try:
                message.properties = without_optional(message.properties)
                self.put([message])
            except (InvalidMessageError, *LOST_ALONE) as error:
                self.note_lost(kind, message, error)

    def note_lost(self, kind: str, message: InnerMessage, why: SparrowError) -> None:
        """Count and log a message that is due and cannot be stored again."""
        self._store.stats.lose()
        text = f"{kind} for {message.topic} cannot be delivered: {why}"
        self._occasional.write(logging.ERROR, kind, text)

    def _place(self, message: InnerMessage, queue: ConsumeQueue, now_ms: int) -> Placed:
        queue_offset = queue.next_offset
        return Placed(self.append(message, queue, now_ms), queue_offset)

    def check(self) -> None:
        """Raise `StoreError` when the store accepts no more messages."""
        if self._flusher.failed is not None:
            raise StoreError(f"the disk failed: {self._flusher.failed}", what="disk")

    def append(self, message: InnerMessage, queue: ConsumeQueue, now_ms: int) -> int:
        """Add a message to the current chunk; returns its future physical offset.

        It becomes stored with the store's next `commit_chunk`, after which the caller wakes the waiting
        pulls. Raises `RecordError` like the store's `append`, and leaves the chunk unchanged.
        """
        code = message.tags_code
        return self._store.append(
            queue,
            message.body,
            message.properties,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            reconsume_times=message.reconsume_times,
            prepared_offset=message.prepared_offset,
            tags_code=code_of_tags(message.properties) if code is None else code,
            now_ms=now_ms,
            is_own=True,
        )

    def wake_after(self, touched: set[ConsumeQueue]) -> None:
        """Wake the pulls that wait at queues with committed messages, once the messages are visible."""
        if not touched:
            return
        if not self._flusher.sync:
            self._wake(touched)
            return

        def flushed(on_disk: bool) -> None:
            if on_disk:  # only then is it visible
                self._wake(touched)

        self._flusher.after(self._store.position, flushed)

    def when_flushed(self, done: Callable[[bool], None]) -> None:
        """Call `done` once: with True when all data stored so far is as safe as that of sends (see
        `Durability`), with False after a timeout or a failure. If sends wait for nothing, it is called
        immediately with True.
        """
        if not self._durability.waits:
            done(True)
            return
        self._durability.after(
            self._store.position, lambda code: done(code == ResponseCode.SUCCESS), lambda: None
        )

    def answer_flushed(self, answer: Command, late: Command) -> Command | Awaitable[Command]:
        """Send `answer` once all data stored so far is on disk, or `late` if that fails; see
        `when_flushed`."""
        if not self._durability.waits:
            return answer
        told: asyncio.Future[Command] = asyncio.get_running_loop().create_future()

        def flushed(on_disk: bool) -> None:
            if not told.done():
                told.set_result(answer if on_disk else late)

        self.when_flushed(flushed)
        return told

    def queue(self, name: str, queue_id: int) -> ConsumeQueue:
        """The queue for a message of the broker itself, see `TopicTable.own_queue`. Raises `StoreError`."""
        version = self._topics.version
        queue = self._topics.own_queue(name, queue_id)
        if self._topics.version is not version:
            self._topic_made()
        return queue

    def read(self, physical_offset: int) -> StoredRecord | None:
        """The record that starts at a physical offset, or None when there is no valid one."""
        return self._store.decoded_record(physical_offset)

    def scan(self, topic: str, queue_id: int, offset: int, max_count: int, max_bytes: int) -> Scan:
        """Up to `max_count` records and `max_bytes` of a queue from `offset` on; the first may have any size.

        Deleted or damaged records are skipped; `next_offset` is `offset` when there is nothing to read, and
        the queue's end or beginning when `offset` is out of range.
        """
        queue = self._store.find_queue(topic, queue_id)
        result = self._store.get_messages(queue, offset, max_count=max_count, max_bytes=max_bytes)
        is_past_end = result.status is GetStatus.OFFSET_OVERFLOW_BADLY
        return Scan(self.intact(result.buffers), result.max_offset if is_past_end else result.next_offset)

    def intact(self, buffers: Sequence[memoryview]) -> list[StoredRecord]:
        """The undamaged records of a read; damaged ones are reported and left out.

        A copy of a damaged record would get a valid checksum, which would hide the damage.
        """
        records = []
        for buffer in buffers:
            position = 0
            while position < len(buffer):  # the read has verified the sizes
                size, _, _, physical = PLACE.unpack_from(buffer, position)
                try:
                    records.append(decode_record(buffer, position, check_crc=True))
                except RecordError as error:
                    text = f"the message at {physical} is damaged and is not forwarded: {error}"
                    self._occasional.write(logging.ERROR, "damaged", text)
                position += size
        return records
