"""Compares the log with the key index in one pass, because the index has the keys in the order of the log.

Entries in another order are looked up one by one. The chains of one file at a time are followed in memory,
with four bytes for each slot.
"""

from __future__ import annotations

import re
import struct
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import RecordError
from sparrowmq.files import disk
from sparrowmq.protocol.record import decode_record
from sparrowmq.protocol.sysflag import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from sparrowmq.store.index.index import DIRECTORY, RecordKeys
from sparrowmq.store.index.index_file import ENTRY, FIRST, HEADER, INT_MAX, SLOT, IndexHeader, file_bytes

if TYPE_CHECKING:
    from sparrowmq.store.offline.directory import LogScan, Progress, StoreDirectory
    from sparrowmq.store.offline.findings import Findings

BLOCK_ENTRIES: Final = 4096
LOST_MAX: Final = 100_000
"""Number of entries without a record that are checked for whether their record is damaged; further ones count
as damaged entries.
"""
USUAL_SLOTS: Final = 5_000_000
USUAL_ENTRIES: Final = 20_000_000
"""Slots and entries of RocketMQ's default files."""

_NAME: Final = re.compile(r"[0-9]{17}")
_LONG: Final = struct.Struct(">q")
IndexEntry = tuple[int, int, int, int]
"""Hash, physical offset, seconds since the file's first message, previous entry of the chain."""


