"""The positions of the fields of stored records in a chunk: a scan over the record sizes, then vectors of
positions.

Supports all variants of the record layout (remoting:5.1): V1 and V2 (a topic length of two bytes), and born
and store host in IPv4 or IPv6, in any mix. Every length is checked before it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparrowmq.core.errors import RecordError
from sparrowmq.protocol.record import (
    RECORD_FIXED_BYTES,
    RECORD_MAGIC_V1,
    RECORD_MAGIC_V2,
    TOPIC_BYTES_MAX_V1,
)
from sparrowmq.protocol.sysflag import BORN_HOST_V6, COMPRESSED, HOST_V6_MASK, STORE_HOST_V6

CHUNK_BYTES_MAX: Final = 1 << 30
"""Longer chunks are refused: Arrow's 32-bit offsets end at 2 GiB (spark:D-08)."""

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_SIZE = struct.Struct(">i")
_HEAD_BYTES: Final = 88
"""Bytes from a record's size to the length of its body, with both hosts in IPv4."""
_SYS_FLAG_AT: Final = 39
"""The last byte of sysFlag in a record of either version."""
_SHORT_MAX: Final = 32767
"""Largest length that a signed field of two bytes can have."""
_HOST_V4_BYTES: Final = 8
_HOST_V6_BYTES: Final = 20


def _head_type(kind: int) -> np.dtype[np.void]:
    born = _HOST_V6_BYTES if kind & BORN_HOST_V6 else _HOST_V4_BYTES
    store = _HOST_V6_BYTES if kind & STORE_HOST_V6 else _HOST_V4_BYTES
    return np.dtype(
        [
            ("store_size", ">i4"),
            ("magic", ">u4"),
            ("body_crc", ">u4"),
            ("queue_id", ">i4"),
            ("flag", ">i4"),
            ("queue_offset", ">i8"),
            ("physical_offset", ">i8"),
            ("sys_flag", ">i4"),
            ("born_timestamp", ">i8"),
            ("born_host", f"V{born}"),
            ("store_timestamp", ">i8"),
            ("store_host", f"V{store}"),
            ("reconsume_times", ">i4"),
            ("prepared_offset", ">i8"),
            ("body_size", ">i4"),
        ]
    )


_HEAD_TYPES: Final = {
    kind: _head_type(kind) for kind in (0, BORN_HOST_V6, STORE_HOST_V6, BORN_HOST_V6 | STORE_HOST_V6)
}
_HOSTS: Final = ("born_host", "store_host")
_NUMBERS: Final = tuple(
    name for name in _HEAD_TYPES[0].names or () if name not in ("magic", "body_crc", *_HOSTS)
)


@dataclass(frozen=True, slots=True)
class Layout:
    """Vectors with one element per record: head fields, and start and end of body, topic and properties.

    `heads` has the numbers by field name and, as fixed-size bytes, the two hosts. In a chunk that mixes
    address families a host has 20 bytes, of which IPv4 uses the first 8.
    """

    heads: dict[str, npt.NDArray[Any]]
    start: Ints
    body: Ints
    body_end: Ints
    topic: Ints
    topic_end: Ints
    properties: Ints
    properties_end: Ints

    def __len__(self) -> int:
        return len(self.start)

    def keep(self, wanted: npt.NDArray[np.bool_] | slice) -> Layout:
        """The layout of the records that `wanted` selects."""
        return Layout(
            {name: values[wanted] for name, values in self.heads.items()},
            self.start[wanted],
            self.body[wanted],
            self.body_end[wanted],
            self.topic[wanted],
            self.topic_end[wanted],
            self.properties[wanted],
            self.properties_end[wanted],
        )


def walk(buffer: bytes) -> Ints:
    """The positions of all records of a chunk.

    Raises `RecordError` with the position on a size that is impossible or exceeds the chunk (spark:D-01).
    `layout` checks the magic numbers.
    """
    found = _equal_records(buffer)
    return np.array(_walk(buffer), np.int64) if found is None else found


def _equal_records(buffer: bytes) -> Ints | None:
    """The positions if all records have the size of the first, as generated ones often have; otherwise None.

    One comparison of all sizes, at their expected positions, replaces the walk from record to record.
    """
    if len(buffer) < RECORD_FIXED_BYTES:
        return None
    size = _SIZE.unpack_from(buffer)[0]
    if size < RECORD_FIXED_BYTES or len(buffer) % size:
        return None
    sizes = np.frombuffer(buffer, np.uint8).reshape(-1, size)[:, :4]
    if (sizes != sizes[0]).any():
        return None
    return np.arange(0, len(buffer), size)


def _walk(buffer: bytes) -> list[int]:
    positions: list[int] = []
    append, size_at, end, position = positions.append, _SIZE.unpack_from, len(buffer), 0
    last = end - RECORD_FIXED_BYTES
    while position <= last:  # advances by at least RECORD_FIXED_BYTES
        size = size_at(buffer, position)[0]
        if size < RECORD_FIXED_BYTES:
            break
        append(position)
        position += size
    if position != end:
        at = positions[-1] if position > end else position
        size = int.from_bytes(buffer[at : at + 4], "big", signed=True)
        raise RecordError(
            f"the record at byte {at} has a size of {size} bytes, but only {end - at} are available",
            what="size",
            value=at,
        )
    return positions


def record_count(buffer: bytes, limit: int) -> int:
    """The number of records at the start of `buffer`, up to `limit` and to the first wrong size."""
    return sum(1 for _ in _first_records(buffer, limit))


