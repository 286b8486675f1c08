"""When a disk will be full: brokers' logs grow as they did, and brokers clean as their settings say. Pure.

Time goes hour by hour. What expires is deleted in the hours of `deleteWhen`, and at any hour while the disk
is fuller than `diskMaxUsedSpaceRatio` (broker:2.7). Before a disk is full RocketMQ deletes what has not
expired: that is foretold, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sparrowmq.coordinator.upkeep.logs import (
    HOUR_MS,
    BrokerLog,
    Sample,
    complete,
    local_hour,
    position_at,
    rate,
)

HORIZON_HOURS: Final = 30 * 24
"""How far ahead is looked; what lasts longer is called enough."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """One disk. `early_in` and `full_in` are hours until messages go before their time, and until sends are
    refused; None beyond the horizon.
    """

    host: str
    brokers: tuple[str, ...]
    total: int
    free: int
    bytes_an_hour: float
    early_in: int | None
    full_in: int | None

    @property
    def first(self) -> int | None:
        """Hours until the first of both."""
        return min((one for one in (self.early_in, self.full_in) if one is not None), default=None)


@dataclass(slots=True)
class _Log:
    """A log on its way through the forecast."""

    broker: BrokerLog
    samples: Sequence[Sample]
    grows: float
    beginning: float = 0.0
    end: float = 0.0

    def written(self, at: int) -> float:
        """Where the log's end was or will be at a time; before the first sample: where it begins now."""
        now = self.broker.now
        if at >= now.at:
            return now.log_max + self.grows * (at - now.at) / HOUR_MS
        found = position_at(self.samples, at)
        return float(now.log_min) if found is None else float(found)

    def clean(self, at: int) -> None:
        """Delete the files that have expired by then, and that nothing holds."""
        rules = self.broker.rules
        expired, held = at - rules.reserved_hours * HOUR_MS, self.broker.held_ms(at)
        if held is not None:
            expired = min(expired, held)
        whole = self.written(expired) // rules.file_bytes * rules.file_bytes
        self.beginning = max(self.beginning, min(whole, self.end))


def disks(logs: Sequence[BrokerLog]) -> list[list[BrokerLog]]:
    """Brokers by disk: those of one host whose disks are of one size are taken to share it."""
    found: dict[tuple[str, int], list[BrokerLog]] = {}
    for log in sorted(logs, key=lambda one: one.name):
        if log.now.total > 0:
            found.setdefault((log.host, log.now.total), []).append(log)
    return list(found.values())


def forecast(
    logs: Sequence[BrokerLog],
    history: Mapping[str, Sequence[Sample]],
    *,
    window_hours: int,
    overhead_percent: int,
    hour_of: Callable[[int], int] = local_hour,
) -> Forecast:
    """What becomes of one disk, that of `logs`. `history` has the samples that were kept, by broker.

    Growth is the faster one of the last hour's and the window's. To each byte of log come `overhead_percent`
    for queues and index.
    """
    going = [_going(log, complete(log, history.get(log.name, ())), window_hours) for log in logs]
    now, total, free = logs[0].now.at, logs[0].now.total, min(log.now.free for log in logs)
    more = 1 + overhead_percent / 100
    others = total - free - more * sum(one.end - one.beginning for one in going)
    early = full = None
    for hour in range(HORIZON_HOURS + 1):
        at = now + hour * HOUR_MS
        for one in going:
            one.end = one.written(at)
        used = _used(others, more, going)
        for one in going:
            rules = one.broker.rules
            crowded = used * 100 > rules.used_max * total
            if hour and (crowded or hour_of(at) in rules.delete_hours):
                one.clean(at)
        used = _used(others, more, going)
        if early is None and any(_above(used, total, one, early=True) for one in going):
            early = hour
        if any(_above(used, total, one, early=False) for one in going) or used >= total:
            full = hour
            break
    return Forecast(
        logs[0].host,
        tuple(log.name for log in logs),
        total,
        free,
        sum(one.grows for one in going),
        early,
        full,
    )


def _going(log: BrokerLog, samples: Sequence[Sample], window_hours: int) -> _Log:
    now = log.now.at
    grows = max(rate(samples, now - window_hours * HOUR_MS), rate(samples, now - HOUR_MS))
    return _Log(log, samples, grows, float(log.now.log_min), float(log.now.log_max))


def _used(others: float, more: float, going: Sequence[_Log]) -> float:
    return others + more * sum(one.end - one.beginning for one in going)


def _above(used: float, total: int, log: _Log, *, early: bool) -> bool:
    rules = log.broker.rules
    if early:
        several = log.end // rules.file_bytes > log.beginning // rules.file_bytes  # the last file stays
        return several and rules.forcibly and used * 100 > rules.forcibly_above * total
    return used * 100 > rules.refuse_above * total
