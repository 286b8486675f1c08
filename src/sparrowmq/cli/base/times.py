"""Human-readable times and durations."""

from __future__ import annotations

from datetime import datetime


def when(milliseconds: int | None) -> str:
    """A time, epoch ms, in this machine's time zone, as options take it; a dash for none."""
    if not milliseconds:
        return "–"
    return datetime.fromtimestamp(milliseconds / 1000).isoformat(sep=" ", timespec="seconds")


def span(milliseconds: int) -> str:
    """A span in its biggest whole unit: `1 d`, `90 s`, `1500 ms`."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size} {unit}"
    return f"{milliseconds} ms"


def about(seconds: float) -> str:
    """A duration in its two biggest units: `3 d 4 h`, `5 min 10 s`, `0.4 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s" if seconds else "0 s"
    left = int(seconds)
    for big, unit, small, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if left >= unit:
            return f"{left // unit} {big} {left % unit // part} {small}"
    return f"{left} s"
