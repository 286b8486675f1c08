"""Clocks that are wrong, for tests that kill: each life of a process gets another one.

`python -m tests.crash.clocks CLOCK` is `sparrowmq.runtime.child` on such a clock.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Final

from tests.store.rig import ManualClock

from sparrowmq.core.clock import SystemClock
from sparrowmq.runtime import child as runtime_child
from sparrowmq.runtime.child import ChildServers

HOUR_MS: Final = 3_600_000
CLOCKS: Final = ("right", "ahead", "back", "stopped")
"""Right; ahead a year; back an hour; stopped at the moment it was made."""

_SHIFTS: Final = {"ahead": 365 * 24 * HOUR_MS, "back": -HOUR_MS}


class WrongClock(SystemClock):
    """The machine's clock, shifted or stopped."""

    def __init__(self, kind: str) -> None:
        self._shift = _SHIFTS.get(kind, 0)
        self._stopped = _right_ms() if kind == "stopped" else None

    def now_ms(self) -> int:
        """Epoch milliseconds, as this clock shows them."""
        return _right_ms() + self._shift if self._stopped is None else self._stopped


def _right_ms() -> int:
    return time.time_ns() // 1_000_000


def jumped(number: int) -> ManualClock:
    """A clock of the store's tests that stood, or jumped an hour back or a year ahead."""
    clock = ManualClock()
    clock.ms += (0, -HOUR_MS, 365 * 24 * HOUR_MS)[number % 3]
    return clock


def clock_of(life: int) -> str:
    """The clock of a process' so manieth life: all come in turn, the right one first."""
    return CLOCKS[life % len(CLOCKS)]


@dataclass(slots=True)
class ClockedServers(ChildServers):
    """Servers in a child process whose clock is one of `CLOCKS`."""

    clock: str = "right"

    def _program(self) -> list[str]:
        return ["-m", "tests.crash.clocks", self.clock]


def main() -> int:
    """Run servers whose `SystemClock` is wrong."""
    wrong = WrongClock(sys.argv[1])
    setattr(SystemClock, "now_ms", lambda _: WrongClock.now_ms(wrong))  # noqa: B010 - for this process only
    return runtime_child._main()


if __name__ == "__main__":
    sys.exit(main())
