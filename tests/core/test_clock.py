"""The machine's clocks."""

from __future__ import annotations

import time

from sparrowmq.core.clock import Clock, SystemClock


def test_wall_time_is_in_epoch_milliseconds() -> None:
    clock: Clock = SystemClock()
    before = time.time_ns() // 1_000_000
    now = clock.now_ms()
    assert before <= now <= time.time_ns() // 1_000_000


def test_the_monotonic_clock_does_not_go_back() -> None:
    clock: Clock = SystemClock()
    readings = [clock.monotonic() for _ in range(100)]
    assert readings == sorted(readings)
