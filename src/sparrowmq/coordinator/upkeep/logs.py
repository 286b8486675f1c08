"""The history of a broker's log: samples, interpolated positions and times, and which samples to keep.

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
"""RocketMQ's default size of log files."""


class LogSample(NamedTuple):
    """Begin and end of a broker's log at a time, and its disk: total and free bytes."""

    at: int
    log_min: int
    log_max: int
    total: int
    free: int


@dataclass(frozen=True, slots=True)
class CleaningRules:
    """When a broker deletes files of its log, from its settings (broker:2.7); percentages of its disk."""

    reserved_hours: int = 72
    delete_hours: frozenset[int] = frozenset({4})
    used_max: int = 75
    forcibly: bool = True
    forcibly_above: int = 85
    refuse_above: int = 90
    file_bytes: int = FILE_BYTES


@dataclass(frozen=True, slots=True)
class Held:
    """A hold: messages of `topic` stored since `oldest_ms` are kept until `ends_ms`."""

    topic: str
    group: str
    oldest_ms: int
    ends_ms: int


@dataclass(frozen=True, slots=True)
class BrokerLog:
    """One broker as it is now. `name` is `broker-a`, of slaves `broker-a#1`; `host` is where its disk is.

    `earliest_ms` is the store time of its oldest message, 0 if unknown.
    """

    name: str
    host: str
    rules: CleaningRules
    now: LogSample
    earliest_ms: int = 0
    holds: tuple[Held, ...] = ()

    def held_ms(self, at: int) -> int | None:
        """The store time since which messages are held at a time, None if none are."""
        return min((hold.oldest_ms for hold in self.holds if hold.ends_ms > at), default=None)


@dataclass(frozen=True, slots=True)
class DiskSurvey:
    """Result of a query of the brokers' disks; `failed` says why some could not be queried."""

    logs: Sequence[BrokerLog] = ()
    failed: Mapping[str, str] = field(default_factory=dict)


def local_hour(at: int) -> int:
    """The local hour of the day at a time: brokers are assumed to be in the same time zone."""
    return time.localtime(at / 1000).tm_hour


def complete(log: BrokerLog, kept: Iterable[LogSample]) -> list[LogSample]:
    """Known positions of a log, in order: its current beginning, the stored samples, and the last query.

    Samples of a replaced log are omitted: a log that became shorter is a new one.
    """
    found: list[LogSample] = []
    for sample in [*sorted(kept), log.now]:
        if found and sample.at <= found[-1].at:
            continue
        if found and (sample.log_max < found[-1].log_max or sample.log_min < found[-1].log_min):
            found = []
        found.append(sample)
    if 0 < log.earliest_ms < found[0].at and log.now.log_min < found[0].log_max:
        now = log.now
        found.insert(0, LogSample(log.earliest_ms, now.log_min, now.log_min, now.total, now.free))
    return found


def position_at(samples: Sequence[LogSample], at: int) -> int | None:
    """The end of the log at a time, interpolated linearly; None before the first sample."""
    index = bisect_right(samples, at, key=lambda one: one.at)
    if index == 0:
        return None
    before = samples[index - 1]
    if index == len(samples):
        return before.log_max
    after = samples[index]
    share = (at - before.at) / max(1, after.at - before.at)
    return round(before.log_max + share * (after.log_max - before.log_max))


def time_at(samples: Sequence[LogSample], position: int) -> int | None:
    """When the log reached a position, at the latest: the time of the first sample that is as far, so that
    data is never considered older than it is. None if the log has not reached it, or had already reached it
    at the first sample.
    """
    if not samples or samples[0].log_max >= position:
        return None
    return next((one.at for one in samples if one.log_max >= position), None)


def about_when(samples: Sequence[LogSample], position: int) -> int | None:
    """Approximate time at which the log reached a position, interpolated linearly; None as in `time_at`."""
    for before, after in pairwise(samples):
        if before.log_max < position <= after.log_max:
            share = (position - before.log_max) / (after.log_max - before.log_max)
            return round(before.at + share * (after.at - before.at))
    return None


def rate(samples: Sequence[LogSample], since: int) -> float:
    """Bytes written per hour since a time, from the samples of then and now; 0 if unknown."""
    window = [one for one in samples if one.at >= since]
    if len(window) < 2 or window[-1].at <= window[0].at:
        return 0.0
    written = window[-1].log_max - window[0].log_max
    return written * HOUR_MS / (window[-1].at - window[0].at)


def spare(samples: Sequence[tuple[int, int]], now: int, keep_hours: int) -> list[int]:
    """Ids of the samples `(id, time)` to delete: those older than `keep_hours`, and of those older than a day
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
