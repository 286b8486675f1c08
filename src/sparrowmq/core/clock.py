"""Time as an argument: code that reads the clock takes a `Clock`, code that waits takes a `Sleep`.

Inside, a time is epoch milliseconds; users may also give aware datetimes.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from sparrowmq.core.errors import SettingsError

SLACK_MS: Final = 60_000
"""How far a clock may jump ahead between two readings without being doubted."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_MS_MAX: Final = 2**63 - 1

Sleep = Callable[[float], Awaitable[object]]
"""Waits a number of seconds, as `asyncio.sleep` does."""


def epoch_ms(name: str, at: object) -> int:
    """A time, given as an aware datetime or epoch milliseconds, as whole epoch milliseconds.

    Raises `SettingsError`, which calls the argument `name`, for a datetime without a time zone, a time before
    1970 and anything else.
    """
    if isinstance(at, datetime):
        if at.tzinfo is None or at.utcoffset() is None:
            raise SettingsError(
                f"{name}={at.isoformat(sep=' ')} has no time zone; give an aware datetime, such as "
                f"datetime.now(UTC) or naive.astimezone(), or epoch milliseconds",
                name,
                at,
            )
        found = (at - _EPOCH) // _MILLISECOND
    elif isinstance(at, int) and not isinstance(at, bool):
        found = at
    else:
        raise SettingsError(
            f"{name}={at!r} is of type {type(at).__name__}; must be an aware datetime or epoch milliseconds",
            name,
            at,
        )
    if not 0 <= found <= _MS_MAX:
        raise SettingsError(f"{name}={at} is out of range; give a time since 1970", name, at)
    return found


class Clock(Protocol):
    """Wall time in epoch milliseconds and a monotonic time in seconds."""

    def now_ms(self) -> int:
        """Epoch milliseconds."""

    def monotonic(self) -> float:
        """Seconds that never go back."""


def uptime() -> float:
    """Seconds that never go back and go on while the process is frozen or the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()


class CautiousClock:
    """Wall time of a clock that may jump ahead: a jump is accepted once it has lasted for `patience_ms`.

    Until then time continues from its previous value. For data that must not expire because a clock was set
    wrong.
    """

    def __init__(self, clock: Clock, *, patience_ms: int) -> None:
        self._clock = clock
        self._patience_ms = patience_ms
        self._base_ms, self._base_seconds = clock.now_ms(), clock.monotonic()

    def now_ms(self) -> int:
        """Epoch milliseconds, without a jump ahead that is not confirmed yet."""
        wall, seconds = self._clock.now_ms(), self._clock.monotonic()
        passed = int((seconds - self._base_seconds) * 1000)
        if wall <= self._base_ms + passed + SLACK_MS or passed >= self._patience_ms:
            self._base_ms, self._base_seconds = wall, seconds
            return wall
        return self._base_ms + passed
