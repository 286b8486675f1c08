"""What a store counts while it works: puts, reads, and how long the puts took (broker:16.1).

The counters are plain numbers that the hot paths raise once a chunk or a read; `tick` turns them into rates.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
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
"""A chunk that took less goes into the first slot; nearly all do, so they are counted apart."""

_BOUNDS: Final = (QUICK_SECONDS, 0.010, 0.050, 0.100, 0.200, 0.500, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0)
WINDOW_SECONDS: Final = (10, 60, 600)
SAMPLES_KEPT: Final = 602


class Sample(NamedTuple):
    """The counters at a time: monotonic seconds."""

    at: float
    puts: int
    found: int
    missed: int
    transferred: int


@dataclass(slots=True)
class StoreStats:
    """Totals since the store was opened, except `put_seconds_max`, the longest.

    `quick` counts chunks that took less than a millisecond, `found` and `missed` count reads that gave
    messages or none, `transferred` the messages they gave.
    """

    puts: int = 0
    put_bytes: int = 0
    put_failures: int = 0
    put_seconds_max: float = 0.0
    found: int = 0
    missed: int = 0
    transferred: int = 0
    quick: int = 0
    _slow: list[int] = field(default_factory=lambda: [0] * len(SLOTS))
    _samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=SAMPLES_KEPT))

    def put_took(self, seconds: float) -> None:
        """Count a chunk that took so long."""
        self._slow[bisect_left(_BOUNDS, seconds)] += 1
        if seconds > self.put_seconds_max:
            self.put_seconds_max = seconds

    @property
    def put_slots(self) -> list[int]:
        """How many chunks took how long, as `SLOTS`."""
        return [self.quick + self._slow[0], *self._slow[1:]]

    def put_percentile(self, part: float) -> float:
        """Seconds within which that part of the chunks was stored; the upper end of a slot."""
        wanted, seen = part * sum(self.put_slots), 0
        for bound, count in zip(_BOUNDS, self.put_slots, strict=False):
            seen += count
            if seen >= wanted:
                return min(bound, self.put_seconds_max)
        return self.put_seconds_max

    def tick(self, now: float) -> None:
        """Note the counters; called about once a second with monotonic seconds."""
        self._samples.append(Sample(now, self.puts, self.found, self.missed, self.transferred))

    def rates(self, name: str) -> tuple[float, float, float]:
        """Per second, over the last 10, 60 and 600 s or as long as it was counted, of one member of `Sample`.

        `total` is found and missed together.
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


def _count(sample: Sample, name: str) -> int:
    if name == "total":
        return sample.found + sample.missed
    return int(getattr(sample, name))
