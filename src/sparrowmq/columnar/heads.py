"""What the head of one stored record says, without decoding the rest.

For processes that look at a few records only: it needs neither numpy nor pyarrow.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from sparrowmq.core.errors import RecordError
from sparrowmq.protocol.sysflag import BORN_HOST_V6

_TO_BORN: Final = struct.Struct(">8xI8xqqiq")
_STORED: Final = struct.Struct(">q")
_STORED_AT: Final = 56
_HOST_V6_MORE: Final = 12
_HEAD_BYTES: Final = _STORED_AT + _HOST_V6_MORE + _STORED.size
"""At most; every record is longer."""


class RecordHead(NamedTuple):
    """Parts of a record's head; timestamps are epoch milliseconds."""

    body_crc: int
    queue_offset: int
    physical_offset: int
    born_timestamp: int
    store_timestamp: int


def first_head(buffer: bytes) -> RecordHead | None:
    """The head of the first record of `buffer`, None if it is empty.

    Raises `RecordError` when there is less than a head.
    """
    if not buffer:
        return None
    if len(buffer) < _HEAD_BYTES:
        text = f"{len(buffer)} bytes are less than the head of a record, which has {_HEAD_BYTES}"
        raise RecordError(text, what="head", value=len(buffer), limit=_HEAD_BYTES)
    crc, queue_offset, physical_offset, flags, born = _TO_BORN.unpack_from(buffer)
    stored_at = _STORED_AT + (_HOST_V6_MORE if flags & BORN_HOST_V6 else 0)
    return RecordHead(crc, queue_offset, physical_offset, born, _STORED.unpack_from(buffer, stored_at)[0])
