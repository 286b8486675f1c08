"""Java's string hash, which RocketMQ uses for tag codes, index slots and the hash queue selector."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)
def java_hash(text: str) -> int:
    """`String.hashCode` of `text`: over UTF-16 code units, as a signed 32-bit integer (client:Z-01).

    >>> java_hash("TagA")
    2598919
    """
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


def tags_code(tags: str | None) -> int:
    """The tag code that a consume queue stores for a message; 0 without tags (broker:3.1)."""
    return java_hash(tags) if tags else 0
