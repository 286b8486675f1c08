"""Consume queues: per topic and queue id, one 20-byte entry per message that points into the commit log.

Entries are written through mappings. Blocks are reserved ahead, so a write cannot meet a full disk.
"""

from __future__ import annotations

import mmap
import struct
from bisect import bisect_left
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrowmq.core.errors import StoreError
from sparrowmq.protocol.record import TOPIC_BYTES_MAX_V1
from sparrowmq.store import disk
from sparrowmq.store.segments import MapPool, Segment, SegmentSequence
from sparrowmq.store.settings import ENTRY_BYTES

if TYPE_CHECKING:
    from sparrowmq.store.commit_log import CommitLog

ENTRY: Final = struct.Struct(">qiq")
"""Physical offset, record size, tags code (broker:3.1)."""

NOTHING: Final = bytes(ENTRY_BYTES)
DUMMY_SIZE: Final = 0x7FFFFFFF
DUMMY: Final = ENTRY.pack(0, DUMMY_SIZE, 0)
"""Fills the first file before the queue's first message."""

CORRUPT_CODE: Final = -0x434F525255505400
"""Our mark, as tags code, of a message whose record is damaged; no hash and no time looks like it."""

TAG_CODE_MIN: Final = -(2**31)
"""Smaller codes are addresses of the reference's filter bitmaps: such a message passes (broker:3.3)."""

RESERVE_BYTES: Final = 64 * 1024


class Entry(NamedTuple):
    """One entry: where the record is, its size, the code of its tag (a due time in the delay topic)."""

    physical_offset: int
    size: int
    tags_code: int

    @property
    def end(self) -> int:
        """The position after the record."""
        return self.physical_offset + self.size

    @property
    def is_hole(self) -> bool:
        """Whether it stands for a message that cannot be read."""
        return self.size == DUMMY_SIZE or self.tags_code == CORRUPT_CODE


