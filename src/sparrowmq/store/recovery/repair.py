"""A queue entry that does not point to its message is restored from the log, which is the source of truth.

Disks and memory flip bits, and entries have no checksum. The neighbours in the queue limit where the record
can be: after the record of the previous entry and before the record of the next one. The repair first checks
the positions that differ from the entry's by one bit, then the records in between, up to a number that does
not cause a noticeable delay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from sparrowmq.protocol.record import BLANK_MAGIC, RECORD_FIXED_BYTES
from sparrowmq.store.log.commit_log import PLACE
from sparrowmq.store.log.scan import valid_record
from sparrowmq.store.queues.consume_queue import DUMMY_SIZE, ENTRY, QueueEntry
from sparrowmq.store.recovery.dispatch import tags_code_of

if TYPE_CHECKING:
    from sparrowmq.protocol.record import StoredRecord
    from sparrowmq.store.log.commit_log import CommitLog
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.store.queues.queue_table import QueueTable
    from sparrowmq.store.queues.reads import GetResult

log = logging.getLogger("sparrowmq.store")
HOPELESS_MAX: Final = 10_000
"""Number of missing messages to remember; others are searched for again."""

SCAN_BYTES: Final = 4 * 1024 * 1024
SCAN_RECORDS: Final = 10_000
"""How much of the log is searched for one entry: some milliseconds."""

NEIGHBOURS: Final = 8
_OFFSET_BITS: Final = 63


def find_entry(commit_log: CommitLog, queue: ConsumeQueue, offset: int) -> QueueEntry | None:
    """The correct entry for a queue offset; None when its message is not found or never existed."""
    present = queue.entry(offset)
    if present is None or present.is_hole:
        return None
    before = next((e for n in range(1, NEIGHBOURS) if (e := _right(commit_log, queue, offset - n))), None)
    after = next((e for n in range(1, NEIGHBOURS) if (e := _right(commit_log, queue, offset + n))), None)
    low = max(commit_log.min_position, queue.born) if before is None else before.end
    high = commit_log.position if after is None else after.physical_offset
    for position in _candidates(commit_log, present.physical_offset, offset, low, high):
        found = _entry_at(commit_log, queue, offset, position)
        if found is not None:
            return found
    return None


def is_gone(commit_log: CommitLog, queue: ConsumeQueue, offset: int) -> bool:
    """Whether a message was deleted with the log's oldest files, like all messages before it."""
    present = queue.entry(offset)
    if present is None or not 0 <= present.physical_offset < commit_log.min_position:
        return False
    before = queue.entry(offset - 1)
    return before is None or before.is_hole or before.physical_offset < commit_log.min_position


def _right(commit_log: CommitLog, queue: ConsumeQueue, offset: int) -> QueueEntry | None:
    """The entry at an offset if it points to its message."""
    entry = queue.entry(offset)
    if entry is None or entry.size == DUMMY_SIZE:
        return None
    return entry if _entry_at(commit_log, queue, offset, entry.physical_offset) is not None else None


def _entry_at(commit_log: CommitLog, queue: ConsumeQueue, offset: int, position: int) -> QueueEntry | None:
    """The entry for an offset if its message is at a position of the log."""
    if position < queue.born:
        return None  # deleted, as was the earlier queue of that name
    record, segment = commit_log.decoded(position), commit_log.files.at(position)
    if record is None or segment is None:
        return None
    if not valid_record(segment.view(), position - segment.base, position):
        return None  # torn outside the range of its CRC
    if (record.topic, record.queue_id, record.queue_offset) != (
        queue.topic,
        queue.queue_id,
        offset,
    ):
        return None
    return QueueEntry(position, record.size, tags_code_of(record, commit_log.delay_levels))


def _candidates(commit_log: CommitLog, place: int, offset: int, low: int, high: int) -> Iterator[int]:
    """Possible positions of the record, from `low` up to `high`; the likely ones first."""
    flipped = [place, *(place ^ 1 << bit for bit in range(_OFFSET_BITS))]
    yield from (position for position in flipped if low <= position < high)
    position, end = low, min(high, low + SCAN_BYTES)
    for _ in range(SCAN_RECORDS):
        segment = commit_log.files.at(position) if position < end else None
        if segment is None:
            return
        at = position - segment.base
        if at + PLACE.size > segment.size:
            position = segment.end
            continue
        size, magic, number, physical = PLACE.unpack_from(segment.view(), at)
        if magic == BLANK_MAGIC:
            position = segment.end
            continue
        if physical != position or size < RECORD_FIXED_BYTES:
            return
        if number == offset:
            yield position
        position += size


class EntryRepairer:
    """Repairs entries that reads skip; entries that cannot be repaired are not searched for in each read."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log
        self._hopeless: set[tuple[str, int, int]] = set()

    def read_again(self, queue: ConsumeQueue, result: GetResult, read: Callable[[], GetResult]) -> GetResult:
        """Repeat a read that skipped messages, after repairing the entries that can be repaired."""
        mended = [self.mend(queue, offset) for offset in result.passed]
        if any(mended):
            result = read()
        if result.passed and is_gone(self._log, queue, result.passed[0]):
            result.passed = ()  # not damage
        return result

    def stands(self, queues: QueueTable, record: StoredRecord) -> bool:
        """Whether bytes that look like a record are a message: an entry of its queue points to them.

        A message body can contain bytes that look like a record of any topic, and the log keeps the messages
        of a deleted topic even after a new topic of that name was created. A damaged entry is repaired. Also
        false where recovery found the record torn outside its CRC and marked the entry.
        """
        queue, offset = queues.find(record.topic, record.queue_id), record.queue_offset
        if queue is None:
            return False
        if queue.leads_to(offset, record.physical_offset):
            return True
        entry = queue.entry(offset)
        if entry is None or entry.is_hole:
            return False
        if _right(self._log, queue, offset) is not None or not self.mend(queue, offset):
            return False
        return queue.leads_to(offset, record.physical_offset)

    def mend(self, queue: ConsumeQueue, offset: int) -> bool:
        """Repair a queue entry that does not point to its message, if the message is still in the log."""
        key, present = (queue.topic, queue.queue_id, offset), queue.entry(offset)
        if key in self._hopeless or is_gone(self._log, queue, offset):
            return False
        entry = find_entry(self._log, queue, offset)
        if entry is None or entry == present:
            if len(self._hopeless) >= HOPELESS_MAX:
                self._hopeless.clear()
            self._hopeless.add(key)
            return False
        text = "%s/%d offset %d: rebuilt its damaged queue entry from the log: %s was %s"
        log.error(text, queue.topic, queue.queue_id, offset, entry, present)
        queue.restore(offset, ENTRY.pack(*entry))
        return True
