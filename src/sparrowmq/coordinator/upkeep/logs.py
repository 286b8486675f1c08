"""What is known of a broker's log over time: samples, the positions and times between them, and which stay.

Pure. Times are epoch milliseconds, positions are physical offsets (bytes of the log).
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
FILE_BYTES: Final = 1024 * 1024 * 1024
"""What RocketMQ's files of the log have unless they are set otherwise."""


class Sample(NamedTuple):
    """Where a broker's log began and ended at a time, and its disk: bytes in all, and free ones."""

    at: int
    log_min: int
    log_max: int
    total: int
    free: int


@dataclass(frozen=True, slots=True)
class Rules:
    """When a broker deletes files of its log, as its settings say (broker:2.7); percentages of its disk."""

    reserved_hours: int = 72
    delete_hours: frozenset[int] = frozenset({4})
    used_max: int = 75
    forcibly: bool = True
    forcibly_above: int = 85
    refuse_above: int = 90
    file_bytes: int = FILE_BYTES


@dataclass(frozen=True, slots=True)
class Held:
    """A hold: messages of `topic` from `oldest_ms` (store time) on stay until it gives way at `ends_ms`."""

    topic: str
    group: str
    oldest_ms: int
    ends_ms: int


@dataclass(frozen=True, slots=True)
class BrokerLog:
    """One broker as it is now. `name` is `broker-a`, of slaves `broker-a#1`; `host` is where its disk is.

    `earliest_ms` is the store time of its oldest message, 0 when nobody knows.
    """

    name: str
    host: str
    rules: Rules
    now: Sample
    earliest_ms: int = 0
    holds: tuple[Held, ...] = ()

    def held_ms(self, at: int) -> int | None:
        """The store time from which on messages are held at a time, None when nothing is."""
        return min((hold.oldest_ms for hold in self.holds if hold.ends_ms > at), default=None)


@dataclass(frozen=True, slots=True)
class Sight:
    """Everything one look at the brokers' disks found; `failed` says why some could not be looked at."""

    logs: Sequence[BrokerLog] = ()
    failed: Mapping[str, str] = field(default_factory=dict)


def local_hour(at: int) -> int:
    """The hour of the day at a time, here: brokers are taken to be in the same time zone."""
    return time.localtime(at / 1000).tm_hour


def complete(log: BrokerLog, kept: Iterable[Sample]) -> list[Sample]:
    """What is known of a log, in order: where it begins now, the samples that were kept, and the last look.

    Samples of before the log began anew are left out: one that is shorter than it was is another.
    """
    found: list[Sample] = []
    for sample in [*sorted(kept), log.now]:
        if found and sample.at <= found[-1].at:
            continue
        if found and (sample.log_max < found[-1].log_max or sample.log_min < found[-1].log_min):
            found = []
        found.append(sample)
    if 0 < log.earliest_ms < found[0].at and log.now.log_min < found[0].log_max:
        now = log.now
        found.insert(0, Sample(log.earliest_ms, now.log_min, now.log_min, now.total, now.free))
    return found


def position_at(samples: Sequence[Sample], at: int) -> int | None:
    """How far the log was written at a time, in between as if evenly; None before the first sample."""
    index = bisect_right(samples, at, key=lambda one: one.at)
    if index == 0:
        return None
    before = samples[index - 1]
    if index == len(samples):
        return before.log_max
    after = samples[index]
    share = (at - before.at) / max(1, after.at - before.at)
    return round(before.log_max + share * (after.log_max - before.log_max))


def time_at(samples: Sequence[Sample], position: int) -> int | None:
    """When the log reached a position, at the latest: the time of the first sample that is as far, so that
    what is said to be old enough is so. None when it is not as far, or was already at the first sample.
    """
    if not samples or samples[0].log_max >= position:
        return None
    return next((one.at for one in samples if one.log_max >= position), None)


def about_when(samples: Sequence[Sample], position: int) -> int | None:
    """About when the log reached a position, between two samples as if evenly; None as `time_at`."""
    for before, after in pairwise(samples):
        if before.log_max < position <= after.log_max:
            share = (position - before.log_max) / (after.log_max - before.log_max)
            return round(before.at + share * (after.at - before.at))
    return None


def rate(samples: Sequence[Sample], since: int) -> float:
    """Bytes an hour that were written since a time, by the samples of then and now; 0 when nobody can say."""
    window = [one for one in samples if one.at >= since]
    if len(window) < 2 or window[-1].at <= window[0].at:
        return 0.0
    written = window[-1].log_max - window[0].log_max
    return written * HOUR_MS / (window[-1].at - window[0].at)


def spare(samples: Sequence[tuple[int, int]], now: int, keep_hours: int) -> list[int]:
    """Ids of the samples `(id, time)` that may go: older than `keep_hours`, and of those older than a day
    all but the first of each hour.
    """
    gone: list[int] = []
    hours: set[int] = set()
    for number, at in sorted(samples, key=lambda one: (one[1], one[0])):
        hour = at // HOUR_MS
        if at < now - keep_hours * HOUR_MS:
            gone.append(number)
        elif at < now - DAY_MS:
            if hour in hours:
                gone.append(number)
            hours.add(hour)
    return gone
