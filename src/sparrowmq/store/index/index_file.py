"""One index file: from the hash of a key to the records that have it (broker:4.1).

    0         header, 40 bytes: begin and end time, begin and end physical offset, used slots, next entry
    40        slots, 4 bytes each: the newest entry of the chain of all keys with this hash slot
    40 + 4 s  entries, 20 bytes each: hash, physical offset, seconds since the begin time, entry before it

Entries are written through a mapping; their blocks are reserved in advance, so that a full disk raises an
error and does not kill the process. Entry 0 is never used.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparrowmq.files import disk

HEADER: Final = struct.Struct(">qqqqii")
SLOT: Final = struct.Struct(">i")
ENTRY: Final = struct.Struct(">iqii")
FIRST: Final = 1
"""Number of the first entry; 0 in a slot or a chain means none."""

RESERVE_BYTES: Final = 1 << 20
INT_MAX: Final = 2**31 - 1
CHAIN_MAX: Final = 500_000
"""Maximum number of entries of one chain that a query examines: all messages of a topic may share a tag."""


BACK_MS: Final = 10_000
"""How far store times may go back within a file, as after a clock correction; beyond it a new file begins."""

LOOK_ENTRIES: Final = 512
"""Entries of a chain examined in one step: a tenth of a millisecond, more when the disk is read."""


Key = tuple[int, int, int]
"""One indexed key: hash, physical offset and store time (epoch ms) of the record."""


@dataclass(slots=True)
class IndexHeader:
    """The first 40 bytes: times are in epoch ms, `count` is the number of the next entry."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    slots_used: int = 0
    count: int = FIRST


def file_bytes(slots: int, entries: int) -> int:
    """Size of a file with this many slots and entries."""
    return HEADER.size + SLOT.size * slots + ENTRY.size * entries


def before_step_back(keys: list[Key]) -> int:
    """How many keys precede the first one stored after the clock was set back; all keys if it was not."""
    if keys[-1][2] >= keys[0][2] - BACK_MS:
        return len(keys)
    return next(n for n in range(1, len(keys)) if keys[n][2] < keys[n - 1][2] or n == len(keys) - 1)


