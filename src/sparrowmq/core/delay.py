"""Delay levels: how long a message of each level waits (broker:8.1)."""

from __future__ import annotations

from typing import Final

DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ's default `messageDelayLevel`; level 1 is the first."""

_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DELAYS_MS: Final = tuple(int(text[:-1]) * _UNIT_MS[text[-1]] for text in DELAY_LEVELS.split())


def delay_ms(level: int) -> int:
    """The delay of `level` in milliseconds; a level above the last counts as the last.

    >>> delay_ms(1), delay_ms(99)
    (1000, 7200000)
    """
    if level < 1:
        raise ValueError(f"delay levels begin at 1, not {level}")
    return DELAYS_MS[min(level, len(DELAYS_MS)) - 1]


def level_after(seconds: float) -> int:
    """The first level that waits at least so many seconds; the last one when none does.

    >>> level_after(0), level_after(11), level_after(1e9)
    (1, 4, 18)
    """
    wanted = seconds * 1000
    return next((level for level, delay in enumerate(DELAYS_MS, 1) if delay >= wanted), len(DELAYS_MS))
