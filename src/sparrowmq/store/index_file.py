"""One index file: from the hash of a key to the records that have it (broker:4.1).

    0         header, 40 bytes: begin and end time, begin and end physical offset, used slots, next entry
    40        slots, 4 bytes each: the newest entry of the chain of all keys whose hash falls there
    40 + 4 s  entries, 20 bytes each: hash, physical offset, seconds since the begin time, entry before it

Entries are written through a mapping; their blocks are reserved ahead, so that a full disk is an error and
not the end of the process. Entry 0 is never used.
"""

from __future__ import annotations

import mmap
import os
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparrowmq.store import disk

HEADER: Final = struct.Struct(">qqqqii")
SLOT: Final = struct.Struct(">i")
ENTRY: Final = struct.Struct(">iqii")
FIRST: Final = 1
"""Number of the first entry; 0 in a slot or a chain means none."""

RESERVE_BYTES: Final = 1 << 20
INT_MAX: Final = 2**31 - 1
CHAIN_MAX: Final = 500_000
"""Entries of one chain that a query looks at: a tag may be that of every message of a topic."""


Key = tuple[int, int, int]
"""What is filed: hash, physical offset and store time (epoch ms) of the record."""


@dataclass(slots=True)
class Header:
    """The first 40 bytes: times are epoch ms, `count` is the number of the next entry."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    slots_used: int = 0
    count: int = FIRST


def file_bytes(slots: int, entries: int) -> int:
    """Size of a file with so many slots and entries."""
    return HEADER.size + SLOT.size * slots + ENTRY.size * entries


class IndexFile:
    """A file with `slots` slots and room for `entries - 1` entries. Mapped while it is used."""

    __slots__ = ("_entries", "_entries_at", "_map", "_reserved", "_slots", "header", "path")

    def __init__(self, path: Path, slots: int, entries: int) -> None:
        self.path = path
        self.header = Header()
        self._slots = slots
        self._entries = entries
        self._entries_at = HEADER.size + SLOT.size * slots
        self._map: mmap.mmap | None = None
        self._reserved = 0

    def __repr__(self) -> str:
        return f"<IndexFile {self.path.name} {self.header.count - FIRST} keys>"

    @property
    def is_full(self) -> bool:
        """Whether no entry fits any more."""
        return self.header.count >= self._entries

    @classmethod
    def create(cls, path: Path, slots: int, entries: int, after: IndexFile | None) -> IndexFile:
        """A new file on disk; its times and offsets begin with the ends of the file before it.

        Raises OSError; then there is no file.
        """
        made = cls(path, slots, entries)
        if after is not None:
            ends = after.header
            made.header = Header(
                ends.end_timestamp, ends.end_timestamp, ends.end_offset, ends.end_offset, 0, FIRST
            )
        disk.create(path, file_bytes(slots, entries))
        try:
            disk.reserve_in(path, 0, made._entries_at)
            made.save_header()
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return made

    @classmethod
    def load(cls, path: Path, slots: int, entries: int) -> IndexFile:
        """The file at `path` with its header; raises OSError."""
        found = cls(path, slots, entries)
        with path.open("rb") as file:
            found.header = Header(*HEADER.unpack(file.read(HEADER.size).ljust(HEADER.size, b"\0")))
        found.header.count = max(found.header.count, FIRST)
        return found

    def map(self) -> mmap.mmap:
        """The file's bytes, writable; raises OSError."""
        if self._map is None:
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                self._map = mmap.mmap(fd, file_bytes(self._slots, self._entries), access=mmap.ACCESS_WRITE)
                self._map.madvise(mmap.MADV_RANDOM)
            finally:
                os.close(fd)
        return self._map

    def unmap(self) -> None:
        """Let go of the mapping."""
        if self._map is not None:
            self._map.close()
            self._map = None
            self._reserved = 0

    def save_header(self) -> None:
        """Put the header into the file; raises OSError."""
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
        """File keys in their order; how many found room. The header is in memory until it is saved.

        Raises OSError, with nothing written, when the disk has no room.
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
        return self.header.begin_timestamp <= end and begin <= self.header.end_timestamp

    def find(self, value: int, begin: int, end: int) -> Iterator[int]:
        """Physical offsets filed under the hash, newest first, of records stored from `begin` to `end`.

        Times are kept in whole seconds after the file's begin. Raises OSError.
        """
        data, head = self.map(), self.header
        (number,) = SLOT.unpack_from(data, HEADER.size + value % self._slots * SLOT.size)
        if not 0 < number < head.count:
            return
        for _ in range(CHAIN_MAX):
            found, physical, seconds, previous = ENTRY.unpack_from(
                data, self._entries_at + number * ENTRY.size
            )
            stored = head.begin_timestamp + seconds * 1000
            if found == value and begin <= stored <= end:
                yield physical
            if not 0 < previous < number or stored < begin:
                return
            number = previous

    # Recovery

    def cut(self, count: int, end_offset: int, end_timestamp: int) -> bool:
        """Take back every entry from number `count` on; False when the file does not allow it.

        After a power cut, slots may lead to entries that never reached the disk: such a file is useless.
        Raises OSError.
        """
        data = self.map()
        slots = array("i", data[HEADER.size : self._entries_at])
        if array("i", [1]).tobytes() != SLOT.pack(1):
            slots.byteswap()
        if max(slots, default=0) >= count:
            for index, number in enumerate(slots):
                if number < count:
                    continue
                before = self._before(index, number, count, end_offset)
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
        """The newest entry below `count` of the chain that `number` is in; None when the chain is broken.

        Entries from `count` on are of records at `end_offset` or later; zeros were never written.
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
