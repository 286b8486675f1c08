"""Counters of a store: puts, reads, and the duration of puts (broker:16.1).

The hot paths increment plain numbers once per chunk or read; `tick` converts them into rates.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, NamedTuple

SLOTS: Final = (
    "[<=0ms]",
    "[0~10ms]",
    "[10~50ms]",
    "[50~100ms]",
    "[100~200ms]",
    "[200~500ms]",
    "[500ms~1s]",
    "[1~2s]",
    "[2~3s]",
    "[3~4s]",
    "[4~5s]",
    "[5~10s]",
    "[10s~]",
)
QUICK_SECONDS: Final = 0.001
"""Shorter chunks belong in the first slot. Nearly all are shorter, so they are counted separately."""

_BOUNDS: Final = (QUICK_SECONDS, 0.010, 0.050, 0.100, 0.200, 0.500, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0)
WINDOW_SECONDS: Final = (10, 60, 600)
SAMPLES_KEPT: Final = 602


class StatsSample(NamedTuple):
    """The counters at one time, in monotonic seconds."""

    at: float
    puts: int
    found: int
    missed: int
    transferred: int


@dataclass(slots=True)
class StoreStats:
    """Totals since the store was opened, except `put_seconds_max`, the maximum.

    `quick` counts chunks that took less than a millisecond; `found` and `missed` count reads that returned
    messages or none; `transferred` counts the messages returned. `lost` counts messages that were due, but
    whose topic was deleted or of which no record holds a copy.
    """

    puts: int = 0
    put_bytes: int = 0
    put_failures: int = 0
    lost: int = 0
    put_seconds_max: float = 0.0
    found: int = 0
    missed: int = 0
    transferred: int = 0
    quick: int = 0
    last_slow: tuple[float, float] = (0.0, 0.0)
    """The last chunk that took a millisecond or more: when it was stored (monotonic seconds), and how long
    that took.
    """
    _slow: list[int] = field(default_factory=lambda: [0] * len(SLOTS))
    _samples: deque[StatsSample] = field(default_factory=lambda: deque(maxlen=SAMPLES_KEPT))

    def lose(self) -> None:
        """Count a message that was due and could not be stored again."""
        self.lost += 1

    def put_took(self, seconds: float) -> None:
        """Count a chunk that took this many seconds."""
        self._slow[bisect_left(_BOUNDS, seconds)] += 1
        self.last_slow = monotonic(), seconds
        if seconds > self.put_seconds_max:
            self.put_seconds_max = seconds

    @property
    def put_slots(self) -> list[int]:
        """How many chunks fall into each of `SLOTS` by duration."""
        return [self.quick + self._slow[0], *self._slow[1:]]

    def put_percentile(self, part: float) -> float:
        """Seconds within which this fraction of the chunks was stored, as the upper bound of a slot."""
        wanted, seen = part * sum(self.put_slots), 0
        for bound, count in zip(_BOUNDS, self.put_slots, strict=False):
            seen += count
            if seen >= wanted:
                return min(bound, self.put_seconds_max)
        return self.put_seconds_max

    def tick(self, now: float) -> None:
        """Sample the counters; called about once a second with monotonic seconds."""
        self._samples.append(StatsSample(now, self.puts, self.found, self.missed, self.transferred))

    def rates(self, name: str) -> tuple[float, float, float]:
        """Rates per second over the last 10, 60 and 600 s, or over the time counted so far; `name` is a field
        of `StatsSample`.

        `total` is the sum of found and missed.
        """
        short, middle, long = (self._rate(name, seconds) for seconds in WINDOW_SECONDS)
        return short, middle, long

    def _rate(self, name: str, seconds: int) -> float:
        samples = self._samples
        if len(samples) < 2:
            return 0.0
        last = samples[-1]
        first = next(sample for sample in samples if sample.at >= last.at - seconds or sample is last)
        if last.at <= first.at:
            return 0.0
        return (_count(last, name) - _count(first, name)) / (last.at - first.at)


def _count(sample: StatsSample, name: str) -> int:
    if name == "total":
        return sample.found + sample.missed
    return int(getattr(sample, name))
