"""The machine's clocks."""

from __future__ import annotations

import time

from sparrowmq.core.clock import SLACK_MS, CautiousClock, Clock, SystemClock


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
