"""Hashes of index keys: Java's string hash of `topic#key`, computed from cached parts.

Most keys of a stream differ only in their last characters: unique keys of one client in a millisecond share
28 of 32, and numbers share their first digits. The hash of a string is the hash of its head times 31⁴ plus
the hash of its last four characters, and both parts are cached.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.core.hashing import java_hash

HEADS_KEPT: Final = 20_000
TAILS_KEPT: Final = 70_000
"""More than the 65,536 values of the last four hexadecimal digits of unique keys."""

_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000
_TAIL: Final = 4
_TAIL_FACTOR: Final = 31**_TAIL


def positive(value: int) -> int:
    """Java's `abs` of a 32-bit hash passed as an unsigned number; -2³¹ becomes 0 (broker:4.1)."""
    if value & _SIGN:
        value = 0x100000000 - value
        return 0 if value == _SIGN else value
    return value


def index_hash(text: str) -> int:
    """The hash used in the index for the key text `text`, for example `topic#key`."""
    return positive(java_hash(text) & _MASK)


class _Tails(dict[bytes, int]):
    """Hashes of the last four characters of keys."""

    def __missing__(self, tail: bytes) -> int:
        if len(self) >= TAILS_KEPT:
            self.clear()
        self[tail] = value = _polynomial(0, tail)
        return value


class _Heads(dict[bytes, int]):
    """Hashes of the text before the last four characters, times 31⁴; `start` is the hash of the prefix."""

    def __init__(self, start: int) -> None:
        self._start = start

    def __missing__(self, head: bytes) -> int:
        if len(self) >= HEADS_KEPT:
            self.clear()
        self[head] = value = _polynomial(self._start, head) * _TAIL_FACTOR & _MASK
        return value


_tails = _Tails()


class KeyHashes:
    """Hashes of UTF-8 keys that follow `prefix`."""

    __slots__ = ("_heads", "_prefix")

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._heads = _Heads(java_hash(prefix) & _MASK)

    def of(self, key: bytes) -> int:
        """The `index_hash` of prefix and key together."""
        if len(key) < _TAIL or not key.isascii():
            return index_hash(self._prefix + key.decode("utf-8", "replace"))
        value = self._heads[key[:-4]] + _tails[key[-4:]] & _MASK
        if value & _SIGN:
            value = 0x100000000 - value
            return 0 if value == _SIGN else value
        return value


class TagHashes(dict[bytes, int]):
    """Hashes of tags that follow `prefix`, cached by tag."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __missing__(self, tag: bytes) -> int:
        if len(self) >= HEADS_KEPT:
            self.clear()
        self[tag] = value = index_hash(self._prefix + tag.decode("utf-8", "replace"))
        return value


def _polynomial(value: int, text: bytes) -> int:
    """Java's hash of ASCII text that follows a text with hash `value`, modulo 2³²."""
    for byte in text:
        value = 31 * value + byte & _MASK
    return value
