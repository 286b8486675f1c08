"""The body of a batch send: a sequence of small records, without a count (remoting:5.5).

total size 4 | magic 4 (0) | CRC 4 (0) | flag 4 | body length 4 | body | properties length 2 | properties
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from sparrowmq.core.errors import RecordError

_HEAD = struct.Struct(">iiiii")
_SIZE: Final = struct.Struct(">i")
_PROPERTIES_SIZE = struct.Struct(">h")
_READ_HEAD: Final = struct.Struct(">i8xii")
"""Total size, flag, body length; magic and CRC are ignored."""

BATCH_FIXED_BYTES: Final = _HEAD.size + _PROPERTIES_SIZE.size
_HEAD_BYTES: Final = _HEAD.size
_PROPERTIES_BYTES_MAX: Final = 2**15 - 1

BatchItem = tuple[int, bytes, bytes]
"""(flag, body, properties)"""


class AlikeBatch(NamedTuple):
    """A batch whose messages have bodies and properties of the same lengths."""

    flag: int
    bodies: tuple[bytes, ...]
    properties: tuple[bytes, ...]


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """The batch body of `items`. Raises `RecordError` when a flag or length does not fit its field."""
    parts: list[bytes] = []
    try:
        for flag, body, properties in items:
            size = BATCH_FIXED_BYTES + len(body) + len(properties)
            parts += (
                _HEAD.pack(size, 0, 0, flag, len(body)),
                body,
                _PROPERTIES_SIZE.pack(len(properties)),
                properties,
            )
    except struct.error as error:
        raise RecordError(f"a message does not fit a batch: {error}", what="message") from None
    return b"".join(parts)


def decode_batch(body: bytes) -> list[BatchItem]:
    """The messages of a batch body, in order.

    Raises `RecordError` when it is empty or a length does not fit.
    """
    position, end = 0, len(body)
    if not end:
        raise RecordError("a batch without any message", what="batch")
    unpack_head, unpack_size = _READ_HEAD.unpack_from, _PROPERTIES_SIZE.unpack_from
    items: list[BatchItem] = []
    try:
        while position < end:
            size, flag, body_size = unpack_head(body, position)
            start = position + _HEAD_BYTES
            properties_at = start + body_size
            (properties_size,) = unpack_size(body, properties_at)
            if (
                size != BATCH_FIXED_BYTES + body_size + properties_size
                or body_size < 0
                or properties_size < 0
            ):
                raise RecordError(
                    f"batch message at byte {position}: total size {size} is not 22 + body {body_size} + "
                    f"properties {properties_size}",
                    value=position,
                )
            items.append((flag, body[start:properties_at], body[properties_at + 2 : position + size]))
            position += size
    except struct.error:
        text = f"a batch of {end} bytes ends within the message at byte {position}"
        raise RecordError(text, value=position) from None
    if position != end:
        raise RecordError(f"a batch of {end} bytes should have {position} by the size of its last message")
    return items


def has_more(body: bytes, count: int) -> bool:
    """Whether a batch has more than `count` messages, by their lengths, without decoding it."""
    position, end = 0, len(body) - 4
    unpack = _SIZE.unpack_from
    for _ in range(count):
        if position > end:
            return False
        (size,) = unpack(body, position)
        if size < BATCH_FIXED_BYTES:
            return False  # it is invalid, which decoding will report
        position += size
    return position <= end


@lru_cache(maxsize=256)
def _alike_form(body_bytes: int, properties_bytes: int) -> struct.Struct:
    """Head, body, length of properties and properties of one message."""
    return struct.Struct(f">{_HEAD_BYTES}s{body_bytes}s2s{properties_bytes}s")


def decode_alike(body: bytes) -> AlikeBatch | None:
    """The messages of a batch body whose heads and lengths are all equal, as programs often send them.

    Five times as fast as `decode_batch`, which accepts every batch. None for other batches and invalid
    bodies.
    """
    if len(body) < BATCH_FIXED_BYTES:
        return None
    size, flag, body_bytes = _READ_HEAD.unpack_from(body)
    properties_bytes = size - BATCH_FIXED_BYTES - body_bytes
    if body_bytes < 0 or properties_bytes < 0 or len(body) % size:
        return None
    form = _alike_form(body_bytes, properties_bytes)
    heads, bodies, lengths, properties = zip(*form.iter_unpack(body), strict=True)
    length = properties_bytes.to_bytes(2, "big") if properties_bytes <= _PROPERTIES_BYTES_MAX else b""
    if heads.count(heads[0]) != len(heads) or lengths.count(length) != len(lengths):
        return None
    return AlikeBatch(flag, bodies, properties)
