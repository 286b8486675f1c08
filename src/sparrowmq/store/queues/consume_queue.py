"""Consume queues: per topic and queue id, one 20-byte entry per message that points into the commit log.

Entries are written through mappings. Blocks are reserved in advance, so a write cannot fail on a full disk.
"""

from __future__ import annotations

import mmap
import struct
from bisect import bisect_left
from collections import deque
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrowmq.core.errors import StoreBrokenError, StoreError
from sparrowmq.files import disk
from sparrowmq.protocol.record import TOPIC_BYTES_MAX_V1
from sparrowmq.store.base.segments import MapPool, Segment, SegmentSequence
from sparrowmq.store.base.settings import ENTRY_BYTES

if TYPE_CHECKING:
    from sparrowmq.store.log.commit_log import CommitLog

ENTRY: Final = struct.Struct(">qiq")
"""Physical offset, record size, tags code (broker:3.1)."""

NOTHING: Final = bytes(ENTRY_BYTES)
DUMMY_SIZE: Final = 0x7FFFFFFF
DUMMY: Final = ENTRY.pack(0, DUMMY_SIZE, 0)
"""Fills the first file before the first message of the queue."""

CORRUPT_CODE: Final = -0x434F525255505400
"""Our tags code for a message whose record is damaged; no hash or time has this value."""

TAG_CODE_MIN: Final = -(2**31)
"""Smaller codes are addresses of the reference's filter bitmaps: such messages pass (broker:3.3)."""

RESERVE_BYTES: Final = 64 * 1024


class QueueEntry(NamedTuple):
    """One entry: position and size of the record, and its tags code (a due time in the delay topic)."""

    physical_offset: int
    size: int
    tags_code: int

    @property
    def end(self) -> int:
        """The position after the record."""
        return self.physical_offset + self.size

    @property
    def is_hole(self) -> bool:
        """Whether the entry stands for an unreadable message."""
        return self.size == DUMMY_SIZE or self.tags_code == CORRUPT_CODE