class IndexReader:
    """One index file, read in blocks. The numbers of slots and entries are derived from its content."""

    def __init__(self, path: Path, slots: int, entries: int, header: IndexHeader) -> None:
        self.path = path
        self.slots = slots
        self.room = entries
        self.header = header

    def entries(self) -> Iterator[tuple[int, IndexEntry]]:
        """All entries with their numbers, in order. Raises OSError."""
        fd = disk.open_to_read(self.path)
        try:
            start = HEADER.size + SLOT.size * self.slots
            number, count = FIRST, min(self.header.count, self.room)
            while number < count:
                most = min(BLOCK_ENTRIES, count - number)
                block = disk.read_at(fd, most * ENTRY.size, start + number * ENTRY.size)
                if len(block) < ENTRY.size:
                    return
                for fields in ENTRY.iter_unpack(block[: len(block) // ENTRY.size * ENTRY.size]):
                    yield number, fields
                    number += 1
        finally:
            disk.close(fd)

    def slot_table(self) -> array[int]:
        """The newest entry of each chain. Raises OSError."""
        fd = disk.open_to_read(self.path)
        try:
            data = disk.read_at(fd, SLOT.size * self.slots, HEADER.size)
        finally:
            disk.close(fd)
        table = array("i", data.ljust(SLOT.size * self.slots, b"\0"))
        if array("i", [1]).tobytes() != SLOT.pack(1):
            table.byteswap()
        return table


def open_index(path: Path) -> IndexReader | None:
    """The file, or None when its content fits no numbers of slots and entries. Raises OSError."""
    size = disk.stat(path).st_size
    fd = disk.open_to_read(path)
    try:
        head = disk.read_at(fd, HEADER.size, 0)
        if len(head) < HEADER.size:
            return None
        header = IndexHeader(*HEADER.unpack(head))
        header = replace(header, count=max(header.count, FIRST))
    finally:
        disk.close(fd)
    if file_bytes(USUAL_SLOTS, USUAL_ENTRIES) == size:
        return IndexReader(path, USUAL_SLOTS, USUAL_ENTRIES, header)
    slots = _find_slots(path, size, header)
    return None if slots is None else IndexReader(path, slots, _room(size, slots), header)


def _room(size: int, slots: int) -> int:
    return (size - HEADER.size - SLOT.size * slots) // ENTRY.size


def _find_slots(path: Path, size: int, header: IndexHeader) -> int | None:
    """The number of slots of a file. With it, the last entry is the newest of its chain.

    An empty file fits any number.
    """
    last = header.count - 1
    if last < FIRST:
        return (size - HEADER.size - 2 * ENTRY.size) // SLOT.size if size > file_bytes(1, 2) else None
    data = disk.map_file(path, size, writable=False)
    wanted, at = _LONG.pack(header.end_offset), HEADER.size
    while (at := data.find(wanted, at + 1)) >= 0:
        table_bytes = at - SLOT.size - last * ENTRY.size - HEADER.size
        slots, rest = divmod(table_bytes, SLOT.size)
        if slots < 1 or rest or (size - HEADER.size - table_bytes) % ENTRY.size or _room(size, slots) <= last:
            continue
        value, _, _, before = ENTRY.unpack_from(data, at - SLOT.size)
        first = ENTRY.unpack_from(data, HEADER.size + table_bytes + ENTRY.size)
        if value < 0 or not 0 <= before < last or first[1] != header.begin_offset or not any(first):
            continue
        if SLOT.unpack_from(data, HEADER.size + value % slots * SLOT.size)[0] == last:
            return slots
    return None


class IndexCheck:
    """Checks the index. Call `visit` for each record in order, then `finish`."""

    def __init__(self, directory: StoreDirectory, findings: Findings) -> None:
        self._directory = directory
        self._findings = findings
        self._keys = RecordKeys()
        self.files: list[IndexReader] = []
        self.entries = self.with_tags = 0
        self._first_tag = -1
        self._lost = 0
        self._lost_at: list[tuple[int, str]] = []
        """Entries whose records were not found, perhaps because they are in damaged parts of the log."""
        self._open()
        self._to_position = self.files[-1].header.end_offset if self.files else -1
        self._cursor = self._walk()
        self._next: tuple[IndexReader, int, IndexEntry] | None = next(self._cursor, None)

    def _open(self) -> None:
        directory = self._directory.root / DIRECTORY
        if not disk.exists(directory):
            return
        found = [entry for entry in disk.entries(directory) if entry.is_file and _NAME.fullmatch(entry.name)]
        while found and disk.stat(found[-1].path).st_size == 0:
            found.pop()
        for entry in found:
            reader = open_index(entry.path)
            if reader is None:
                self._findings.damage(
                    "index", "files that cannot be read", f"{entry.path}: its header does not fit its entries"
                )
            else:
                self.files.append(reader)

    def _walk(self) -> Iterator[tuple[IndexReader, int, IndexEntry]]:
        """All entries of all files; also checks the chains of each file."""
        for file in self.files:
            self._check_header(file)
            heads = array("i", bytes(4 * file.slots))
            broken = False
            for number, entry in file.entries():
                self.entries += 1
                value, _, _, before = entry
                slot = value % file.slots if value >= 0 else -1
                if slot < 0 or heads[slot] != before:
                    broken = True
                    self._findings.damage("index", "broken chains", f"{file.path} entry {number}")
                if slot >= 0:
                    heads[slot] = number
                self._check_ends(file, number, entry)
                yield file, number, entry
            self._check_slots(file, heads, broken=broken)

    def _check_ends(self, file: IndexReader, number: int, entry: IndexEntry) -> None:
        header = file.header
        is_wrong = number == FIRST and entry[1] != header.begin_offset
        if is_wrong or (number == header.count - 1 and entry[1] != header.end_offset):
            self._findings.damage(
                "index", "headers whose offsets are not those of their entries", f"{file.path}: {header}"
            )

    def _check_header(self, file: IndexReader) -> None:
        header = file.header
        if header.count > file.room or header.begin_offset > header.end_offset:
            self._findings.damage("index", "impossible headers", f"{file.path}: {header}")

    def _check_slots(self, file: IndexReader, heads: array[int], *, broken: bool) -> None:
        table = file.slot_table()
        used = len(heads) - heads.count(0)
        if table != heads and not broken:
            slot = next(n for n, (a, b) in enumerate(zip(table, heads, strict=True)) if a != b)
            text = f"{file.path} slot {slot}: {table[slot]} instead of {heads[slot]}"
            if self._directory.is_settled:
                self._findings.damage("index", "slots that do not lead to the newest entry", text)
            else:
                self._findings.note("index", "slots of entries that the header does not count yet", text)
        if used != file.header.slots_used:
            self._findings.damage(
                "index", "headers with a wrong number of slots", f"{file.path}: {file.header}"
            )

    # With the log

    def visit(self, position: int, sys_flag: int, stored: int, topic: bytes, properties: bytes) -> None:
        """Check the entries of one record, which was stored at `stored` (epoch ms)."""
        if position > self._to_position:
            return
        if sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
            wanted: list[int] = []
        else:
            wanted = self._keys.of(topic, properties)
        found = self._taken(position, stored)
        if found == wanted:
            if wanted and b"TAGS\x01" in properties:
                self._tagged(position)
            return
        self._compare(position, topic, properties, wanted, found)

    def _taken(self, position: int, stored: int) -> list[int]:
        """The hashes of the entries for the record at a position. Also checks the entries for earlier
        positions.
        """
        found: list[int] = []
        while self._next is not None and self._next[2][1] <= position:
            file, number, entry = self._next
            if entry[1] == position:
                found.append(entry[0])
                self._check_time(file, number, entry, stored)
            else:
                self._stray(file, number, entry)
            self._next = next(self._cursor, None)
        return found

    def _check_time(self, file: IndexReader, number: int, entry: IndexEntry, stored: int) -> None:
        """Check the time of an entry. The first entry of a file counts from the end of the previous file, the
        others from the first message of their own.
        """
        header, right = file.header, entry[2] >= 0
        if number == FIRST:
            right = right and header.begin_timestamp == stored
        else:
            right = entry[2] == min(max(0, (stored - header.begin_timestamp) // 1000), INT_MAX)
        if number == header.count - 1:
            right = right and header.end_timestamp == stored
        if not right:
            self._findings.damage("index", "entries with a wrong time", f"{file.path} entry {number}")

    def _tagged(self, position: int) -> None:
        self.with_tags += 1
        if self._first_tag < 0:
            self._first_tag = position

    def _compare(
        self, position: int, topic: bytes, properties: bytes, wanted: list[int], found: list[int]
    ) -> None:
        missing, more = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
        where = f"{topic.decode('utf-8', 'replace')} at {position}"
        if more:
            self._findings.damage("index", "entries of keys that the record does not have", where)
        if not missing:
            return
        if list(missing.elements()) == wanted[-1:] and b"TAGS\x01" in properties:
            if self._first_tag >= 0:  # releases before 5 do not index tags
                self._findings.damage("index", "records without their tag", where)
        elif position == self._to_position and found == wanted[: len(found)] and not self._settled:
            self._findings.note("index", "the last record is not completely in the index yet", where)
        else:
            self._findings.damage("index", "records without their keys", where)

    @property
    def _settled(self) -> bool:
        return self._directory.is_settled

    def _stray(self, file: IndexReader, number: int, entry: IndexEntry) -> None:
        """Check an entry that is out of order: it is right if its record has that key, or was deleted by
        retention.
        """
        physical = entry[1]
        if physical < self._directory.log.start:
            return
        segment = self._directory.log.at(physical)
        text = f"{file.path} entry {number}: {physical}"
        try:
            if segment is None:
                raise RecordError("no file")
            record = decode_record(segment.view(), physical - segment.base)
            keys = self._keys.of(record.topic.encode(), record.properties)
            if record.physical_offset != physical or entry[0] not in keys:
                raise RecordError("another record")
        except RecordError:
            self._lost += 1
            if len(self._lost_at) < LOST_MAX:
                self._lost_at.append((physical, text))
        else:
            self._findings.note("index", "entries out of order", text)

    def _judge_lost(self, scanned: LogScan) -> None:
        lows = [low for low, _ in scanned.damaged]
        wrong = [
            text
            for physical, text in self._lost_at
            if (n := bisect_right(lows, physical)) == 0 or physical >= scanned.damaged[n - 1][1]
        ]
        of_damaged = len(self._lost_at) - len(wrong)
        if of_damaged:
            self._findings.note("index", "entries of damaged records", str(scanned.damaged[0]), of_damaged)
        for text in wrong:
            self._findings.damage("index", "entries that do not lead to their record", text)
        if self._lost > len(self._lost_at):
            more = self._lost - len(self._lost_at)
            self._findings.damage("index", "entries that do not lead to their record", "and more", more)

    def finish(self, scanned: LogScan, progress: Progress) -> None:
        """Check the remaining entries, after the log was read."""
        while self._next is not None:
            file, number, entry = self._next
            if entry[1] >= scanned.end:
                kind = "entries that point beyond the end of the log"
                add = self._findings.damage if self._settled else self._findings.note
                add("index", kind, f"{file.path} entry {number}: {entry[1]}")
            else:
                self._stray(file, number, entry)
            self._next = next(self._cursor, None)
        self._judge_lost(scanned)
        for one in self.files:
            if one.header.end_offset >= scanned.end > 0 and self._settled:
                self._findings.damage("index", "headers beyond the end of the log", f"{one.path}")
        if not self.files:
            self._findings.note("index", "no index", "the next start of a broker builds it")
        elif self._to_position < scanned.last.last_record:
            self._findings.note(
                "index", "the index ends before the log", f"{self._to_position}, and {scanned.end}"
            )
        if self.files and not self.with_tags:
            self._findings.note("index", "no tags in the index", "RocketMQ before 5.0 does not index tags")
        progress("index", 1, 1)
