from __future__ import annotations

from dataclasses import replace

import pytest

from sparrowmq.coordinator.upkeep.cleaning import Cut, Overdue, in_hours, next_cut, overdue, quiet_faults
from sparrowmq.coordinator.upkeep.logs import HOUR_MS, BrokerLog, CleaningRules, Held, LogSample

MIDNIGHT = 1000 * 24 * HOUR_MS
RULES = CleaningRules(reserved_hours=10, delete_hours=frozenset({4}), file_bytes=100)


def hour_of(at: int) -> int:
    return at // HOUR_MS % 24


def log(hour: float, *, begin: int = 0, end: int = 1000, free: int = 900, **more: object) -> BrokerLog:
    """A log at an hour of the day."""
    at = MIDNIGHT + round(hour * HOUR_MS)
    return BrokerLog("a", "h", RULES, LogSample(at, begin, end, 1000, free), **more)  # type: ignore[arg-type]


def written(*at: tuple[float, int]) -> list[LogSample]:
    """Samples: hours of the day and the end of the log."""
    return [LogSample(MIDNIGHT + round(hour * HOUR_MS), 0, end, 1000, 900) for hour, end in at]


ALL_DAY = written((-24, 0), (-14, 100), (-4, 200), (6, 300))


def test_file_is_overdue_when_it_survived_a_whole_cleaning_hour() -> None:
    """Its last byte was written at 10 o'clock yesterday; it is 10 hours old at 20, and the next cleaning
    is at 4."""
    expired = MIDNIGHT - 4 * HOUR_MS
    at_five = Overdue(expired, MIDNIGHT + 5 * HOUR_MS, 100)
    assert [overdue(log(hour), ALL_DAY, hour_of) for hour in (3, 4, 4.9)] == [None] * 3
    assert [overdue(log(hour), ALL_DAY, hour_of) for hour in (5, 12)] == [at_five, at_five]


@pytest.mark.parametrize(
    "gone",
    [
        log(5, begin=100),
        log(5, end=100),
        log(5, end=50),
        log(5, holds=(Held("t", "g", MIDNIGHT - 20 * HOUR_MS, MIDNIGHT * 2),)),
        replace(log(5), rules=replace(RULES, reserved_hours=20)),
        replace(log(5), rules=replace(RULES, delete_hours=frozenset({6}))),
    ],
    ids=["gone", "written to", "one file", "held", "young", "later"],
)
def test_files_that_may_exist_are_not_overdue(gone: BrokerLog) -> None:
    assert overdue(gone, ALL_DAY, hour_of) is None


def test_nothing_is_known_before_the_first_sample() -> None:
    assert overdue(log(5), written((-1, 500), (1, 600)), hour_of) is None
    assert overdue(log(5), [], hour_of) is None


def test_expired_or_later_hold_excuses_nothing() -> None:
    over = Held("t", "g", MIDNIGHT - 20 * HOUR_MS, ends_ms=MIDNIGHT)
    later = Held("t", "g", MIDNIGHT - 2 * HOUR_MS, ends_ms=MIDNIGHT * 2)
    assert overdue(log(5, holds=(over, later)), ALL_DAY, hour_of) is not None


def test_next_cleaning_deletes_whole_files_that_will_be_old_enough() -> None:
    """At 5 o'clock 10 hours back is 19 o'clock, when the log was at 150: one file of 100 is deleted."""
    assert next_cut(log(1), ALL_DAY, hour_of) == Cut(MIDNIGHT + 4 * HOUR_MS, MIDNIGHT - 14 * HOUR_MS)
    assert next_cut(log(1, begin=100), ALL_DAY, hour_of) is None
    assert next_cut(log(4.5), ALL_DAY, hour_of) == Cut(log(4.5).now.at, MIDNIGHT - 14 * HOUR_MS)
    assert next_cut(log(1), [], hour_of) is None


def test_nearly_full_disk_is_cleaned_now() -> None:
    """At 12 o'clock ten hours back is 3 o'clock, when the log was at 270."""
    full = log(12, free=200)
    assert next_cut(full, ALL_DAY, hour_of) == Cut(full.now.at, MIDNIGHT - 4 * HOUR_MS)
    tomorrow = next_cut(log(12), ALL_DAY, hour_of)
    assert tomorrow is not None
    assert tomorrow.at == MIDNIGHT + 28 * HOUR_MS


def test_file_being_written_stays() -> None:
    young = replace(log(1, end=150), rules=replace(RULES, reserved_hours=0))
    cut = next_cut(young, written((-5, 0), (-2, 120), (1, 150)), hour_of)
    assert cut is not None
    assert MIDNIGHT - 3 * HOUR_MS < cut.before_ms < MIDNIGHT - 2 * HOUR_MS


def test_held_files_are_not_deleted() -> None:
    held = Held("t", "g", MIDNIGHT - 20 * HOUR_MS, ends_ms=MIDNIGHT * 2)
    cut = next_cut(log(1, holds=(held,)), ALL_DAY, hour_of)
    assert cut == Cut(MIDNIGHT + 4 * HOUR_MS, MIDNIGHT - 20 * HOUR_MS)
    gives_way = replace(held, ends_ms=MIDNIGHT + 3 * HOUR_MS)
    cut = next_cut(log(1, holds=(gives_way,)), ALL_DAY, hour_of)
    assert cut == Cut(MIDNIGHT + 4 * HOUR_MS, MIDNIGHT - 14 * HOUR_MS)


@pytest.mark.parametrize(
    ("hour", "begin", "end", "within"),
    [
        (8, 8, 18, True),
        (17, 8, 18, True),
        (18, 8, 18, False),
        (7, 8, 18, False),
        (23, 22, 6, True),
        (5, 22, 6, True),
        (6, 22, 6, False),
        (0, 0, 0, False),
        (5, 5, 5, False),
    ],
)
def test_hours_may_span_midnight(hour: int, begin: int, end: int, within: bool) -> None:
    assert in_hours(hour, begin, end) is within


def test_cleaning_in_quiet_hours_is_named() -> None:
    daily = log(12)
    before, after = (
        LogSample(MIDNIGHT + 11 * HOUR_MS, 0, 900, 1000, 100),
        LogSample(daily.now.at, 300, 1000, 1000, 200),
    )
    assert quiet_faults(daily, [before, after], (8, 18), hour_of) == [
        "300 bytes of its log were deleted in the quiet hours; its disk is 80 % full, and "
        "diskMaxUsedSpaceRatio is 75"
    ]
    assert quiet_faults(daily, [before, after], (13, 18), hour_of) == []
    assert quiet_faults(daily, [before, after], (0, 0), hour_of) == []
    assert quiet_faults(daily, [before, after._replace(log_min=0)], (8, 18), hour_of) == []
    long_ago = before._replace(at=before.at - 24 * HOUR_MS)
    assert quiet_faults(daily, [long_ago, after], (8, 18), hour_of) == []
    by_day = replace(daily, rules=replace(RULES, delete_hours=frozenset({4, 9, 10})))
    assert quiet_faults(by_day, [after], (8, 18), hour_of) == [
        "deleteWhen=09;10 is in the quiet hours from 8 to 18"
    ]