class ConsumeQueue:
    """One queue. Compared and hashed by identity.

    `next_offset` is the offset of the next appended message. `committed` is the end of the written entries;
    `max_offset` is the end for readers: less than `committed` only while `SYNC_FLUSH` waits for the disk.
    `confirmed_offset` is the end for consumers: they do not read what a take-over may replace.
    """

    __slots__ = (
        "_confirmed",
        "_file_bytes",
        "_log",
        "_pool",
        "_root",
        "_sequence",
        "_visible",
        "_waiting",
        "born",
        "committed",
        "deleted",
        "fixed_bytes",
        "is_v1",
        "leaving",
        "map",
        "map_base",
        "min_offset",
        "next_offset",
        "queue_id",
        "recovered",
        "synced",
        "topic",
        "topic_bytes",
        "topic_field",
        "writable_until",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        root: Path,
        file_bytes: int,
        log: CommitLog,
        pool: MapPool,
        *,
        born: int = 0,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.topic_bytes, self.topic_field, self.is_v1, self.fixed_bytes = _fields(topic)
        self.next_offset = self.committed = self.min_offset = self.synced = 0
        self.writable_until = 0
        self.map: mmap.mmap | None = None
        self.map_base = 0
        self.deleted = False
        self.leaving = False
        self.born = born
        """Records before this log position belong to a deleted queue of the same name."""
        self.recovered = 0
        """Its end after a start that followed a crash: messages behind it may have been read, and be lost."""
        self._log = log
        self._confirmed = self._visible = 0
        self._waiting: deque[tuple[int, int]] | None = None
        self._root = root
        self._file_bytes = file_bytes
        self._pool = pool
        self._sequence: SegmentSequence | None = None

    def __repr__(self) -> str:
        return f"<ConsumeQueue {self.topic}/{self.queue_id} {self.min_offset}..{self.max_offset}>"

    def leave(self) -> None:
        """Mark the queue as being deleted: safe points exclude it."""
        self.leaving = True

    def stay(self) -> None:
        """Cancel the deletion."""
        self.leaving = False

    @property
    def files(self) -> SegmentSequence:
        """The queue's files; none before the first message."""
        return self._files

    @property
    def _files(self) -> SegmentSequence:
        """Created on first use: most queues of a large topic are declared but never used."""
        if self._sequence is None:
            self._sequence = SegmentSequence(
                self._root / self.topic / str(self.queue_id),
                self._file_bytes,
                self._pool,
                setting="mappedFileSizeConsumeQueue",
                writable=True,
            )
        return self._sequence

    @property
    def entries_per_file(self) -> int:
        """Number of entries per file."""
        return self._file_bytes // ENTRY_BYTES

    @property
    def max_offset(self) -> int:
        """The offset after the last readable message."""
        waiting = self._waiting
        if not waiting:
            return self.committed
        flushed = self._log.flushed_position
        while waiting and waiting[0][0] <= flushed:
            self._visible = waiting.popleft()[1]
        return self._visible if waiting else self.committed

    @property
    def confirmed_offset(self) -> int:
        """The offset after the last message that consumers may read: less than `max_offset` while the log is
        confirmed only up to a position before its end. With `NOT_TOLD` it is `max_offset`, but consumers read
        nothing (see `get_messages`).
        """
        end, limit = self.max_offset, self._log.confirmed
        if limit is None or limit < 0 or limit >= self._log.position:
            return end
        known = min(self._confirmed, end)
        if known < end:
            if self._begins_before(end - 1, limit):
                known = end
            else:  # most often a few entries
                known = bisect_left(
                    range(end - 1), True, lo=known, key=lambda offset: not self._begins_before(offset, limit)
                )
            self._confirmed = known
        return known

    @property
    def settled_offset(self) -> int | None:
        """`confirmed_offset`, for any thread; None when only the loop can tell it."""
        end, limit = self.committed, self._log.confirmed
        if self._waiting:
            return None
        if limit is None or limit < 0 or limit >= self._log.position or self._confirmed >= end:
            return end
        return None

    def _begins_before(self, offset: int, position: int) -> bool:
        entry = self.entry(offset)
        return entry is None or entry.physical_offset < position

    def hold_back(self, offset: int, end: int, count: int = 1) -> None:
        """Hide the `count` messages from `offset` on until the log is flushed up to `end`."""
        waiting = self._waiting
        if waiting is None:
            waiting = self._waiting = deque()
        if not waiting:
            self._visible = offset
        elif waiting[-1][0] == end:
            waiting.pop()
        waiting.append((end, offset + count))

    # Writing

    def make_writable(self, offset: int) -> None:
        """Map the file of `offset` and reserve blocks from this offset on; raises `StoreError`.

        Called when `offset` reaches `writable_until`. `map` stays on the file of `committed`: earlier entries
        of the same chunk may still belong in that file.
        """
        if self.deleted:
            text = f"queue {self.topic}/{self.queue_id} was deleted; ask the store for it again"
            raise StoreError(text, what="queue", value=(self.topic, self.queue_id))
        position = offset * ENTRY_BYTES
        try:
            segment = self._files.make(position)
            start = position - segment.base
            length = min(RESERVE_BYTES, segment.size - start)
            disk.reserve_in(segment.path, start, length)
        except OSError as error:
            raise disk.store_error("cannot extend the queue in", self._files.directory, error) from error
        segment.map(self._release)
        if self.map is None:
            self.turn(self.committed)
        self.writable_until = offset + length // ENTRY_BYTES

    def turn(self, offset: int) -> int:
        """Switch to the file of `offset`, prepared by `make_writable`; returns the byte to write at."""
        segment = self._files.at(offset * ENTRY_BYTES)
        if segment is None:
            raise StoreBrokenError(f"there is no file for offset {offset} of {self!r}")
        self.map = segment.map(self._release)
        self.map_base = segment.base
        return offset * ENTRY_BYTES - segment.base

    def write_run(self, offset: int, entries: bytes) -> None:
        """Write packed entries from `offset` on to files that `make_writable` has prepared."""
        file_bytes, done = self._files.file_bytes, 0
        while done < len(entries):
            at = offset * ENTRY_BYTES + done - self.map_base
            if at >= file_bytes:
                at = self.turn(offset + done // ENTRY_BYTES)
            part = entries[done : done + file_bytes - at]
            assert self.map is not None
            self.map[at : at + len(part)] = part
            done += len(part)
        self.committed = offset + done // ENTRY_BYTES

    def _release(self) -> None:
        """Called when a file being written is unmapped: the next append maps it again."""
        self.map = None
        self.writable_until = 0

    def restore(self, offset: int, entry: bytes) -> None:
        """Write `entry` at `offset`, for recovery; missing entries before it are filled with dummies.

        The first entry of an empty queue begins the file it belongs to (broker:3.1).
        """
        self.synced = min(self.synced, offset)
        if offset < self.committed:
            segment = self._files.at(offset * ENTRY_BYTES)
            assert segment is not None, offset
            at = offset * ENTRY_BYTES - segment.base
            segment.map()[at : at + ENTRY_BYTES] = entry
            return
        self.fill(offset, ENTRY.unpack(entry)[0])
        self._extend(entry)

    def fill(self, offset: int, physical_offset: int) -> None:
        """Write fillers for the missing entries before `offset`, whose message is at `physical_offset`.

        The first entry of an empty queue begins the file it belongs to (broker:3.1). Raises `StoreError`.
        """
        self.synced = min(self.synced, self.committed)
        dummy = ENTRY.pack(physical_offset, DUMMY_SIZE, 0)
        if self.committed == self._files.start // ENTRY_BYTES:
            self._files.remove_from(0)
            self._release()
            self.committed = self.next_offset = offset - offset % self.entries_per_file
            self.synced = min(self.synced, self.committed)
            dummy = DUMMY
        while self.committed < offset:
            self._extend(dummy * min(offset - self.committed, RESERVE_BYTES // ENTRY_BYTES))

    def _extend(self, entries: bytes) -> None:
        """Write packed entries at the queue's end."""
        end = self.committed + len(entries) // ENTRY_BYTES
        while self.committed < end:
            if self.committed >= self.writable_until:
                self.make_writable(self.committed)
            count = min(end, self.writable_until) - self.committed
            self.write_run(self.committed, entries[: count * ENTRY_BYTES])
            entries = entries[count * ENTRY_BYTES :]
        self.next_offset = end

    def rewrite(self, offset: int) -> None:
        """Write the entries from `offset` on again unchanged, so that the next `sync` writes them to disk.

        After a failed fsync, the kernel drops the data it could not write but still shows it from the page
        cache.
        """
        position, end = offset * ENTRY_BYTES, self.committed * ENTRY_BYTES
        while position < end and (segment := self._files.at(position)) is not None:
            mapped, stop = segment.map(), min(end, segment.end) - segment.base
            mapped[position - segment.base : stop] = mapped[position - segment.base : stop]
            position = segment.end
        self.synced = min(self.synced, offset)

    def note_recovery(self) -> None:
        """Note where it ends after a start that followed a crash."""
        self.recovered = self.next_offset

    def truncate(self, offset: int) -> int:
        """Delete the entries from `offset` on, also on disk; returns how many bytes they had."""
        position = offset * ENTRY_BYTES
        self._files.remove_from(position if position < self._files.start else position + 1)
        segment = self._files.at(position)
        cleared = 0 if segment is None else self._files.clear(position, segment.end)
        self._release()
        self._waiting = None
        self._confirmed = min(self._confirmed, offset)
        self.committed = self.next_offset = offset
        self.synced = min(self.synced, offset)
        return cleared

    def trim(self) -> list[Path]:
        """Drop files whose records were all deleted, except the last, and set `min_offset` (broker:2.7).

        The files are still on disk: the caller deletes them, oldest first.
        """
        if self._sequence is None:
            return []
        gone = []
        while len(self._files) > 1:
            behind = self._files.start // ENTRY_BYTES + self.entries_per_file
            last = self.entry(behind - 1)
            if last is None or last.physical_offset >= self._log.min_position or behind > self.synced:
                break
            gone.append(self._files.detach_first().path)
        self.find_min()
        return gone

    def delete(self) -> None:
        """Remove the queue's files; remaining references see an empty queue that rejects appends."""
        self.deleted = True
        self._waiting = None
        self._confirmed = 0
        self.committed = self.next_offset = self.min_offset = self.synced = 0
        self._release()
        if self._sequence is not None:
            self._sequence.remove()

    # Reading

    def entries(self, start: int, end: int) -> memoryview | None:
        """The bytes of the entries from `start` up to `end` or the end of the file; None without a file."""
        position = start * ENTRY_BYTES
        files = self._files if self._sequence is None else self._sequence
        segment = files.at(position)
        if segment is None:
            return None
        first = position - segment.base
        return segment.view()[first : first + (end - start) * ENTRY_BYTES]

    def file_of(self, offset: int) -> Segment | None:
        """The file with the entry at `offset`, or None; in any thread."""
        return None if self._sequence is None else self._sequence.at(offset * ENTRY_BYTES)

    def entry(self, offset: int) -> QueueEntry | None:
        """The entry at `offset`, or None."""
        if not 0 <= offset < self.committed:
            return None
        segment = self._files.at(offset * ENTRY_BYTES)
        if segment is None:
            return None
        return QueueEntry._make(ENTRY.unpack_from(segment.map(), offset * ENTRY_BYTES - segment.base))

    def leads_to(self, offset: int, physical_offset: int) -> bool:
        """Whether the entry at `offset` points to this log position and to a readable message."""
        if not 0 <= offset < self.committed:
            return False
        data, at = self.map, offset * ENTRY_BYTES - self.map_base
        if data is None or at < 0:  # not in the written part of the file
            segment = self._files.at(offset * ENTRY_BYTES)
            if segment is None:
                return False
            data, at = segment.map(), offset * ENTRY_BYTES - segment.base
        place, size, code = ENTRY.unpack_from(data, at)
        return bool(place == physical_offset and size != DUMMY_SIZE and code != CORRUPT_CODE)

    def physical_offset(self, offset: int) -> int | None:
        """Log position of a readable message's record; None when it is deleted or not written yet."""
        entry = self.entry(offset) if offset < self.max_offset else None
        if entry is None or entry.is_hole or entry.physical_offset < self._log.min_position:
            return None
        return entry.physical_offset

    def last_entry(self) -> QueueEntry | None:
        """The newest entry that points to a message record, damaged or not."""
        for offset in range(self.committed - 1, self._files.start // ENTRY_BYTES - 1, -1):
            entry = self.entry(offset)
            if entry is None or entry.size != DUMMY_SIZE:
                return entry
        return None

    def find_min(self) -> None:
        """Set `min_offset` to the first message whose record is still in the log, or to `committed`."""
        self.min_offset = self.first_from(self._log.min_position)

    def first_from(self, position: int) -> int:
        """The first message whose record is at or after a position of the log, or `committed`."""

        def is_kept(offset: int) -> bool:
            entry = self.entry(offset)
            if entry is None or entry[:2] == (0, DUMMY_SIZE):
                return False
            return entry.physical_offset >= position or entry.physical_offset < 0  # damaged, not deleted

        first = self._files.start // ENTRY_BYTES
        if first < self.committed and not is_kept(first):
            first = bisect_left(range(self.committed), True, lo=first, key=is_kept)
        return first

    # Opening and flushing

    def load(self, *, thorough: bool) -> int:
        """Find the files and the end of the entries; zero stale bytes after it and return their length.

        An entry of size 0 ends the queue. `thorough`, for use after a crash, examines the last three files,
        otherwise only the last is examined (broker:2.8). Raises the `StoreError` family.
        """
        self._files.load(mend=thorough)
        segments = list(self._files)
        if not segments:
            return 0
        index = max(0, len(segments) - (3 if thorough else 1))
        while index > 0 and not _is_entry(segments[index - 1], self.entries_per_file - 1):
            index -= 1
        count = 0
        for segment in segments[index:]:
            count = count_entries(segment)
            segment.unmap()
            end = segment.base // ENTRY_BYTES + count
            if count < self.entries_per_file:
                break
        self.committed = end
        cleared = self.truncate(end)
        self.synced = min(end, segments[index].base // ENTRY_BYTES) if thorough else end
        return cleared

    def sync(self, directories: set[Path]) -> None:
        """Force new entries to disk; directories with new files are added to `directories`. Thread safe.

        Raises OSError; the entries then count as not synced.
        """
        target, start = self.committed, self.synced
        if target <= start or self.deleted:
            return
        per_file = self.entries_per_file
        try:
            for index in range(start // per_file, (target - 1) // per_file + 1):
                segment = self._files.at(index * self._files.file_bytes)
                if segment is None:
                    continue
                disk.sync_file(segment.path)
                if index * per_file >= start or index * self._files.file_bytes == self._files.start:
                    directory = self._files.directory
                    directories.update((directory, directory.parent, directory.parent.parent))
        except FileNotFoundError:
            if self.deleted:
                return
            raise
        self.synced = target

    def unmap(self) -> None:
        """Release all mappings; the next use maps again."""
        for segment in self._sequence or ():
            segment.unmap()

    def close(self) -> None:
        """Close the files."""
        if self._sequence is not None:
            self._sequence.close()


@lru_cache(maxsize=1024)
def _fields(topic: str) -> tuple[bytes, bytes, bool, int]:
    """The topic's bytes, its field in records, whether it fits version 1, and the fixed size of a record.

    The queues of a topic share them.
    """
    encoded = topic.encode()
    is_v1 = len(encoded) <= TOPIC_BYTES_MAX_V1
    field = len(encoded).to_bytes(1 if is_v1 else 2, "big") + encoded
    return encoded, field, is_v1, 88 + len(field) + 2


def _is_entry(segment: Segment, index: int) -> bool:
    offset, size, _ = ENTRY.unpack_from(segment.map(), index * ENTRY_BYTES)
    return bool(offset >= 0 and size > 0)


def count_entries(segment: Segment) -> int:
    """Number of consecutive entries from the start of the file.

    Twenty zeros in a row cannot be part of entries: between two sizes, which are not zero, lie at most the
    eight bytes of a tags code and the eight of an offset. So the first such run marks the end.
    """
    at = segment.map().find(NOTHING)
    count = segment.size // ENTRY_BYTES if at < 0 else -(-at // ENTRY_BYTES)
    while count and not _is_entry(segment, count - 1):
        count -= 1
    return count
