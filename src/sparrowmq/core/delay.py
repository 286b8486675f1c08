"""Delay levels: how long a message of each level waits (broker:8.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ's default `messageDelayLevel`; level 1 is the first."""

DELAY_MS_MAX: Final = 366 * 86_400_000
LEVELS_MAX: Final = 1000
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL: Final = re.compile(r"(\d{1,9})([smhd])")


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """The delays of a broker's levels in milliseconds; `delays[0]` is level 1."""

    delays: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> DelayLevels:
        """The levels of a setting such as `1s 5s 2h`: whole numbers with s, m, h or d, one blank between.

        Raises ValueError naming a level that is invalid, longer than 366 days, or one too many.
        """
        delays = []
        for word in text.split():
            found = _LEVEL.fullmatch(word)
            delay = int(found[1]) * _UNIT_MS[found[2]] if found else DELAY_MS_MAX + 1
            if delay > DELAY_MS_MAX:
                raise ValueError(f"{word!r} is not a delay: write a number and s, m, h or d, up to 366d")
            delays.append(delay)
        if not 1 <= len(delays) <= LEVELS_MAX:
            raise ValueError(f"{len(delays)} levels: write 1 to {LEVELS_MAX} of them, such as {DELAY_LEVELS}")
        return cls(tuple(delays))

    @property
    def highest(self) -> int:
        """The number of the last level."""
        return len(self.delays)

    def cut(self, level: int) -> int:
        """The requested level, or the last one if it is lower."""
        return min(level, len(self.delays))

    def delay_ms(self, level: int) -> int:
        """The delay of `level` in milliseconds; a level above the last counts as the last."""
        if level < 1:
            raise ValueError(f"delay levels begin at 1, not {level}")
        return self.delays[self.cut(level) - 1]

    def level_after(self, seconds: float) -> int:
        """The level with the shortest delay of at least `seconds`; without one, that with the longest delay.
        A table may be in any order.

        >>> [DEFAULT_LEVELS.level_after(seconds) for seconds in (0, 11, 1e9)]
        [1, 4, 18]
        """
        wanted = seconds * 1000
        enough = [delay for delay in self.delays if delay >= wanted]
        return self.delays.index(min(enough) if enough else max(self.delays)) + 1


DEFAULT_LEVELS: Final = DelayLevels.parse(DELAY_LEVELS)


def delay_ms(level: int) -> int:
    """The delay of `level` in milliseconds among RocketMQ's default levels.

    >>> delay_ms(1), delay_ms(99)
    (1000, 7200000)
    """
    return DEFAULT_LEVELS.delay_ms(level)
