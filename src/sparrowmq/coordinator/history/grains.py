"""Which figures are kept over time, at which resolution, how long, and how they are aggregated.

Pure. Unknown is NaN: a value that could not be measured is a gap, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

SECOND_MS: Final = 1000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
UNKNOWN: Final = math.nan


@dataclass(frozen=True, slots=True)
class Grain:
    """One resolution: a value every `step_ms`, `points` of them in one block, kept for `keep_ms`."""

    number: int
    step_ms: int
    points: int
    keep_ms: int

    @property
    def block_ms(self) -> int:
        """Duration of a block."""
        return self.step_ms * self.points

    def slot(self, at_ms: int) -> int:
        """The number of the step that contains a time."""
        return at_ms // self.step_ms

    def begin(self, slot: int) -> int:
        """The start of a step's block, in milliseconds."""
        return slot // self.points * self.block_ms


SECONDS: Final = Grain(0, 10 * SECOND_MS, 60, HOUR_MS)
MINUTES: Final = Grain(1, MINUTE_MS, 60, DAY_MS)
QUARTERS: Final = Grain(2, 15 * MINUTE_MS, 96, 30 * DAY_MS)
GRAINS: Final = (SECONDS, MINUTES, QUARTERS)
RANGES: Final[Mapping[str, Grain]] = {"1h": SECONDS, "24h": MINUTES, "30d": QUARTERS}
"""The requested range, and the grain that answers it."""


class Figure(Enum):
    """The figures, by kind of object. Rates are messages per second."""

    CLUSTER_IN = "cluster-in"
    CLUSTER_OUT = "cluster-out"
    TOPIC_IN = "topic-in"
    TOPIC_OUT = "topic-out"
    GROUP_LAG = "group-lag"
    """Waiting messages."""
    GROUP_AGE = "group-age"
    """Age of the oldest waiting message, in seconds."""
    QUEUE_LAG = "queue-lag"
    """Waiting messages of one group in one queue."""
    BROKER_IN = "broker-in"
    BROKER_OUT = "broker-out"
    BROKER_DISK = "broker-disk"
    """Used percentage of the disk."""
    BROKER_LOG = "broker-log"
    """Bytes of the commit log."""
    SERVICE_TOOK = "service-took"
    """Duration of the last run in seconds."""
    SERVICE_FAILED = "service-failed"
    """Runs that failed."""


PEAKS: Final = frozenset(
    {Figure.GROUP_LAG, Figure.GROUP_AGE, Figure.QUEUE_LAG, Figure.BROKER_DISK, Figure.BROKER_LOG}
    | {Figure.SERVICE_TOOK}
)
"""Figures aggregated by maximum; those of `SUMS` are summed, the others are averaged."""
SUMS: Final = frozenset({Figure.SERVICE_FAILED})
_NAMES: Final = frozenset(one.value for one in Figure)


class Series(NamedTuple):
    """One figure of one object: for a queue, the name is `GROUP TOPIC/BROKER/QUEUE`."""

    figure: Figure
    name: str


def figure_named(name: str) -> Figure | None:
    """The figure of this name; None if a newer coordinator sent one that this release does not know."""
    return Figure(name) if name in _NAMES else None


def folded(figure: Figure | None, values: Iterable[float]) -> float:
    """Aggregate the values of shorter steps into a longer one; unknown if all are unknown. An unknown figure
    is averaged.
    """
    known = [value for value in values if value == value]
    if not known:
        return UNKNOWN
    if figure in PEAKS:
        return max(known)
    return sum(known) if figure in SUMS else sum(known) / len(known)


def coarser(figure: Figure | None, values: Sequence[float], points_max: int) -> tuple[list[float], int]:
    """At most `points_max` values, and the number of steps in each; the first may have fewer."""
    step = max(1, -(-len(values) // points_max))
    first = len(values) % step
    heads = [values[:first]] if first else []
    parts = [*heads, *(values[start : start + step] for start in range(first, len(values), step))]
    return [folded(figure, part) for part in parts], step


def due(last: int | None, now: int, back: int) -> range:
    """Complete steps that are not yet aggregated, at most the last `back`: all of those when `last` is
    None.
    """
    return range(max(now - back, now - back if last is None else last), now)
