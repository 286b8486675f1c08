"""The header that a registry's serializer writes before a body: the id of its schema. Pure.

    Confluent    0, id (4 bytes); Protobuf: and which message of the file it is, numbers as zigzag varints
    RocketMQ     Avro: id (8 bytes) as Avro's `bytes`; the first releases wrote 16 bytes
                 others: id (8 bytes)

Numbers are big-endian. Raises `ValueError` for other headers.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from sparrowmq.spark.options.registry import ROCKETMQ

_MAGIC: Final = 0
_ID4 = struct.Struct(">xI")
_ID8 = struct.Struct(">q")
_AVRO_LENGTHS: Final = {0x10: 8, 0x20: 16}
"""Lengths of RocketMQ's header, as Avro encodes them."""
_INDEXES_MAX: Final = 100


class Head(NamedTuple):
    """The id of a body's schema, the position at which the body begins, and the path of its message in the
    file.
    """

    schema: int
    start: int
    indexes: tuple[int, ...] = ()


def fixed_length(kind: str, body_format: str) -> int:
    """Number of leading bytes that determine the header, where that is fixed; else 0."""
    if kind == ROCKETMQ:
        return 0 if body_format == "avro" else _ID8.size
    return 0 if body_format == "protobuf" else _ID4.size


def head(body: bytes, kind: str, body_format: str) -> Head:
    """Parse the header of a body of format `avro`, `protobuf` or `json`."""
    if kind == ROCKETMQ:
        return _rocketmq(body, body_format)
    if len(body) < _ID4.size or body[0] != _MAGIC:
        begins = f"begins with byte {body[0]}" if body else "is empty"
        raise ValueError(f"the body has no schema id: it {begins} and has {len(body)} bytes")
    [schema] = _ID4.unpack_from(body)
    if body_format != "protobuf":
        return Head(schema, _ID4.size)
    indexes, start = _indexes(body, _ID4.size)
    return Head(schema, start, indexes)


def _rocketmq(body: bytes, body_format: str) -> Head:
    start, length = 0, _ID8.size
    if body_format == "avro":
        start, length = 1, _AVRO_LENGTHS.get(body[0], 0) if body else 0
    if not length or len(body) < start + length:
        raise ValueError(f"the body has no schema id of RocketMQ's registry; it has {len(body)} bytes")
    return Head(_ID8.unpack_from(body, start)[0], start + length)


def _indexes(body: bytes, start: int) -> tuple[tuple[int, ...], int]:
    count, place = _zigzag(body, start)
    if count == 0:
        return (0,), place  # short form of the first message
    if not 0 < count <= _INDEXES_MAX:
        raise ValueError(f"{count} message indexes are out of range")
    found = []
    for _ in range(count):
        number, place = _zigzag(body, place)
        found.append(number)
    return tuple(found), place


def _zigzag(body: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        if place >= len(body):
            raise ValueError("the body ends within its message indexes")
        byte = body[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value >> 1 ^ -(value & 1), place
        shift += 7
    raise ValueError("a message index is too long")
