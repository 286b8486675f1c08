"""A slave's log: the bytes of another store's log at the same positions, and their queue entries.

Only whole records are written; the beginning of an incomplete record waits in memory. So the log is valid at
any time, and a slave that stops in the middle of a record asks for it again. Queue entries are made from the
records alone, as in recovery.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import RecordError, StoreCorruptError, StoreError
from sparrowmq.core.names import SCHEDULE_TOPIC
from sparrowmq.protocol.producer_mark import MARK_START
from sparrowmq.protocol.record import (
    BLANK_BYTES_MIN,
    BLANK_MAGIC,
    HEAD,
    RECORD_FIXED_BYTES,
    RECORD_MAGIC_V1,
    RECORD_MAGIC_V2,
    decode_record,
)
from sparrowmq.protocol.sysflag import (
    HOST_V6_MASK,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
)
from sparrowmq.store.base.settings import ENTRY_BYTES
from sparrowmq.store.log.commit_log import store_timestamp
from sparrowmq.store.recovery.dispatch import COMMITS_KEPT, REPORTS_MAX, hash_of_tags, tags_code_of

if TYPE_CHECKING:
    from sparrowmq.store.base.settings import StoreSettings
    from sparrowmq.store.log.commit_log import CommitLog
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.store.queues.queue_table import QueueTable
    from sparrowmq.store.tables.producer_state import ProducerStates
    from sparrowmq.store.writer import ChunkWriter

log = logging.getLogger("sparrowmq.store")
STEP_BYTES: Final = 64 * 1024
STEP_RECORDS: Final = 256
"""Limits of what one call of `step` writes: about a millisecond of work."""
RECORD_BYTES_MAX: Final = 16 * 1024 * 1024
"""A larger record is damaged: no request carries as much. The slave's own limits do not apply to what its
master has accepted.
"""

OFFSET_MAX: Final = (2**63 - 1) // ENTRY_BYTES
"""A queue with a higher offset would have entries beyond the positions of its files."""

_PREFIX: Final = struct.Struct(">iI")
_MAGICS: Final = (RECORD_MAGIC_V1, RECORD_MAGIC_V2)


class NoRecordError(StoreCorruptError):
    """The other store's log has something else than a record where this one's continues."""


class LogCopy:
    """Writes another store's log into this one. Belongs to the store's loop, like all writing.

    `add` takes bytes, `step` writes what is complete. Raises `StoreCorruptError` for bytes that cannot be the
    continuation of the log, and `StoreError` when the disk fails; then call `drop`, after which the copy
    continues at `position`.
    """

    def __init__(
        self,
        settings: StoreSettings,
        commit_log: CommitLog,
        queues: QueueTable,
        writer: ChunkWriter,
        producers: ProducerStates,
        commit: Callable[[], None],
        commits: Iterable[int] = (),
    ) -> None:
        """`commits` are the physical offsets of the half messages whose commits were read last."""
        self._log = commit_log
        self._queues = queues
        self._writer = writer
        self._producers = producers
        self._commit = commit
        self._file_bytes = settings.mapped_file_size_commit_log
        self._levels = settings.delay_levels
        self._pending = bytearray()
        self._known: dict[tuple[bytes, int], ConsumeQueue] = {}
        self._touched: set[ConsumeQueue] = set()
        self._filled: list[ConsumeQueue] = []
        self._refused = 0
        self.commits: deque[int] = deque(commits, maxlen=COMMITS_KEPT)
        """The same with those copied since: the log may end before what says that they are ended."""
        self._new_commits: list[int] = []

    @property
    def position(self) -> int:
        """The end of the written log: where the copy continues after a `drop`."""
        return self._log.position

    @property
    def start(self) -> int:
        """The beginning of the oldest file."""
        return self._log.min_position

    @property
    def received(self) -> int:
        """The position after the last byte that `add` took."""
        return self._log.position + len(self._pending)

    @property
    def waiting(self) -> int:
        """Number of bytes taken and not yet written."""
        return len(self._pending)

    @property
    def is_empty(self) -> bool:
        """Whether this log has never had a record, so that it may begin at any file."""
        return not self._log.position and not self._pending and not len(self._log.files)

    def add(self, position: int, data: bytes) -> None:
        """Take the bytes of the master's log from `position` on. They must continue what was taken before."""
        if self.is_empty and position:
            if position % self._file_bytes:
                raise StoreCorruptError(
                    f"the master's log file begins at {position}, which is no multiple of "
                    f"mappedFileSizeCommitLog={self._file_bytes}: set it to the master's value",
                    what="mappedFileSizeCommitLog",
                    value=position,
                )
            self._writer.begin_at(position)
        if position != self.received:
            raise StoreCorruptError(
                f"the master sent its log from {position}, but this broker's log continues at "
                f"{self.received}",
                what="position",
                value=position,
                limit=self.received,
            )
        self._pending += data

    def drop(self) -> None:
        """Discard the beginning of an incomplete record."""
        self._pending.clear()
        self._writer.drop()
        self._touched.clear()
        self._new_commits.clear()

    def step(self) -> set[ConsumeQueue] | None:
        """Write the next complete records; returns the queues with new entries, None if none is complete.

        Raises `NoRecordError` when something else follows; the records before it were written then.
        """
        taken = 0
        try:
            for _ in range(STEP_RECORDS):
                size = self._next(taken)
                if not size:
                    break
                taken += size
                if taken >= STEP_BYTES:
                    break
        except (RecordError, struct.error, IndexError, UnicodeDecodeError) as error:
            if not taken:
                raise NoRecordError(
                    f"the bytes that the master sent for position {self._log.position} are not a record: "
                    f"{error}"
                ) from error
        if not taken:
            return None
        self._commit()
        self.commits += self._new_commits
        self._new_commits.clear()
        del self._pending[:taken]
        for queue in self._filled:
            queue.find_min()
        self._filled.clear()
        touched, self._touched = self._touched, set()
        return touched

    def _next(self, at: int) -> int:
        """Add the record at byte `at` of the pending bytes to the chunk. Returns its size, 0 if it is
        incomplete.
        """
        pending, position = self._pending, self._log.position + at
        left = len(pending) - at
        if left < BLANK_BYTES_MIN:
            return 0
        size, magic = _PREFIX.unpack_from(pending, at)
        room = self._file_bytes - position % self._file_bytes
        if magic == BLANK_MAGIC:
            if size != room:
                raise RecordError(f"a blank of {size} bytes, {room} bytes before the end of its file")
            if left >= size:
                self._writer.copy_blank(bytes(pending[at : at + size]).rstrip(b"\0"))
        elif magic not in _MAGICS or not RECORD_FIXED_BYTES <= size <= room - BLANK_BYTES_MIN:
            raise RecordError(f"its size is {size} and its magic {magic:#x}")
        elif size > RECORD_BYTES_MAX:
            raise RecordError(f"it has {size} bytes, and no broker takes more than {RECORD_BYTES_MAX}")
        elif left >= size and not self._take(bytes(pending[at : at + size]), position, is_first=not at):
            return 0
        return size if left >= size else 0

    def _take(self, record: bytes, position: int, *, is_first: bool) -> bool:
        """Add a complete record to the chunk, with its queue entry if it has a valid place in a queue.

        Returns False if it must be the first of a chunk, because its queue has to change before.
        """
        head = HEAD.unpack_from(record)
        if head[6] != position:
            raise RecordError(f"its physical offset is {head[6]}")
        sys_flag, queue_id, offset = head[7], head[3], head[5]
        timestamp = store_timestamp(memoryview(record), 0)
        if head[1] == RECORD_MAGIC_V1 and not sys_flag & HOST_V6_MASK:
            topic_at = HEAD.size + head[14] + 1
            topic_end = topic_at + record[topic_at - 1]
            topic, properties = record[topic_at:topic_end], record[topic_end + 2 :]
            if int.from_bytes(record[topic_end : topic_end + 2], "big") != len(properties):
                raise RecordError("the lengths of its parts do not add up to its size")
        else:
            decoded = decode_record(record)
            topic, properties = decoded.topic.encode(), decoded.properties
        if sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT:
            is_wide = sys_flag & HOST_V6_MASK
            prepared = decode_record(record).prepared_offset if is_wide else head[13]
            self._new_commits.append(prepared)
        if sys_flag & TRANSACTION_PREPARED:  # prepared or rolled back
            self._writer.copy(record, timestamp, None, 0)
            return True
        queue = self._queue(topic, queue_id)
        if queue is not None and offset != queue.next_offset:
            if not is_first:
                return False
            if not self._make_next(queue, offset, position):
                queue = None
        if queue is None:
            self._refuse(topic, queue_id, offset, position)
            self._writer.copy(record, timestamp, None, 0)
            return True
        if queue.topic == SCHEDULE_TOPIC:
            code = tags_code_of(decode_record(record), self._levels)
        else:
            code = hash_of_tags(properties)
        self._writer.copy(record, timestamp, queue, code)
        self._touched.add(queue)
        if MARK_START in properties:
            self._producers.sweep(timestamp)
            self._producers.replay(queue.topic, queue_id, properties, offset, timestamp)
        return True

    def _queue(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        """The queue of a record; None if its topic is not a valid name."""
        queue = self._known.get((topic, queue_id))
        if queue is None or queue.deleted:
            try:
                queue = self._queues.get(topic.decode(), queue_id)
            except (StoreError, UnicodeDecodeError):
                return None
            self._known[topic, queue_id] = queue
        return queue

    def _make_next(self, queue: ConsumeQueue, offset: int, position: int) -> bool:
        """Make `offset` the next of its queue. Returns False if that is impossible. No chunk may be waiting.

        A slave may begin in the middle of its master's log, so a queue may begin at any offset; later it may
        lack as many as have room in the log. An offset of 0 means that the topic was deleted and created
        again; its earlier messages are deleted here, too, with the numbers of their producers.
        """
        if offset:
            last = queue.last_entry()
            room = (position - (0 if last is None else last.end)) // RECORD_FIXED_BYTES
            if not 0 < offset - queue.next_offset <= (room if queue.next_offset else OFFSET_MAX):
                return False
            queue.fill(offset, position)
            self._filled.append(queue)
        else:
            queue.truncate(0)
            queue.find_min()
            self._producers.drop_topic(queue.topic, queue.queue_id)
        return True

    def _refuse(self, topic: bytes, queue_id: int, offset: int, position: int) -> None:
        self._refused += 1
        if self._refused <= REPORTS_MAX:
            log.error(
                "the record at %d (topic %.80r, queue %d, offset %d) gets no queue entry at this slave",
                position,
                topic.decode("utf-8", "replace"),
                queue_id,
                offset,
            )
