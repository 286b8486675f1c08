"""Human-readable values: counts, sizes, rates, durations, times. Pure.

None is shown as unknown, and zero as zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from sparrowmq.console.texts import Words

UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
SPANS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
NAMES_MAX: Final = 20
"""Names, or sentences, that a page lists at most outside its tables."""
LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999: later times are invalid."""


def count(value: int) -> str:
    """A number with thin spaces between thousands, as is usual in both languages."""
    return f"{value:,}".replace(",", "\u202f")


def rate(value: float) -> str:
    """A rate with one decimal below a hundred."""
    return f"{value:.1f}" if value < 100 else count(round(value))


def size(value: float) -> str:
    """Bytes in the unit that gives one to four digits before the point."""
    for unit in UNITS:
        if value < 1024 or unit == UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f}\u202fB" if unit == "B" else f"{value:.1f}\u202f{unit}"


def span(milliseconds: float) -> str:
    """A duration in its two largest units; below a second in milliseconds."""
    if milliseconds < 1000:
        return f"{max(0, milliseconds):.0f}\u202fms"
    left, parts = int(milliseconds // 1000), []
    for length, unit in SPANS:
        number, left = divmod(left, length)
        if number:
            parts.append(f"{number}\u202f{unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


def moment(at_ms: int) -> str:
    """A moment in UTC; a script in the browser replaces it by the reader's own time and zone."""
    if not 0 < at_ms <= LAST_MS:
        return str(at_ms)
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(at_ms: int) -> str:
    """The same for programs."""
    if not 0 < at_ms <= LAST_MS:
        return str(at_ms)
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def listed(names: Sequence[object]) -> str:
    """Names in one line: the first ones, and how many more there are."""
    more = f", … (+{len(names) - NAMES_MAX})" if len(names) > NAMES_MAX else ""
    return (", ".join(map(str, names[:NAMES_MAX])) or "–") + more


def first(says: Sequence[str], words: Words, left: int = 0) -> list[str]:
    """The first of these sentences, and how many more there are; `left` more are not in the list."""
    left += max(0, len(says) - NAMES_MAX)
    return [*says[:NAMES_MAX], *([words("word.further", count=left)] if left else [])]


def said(kind: str, value: object, words: Words) -> str:
    """A value of a kind in words: `unknown` for None."""
    if value is None:
        return words("word.unknown")
    if isinstance(value, bool):
        return words("word.yes") if value else words("word.no")
    if isinstance(value, int | float):
        if kind == "bytes":
            return size(value)
        if kind == "rate":
            return rate(value)
        if kind == "span":
            return span(value)
        if kind == "time":
            return moment(int(value)) if value else words("word.never")
        return count(value) if isinstance(value, int) else f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(str(one) for one in value)
    return str(value)
