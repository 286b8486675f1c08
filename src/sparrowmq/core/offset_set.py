"""A set of queue offsets that needs one bit per offset, for offsets that are close together."""

from __future__ import annotations

from typing import Final

PAGE_BITS: Final = 12
PAGE: Final = 1 << PAGE_BITS
"""Offsets per page; a page takes an eighth of that in bytes."""
_FULL: Final = bytearray(b"\xff" * (PAGE // 8))


class OffsetSet:
    """Offsets from `first` on; smaller ones count as members, and adding them does nothing. `count` is the
    number of members from `first` on.

    Its memory is one bit for each offset between `first` and the largest member.
    """

    __slots__ = ("_pages", "count", "first")

    def __init__(self, first: int) -> None:
        self.first = first
        self._pages: dict[int, bytearray] = {}
        self.count = 0

    def __contains__(self, offset: int) -> bool:
        if offset < self.first:
            return True
        page = self._pages.get(offset >> PAGE_BITS)
        return page is not None and bool(page[(offset & (PAGE - 1)) >> 3] >> (offset & 7) & 1)

    def __repr__(self) -> str:
        return f"<OffsetSet {self.count} from {self.first} on>"

    def add(self, offset: int) -> None:
        """Add an offset."""
        if offset < self.first:
            return
        page = self._pages.get(offset >> PAGE_BITS)
        if page is None:
            page = self._pages[offset >> PAGE_BITS] = bytearray(PAGE // 8)
        place, bit = (offset & (PAGE - 1)) >> 3, 1 << (offset & 7)
        if not page[place] & bit:
            page[place] |= bit
            self.count += 1

    def skip(self, offset: int, end: int) -> int:
        """The first offset from `offset` on that is not a member; `end` when all before it are members."""
        while offset < end and offset in self:
            whole = not offset & (PAGE - 1) and self._pages.get(offset >> PAGE_BITS) == _FULL
            offset += PAGE if whole else 1
        return min(offset, end)

    def advance(self, first: int) -> None:
        """Set a new start `first`, which must not be smaller than the old one."""
        if first <= self.first:
            return
        self.first = first
        number, within = first >> PAGE_BITS, first & (PAGE - 1)
        for old in [old for old in self._pages if old < number]:
            self.count -= int.from_bytes(self._pages.pop(old), "little").bit_count()
        page = self._pages.get(number)
        if page is not None and within:
            bits = int.from_bytes(page, "little")
            below = bits & ((1 << within) - 1)
            self.count -= below.bit_count()
            page[:] = (bits ^ below).to_bytes(PAGE // 8, "little")
