"""The bloom filter of RocketMQ's consumer filter data (broker:14.2).

Only its bit positions are stored, in `consumerFilter.json`. A broker that writes bit maps beside its queues
uses them to mark the groups that want a message.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

ERROR_PERCENT: Final = 20
EXPECTED_GROUPS: Final = 32
"""RocketMQ's defaults (`maxErrorRateOfBloomFilter`, `expectConsumerNumUseFilter`)."""

_MASK: Final = 0xFFFFFFFFFFFFFFFF
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A filter for `groups` names with an error rate of `percent`."""

    percent: int = ERROR_PERCENT
    groups: int = EXPECTED_GROUPS

    def __post_init__(self) -> None:
        if not 1 <= self.percent < 100 or self.groups < 1:
            raise ValueError(f"a bloom filter takes 1 to 99 percent and 1 name or more, not {self}")

    @property
    def hashes(self) -> int:
        """Bits set per name."""
        return math.ceil(math.log(self.percent / 100) / math.log(0.5))

    @property
    def bits(self) -> int:
        """Length in bits, whole bytes."""
        rate = self.percent / 100
        least = math.ceil(self.groups * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        return 8 * math.ceil(least / 8)

    def positions(self, name: str) -> tuple[int, ...]:
        """The bits of `name`."""
        hashed = murmur3_low64(name.encode("utf-8", "replace"))
        low, high = hashed & 0xFFFFFFFF, hashed >> 32
        found = []
        for step in range(1, self.hashes + 1):
            combined = (low + step * high) & 0xFFFFFFFF
            if combined & 0x80000000:
                combined ^= 0xFFFFFFFF
            found.append(combined % self.bits)
        return tuple(found)


def murmur3_low64(data: bytes) -> int:
    """The first 64 bits of MurmurHash3 x64 128 with seed 0, as an unsigned number."""
    first = second = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        first ^= _mix(int.from_bytes(data[at : at + 8], "little"), _C1, 31, _C2)
        first = (_rotate(first, 27) + second) * 5 + 0x52DCE729 & _MASK
        second ^= _mix(int.from_bytes(data[at + 8 : at + 16], "little"), _C2, 33, _C1)
        second = (_rotate(second, 31) + first) * 5 + 0x38495AB5 & _MASK
    tail = data[whole:]
    second ^= _mix(int.from_bytes(tail[8:], "little"), _C2, 33, _C1)
    first ^= _mix(int.from_bytes(tail[:8], "little"), _C1, 31, _C2)
    first ^= len(data)
    second ^= len(data)
    first = first + second & _MASK
    second = second + first & _MASK
    return _finish(first) + _finish(second) & _MASK


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _mix(value: int, before: int, bits: int, after: int) -> int:
    return _rotate(value * before & _MASK, bits) * after & _MASK


def _finish(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
