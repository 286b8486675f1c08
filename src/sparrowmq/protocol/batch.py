"""The body of a batch send: small records back to back, without a count (remoting:5.5).

total size 4 | magic 4 (0) | CRC 4 (0) | flag 4 | body length 4 | body | properties length 2 | properties
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from sparrowmq.core.errors import RecordError

_HEAD = struct.Struct(">iiiii")
_PROPERTIES_SIZE = struct.Struct(">h")
_READ_HEAD: Final = struct.Struct(">i8xii")
"""Total size, flag, body length; magic and CRC are not looked at."""

BATCH_FIXED_BYTES: Final = _HEAD.size + _PROPERTIES_SIZE.size
_HEAD_BYTES: Final = _HEAD.size

BatchItem = tuple[int, bytes, bytes]
"""(flag, body, properties)"""


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
        raise RecordError(f"a message does not fit a batch: {error}") from None
    return b"".join(parts)


def decode_batch(body: bytes) -> list[BatchItem]:
    """The messages of a batch body, in order.

    Raises `RecordError` when it is empty or a length does not fit.
    """
    position, end = 0, len(body)
    if not end:
        raise RecordError("a batch without any message")
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
                    f"properties {properties_size}"
                )
            items.append((flag, body[start:properties_at], body[properties_at + 2 : position + size]))
            position += size
    except struct.error:
        raise RecordError(f"a batch of {end} bytes ends within the message at byte {position}") from None
    if position != end:
        raise RecordError(f"a batch of {end} bytes should have {position} by the size of its last message")
    return items
