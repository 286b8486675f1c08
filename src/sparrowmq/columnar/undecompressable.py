"""Compressed bodies that cannot be decompressed, in a chunk that `decode` refused because of one."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from sparrowmq.columnar.layout import layout
from sparrowmq.core.errors import CompressedBodyError
from sparrowmq.protocol.compression import decompress
from sparrowmq.protocol.sysflag import COMPRESSED

_SYS_FLAG_AT: Final = 36
"""The position of sysFlag in a record of either version."""
_INT = struct.Struct(">i")


def as_stored(buffer: bytes) -> tuple[bytes, dict[int, str]]:
    """The records with such bodies marked as uncompressed, and the error of each by queue offset.

    `decode` then returns their bytes as they are stored. Raises `RecordError` on bytes that are not records.
    """
    places = layout(buffer)
    flags = places.heads["sys_flag"]
    changed, reasons = bytearray(buffer), dict[int, str]()
    for row in np.flatnonzero(flags & COMPRESSED):
        flag = int(flags[row])
        try:
            decompress(buffer[places.body[row] : places.body_end[row]], flag)
        except CompressedBodyError as error:
            reasons[int(places.heads["queue_offset"][row])] = str(error)
            _INT.pack_into(changed, int(places.start[row]) + _SYS_FLAG_AT, flag & ~COMPRESSED)
    return bytes(changed), reasons
