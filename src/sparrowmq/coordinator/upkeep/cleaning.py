"""Whether brokers delete files as configured, and which files are next (broker:2.7). Pure; hours are local
time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sparrowmq.coordinator.upkeep.logs import (
    DAY_MS,
    HOUR_MS,
    BrokerLog,
    LogSample,
    about_when,
    local_hour,
    position_at,
    time_at,
)

LOOK_BACK_HOURS: Final = 14 * 24
"""Number of past hours searched for one in which a broker should have deleted files."""
HourOf = Callable[[int], int]


@dataclass(frozen=True, slots=True)
class Overdue:
    """The oldest file of a log should have been deleted: it was old enough at `expired_at`, and the cleaning
    that should have taken it ended at `due_at`.
    """

    expired_at: int
    due_at: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Cut:
    """What the next deletion removes: messages stored before `before_ms`, in the hour that begins at `at`."""

    at: int
    before_ms: int


def overdue(log: BrokerLog, samples: Sequence[LogSample], hour_of: HourOf = local_hour) -> Overdue | None:
    """The oldest file of a log if it should have been deleted; None if not, or if unknown.

    It expires `fileReservedTime` after its last write, and is deleted in the next full hour of `deleteWhen`.
    The current file and held files are never deleted.
    """
    rules, now = log.rules, log.now
    end = (now.log_min // rules.file_bytes + 1) * rules.file_bytes
    written_at = time_at(samples, end)
    if now.log_max <= end or written_at is None:
        return None
    held = log.held_ms(now.at)
    if held is not None and held <= written_at:
        return None
    expired_at = written_at + rules.reserved_hours * HOUR_MS
    begin = max(_whole(expired_at), _whole(now.at) - LOOK_BACK_HOURS * HOUR_MS)
    for start in range(begin, now.at - HOUR_MS + 1, HOUR_MS):
        if hour_of(start) in rules.delete_hours:
            return Overdue(expired_at, start + HOUR_MS, end - now.log_min)
    return None


def next_cut(log: BrokerLog, samples: Sequence[LogSample], hour_of: HourOf = local_hour) -> Cut | None:
    """What is deleted in the broker's next cleaning hour, or now while its disk is too full; None if nothing
    is.
    """
    rules, now = log.rules, log.now
    at = _next_cleaning(log, hour_of)
    if at is None:
        return None
    known = position_at(samples, at + HOUR_MS - rules.reserved_hours * HOUR_MS)
    if known is None:
        return None
    position = min(known, now.log_max) // rules.file_bytes * rules.file_bytes
    before = about_when(samples, position)
    if position <= now.log_min or before is None:
        return None
    held = log.held_ms(at)
    return Cut(at, before if held is None else min(before, held))


def in_hours(hour: int, begin: int, end: int) -> bool:
    """Whether an hour is in [`begin`, `end`), also across midnight; never if both are equal."""
    return begin <= hour < end if begin <= end else hour >= begin or hour < end


def quiet_faults(
    log: BrokerLog, samples: Sequence[LogSample], quiet: tuple[int, int], hour_of: HourOf = local_hour
) -> list[str]:
    """What disturbs the quiet hours `(begin, end)`: a broker configured to delete files in them, or one that
    just did.
    """
    faults = []
    within = sorted(hour for hour in log.rules.delete_hours if in_hours(hour, *quiet))
    if within:
        hours = ";".join(f"{hour:02d}" for hour in within)
        faults.append(f"deleteWhen={hours} is in the quiet hours from {quiet[0]} to {quiet[1]}")
    if len(samples) > 1:
        before, after = samples[-2:]
        both = all(in_hours(hour_of(one.at), *quiet) for one in (before, after))
        gone = after.log_min - before.log_min
        if gone > 0 and both and after.at - before.at <= HOUR_MS:
            faults.append(
                f"{gone} bytes of its log were deleted in the quiet hours; its disk is {_percent(after)} % "
                f"full, "
                f"and diskMaxUsedSpaceRatio is {log.rules.used_max}"
            )
    return faults


def _next_cleaning(log: BrokerLog, hour_of: HourOf) -> int | None:
    now = log.now
    if _percent(now) > log.rules.used_max or hour_of(now.at) in log.rules.delete_hours:
        return now.at
    first = _whole(now.at)
    hours = range(first, first + DAY_MS, HOUR_MS)
    return next((start for start in hours if hour_of(start) in log.rules.delete_hours), None)


def _percent(sample: LogSample) -> int:
    return 0 if sample.total <= 0 else (sample.total - sample.free) * 100 // sample.total


def _whole(at: int) -> int:
    """The first full hour at or after a time; time zones with half hours are supported."""
    return -(-at // HOUR_MS) * HOUR_MS
