"""Forecast of when a disk will be full: brokers' logs keep growing as before, and brokers delete files as
configured. Pure.

The forecast advances hour by hour. Expired files are deleted in the hours of `deleteWhen`, and at any hour
while the disk usage exceeds `diskMaxUsedSpaceRatio` (broker:2.7). Before a disk is full, RocketMQ deletes
files that have not expired; this is also forecast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sparrowmq.coordinator.upkeep.logs import (
    HOUR_MS,
    BrokerLog,
    LogSample,
    complete,
    local_hour,
    position_at,
    rate,
)

HORIZON_HOURS: Final = 30 * 24
"""Horizon of the forecast; a disk that lasts longer is sufficient."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """One disk. `early_in` and `full_in` are hours until messages are deleted before they expire, and until
    sends are refused; None beyond the horizon.
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
        """Hours until the earlier of the two."""
        return min((one for one in (self.early_in, self.full_in) if one is not None), default=None)


@dataclass(slots=True)
class _Log:
    """State of a log during the forecast."""

    broker: BrokerLog
    samples: Sequence[LogSample]
    grows: float
    beginning: float = 0.0
    end: float = 0.0

    def written(self, at: int) -> float:
        """The log's end at a past or future time; before the first sample: its current beginning."""
        now = self.broker.now
        if at >= now.at:
            return now.log_max + self.grows * (at - now.at) / HOUR_MS
        found = position_at(self.samples, at)
        return float(now.log_min) if found is None else float(found)

    def clean(self, at: int) -> None:
        """Delete the files that have expired by then and are not held."""
        rules = self.broker.rules
        expired, held = at - rules.reserved_hours * HOUR_MS, self.broker.held_ms(at)
        if held is not None:
            expired = min(expired, held)
        whole = self.written(expired) // rules.file_bytes * rules.file_bytes
        self.beginning = max(self.beginning, min(whole, self.end))


def disks(logs: Sequence[BrokerLog]) -> list[list[BrokerLog]]:
    """Brokers by disk: brokers on one host with disks of equal size are assumed to share the disk."""
    found: dict[tuple[str, int], list[BrokerLog]] = {}
    for log in sorted(logs, key=lambda one: one.name):
        if log.now.total > 0:
            found.setdefault((log.host, log.now.total), []).append(log)
    return list(found.values())


def forecast(
    logs: Sequence[BrokerLog],
    history: Mapping[str, Sequence[LogSample]],
    *,
    window_hours: int,
    overhead_percent: int,
    hour_of: Callable[[int], int] = local_hour,
) -> Forecast:
    """The forecast for one disk, that of `logs`.

    `history` has the stored samples, by broker. Growth is the higher one of the last hour's and the window's
    rate. Queues and index add `overhead_percent` to each byte of log.
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


def _going(log: BrokerLog, samples: Sequence[LogSample], window_hours: int) -> _Log:
    now = log.now.at
    grows = max(rate(samples, now - window_hours * HOUR_MS), rate(samples, now - HOUR_MS))
    return _Log(log, samples, grows, float(log.now.log_min), float(log.now.log_max))


def _used(others: float, more: float, going: Sequence[_Log]) -> float:
    return others + more * sum(one.end - one.beginning for one in going)


def _above(used: float, total: int, log: _Log, *, early: bool) -> bool:
    rules = log.broker.rules
    if early:
        # the last file is never deleted
        several = log.end // rules.file_bytes > log.beginning // rules.file_bytes
        return several and rules.forcibly and used * 100 > rules.forcibly_above * total
    return used * 100 > rules.refuse_above * total
