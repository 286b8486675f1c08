"""The broker's own writes: retries, dead letters, delayed deliveries, transaction records.

They go into the log like sends, a chunk at a time, and wake the pulls that wait for them. Nobody is answered,
so a put does not wait for the disk; with `SYNC_FLUSH` it becomes visible once it is flushed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrowmq.core.errors import RecordError, StoreError
from sparrowmq.core.hashing import tags_code
from sparrowmq.core.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from sparrowmq.protocol.properties import find
from sparrowmq.protocol.record import StoredRecord, decode_record
from sparrowmq.store.commit_log import PLACE
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.broker.flushing import Flusher
    from sparrowmq.broker.topics import TopicTable
    from sparrowmq.core.clock import Clock
    from sparrowmq.store.consume_queue import ConsumeQueue
    from sparrowmq.store.message_store import MessageStore

log = logging.getLogger("sparrowmq.broker")
MADE_PREFIXES: Final = (RETRY_PREFIX, DLQ_PREFIX)


@dataclass(slots=True)
class InnerMessage:
    """A message the broker writes itself. `properties` is the encoded string, times are epoch ms.

    `tags_code` is what its queue entry holds; None takes the hash of its tags.
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
        """The message of a stored record, for another queue; everything a consumer sees stays."""
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
    """Records in queue order, and the queue offset to go on from."""

    records: list[StoredRecord]
    next_offset: int


def code_of_tags(properties: bytes) -> int:
    """The tag code of a property string (broker:3.1)."""
    tags = find(properties, b"TAGS") if b"TAGS\x01" in properties else None
    return 0 if tags is None else tags_code(tags.decode("utf-8", "replace"))


class InnerStore:
    """Writes and reads messages on the broker's own behalf."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        flusher: Flusher,
        clock: Clock,
        *,
        wake: Callable[[set[ConsumeQueue]], None],
        topic_made: Callable[[], None],
    ) -> None:
        self._store = store
        self._topics = topics
        self._flusher = flusher
        self._clock = clock
        self._wake = wake
        self._topic_made = topic_made
        self._occasional = OccasionalLog(log)

    def put(self, messages: Sequence[InnerMessage]) -> list[Placed]:
        """Store the messages as one chunk, in order, and wake who waits for them.

        Topics that RocketMQ makes itself (retry, dead letters, system) are made when they are missing; a
        message of any other unknown topic is stored and can be read once the topic exists. Raises
        `StoreError`, or `RecordError` for a message that fits no record; then nothing of it is stored.
        """
        self.check()
        queues = [self.queue(message.topic, message.queue_id) for message in messages]
        store, now = self._store, self._clock.now_ms()
        placed = []
        try:
            for message, queue in zip(messages, queues, strict=True):
                queue_offset = queue.next_offset
                placed.append(Placed(self.append(message, queue, now), queue_offset))
        except RecordError:
            store.drop_chunk()
            raise
        store.commit_chunk()
        self.wake_after(set(queues))
        return placed

    def check(self) -> None:
        """Raise `StoreError` when nothing can be stored any more."""
        if self._flusher.failed is not None:
            raise StoreError(f"the disk failed: {self._flusher.failed}")

    def append(self, message: InnerMessage, queue: ConsumeQueue, now_ms: int) -> int:
        """Add a message to the chunk under way; the physical offset it will have.

        It becomes stored with the store's next `commit_chunk`, after which the caller wakes who waits. Raises
        `RecordError` as the store's `append`, with the chunk as it was.
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
        )

    def wake_after(self, touched: set[ConsumeQueue]) -> None:
        """Wake who waits at queues whose messages were committed, once the messages are visible."""
        if not touched:
            return
        if not self._flusher.sync:
            self._wake(touched)
            return

        def flushed(on_disk: bool) -> None:
            if on_disk:  # only then it is visible
                self._wake(touched)

        self._flusher.after(self._store.position, flushed)

    def queue(self, name: str, queue_id: int) -> ConsumeQueue:
        """Where a message of the broker's own goes; see `put` for what is made. Raises `StoreError`."""
        topic = self._topics.get(name)
        if (
            topic is None
            and (name.startswith(MADE_PREFIXES) or is_system_topic(name))
            and self._topics.ensure_soon(name, queue_id + 1)
        ):
            topic = self._topics.get(name)
            self._topic_made()
        if topic is not None and queue_id < len(topic.queues):
            return topic.queues[queue_id]
        return self._store.queue(name, queue_id)

    def read(self, physical_offset: int) -> StoredRecord | None:
        """The record that starts at a physical offset, or None when no valid one does."""
        return self._store.decoded_record(physical_offset)

    def scan(self, topic: str, queue_id: int, offset: int, max_count: int, max_bytes: int) -> Scan:
        """Up to `max_count` records and `max_bytes` of a queue from `offset` on; the first of any size.

        Records that are gone or damaged are passed over; `next_offset` is `offset` when there is nothing to
        read, and the queue's end or beginning when `offset` lies outside.
        """
        queue = self._store.find_queue(topic, queue_id)
        result = self._store.get_messages(queue, offset, max_count=max_count, max_bytes=max_bytes)
        return Scan(self.intact(result.buffers), result.next_offset)

    def intact(self, buffers: Sequence[memoryview]) -> list[StoredRecord]:
        """The records of a read, those left out and reported whose bytes are not what was stored.

        A copy of a damaged one would get a checksum of its own, and nobody could see the damage any more.
        """
        records = []
        for buffer in buffers:
            position = 0
            while position < len(buffer):  # the read saw to it that sizes are right
                size, _, _, physical = PLACE.unpack_from(buffer, position)
                try:
                    records.append(decode_record(buffer, position, check_crc=True))
                except RecordError as error:
                    text = f"the message at {physical} is damaged and is not passed on: {error}"
                    self._occasional.write(logging.ERROR, "damaged", text)
                position += size
        return records
