"""Blocks: the values of a few dozen series over a few dozen steps, packed into one row of the database.

Pure. A block is one array of 4-byte floats, the steps of the first series before those of the second, so that
constant figures take almost no space when compressed. Values keep seven digits.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from typing import Final

from sparrowmq.coordinator.history.grains import UNKNOWN

SERIES: Final = 64
"""Number of series in one block."""
LEVEL: Final = 1
FLOAT_MAX: Final = 3.4e38


def empty(points: int) -> array[float]:
    """A block in which all values are unknown."""
    return array("f", [UNKNOWN]) * (SERIES * points)


def packed(block: array[float]) -> bytes:
    """A block as it is stored: little-endian, compressed."""
    if sys.byteorder == "big":
        block = array("f", block)
        block.byteswap()
    return zlib.compress(block.tobytes(), LEVEL)


def unpacked(data: bytes, points: int) -> array[float]:
    """Decode a stored block. If it is malformed, all its values are unknown."""
    size = 4 * SERIES * points
    try:
        raw = zlib.decompressobj().decompress(data, size + 1)
    except zlib.error:
        raw = b""
    if len(raw) != size:
        return empty(points)
    block = array("f")
    block.frombytes(raw)
    if sys.byteorder == "big":
        block.byteswap()
    return block


def place_of(number: int) -> tuple[int, int]:
    """The shard of a series and its position there, from its number."""
    return divmod(number, SERIES)


def values_of(block: array[float], place: int, points: int) -> array[float]:
    """The values of the series at a position."""
    return block[place * points : (place + 1) * points]


def fitting(value: float) -> float:
    """A value that a block can store; unknown if it cannot."""
    return value if -FLOAT_MAX < value < FLOAT_MAX else UNKNOWN
