"""Human-readable times and durations.

All commands print times with their zone, and read times without one in it: UTC, or that of the environment
variable `SPARROW_TIME_ZONE`. Its name is also the default of the option `--time-zone` of pipelines and SQL.
"""

from __future__ import annotations

import os
import re
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from sparrowmq.cli.base.common import UsageError

VARIABLE: Final = "SPARROW_TIME_ZONE"
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d\d)(?::?(\d\d))?)?")
"""Other zones that Spark's SET TIME ZONE takes."""


def zone_of(name: str) -> tzinfo:
    """A time zone by its name or offset. Raises `UsageError`."""
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        hours, minutes, seconds = (int(part or 0) for part in offset.groups()[1:])
        distance = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(distance if offset[1] == "+" else -distance)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(
            f"{name!r} is not a time zone; give one such as Europe/Berlin", what="zone", value=name
        ) from None


def usual_zone() -> tzinfo:
    """The zone of commands without an option for it. Raises `UsageError`."""
    return zone_of(os.environ.get(VARIABLE) or "UTC")


def when(milliseconds: int | None, timespec: str = "seconds") -> str:
    """A time, epoch ms, with its zone, as options take it; a dash for none."""
    if not milliseconds:
        return "–"
    return datetime.fromtimestamp(milliseconds / 1000, usual_zone()).isoformat(sep=" ", timespec=timespec)


def moment(text: str) -> datetime:
    """A time since 1970 in ISO 8601; without a zone it is in the usual one. Raises ValueError,
    OverflowError.
    """
    found = datetime.fromisoformat(text)
    found = found if found.tzinfo else found.replace(tzinfo=usual_zone())
    if found.timestamp() < 0:
        raise ValueError(f"{text} is before 1970")
    return found


def millis(text: str | None, zone: tzinfo | None = None) -> int | None:
    """A time in epoch milliseconds; without a zone it is in `zone`, or the usual one. Raises `UsageError`."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        found = found if found.tzinfo else found.replace(tzinfo=zone or usual_zone())
        return int(found.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise UsageError(
            f"{text!r} is not a time: give one such as 2026-11-21T08:00:00", what="time", value=text
        ) from None


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
