"""Reads the entries of one consume queue. Changes no file, and maps few at a time."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sparrowmq.files import disk
from sparrowmq.store.base.segments import MapPool, Segment, SegmentSequence
from sparrowmq.store.base.settings import ENTRY_BYTES
from sparrowmq.store.queues.consume_queue import DUMMY_SIZE, ENTRY, QueueEntry, count_entries

BLOCK_ENTRIES: Final = 8192
_NONZERO: Final = re.compile(rb"[^\x00]")


def first_nonzero(segment: Segment, start: int, end: int) -> int | None:
    """The position of the first nonzero byte from `start` to `end` of a file, or None. Holes are not read.

    Raises OSError.
    """
    fd = disk.open_to_read(segment.path)
    try:
        extents = disk.data_extents(fd, start, end)
    finally:
        disk.close(fd)
    data = segment.map()
    for low, high in extents:
        found = _NONZERO.search(data, low, high)
        if found is not None:
            return found.start()
    return None


class QueueFiles:
    """One queue of a directory. `first` is the offset of its first entry, `end` the offset after its last.

    Filler entries at the beginning of a file do not count.
    """

    __slots__ = ("_base", "_data", "_limit", "end", "files", "first", "problems", "queue_id", "topic")

    def __init__(self, topic: str, queue_id: int, directory: Path, file_bytes: int, pool: MapPool) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files = SegmentSequence(
            directory, file_bytes, pool, setting="mappedFileSizeConsumeQueue", writable=False
        )
        self._data: mmap.mmap | None = None
        self._base = self._limit = 0
        self.problems = self.files.load_unchanged()
        self.first = self.end = 0
        self._find_bounds()

    def __repr__(self) -> str:
        return f"<QueueFiles {self.topic}/{self.queue_id} {self.first}..{self.end}>"

    @property
    def name(self) -> str:
        """Topic and queue id."""
        return f"{self.topic}/{self.queue_id}"

    def _find_bounds(self) -> None:
        per_file = self.files.file_bytes // ENTRY_BYTES
        segments = list(self.files)
        self.first = self.end = self.files.start // ENTRY_BYTES
        for segment in reversed(segments):
            count = count_entries(segment)
            if count:
                self.end = segment.base // ENTRY_BYTES + count
                break
        for segment in segments:
            start = segment.base // ENTRY_BYTES
            low, high = start, min(self.end, start + per_file)
            while low < high:  # dummies, if any, are at the beginning
                middle = (low + high) // 2
                entry = self.entry(middle)
                if entry is not None and entry[:2] == (0, DUMMY_SIZE):
                    low = middle + 1
                else:
                    high = middle
            self.first = low
            if low < start + per_file:
                break

    def entry(self, offset: int) -> QueueEntry | None:
        """The entry at an offset of the queue, or None."""
        if not 0 <= offset < self.end:
            return None
        position = offset * ENTRY_BYTES
        data = self._data
        if data is None or not self._base <= position < self._limit:
            segment = self.files.at(position)
            if segment is None:
                return None
            data = self._data = segment.map(self._let_go)
            self._base, self._limit = segment.base, segment.end
        return QueueEntry._make(ENTRY.unpack_from(data, position - self._base))

    def _let_go(self) -> None:
        self._data = None

    def entries(self, start: int, end: int) -> Iterator[tuple[int, QueueEntry]]:
        """The entries from `start` up to `end` with their offsets, without those of missing files."""
        end = min(end, self.end)
        while start < end:
            segment = self.files.at(start * ENTRY_BYTES)
            stop = min(end, start - start % BLOCK_ENTRIES + BLOCK_ENTRIES)
            if segment is None:
                start = stop
                continue
            stop = min(stop, segment.end // ENTRY_BYTES)
            at = start * ENTRY_BYTES - segment.base
            block = segment.map(self._let_go)[at : at + (stop - start) * ENTRY_BYTES]
            for fields in ENTRY.iter_unpack(block):
                yield start, QueueEntry._make(fields)
                start += 1

    def close(self) -> None:
        """Release the files."""
        self.files.close()
