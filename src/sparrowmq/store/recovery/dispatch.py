"""Recovery of the queues: each record found in the log gets its entry, unless it already exists."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from sparrowmq.core.delay import DEFAULT_LEVELS, DELAY_MS_MAX, DelayLevels
from sparrowmq.core.errors import InvalidNameError, StoreError
from sparrowmq.core.hashing import java_hash
from sparrowmq.core.names import SCHEDULE_TOPIC, check_topic
from sparrowmq.protocol.producer_mark import MARK_START
from sparrowmq.protocol.properties import find
from sparrowmq.protocol.record import HEAD, RECORD_FIXED_BYTES, RECORD_MAGIC_V1, StoredRecord, decode_record
from sparrowmq.protocol.sysflag import (
    HOST_V6_MASK,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
)
from sparrowmq.store.log.scan import valid_record
from sparrowmq.store.queues.consume_queue import CORRUPT_CODE, ENTRY, TAG_CODE_MIN, ConsumeQueue, QueueEntry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparrowmq.store.base.segments import SegmentSequence
    from sparrowmq.store.queues.queue_table import QueueTable

log = logging.getLogger("sparrowmq.store")
REPORTS_MAX: Final = 20
"""Number of unusual records reported individually; the others are only counted."""

COMMITS_KEPT: Final = 65_536
"""More transactions than one chunk can end: only those of the last chunk may lack their end records."""

TRIM_RECORDS: Final = 64
"""Number of records, each of which may map another queue, before mappings above the limit are released."""


class EntriesMissing(Exception):
    """A queue lacks entries from before the scanned part: it must be rebuilt from the start of the log."""


def hash_of_tags(properties: bytes) -> int:
    """The tags code of an ordinary message, by its property string; 0 without a tag."""
    tags = find(properties, b"TAGS")
    return 0 if tags is None else java_hash(tags.decode("utf-8", "replace"))


def _same(present: QueueEntry, wanted: QueueEntry) -> bool:
    """Whether an entry is correct: a code that is the address of a filter bitmap is accepted (broker:3.3)."""
    if present == wanted:
        return True
    is_address = CORRUPT_CODE != present.tags_code < TAG_CODE_MIN
    return present[:2] == wanted[:2] and is_address


def _is_due_time(present: QueueEntry, record: StoredRecord) -> bool:
    """Whether the entry has a due time for this record, possibly from earlier delay levels.

    A due time is before the store time if the clock had been set back, because store times never decrease.
    """
    wait = present.tags_code - record.store_timestamp
    return (
        record.topic == SCHEDULE_TOPIC
        and present[:2] == (record.physical_offset, record.size)
        and abs(wait) <= DELAY_MS_MAX
    )


def tags_code_of(record: StoredRecord, levels: DelayLevels = DEFAULT_LEVELS) -> int:
    """The tags code of a record's queue entry: the hash of its tag, or its due time (broker:3.1)."""
    if record.topic == SCHEDULE_TOPIC:
        level = find(record.properties, b"DELAY")
        if level is not None and len(level) < 10 and level.isdigit() and int(level) > 0:
            return record.store_timestamp + levels.delay_ms(int(level))
    return hash_of_tags(record.properties)


