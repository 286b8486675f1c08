"""`timerlog/`: one 52-byte unit for each time a timed message is planned (broker:8.2).

    offset  size  field
         0     4  52
         4     8  position of the unit before it in the same slot of the wheel, -1 without one
        12     4  magic: 1, +2 to be planned again later, +4 deletion marker
        16     8  when it was planned, epoch ms
        24     4  slot minus that time, ms
        28     8  physical offset of the message in the commit log
        36     4  its size
        40     4  hash of its real topic
        44     8  0

Positions count over all files. A unit never crosses the end of a file: the rest of the file becomes a blank.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from sparrowmq.files import disk
from sparrowmq.store.base.segments import MapPool, SegmentSequence

UNIT: Final = struct.Struct(">iqiqiqiiq")
UNIT_BYTES: Final = UNIT.size
MAGIC_NORMAL: Final = 1
MAGIC_ROLL: Final = 2
MAGIC_DELETE: Final = 4
BLANK: Final = struct.Struct(">iqI")
BLANK_MAGIC: Final = 0xCBD43194
NONE: Final = -1
_MAGIC_MAX: Final = MAGIC_NORMAL | MAGIC_ROLL | MAGIC_DELETE


class Unit(NamedTuple):
    """One unit, without its fixed fields."""

    previous: int
    magic: int
    planned: int
    wait: int
    physical_offset: int
    size: int
    topic_hash: int

    @property
    def slot(self) -> int:
        """The wheel slot of the unit, epoch ms."""
        return self.planned + self.wait


class TimerLog:
    """The units, appended in batches and read at any position. `position` is that of the next unit."""

    def __init__(self, directory: Path, file_bytes: int, pool: MapPool) -> None:
        self._files = SegmentSequence(
            directory, file_bytes, pool, setting="mappedFileSizeTimerLog", writable=False
        )
        self.position = 0
        self._parts: list[tuple[int, bytes]] = []

    def load(self, start: int) -> None:
        """Find the files and the end of the units, searching from `start` on, and clear the bytes after it.

        Raises the `StoreError` family.
        """
        self._files.load()
        self.position = max(self._files.start, start if start <= self._files.end else 0)
        for position, _ in self.units(self.position):
            self.position = position + UNIT_BYTES
        segment = self._files.at(self.position)
        if segment is not None:
            self._files.clear(self.position, segment.end)

    def load_unchanged(self) -> list[str]:
        """Find the files and the end of the units without changing anything; returns what is wrong with the
        files. Raises OSError.
        """
        problems = self._files.load_unchanged()
        self.position = self._files.start
        for position, _ in self.units(self.position):
            self.position = position + UNIT_BYTES
        return problems

    @property
    def files(self) -> SegmentSequence:
        """The files."""
        return self._files

    @property
    def start(self) -> int:
        """Position of the oldest remaining unit."""
        return self._files.start

    def units(self, position: int) -> Iterator[tuple[int, Unit]]:
        """The units from `position` on, each with its position; ends at the first position without a unit."""
        while (segment := self._files.at(position)) is not None:
            if self._is_blank(position, segment.end):
                position = segment.end
                continue
            unit = self.read(position)
            if unit is None:
                return
            yield position, unit
            position += UNIT_BYTES

    def _is_blank(self, position: int, file_end: int) -> bool:
        return position + UNIT_BYTES + BLANK.size > file_end

    def read(self, position: int) -> Unit | None:
        """The unit at `position`; None if there is none. Units that wait for `commit` are not included."""
        segment = self._files.at(position) if position >= 0 else None
        if segment is None or position + UNIT_BYTES > segment.end:
            return None
        size, previous, magic, planned, wait, physical, length, topic_hash, _ = UNIT.unpack_from(
            segment.view(), position - segment.base
        )
        if size != UNIT_BYTES or not MAGIC_NORMAL <= magic <= _MAGIC_MAX:
            return None
        return Unit(previous, magic, planned, wait, physical, length, topic_hash)

    def places(self) -> Iterator[tuple[int, Unit | None]]:
        """All places of units, oldest first, each with its unit; None where it is damaged."""
        for segment in self._files:
            for position in range(segment.base, min(segment.end, self.position), UNIT_BYTES):
                if self._is_blank(position, segment.end):
                    break
                yield position, self.read(position)

    def search(self, slot_ms: int) -> Iterator[int]:
        """For every place, oldest first: its position if it has a unit of the slot, otherwise -1."""
        for position, unit in self.places():
            yield NONE if unit is None or unit.slot != slot_ms else position

    def append(self, unit: Unit) -> int:
        """Add a unit to the batch that `commit` writes; returns its position."""
        position = self.position
        file_bytes = self._files.file_bytes
        file_end = position - position % file_bytes + file_bytes
        if self._is_blank(position, file_end):
            self._parts.append((position, BLANK.pack(file_end - position, 0, BLANK_MAGIC)))
            position = file_end
        self._parts.append((position, UNIT.pack(UNIT_BYTES, *unit, 0)))
        self.position = position + UNIT_BYTES
        return position

    @property
    def is_behind(self) -> bool:
        """Whether units wait for `commit`."""
        return bool(self._parts)

    def commit(self) -> None:
        """Write the batch, in contiguous runs. Raises `StoreError`; a later `commit` tries again."""
        file_bytes = self._files.file_bytes
        while self._parts:
            start = end = self._parts[0][0]
            run: list[bytes] = []
            for position, part in self._parts:
                if position != end or position // file_bytes != start // file_bytes:
                    break
                run.append(part)
                end += len(part)
            try:
                segment = self._files.make(start)
                disk.write_at(segment.open(), b"".join(run), start - segment.base)
            except OSError as error:
                raise disk.store_error("cannot write to", self._files.directory, error) from error
            del self._parts[: len(run)]

    def sync(self, start: int, end: int) -> None:
        """Force the units committed between two positions to disk; raises OSError. Any thread."""
        while start < end:
            segment = self._files.at(start)
            if segment is None:
                return
            disk.sync_file(segment.path)
            start = segment.end
        if disk.exists(self._files.directory):
            disk.sync_directory(self._files.directory)

    def rewrite(self, start: int) -> None:
        """Write the units from `start` on again unchanged, so that the next `sync` writes them to disk.

        Raises `StoreError`.
        """
        self._files.rewrite(start, self.position)

    def last_unit(self) -> Unit | None:
        """The newest unit, or None."""
        return self.read(self.position - UNIT_BYTES)

    def units_back(self) -> Iterator[Unit]:
        """The units, newest first."""
        file_bytes = self._files.file_bytes
        used = (file_bytes - BLANK.size) // UNIT_BYTES * UNIT_BYTES
        position = self.position
        while position > self._files.start:
            if position % file_bytes == 0:
                position += used - file_bytes
            position -= UNIT_BYTES
            unit = self.read(position)
            if unit is None:
                return
            yield unit

    def drop_before(self, min_physical: int) -> list[Path]:
        """Drop files whose messages were all deleted from the commit log; returns the paths to delete."""
        gone = []
        per_file = (self._files.file_bytes - BLANK.size) // UNIT_BYTES
        while len(self._files) > 1:
            last = self.read(self._files.start + (per_file - 1) * UNIT_BYTES)
            if last is None or last.physical_offset >= min_physical:
                break
            gone.append(self._files.detach_first().path)
        return gone

    def close(self) -> None:
        """Close the files."""
        self._files.close()
