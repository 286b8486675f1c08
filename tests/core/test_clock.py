"""The machine's clocks."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from tests.support import about

from sparrowmq.core.clock import (
    SLACK_MS,
    CautiousClock,
    Clock,
    SystemClock,
    epoch_ms,
)
from sparrowmq.core.errors import SettingsError


def test_wall_time_is_in_epoch_milliseconds() -> None:
    clock: Clock = SystemClock()
    before = time.time_ns() // 1_000_000
    now = clock.now_ms()
    assert before <= now <= time.time_ns() // 1_000_000


def test_monotonic_clock_does_not_go_back() -> None:
    clock: Clock = SystemClock()
    readings = [clock.monotonic() for _ in range(100)]
    assert readings == sorted(readings)


class Moved:
    """A wall clock and a monotonic time that tests set separately."""

    wall, seconds = 1_000_000, 5.0

    def now_ms(self) -> int:
        return self.wall

    def monotonic(self) -> float:
        return self.seconds


def test_clock_jump_ahead_counts_after_a_delay() -> None:
    moved = Moved()
    clock = CautiousClock(moved, patience_ms=1000)
    assert clock.now_ms() == 1_000_000
    moved.wall += SLACK_MS
    assert clock.now_ms() == 1_060_000, "a clock is set right now and then"
    moved.wall += 10**9
    assert clock.now_ms() == 1_060_000
    moved.wall, moved.seconds = moved.wall + 900, 5.9
    assert clock.now_ms() == 1_060_900
    moved.seconds = 6.0
    assert clock.now_ms() == moved.wall
    moved.wall = 500
    assert clock.now_ms() == 500, "back it goes at once"


def test_times_are_taken_as_datetimes_and_as_milliseconds() -> None:
    summer = timezone(timedelta(hours=2))
    assert epoch_ms("since", datetime(1970, 1, 1, 2, 0, 1, 999, tzinfo=summer)) == 1000
    assert epoch_ms("since", datetime(2024, 5, 1, 12, 30, 0, 123_000, UTC)) == 1_714_566_600_123
    assert epoch_ms("since", 1_714_566_600_123) == 1_714_566_600_123


@pytest.mark.parametrize(
    "at", [datetime(2024, 5, 1, 12, 30), datetime(1969, 1, 1, tzinfo=UTC), -1, 2**63, 1.5, True]
)
def test_other_times_are_refused(at: datetime | int) -> None:
    with pytest.raises(SettingsError, check=about(setting="since", value=at)):
        epoch_ms("since", at)
