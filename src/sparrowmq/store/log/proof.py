"""A record that could look torn has a checksum of the whole record (broker:2.2, `enabledAppendPropCRC`).

The CRC of a record covers only its body. A power cut leaves whole sectors of zeros in a record that was not
flushed, and nearly all properties cannot contain zeros, so torn records are recognised without a checksum. A
record with a property that legally has as many zeros as a sector gets RocketMQ's checksum: the last property
is `__CRC32#`, ten digits with the least significant first, over everything before it.
"""

from __future__ import annotations

import re
from typing import Final

from sparrowmq.core.errors import RecordError
from sparrowmq.core.message import PROPERTIES_BYTES_MAX
from sparrowmq.protocol.crc import CRC_MASK, Buffer, crc32

SECTOR_BYTES: Final = 512
"""The smallest unit of a disk that is written or lost as a whole."""

PROOF_BYTES: Final = 20
_NAME: Final = b"__CRC32#\x01"
ROOM: Final = _NAME + bytes(10) + b"\x02"
"""Placeholder for the checksum."""

_PROOF: Final = re.compile(rb"(?:\A|(?<=\x02))" + re.escape(_NAME) + rb"[0-9]{10}\x02")
"""A complete property: the name of another property may have the same ending."""
_SECTOR: Final = bytes(SECTOR_BYTES)


def looks_torn(properties: bytes) -> bool:
    """Whether zeros in a property string look like those of a sector that was never written."""
    return _SECTOR in properties or properties.endswith(b"\0")


def with_room(properties: bytes) -> bytes:
    """A property string that ends in a placeholder for the checksum, which `seal` fills in; an existing
    checksum is removed.

    Raises `RecordError` when there is no room.
    """
    kept = _PROOF.sub(b"", properties)
    if kept and not kept.endswith(b"\x02"):
        kept += b"\x02"
    if len(kept) + PROOF_BYTES > PROPERTIES_BYTES_MAX:
        raise RecordError(
            f"properties of {len(properties)} bytes with {SECTOR_BYTES} NUL characters in a row need "
            f"{PROOF_BYTES} more for a checksum, the limit is {PROPERTIES_BYTES_MAX}; send less of them",
            what="properties",
            value=len(properties),
            limit=PROPERTIES_BYTES_MAX,
        )
    return kept + ROOM


def with_room_once(properties: bytes) -> bytes:
    """Like `with_room`, but keeps an existing placeholder, as in messages of a batch."""
    return properties if properties.endswith(ROOM) else with_room(properties)


def seal(record: bytes) -> bytes:
    """A record, whose properties come from `with_room`, with its checksum filled in."""
    covered = record[:-PROOF_BYTES]
    digits = f"{crc32(covered) & CRC_MASK:010d}"[::-1].encode()
    return covered + _NAME + digits + b"\x02"


def is_proven(record: Buffer) -> bool:
    """Whether a record ends in a valid checksum of the whole record."""
    found = _PROOF.fullmatch(bytes(record[-PROOF_BYTES:]))
    if found is None:
        return False
    digits = found[0][len(_NAME) : -1]
    return int(digits[::-1]) == crc32(record[:-PROOF_BYTES]) & CRC_MASK