def any_compressed(buffer: bytes, limit: int) -> bool:
    """Whether one of these records has a compressed body."""
    return any(buffer[at + _SYS_FLAG_AT] & COMPRESSED for at in _first_records(buffer, limit))


def _first_records(buffer: bytes, limit: int) -> Iterator[int]:
    position, last = 0, len(buffer) - RECORD_FIXED_BYTES
    for _ in range(limit):
        if position > last or (size := _SIZE.unpack_from(buffer, position)[0]) < RECORD_FIXED_BYTES:
            return
        yield position
        position += size


def layout(buffer: bytes) -> Layout:
    """The layout of every record in `buffer`, which holds whole records back to back and nothing else.

    Raises `RecordError` with the position of the first record whose sizes, magic number or lengths are wrong.
    """
    if len(buffer) > CHUNK_BYTES_MAX:
        raise RecordError(
            f"a chunk of {len(buffer)} bytes is over the limit of {CHUNK_BYTES_MAX}; decode less at once",
            what="chunk",
            value=len(buffer),
            limit=CHUNK_BYTES_MAX,
        )
    start = walk(buffer)
    data = np.frombuffer(buffer, np.uint8)
    if not len(start):
        empty = {name: np.zeros(0, field[0]) for name, field in (_HEAD_TYPES[0].fields or {}).items()}
        return Layout(empty, start, start, start, start, start, start, start)
    magic = _gather(data, start + 4, 4).view(">u4")
    wide = magic == RECORD_MAGIC_V2
    strange = np.flatnonzero((magic != RECORD_MAGIC_V1) & ~wide)
    if len(strange):
        first = int(strange[0])
        raise RecordError(
            f"the record at byte {start[first]} has the unknown magic {int(magic[first]):#010x}",
            what="magic",
            value=int(start[first]),
        )
    stop = np.append(start[1:], len(buffer))
    heads, body = _heads(data, start, stop)
    return _places(data, heads, start, stop, body, wide)


def _gather(data: Bytes, at: Ints, width: int) -> Bytes:
    """Rows of `width` bytes at the positions `at`, in order."""
    rows: Bytes = np.lib.stride_tricks.sliding_window_view(data, width)[at]
    return rows.reshape(-1)


def _heads(data: Bytes, start: Ints, stop: Ints) -> tuple[dict[str, npt.NDArray[Any]], Ints]:
    """The head fields, and the starts of the bodies."""
    kinds = data[start + _SYS_FLAG_AT] & HOST_V6_MASK
    if not kinds.any():
        rows = _gather(data, start, _HEAD_BYTES).view(_HEAD_TYPES[0])
        return {name: rows[name] for name in (*_NUMBERS, *_HOSTS)}, start + _HEAD_BYTES
    count = len(start)
    heads: dict[str, npt.NDArray[Any]] = {
        name: np.empty(count, _HEAD_TYPES[0][name].newbyteorder("=")) for name in _NUMBERS
    }
    hosts = {name: np.zeros((count, _HOST_V6_BYTES), np.uint8) for name in _HOSTS}
    body = np.empty(count, np.int64)
    for kind in np.unique(kinds):
        head = _HEAD_TYPES[int(kind)]
        chosen = np.flatnonzero(kinds == kind)
        short = chosen[stop[chosen] - start[chosen] < head.itemsize + 3]
        if len(short):
            at = int(start[short[0]])
            raise RecordError(f"the record at byte {at} is shorter than its header", what="header", value=at)
        rows = _gather(data, start[chosen], head.itemsize).view(head)
        body[chosen] = start[chosen] + head.itemsize
        for name in _NUMBERS:
            heads[name][chosen] = rows[name]
        for name, column in hosts.items():
            width = head[name].itemsize
            column[chosen, :width] = np.ascontiguousarray(rows[name]).view(np.uint8).reshape(-1, width)
    for name, column in hosts.items():
        heads[name] = column.reshape(-1).view(f"V{_HOST_V6_BYTES}")
    return heads, body


def _places(
    data: Bytes,
    heads: dict[str, npt.NDArray[Any]],
    start: Ints,
    stop: Ints,
    body: Ints,
    wide: npt.NDArray[np.bool_],
) -> Layout:
    """Adds the positions of body, topic and properties, after checking that they fill each record exactly.

    `wide` marks the records whose topic length has two bytes.
    """
    body_size = heads["body_size"].astype(np.int64)
    body_end = body + body_size
    _check((body_size < 0) | (body_end + wide + 3 > stop), start, "body length")
    topic = body_end + wide + 1
    topic_size = data[body_end].astype(np.int64)
    topic_max: Any = TOPIC_BYTES_MAX_V1
    if wide.any():
        topic_size = np.where(wide, topic_size << 8 | data[topic - 1], topic_size)
        topic_max = np.where(wide, _SHORT_MAX, TOPIC_BYTES_MAX_V1)
    topic_end = topic + topic_size
    _check((topic_size > topic_max) | (topic_end + 2 > stop), start, "topic length")
    properties = topic_end + 2
    properties_size = (data[topic_end].astype(np.int64) << 8) | data[topic_end + 1]
    properties_end = properties + properties_size
    _check((properties_size > _SHORT_MAX) | (properties_end != stop), start, "properties length")
    return Layout(heads, start, body, body_end, topic, topic_end, properties, properties_end)


def _check(wrong: npt.NDArray[np.bool_], start: Ints, what: str) -> None:
    if wrong.any():
        at = int(start[int(np.argmax(wrong))])
        raise RecordError(f"the record at byte {at} has a wrong {what}", what=what, value=at)