class IndexFile:
    """A file with `slots` slots and room for `entries - 1` entries. Mapped while in use."""

    __slots__ = ("_entries", "_entries_at", "_map", "_reserved", "_slots", "header", "path")

    def __init__(self, path: Path, slots: int, entries: int) -> None:
        self.path = path
        self.header = IndexHeader()
        self._slots = slots
        self._entries = entries
        self._entries_at = HEADER.size + SLOT.size * slots
        self._map: mmap.mmap | None = None
        self._reserved = 0

    def __repr__(self) -> str:
        return f"<IndexFile {self.path.name} {self.header.count - FIRST} keys>"

    @property
    def is_full(self) -> bool:
        """Whether the file has no room for another entry."""
        return self.header.count >= self._entries

    def is_ahead_of(self, timestamp: int) -> bool:
        """Whether the clock was set back between the newest indexed message and one stored at `timestamp`."""
        return self.header.count > FIRST and timestamp < self.header.end_timestamp - BACK_MS

    @classmethod
    def create(cls, path: Path, slots: int, entries: int, after: IndexFile | None) -> IndexFile:
        """Create a file on disk; its times and offsets begin at the end values of the previous file.

        Raises OSError and then leaves no file.
        """
        made = cls(path, slots, entries)
        if after is not None:
            ends = after.header
            made.header = IndexHeader(
                ends.end_timestamp, ends.end_timestamp, ends.end_offset, ends.end_offset, 0, FIRST
            )
        disk.create(path, file_bytes(slots, entries))
        try:
            disk.reserve_in(path, 0, made._entries_at)
            made.save_header()
        except OSError:
            disk.unlink(path, missing_ok=True)
            raise
        return made

    @classmethod
    def load(cls, path: Path, slots: int, entries: int) -> IndexFile:
        """Load the file at `path` with its header; raises OSError."""
        found = cls(path, slots, entries)
        fd = disk.open_file(path)
        try:
            found.header = IndexHeader(
                *HEADER.unpack(disk.read_at(fd, HEADER.size, 0).ljust(HEADER.size, b"\0"))
            )
        finally:
            disk.close(fd)
        found.header.count = max(found.header.count, FIRST)
        return found

    def map(self) -> mmap.mmap:
        """The file's bytes, writable; raises OSError."""
        if self._map is None:
            self._map = disk.map_file(self.path, file_bytes(self._slots, self._entries), writable=True)
        return self._map

    def unmap(self) -> None:
        """Release the mapping."""
        if self._map is not None:
            self._map.close()
            self._map = None
            self._reserved = 0

    def save_header(self) -> None:
        """Write the header to the file; raises OSError."""
        head = self.header
        HEADER.pack_into(
            self.map(),
            0,
            head.begin_timestamp,
            head.end_timestamp,
            head.begin_offset,
            head.end_offset,
            head.slots_used,
            head.count,
        )

    # Writing

    def put(self, keys: list[Key]) -> int:
        """Add keys in order; returns how many fit. The header stays in memory until it is saved.

        Raises OSError, with nothing written, when the disk is full.
        """
        head, data = self.header, self._map or self.map()
        first = number = head.count
        last = min(first + len(keys), self._entries)
        if last <= first:
            return 0
        if (end := self._entries_at + last * ENTRY.size) > self._reserved:
            self._reserve(end)
        begin, used, slots, at = head.begin_timestamp, 0, self._slots, self._entries_at + number * ENTRY.size
        for value, physical, timestamp in keys:
            if number >= last:
                break
            slot = 40 + value % slots * 4
            (previous,) = _slot_from(data, slot)
            if not 0 < previous < number:
                used += 1
                previous = 0
            seconds = (timestamp - begin) // 1000 if 0 < begin < timestamp else 0
            _entry_into(data, at, value, physical, min(seconds, INT_MAX), previous)
            _slot_into(data, slot, number)
            if number == FIRST:
                begin = head.begin_timestamp = timestamp
                head.begin_offset = physical
            number += 1
            at += 20
        head.count = number
        head.slots_used += used
        _, head.end_offset, head.end_timestamp = keys[number - first - 1]
        return number - first

    def _reserve(self, end: int) -> None:
        size = file_bytes(self._slots, self._entries)
        start = max(self._reserved, self._entries_at + self.header.count * ENTRY.size)
        upto = min(size, max(end, start + RESERVE_BYTES))
        disk.reserve_in(self.path, start, upto - start)
        self._reserved = upto

    # Reading

    def overlaps(self, begin: int, end: int) -> bool:
        """Whether the file may hold messages stored from `begin` to `end`, epoch ms."""
        head = self.header
        return head.begin_timestamp - BACK_MS <= end and begin <= head.end_timestamp + BACK_MS

    def find(self, value: int, begin: int, end: int) -> Iterator[int | None]:
        """Physical offsets filed under the hash, newest first, of records stored from `begin` to `end`.

        Yields None after each `LOOK_ENTRIES` entries: a chain may be long, so its reader can let other tasks
        run; the file may be unmapped meanwhile. Times are stored in whole seconds after the file's begin
        time. Raises OSError.
        """
        data, head = self.map(), self.header
        (number,) = SLOT.unpack_from(data, HEADER.size + value % self._slots * SLOT.size)
        if not 0 < number < head.count:
            return
        for looked in range(1, CHAIN_MAX + 1):
            found, physical, seconds, previous = ENTRY.unpack_from(
                self._map or self.map(), self._entries_at + number * ENTRY.size
            )
            stored = head.begin_timestamp + seconds * 1000
            if found == value and begin <= stored <= end:
                yield physical
            if not 0 < previous < number or stored < begin - BACK_MS:
                return
            number = previous
            if not looked % LOOK_ENTRIES:
                yield None

    # Recovery

    def cut(self, count: int, end_offset: int, end_timestamp: int) -> bool:
        """Remove every entry from number `count` on; False when that is not possible.

        After a power failure, slots may point to entries that never reached the disk: such a file is
        unusable. Raises OSError.
        """
        data = self.map()
        slots = array("i", data[HEADER.size : self._entries_at])
        if array("i", [1]).tobytes() != SLOT.pack(1):
            slots.byteswap()
        late = [index for index, number in enumerate(slots) if number >= count]
        for index in late:
            before = self._before(index, slots[index], count, end_offset)
            if before is None:
                return False
            slots[index] = before
            SLOT.pack_into(data, HEADER.size + index * SLOT.size, before)
        head = self.header
        head.count, head.end_offset, head.end_timestamp = count, end_offset, end_timestamp
        head.slots_used = len(slots) - slots.count(0)
        self.save_header()
        return True

    def _before(self, slot: int, number: int, count: int, end_offset: int) -> int | None:
        """The newest entry below `count` in the chain that contains `number`; None when the chain is broken.

        Entries from `count` on belong to records at `end_offset` or later; entries of zeros were never
        written.
        """
        data = self.map()
        while number >= count:
            if number >= self._entries:
                return None
            entry = ENTRY.unpack_from(data, self._entries_at + number * ENTRY.size)
            value, physical, _, previous = entry
            if not 0 <= previous < number or value % self._slots != slot:
                return None
            if physical < end_offset or not any(entry):
                return None
            number = previous
        return number


_entry_into = ENTRY.pack_into
_slot_into = SLOT.pack_into
_slot_from = SLOT.unpack_from