class ConsumeQueue:
    """One queue. Compared and hashed by identity.

    `next_offset` is the offset the next appended message gets. `committed` counts what was written;
    `max_offset` is what readers may see: less than `committed` only while `SYNC_FLUSH` waits for the disk.
    """

    __slots__ = (
        "_files",
        "_log",
        "_visible",
        "_waiting",
        "committed",
        "deleted",
        "fixed_bytes",
        "is_v1",
        "map",
        "map_base",
        "min_offset",
        "next_offset",
        "queue_id",
        "synced",
        "topic",
        "topic_bytes",
        "topic_field",
        "writable_until",
    )

    def __init__(
        self, topic: str, queue_id: int, root: Path, file_bytes: int, log: CommitLog, pool: MapPool
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.topic_bytes = topic.encode()
        self.is_v1 = len(self.topic_bytes) <= TOPIC_BYTES_MAX_V1
        self.topic_field = len(self.topic_bytes).to_bytes(1 if self.is_v1 else 2, "big") + self.topic_bytes
        self.fixed_bytes = 88 + len(self.topic_field) + 2
        self.next_offset = self.committed = self.min_offset = self.synced = 0
        self.writable_until = 0
        self.map: mmap.mmap | None = None
        self.map_base = 0
        self.deleted = False
        self._log = log
        self._visible = 0
        self._waiting: deque[tuple[int, int]] = deque()
        self._files = SegmentSequence(
            root / topic / str(queue_id),
            file_bytes,
            pool,
            setting="mappedFileSizeConsumeQueue",
            writable=True,
        )

    def __repr__(self) -> str:
        return f"<ConsumeQueue {self.topic}/{self.queue_id} {self.min_offset}..{self.max_offset}>"

    @property
    def files(self) -> SegmentSequence:
        """The queue's files; none before its first message."""
        return self._files

    @property
    def entries_per_file(self) -> int:
        """How many entries one file holds."""
        return self._files.file_bytes // ENTRY_BYTES

    @property
    def max_offset(self) -> int:
        """The offset after the last message that may be read."""
        waiting = self._waiting
        if not waiting:
            return self.committed
        flushed = self._log.flushed_position
        while waiting and waiting[0][0] <= flushed:
            self._visible = waiting.popleft()[1]
        return self._visible if waiting else self.committed

    def hold_back(self, offset: int, end: int, count: int = 1) -> None:
        """Show the `count` messages from `offset` on only once the log is flushed up to `end`."""
        waiting = self._waiting
        if not waiting:
            self._visible = offset
        elif waiting[-1][0] == end:
            waiting.pop()
        waiting.append((end, offset + count))

    # Writing

    def make_writable(self, offset: int) -> None:
        """Map the file of `offset` and reserve blocks from there on; raises `StoreError`.

        Called when `offset` reaches `writable_until`. `map` stays on the file of `committed`: earlier entries
        of the same chunk may still have to go there.
        """
        if self.deleted:
            raise StoreError(f"queue {self.topic}/{self.queue_id} was deleted; ask the store for it again")
        position = offset * ENTRY_BYTES
        try:
            segment = self._files.make(position)
            start = position - segment.base
            length = min(RESERVE_BYTES, segment.size - start)
            disk.reserve_in(segment.path, start, length)
        except OSError as error:
            raise disk.store_error("cannot extend the queue in", self._files.directory, error) from error
        segment.map()
        segment.on_unmap = self._release
        if self.map is None:
            self.turn(self.committed)
        self.writable_until = offset + length // ENTRY_BYTES

    def turn(self, offset: int) -> int:
        """Go on to the file of `offset`, which `make_writable` has made; the byte to write at."""
        segment = self._files.at(offset * ENTRY_BYTES)
        assert segment is not None, offset
        self.map = segment.map()
        self.map_base = segment.base
        segment.on_unmap = self._release
        return offset * ENTRY_BYTES - segment.base

    def write_run(self, offset: int, entries: bytes) -> None:
        """Write packed entries from `offset` on, into files that `make_writable` has made."""
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
        """A file being written to is unmapped: the next append maps it again."""
        self.map = None
        self.writable_until = 0

    def restore(self, offset: int, entry: bytes) -> None:
        """Put `entry` at `offset`, as recovery does; what is missing before it becomes dummies.

        The first entry of an empty queue begins the file it belongs to (broker:3.1).
        """
        self.synced = min(self.synced, offset)
        if offset < self.committed:
            segment = self._files.at(offset * ENTRY_BYTES)
            assert segment is not None, offset
            at = offset * ENTRY_BYTES - segment.base
            segment.map()[at : at + ENTRY_BYTES] = entry
            return
        fill = ENTRY.pack(ENTRY.unpack(entry)[0], DUMMY_SIZE, 0)
        if self.committed == self._files.start // ENTRY_BYTES:
            self._files.remove_from(0)
            self._release()
            self.committed = offset - offset % self.entries_per_file
            fill = DUMMY
        while self.committed < offset:
            self._push(fill)
        self._push(entry)

    def _push(self, entry: bytes) -> None:
        offset = self.committed
        if offset >= self.writable_until:
            self.make_writable(offset)
        at = offset * ENTRY_BYTES - self.map_base
        if at >= self._files.file_bytes:
            at = self.turn(offset)
        assert self.map is not None
        self.map[at : at + ENTRY_BYTES] = entry
        self.committed = self.next_offset = offset + 1

    def truncate(self, offset: int) -> int:
        """Drop the entries from `offset` on, also on disk; the length in bytes of what was there."""
        position = offset * ENTRY_BYTES
        self._files.remove_from(position if position < self._files.start else position + 1)
        segment = self._files.at(position)
        cleared = 0 if segment is None else self._files.clear(position, segment.end)
        self._release()
        self.committed = self.next_offset = offset
        self.synced = min(self.synced, offset)
        return cleared

    def trim(self) -> list[Path]:
        """Forget files whose records are all gone, except the last, and set `min_offset` (broker:2.7).

        They are still on disk: the caller deletes them, oldest first.
        """
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
        """Remove the queue's files; whoever still holds the queue sees it empty and cannot append."""
        self.deleted = True
        self._waiting.clear()
        self.committed = self.next_offset = self.min_offset = self.synced = 0
        self._release()
        self._files.remove()

    # Reading

    def entries(self, start: int, end: int) -> memoryview | None:
        """The bytes of the entries from `start` up to `end` or the end of the file; None without the file."""
        position = start * ENTRY_BYTES
        segment = self._files.at(position)
        if segment is None:
            return None
        first = position - segment.base
        return segment.view()[first : min(segment.size, first + (end - start) * ENTRY_BYTES)]

    def entry(self, offset: int) -> Entry | None:
        """The entry at `offset`, or None where there is none."""
        if not 0 <= offset < self.committed:
            return None
        segment = self._files.at(offset * ENTRY_BYTES)
        if segment is None:
            return None
        return Entry._make(ENTRY.unpack_from(segment.map(), offset * ENTRY_BYTES - segment.base))

    def physical_offset(self, offset: int) -> int | None:
        """Where the record of a readable message is in the log; None when it is gone or not there yet."""
        entry = self.entry(offset) if offset < self.max_offset else None
        if entry is None or entry.is_hole or entry.physical_offset < self._log.min_position:
            return None
        return entry.physical_offset

    def last_entry(self) -> Entry | None:
        """The newest entry that points to a message's record, damaged or not."""
        for offset in range(self.committed - 1, self._files.start // ENTRY_BYTES - 1, -1):
            entry = self.entry(offset)
            if entry is None or entry.size != DUMMY_SIZE:
                return entry
        return None

    def find_min(self) -> None:
        """Set `min_offset` to the first message whose record the log still has; `committed` without any."""
        oldest = self._log.min_position

        def is_kept(offset: int) -> bool:
            entry = self.entry(offset)
            if entry is None or entry[:2] == (0, DUMMY_SIZE):
                return False
            return entry.physical_offset >= oldest

        first = self._files.start // ENTRY_BYTES
        if first < self.committed and not is_kept(first):
            first = bisect_left(range(self.committed), True, lo=first, key=is_kept)
        self.min_offset = first

    # Opening and flushing

    def load(self, *, thorough: bool) -> int:
        """Find the files and the end of the entries; zero stale bytes behind it and give their length.

        An entry of size 0 ends the queue. `thorough` examines the last three files as after a crash, else
        only the last (broker:2.8). Raises the `StoreError` family.
        """
        self._files.load()
        segments = list(self._files)
        if not segments:
            return 0
        index = max(0, len(segments) - (3 if thorough else 1))
        while index > 0 and not _is_entry(segments[index - 1], self.entries_per_file - 1):
            index -= 1
        count = 0
        for segment in segments[index:]:
            count = _count(segment)
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
        """Let go of all mappings; the next use maps again."""
        for segment in self._files:
            segment.unmap()

    def close(self) -> None:
        """Close the files."""
        self._files.close()


def _is_entry(segment: Segment, index: int) -> bool:
    offset, size, _ = ENTRY.unpack_from(segment.map(), index * ENTRY_BYTES)
    return bool(offset >= 0 and size > 0)


def _count(segment: Segment) -> int:
    """How many entries the file has from its start on.

    Twenty zeros in a row cannot be part of entries: between two sizes, which are not zero, lie at most the
    eight bytes of a tags code and the eight of an offset. So the first such run begins the end.
    """
    at = segment.map().find(NOTHING)
    count = segment.size // ENTRY_BYTES if at < 0 else -(-at // ENTRY_BYTES)
    while count and not _is_entry(segment, count - 1):
        count -= 1
    return count