class EntryDispatcher:
    """Creates the queue entries of records. `whole` means that the scan began at the log's first byte.

    `added` counts new entries, `replaced` corrected ones, `refused` records without a valid place.
    """

    def __init__(
        self,
        queues: QueueTable,
        files: SegmentSequence,
        deleted: Mapping[str, int],
        *,
        whole: bool,
        delay_levels: DelayLevels = DEFAULT_LEVELS,
    ) -> None:
        self._queues = queues
        self._files = files
        self._deleted = deleted
        self._whole = whole
        self._levels = delay_levels
        self._known: dict[tuple[bytes, int], ConsumeQueue | None] = {}
        self.seen: dict[ConsumeQueue, int] = {}
        """The next offset after the last scanned record of each queue."""
        self.commits: deque[int] = deque(maxlen=COMMITS_KEPT)
        """Physical offsets of the half messages whose commits were read last."""
        self.first_marked: int | None = None
        """Physical offset of the first message of an idempotent producer."""
        self._visited = 0
        self.added = self.replaced = self.refused = 0

    def visit(self, view: memoryview, at: int, position: int, size: int) -> None:
        """Create the entry of one valid record; raises `EntriesMissing`, and `StoreError` when the disk is
        full.

        Nearly all records already have an entry, so the first check decodes only the fields it needs.
        """
        self._visited += 1
        if self._visited % TRIM_RECORDS == 0:
            self._queues.trim()
        head = HEAD.unpack_from(view, at)
        sys_flag = head[7]
        if sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT:
            is_wide = sys_flag & HOST_V6_MASK
            self.commits.append(decode_record(view, at).prepared_offset if is_wide else head[13])
        if head[1] == RECORD_MAGIC_V1 and not sys_flag & HOST_V6_MASK:
            topic_at = at + HEAD.size + head[14] + 1
            properties_at = topic_at + view[topic_at - 1] + 2
            queue = self._known.get((bytes(view[topic_at : properties_at - 2]), head[3]))
            present = None if queue is None else queue.entry(head[5])
            if queue and present and present[:2] == (position, size) and queue.topic != SCHEDULE_TOPIC:
                properties = bytes(view[properties_at : at + size])
                if self.first_marked is None and MARK_START in properties:
                    self.first_marked = position
                if present.tags_code == hash_of_tags(properties):
                    self.seen[queue] = head[5] + 1
                    return
        if sys_flag & TRANSACTION_PREPARED:  # prepared or rolled back
            return
        record = decode_record(view, at)
        if self.first_marked is None and MARK_START in record.properties:
            self.first_marked = position
        if position < self._deleted.get(record.topic, 0):
            return
        queue = self._queue(record)
        if queue is None:
            self._refuse(record, "its topic or queue id is illegal")
            return
        present = queue.entry(record.queue_offset)
        if present is not None and present.is_hole and not valid_record(view, at, position):
            self.seen[queue] = record.queue_offset + 1  # an earlier start found the record torn
            return
        self._place(queue, record, QueueEntry(position, size, tags_code_of(record, self._levels)))

    def _queue(self, record: StoredRecord) -> ConsumeQueue | None:
        key = record.topic.encode(), record.queue_id
        if key not in self._known:
            try:
                check_topic(record.topic)
                self._known[key] = self._queues.get(record.topic, record.queue_id)
            except (InvalidNameError, StoreError):
                self._known[key] = None
        return self._known[key]

    def _place(self, queue: ConsumeQueue, record: StoredRecord, entry: QueueEntry) -> None:
        """Decide how to correct the entry at the record's offset, and do it."""
        offset = record.queue_offset
        present = queue.entry(offset)
        if present is not None and (_same(present, entry) or _is_due_time(present, record)):
            self.seen[queue] = offset + 1
            return
        if offset >= queue.committed:
            if offset > queue.committed and not self._may_leave_gap(queue, record):
                return
            self.added += 1
        elif present is None:
            if not self._may_begin_earlier(queue, record):
                return
            self.added += 1
        elif present[:2] == entry[:2] or not self._points_to_message(queue, offset, present):
            self.replaced += 1
        elif offset == 0 and present.physical_offset < entry.physical_offset:
            queue.truncate(0)  # the topic was deleted and recreated: only the newest one counts
            self.added += 1
        else:
            if present.physical_offset < entry.physical_offset:
                self._refuse(record, f"offset {offset} of its queue is taken")
            return
        queue.restore(offset, ENTRY.pack(*entry))
        self.seen[queue] = offset + 1

    def _may_begin_earlier(self, queue: ConsumeQueue, record: StoredRecord) -> bool:
        """Whether a queue that lost its first files may be rebuilt from its first record in the log."""
        if not self._whole:
            raise EntriesMissing(f"{record.topic}/{record.queue_id} at offset {record.queue_offset}")
        if queue in self.seen or record.queue_offset < 0:
            self._refuse(record, f"its queue begins after offset {record.queue_offset}")
            return False
        queue.truncate(0)
        return True

    def _may_leave_gap(self, queue: ConsumeQueue, record: StoredRecord) -> bool:
        """Whether entries before the record may be missing; only a scan of the whole log can decide this."""
        if not self._whole:
            raise EntriesMissing(f"{record.topic}/{record.queue_id} before offset {record.queue_offset}")
        last = queue.last_entry()
        if last is None:
            return True
        room = (record.physical_offset - last.end) // RECORD_FIXED_BYTES
        if record.queue_offset - queue.committed <= room:
            return True
        self._refuse(record, f"it leaves out {record.queue_offset - queue.committed} offsets of its queue")
        return False

    def _points_to_message(self, queue: ConsumeQueue, offset: int, entry: QueueEntry) -> bool:
        """Whether an entry points to a valid record with this queue and offset."""
        segment = self._files.at(entry.physical_offset) if entry.physical_offset >= 0 else None
        if segment is None:
            return False
        view, at = segment.view(), entry.physical_offset - segment.base
        if valid_record(view, at, entry.physical_offset) != entry.size:
            return False
        record = decode_record(view, at)
        return (record.topic, record.queue_id, record.queue_offset) == (queue.topic, queue.queue_id, offset)

    def _refuse(self, record: StoredRecord, why: str) -> None:
        self.refused += 1
        if self.refused <= REPORTS_MAX:
            log.error(
                "the record at %d (topic %.80r, queue %d, offset %d) gets no queue entry: %s",
                record.physical_offset,
                record.topic,
                record.queue_id,
                record.queue_offset,
                why,
            )
