"""The records in one file of a commit log as checked chunks; damage between them is reported.

A file ends with a blank record, or at the end of the log (broker:1.1). Like a broker's recovery, a reader
continues after damage at the next valid record: correct magic, own position, consistent lengths, correct CRC.
Bytes after the last valid record of the last file are not damage, but an incomplete write or unused space.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from sparrowmq.columnar.layout import Layout, layout
from sparrowmq.columnar.slices import BufferSlices, is_utf8
from sparrowmq.core.errors import RecordError
from sparrowmq.protocol.crc import CRC_MASK, crc32
from sparrowmq.protocol.record import (
    BLANK_MAGIC,
    RECORD_FIXED_BYTES,
    RECORD_MAGIC_V1,
    RECORD_MAGIC_V2,
    check_record,
)

Bytes = bytes | mmap.mmap
Damaged = Callable[[int, int, str], None]
"""Called for bytes without a record: physical offsets of their start and end, and the reason."""

_PREFIX: Final = struct.Struct(">iI")
_PHYSICAL: Final = struct.Struct(">q")
_PHYSICAL_AT: Final = 28
_CRC_AT: Final = 8
_MAGIC_AT: Final = 4
_MAGICS: Final = tuple(struct.pack(">I", magic) for magic in (RECORD_MAGIC_V1, RECORD_MAGIC_V2))


@dataclass(frozen=True, slots=True)
class LogBytes:
    """The bytes of one file; the first has the physical offset `base`. `is_last`: no file follows."""

    data: Bytes
    base: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Whole records, back to back, and the positions of their fields."""

    buffer: bytes
    places: Layout


def chunks(
    file: LogBytes, *, rows_max: int, bytes_max: int, check_crc: bool, damaged: Damaged
) -> Iterator[LogChunk]:
    """The records of a file in order, in chunks of at most `rows_max` records and about `bytes_max` bytes.

    `damaged` may raise to end the reading. Without `check_crc`, bodies are not checked.
    """
    view = memoryview(file.data)
    at, end = 0, len(view)
    while at < end:  # each turn advances by at least one record, or returns
        stop = _walk(view, at, rows_max, bytes_max)
        chunk = _checked(view, file.base, at, stop, check_crc)
        if chunk is None:
            stop = _good_until(view, file.base, at, stop)
            chunk = _checked(view, file.base, at, stop, check_crc)
        if chunk is not None:
            yield chunk
            at = stop
            continue
        if _is_blank(view, at):
            return
        following = _next_record(file, view, at + 1)
        if following is None:
            if not file.is_last:
                damaged(file.base + at, file.base + end, _why(view, at))
            return
        damaged(file.base + at, file.base + following, _why(view, at))
        at = following


def first_records(file: LogBytes, most: int) -> tuple[int, int]:
    """The bytes and the number of the first records: `most`, or fewer at the end of the file."""
    view = memoryview(file.data)
    unpack, at, count = _PREFIX.unpack_from, 0, 0
    stop = _walk(view, 0, most, len(view))
    while at < stop:
        at += unpack(view, at)[0]
        count += 1
    return at, count


def first_timestamp(file: LogBytes) -> int | None:
    """Store time of the first record in epoch ms; None if the file does not begin with a valid one."""
    view = memoryview(file.data)
    chunk = _checked(view, file.base, 0, _walk(view, 0, 1, len(view)), True)
    return None if chunk is None else int(chunk.places.heads["store_timestamp"][0])


def _walk(view: memoryview, at: int, rows_max: int, bytes_max: int) -> int:
    """The end of the last of some records, according to their sizes and magic numbers."""
    begin, end, rows = at, len(view), 0
    unpack = _PREFIX.unpack_from
    last = end - RECORD_FIXED_BYTES
    while rows < rows_max and at <= last:
        size, magic = unpack(view, at)
        if magic != RECORD_MAGIC_V1 and magic != RECORD_MAGIC_V2:
            break
        if size < RECORD_FIXED_BYTES or at + size > end or (rows and at + size - begin > bytes_max):
            break
        at += size
        rows += 1
    return at


def _checked(view: memoryview, base: int, at: int, stop: int, check_crc: bool) -> LogChunk | None:
    """The records between two positions; None if there are none or any of them is invalid."""
    if stop <= at:
        return None
    buffer = bytes(view[at:stop])
    try:
        places = layout(buffer)
    except RecordError:
        return None
    if (places.heads["physical_offset"] != places.start + (base + at)).any():
        return None
    if check_crc and not _crcs_match(buffer, places):
        return None
    if not is_utf8(BufferSlices(buffer, places.topic, places.topic_end, pa.string()).all()):
        return None
    return LogChunk(buffer, places)


def _crcs_match(buffer: bytes, places: Layout) -> bool:
    data, view = np.frombuffer(buffer, np.uint8), memoryview(buffer)
    stored = np.ascontiguousarray(data[places.start[:, None] + np.arange(_CRC_AT, _CRC_AT + 4)]).view(">u4")
    found = zip(places.body.tolist(), places.body_end.tolist(), stored[:, 0].tolist(), strict=True)
    return all(crc32(view[start:end]) & CRC_MASK == crc for start, end, crc in found if end > start)


def _proves_itself(view: memoryview, base: int, at: int) -> int:
    """The size of the record at `at`; 0 if there is none."""
    try:
        size = check_record(view, at, len(view))
    except RecordError:
        return 0
    return size if size and _PHYSICAL.unpack_from(view, at + _PHYSICAL_AT)[0] == base + at else 0


def _good_until(view: memoryview, base: int, at: int, stop: int) -> int:
    while at < stop:
        size = _proves_itself(view, base, at)
        if not size:
            break
        at += size
    return at


def _is_blank(view: memoryview, at: int) -> bool:
    return len(view) - at >= _PREFIX.size and bool(_PREFIX.unpack_from(view, at)[1] == BLANK_MAGIC)


def _why(view: memoryview, at: int) -> str:
    try:
        check_record(view, at, len(view))
    except RecordError as error:
        return str(error)
    return f"record at byte {at}: its physical offset is wrong"


def _next_record(file: LogBytes, view: memoryview, low: int) -> int | None:
    """The position of the first verifiable record from `low` on, or None."""
    data = file.data
    finds = {magic: data.find(magic, low + _MAGIC_AT) for magic in _MAGICS}
    while any(place >= 0 for place in finds.values()):
        magic, place = min(((m, p) for m, p in finds.items() if p >= 0), key=lambda pair: pair[1])
        if _proves_itself(view, file.base, place - _MAGIC_AT):
            return place - _MAGIC_AT
        finds[magic] = data.find(magic, place + 1)
    return None
