"""Header blocks of clients as texts by name (RFC 7541). Pure.

The static table and the Huffman code are those of the package `hpack`. Its decoder makes an object and
several log calls for each header, which is a third of the cost of a call; this one keeps texts in its table.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from hpack.exceptions import HPACKError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from sparrowmq.proxy.http2.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, Http2Error

TABLE_BYTES_MAX: Final = 4096
"""The table that a client may fill, as HTTP/2 has it by default."""
ENTRY_OVERHEAD: Final = 32
CODED_MAX: Final = 64
"""Maximum number of Huffman texts that a connection remembers: its user agent and its id are sent
repeatedly.
"""
CODED_BYTES_MAX: Final = 256
"""A longer Huffman text is not remembered."""
RESIZES_MAX: Final = 2
"""Changes of the table's size that a block may begin with: the smallest size and the last."""
_INTEGER_BYTES_MAX: Final = 5

Entry = tuple[str, str, int]
"""Name, value, and size as HTTP/2 counts it."""


def _entry(name: str, value: str) -> Entry:
    return name, value, len(name) + len(value) + ENTRY_OVERHEAD


_STATIC: Final[list[Entry]] = [
    _entry(name.decode(), value.decode()) for name, value in HeaderTable.STATIC_TABLE
]
_FIRST_STATIC: Final = 0x81
_FIRST_DYNAMIC: Final = _FIRST_STATIC + len(_STATIC)
_LONG_INDEX: Final = 0xFF
"""Bytes from which a header is an entry of the static table, of the connection's table, or has a number that
goes on in the next byte.
"""
_LONG_TEXT: Final = 0x7F
"""From this byte on a text is coded, or its length goes on in the next byte."""


class HeaderDecoder:
    """Decodes the blocks of one connection; headers of more than `list_bytes_max` bytes are refused."""

    __slots__ = ("_coded", "_dynamic", "_limit", "_list_max", "_size")

    def __init__(self, list_bytes_max: int) -> None:
        self._list_max = list_bytes_max
        self._dynamic: deque[Entry] = deque()
        self._size = 0
        self._limit = TABLE_BYTES_MAX
        self._coded: dict[bytes, str] = {}

    def decode(self, block: bytes) -> tuple[dict[str, str], int]:
        """Headers by name (the last one of equal names), and the size of all. Raises `Http2Error`."""
        found: dict[str, str] = {}
        total, at, resizes, end, dynamic = 0, 0, 0, len(block), self._dynamic
        try:
            while at < end:
                first = block[at]
                if _FIRST_STATIC <= first < _FIRST_DYNAMIC:
                    name, value, size = _STATIC[first - _FIRST_STATIC]
                    at += 1
                elif _FIRST_DYNAMIC <= first < _LONG_INDEX:
                    name, value, size = dynamic[first - _FIRST_DYNAMIC]
                    at += 1
                elif first & 0x80:
                    index, at = _integer(block, at, 0x7F)
                    name, value, size = self._at(index)
                elif first & 0xE0 == 0x20:
                    limit, at = _integer(block, at, 0x1F)
                    resizes += 1
                    self._resize(limit, first=not found and resizes <= RESIZES_MAX)
                    continue
                else:
                    (name, value, size), at = self._literal(block, at, first)
                found[name] = value
                total += size
                if total > self._list_max:
                    raise Http2Error(ENHANCE_YOUR_CALM, f"headers of more than {self._list_max} bytes")
        except (IndexError, HPACKError):
            raise Http2Error(COMPRESSION_ERROR, "headers that are not HPACK") from None
        return found, total

    def _literal(self, block: bytes, at: int, first: int) -> tuple[Entry, int]:
        mask = 0x3F if first & 0x40 else 0x0F
        index = first & mask
        if index < mask:
            at += 1
        else:
            index, at = _integer(block, at, mask)
        if index:
            name = self._at(index)[0]
        else:
            name, at = self._text(block, at)
        value, at = self._text(block, at)
        entry = name, value, len(name) + len(value) + ENTRY_OVERHEAD
        if first & 0x40:
            self._size += entry[2]
            self._dynamic.appendleft(entry)
            if self._size > self._limit:
                self._evict()
        return entry, at

    def _at(self, index: int) -> Entry:
        if 0 < index <= len(_STATIC):
            return _STATIC[index - 1]
        if not index:
            raise IndexError
        return self._dynamic[index - len(_STATIC) - 1]

    def _text(self, block: bytes, at: int) -> tuple[str, int]:
        short = block[at]
        if short < _LONG_TEXT:
            at += 1
            raw = block[at : at + short]
            if len(raw) < short:
                raise IndexError
            return raw.decode("latin-1"), at + short
        coded = short & 0x80
        length, at = _integer(block, at, 0x7F)
        raw = block[at : at + length]
        if len(raw) < length:
            raise IndexError
        if not coded:
            return raw.decode("latin-1"), at + length
        if length > CODED_BYTES_MAX:
            if length > self._list_max:
                raise Http2Error(ENHANCE_YOUR_CALM, f"a header text of {length} bytes")
            return decode_huffman(raw).decode("latin-1"), at + length
        text = self._coded.get(raw)
        if text is None:
            text = decode_huffman(raw).decode("latin-1")
            if len(self._coded) >= CODED_MAX:
                del self._coded[next(iter(self._coded))]
            self._coded[raw] = text
        return text, at + length

    def _resize(self, limit: int, *, first: bool) -> None:
        if limit > TABLE_BYTES_MAX or not first:
            raise IndexError
        self._limit = limit
        self._evict()

    def _evict(self) -> None:
        while self._size > self._limit:
            self._size -= self._dynamic.pop()[2]


def _integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    value = block[at] & mask
    at += 1
    if value < mask:
        return value, at
    for shift in range(0, 7 * _INTEGER_BYTES_MAX, 7):
        part = block[at]
        at += 1
        value += (part & 0x7F) << shift
        if part < 0x80:
            return value, at
    raise IndexError
