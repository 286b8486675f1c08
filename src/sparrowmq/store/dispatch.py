"""Recovery's share of the queues: each record found in the log gets its entry, unless it is there already."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from sparrowmq.core.delay import DEFAULT_LEVELS, DELAY_MS_MAX, DelayLevels
from sparrowmq.core.errors import InvalidNameError, StoreError
from sparrowmq.core.hashing import java_hash
from sparrowmq.core.names import SCHEDULE_TOPIC, check_topic
from sparrowmq.protocol.properties import find
from sparrowmq.protocol.record import HEAD, RECORD_FIXED_BYTES, RECORD_MAGIC_V1, StoredRecord, decode_record
from sparrowmq.protocol.sysflag import HOST_V6_MASK, TRANSACTION_PREPARED
from sparrowmq.store.consume_queue import CORRUPT_CODE, ENTRY, TAG_CODE_MIN, ConsumeQueue, Entry
from sparrowmq.store.scan import valid_record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparrowmq.store.queue_table import QueueTable
    from sparrowmq.store.segments import SegmentSequence

log = logging.getLogger("sparrowmq.store")
REPORTS_MAX: Final = 20
"""Odd records reported one by one; the rest are only counted."""

TRIM_RECORDS: Final = 64
"""How many records may each map another queue before mappings above the limit are let go of."""


class EntriesMissing(Exception):
    """A queue lacks entries from before the scanned part: it must be rebuilt from the log's start."""


def _hash_of_tags(properties: bytes) -> int:
    tags = find(properties, b"TAGS")
    return 0 if tags is None else java_hash(tags.decode("utf-8", "replace"))


def _same(present: Entry, wanted: Entry) -> bool:
    """Whether an entry is right: a code that is the address of a filter bitmap is as good (broker:3.3)."""
    if present == wanted:
        return True
    is_address = CORRUPT_CODE != present.tags_code < TAG_CODE_MIN
    return present[:2] == wanted[:2] and is_address


def _is_due_time(present: Entry, record: StoredRecord) -> bool:
    """Whether the entry has a due time for this record, perhaps from other levels than today's.

    It is before the store time when the clock had been moved back: store times never go back.
    """
    wait = present.tags_code - record.store_timestamp
    return (
        record.topic == SCHEDULE_TOPIC
        and present[:2] == (record.physical_offset, record.size)
        and abs(wait) <= DELAY_MS_MAX
    )


def tags_code_of(record: StoredRecord, levels: DelayLevels = DEFAULT_LEVELS) -> int:
    """The code the queue entry of a record holds: its tag's hash, or when it is due (broker:3.1)."""
    if record.topic == SCHEDULE_TOPIC:
        level = find(record.properties, b"DELAY")
        if level is not None and len(level) < 10 and level.isdigit() and int(level) > 0:
            return record.store_timestamp + levels.delay_ms(int(level))
    return _hash_of_tags(record.properties)


class Dispatcher:
    """Gives records their entries. `whole` says the scan began at the log's first byte.

    `added` counts new entries, `replaced` wrong ones put right, `refused` records that fit nowhere.
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
        self._visited = 0
        self.added = self.replaced = self.refused = 0

    def visit(self, view: memoryview, at: int, position: int, size: int) -> None:
        """Give one valid record its entry; raises `EntriesMissing`, and `StoreError` when the disk is full.

        Nearly all records of a scan have theirs, so the first look takes the few fields it needs.
        """
        self._visited += 1
        if self._visited % TRIM_RECORDS == 0:
            self._queues.trim()
        head = HEAD.unpack_from(view, at)
        sys_flag = head[7]
        if head[1] == RECORD_MAGIC_V1 and not sys_flag & HOST_V6_MASK:
            topic_at = at + HEAD.size + head[14] + 1
            properties_at = topic_at + view[topic_at - 1] + 2
            queue = self._known.get((bytes(view[topic_at : properties_at - 2]), head[3]))
            present = None if queue is None else queue.entry(head[5])
            if queue and present and present[:2] == (position, size) and queue.topic != SCHEDULE_TOPIC:
                code = _hash_of_tags(bytes(view[properties_at : at + size]))
                if present.tags_code == code:
                    self.seen[queue] = head[5] + 1
                    return
        if sys_flag & TRANSACTION_PREPARED:  # prepared or rolled back
            return
        record = decode_record(view, at)
        if position < self._deleted.get(record.topic, 0):
            return
        queue = self._queue(record)
        if queue is None:
            self._refuse(record, "its topic or queue id is illegal")
        else:
            self._place(queue, record, Entry(position, size, tags_code_of(record, self._levels)))

    def _queue(self, record: StoredRecord) -> ConsumeQueue | None:
        key = record.topic.encode(), record.queue_id
        if key not in self._known:
            try:
                check_topic(record.topic)
                self._known[key] = self._queues.get(record.topic, record.queue_id)
            except (InvalidNameError, StoreError):
                self._known[key] = None
        return self._known[key]

    def _place(self, queue: ConsumeQueue, record: StoredRecord, entry: Entry) -> None:
        """Decide what becomes of the entry at the record's offset, and do it."""
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
            queue.truncate(0)  # the topic was deleted and made again: its newest life counts
            self.added += 1
        else:
            if present.physical_offset < entry.physical_offset:
                self._refuse(record, f"offset {offset} of its queue is taken")
            return
        queue.restore(offset, ENTRY.pack(*entry))
        self.seen[queue] = offset + 1

    def _may_begin_earlier(self, queue: ConsumeQueue, record: StoredRecord) -> bool:
        """Whether a queue whose first files are lost is built anew, from its first record in the log on."""
        if not self._whole:
            raise EntriesMissing(f"{record.topic}/{record.queue_id} at offset {record.queue_offset}")
        if queue in self.seen or record.queue_offset < 0:
            self._refuse(record, f"its queue begins after offset {record.queue_offset}")
            return False
        queue.truncate(0)
        return True

    def _may_leave_gap(self, queue: ConsumeQueue, record: StoredRecord) -> bool:
        """Whether entries may be left out before the record; a scan of the whole log must say so."""
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

    def _points_to_message(self, queue: ConsumeQueue, offset: int, entry: Entry) -> bool:
        """Whether an entry points to a valid record of this queue and offset."""
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
