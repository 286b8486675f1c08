"""The capacity forecast: when disks will be full, from the growth of brokers' logs, their retention and free
space.

It also saves the samples that the retention check uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Final

from sqlalchemy import Connection

from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.table import AlarmCheck, Condition
from sparrowmq.coordinator.cluster.survey import SurveyView
from sparrowmq.coordinator.records import findings
from sparrowmq.coordinator.records.findings import Finding
from sparrowmq.coordinator.services.base.runner import Work
from sparrowmq.coordinator.services.base.schedule import RunReport, ServiceKind, ServiceOption
from sparrowmq.coordinator.services.base.watch import WatchService, need, policy_of, report
from sparrowmq.coordinator.services.brokers import history
from sparrowmq.coordinator.upkeep.forecast import HORIZON_HOURS, Forecast, disks, forecast
from sparrowmq.coordinator.upkeep.logs import DiskSurvey, LogSample, local_hour

RULE: Final = "capacity"
DISK: Final = "disk"
KIND: Final = ServiceKind(
    "capacity",
    "When disks will be full, from growth, retention and free space",
    600_000,
    60_000,
    120.0,
    (
        ServiceOption("ahead_hours", 24, 1, HORIZON_HOURS, "fires when a disk will be full within this time"),
        ServiceOption(
            "window_hours", 24, 1, 168, "how far back growth is measured; the last hour is measured as well"
        ),
        ServiceOption("overhead_percent", 20, 0, 500, "bytes of queues and index per 100 bytes of log"),
        ServiceOption(
            "keep_hours", 336, 24, 8760, "how many hours samples are kept; must exceed the brokers' retention"
        ),
        ServiceOption("checks", 2, 1, 100, "consecutive checks that must see it before it fires"),
        ServiceOption(
            "reminder_seconds", 14_400, 0, 604_800, "how often a firing alarm is repeated; 0: never"
        ),
    ),
)


def forecasts(
    sight: DiskSurvey,
    kept: Mapping[str, Sequence[LogSample]],
    options: Mapping[str, int],
    hour_of: Callable[[int], int] = local_hour,
) -> list[Forecast]:
    """The forecast for every disk. Pure."""
    window, overhead = options["window_hours"], options["overhead_percent"]
    return [
        forecast(logs, kept, window_hours=window, overhead_percent=overhead, hour_of=hour_of)
        for logs in disks(sight.logs)
    ]


def found(disk: Forecast) -> Finding:
    """A disk, for display. Pure."""
    numbers = asdict(disk) | {"first_in": disk.first}
    return Finding(DISK, _key(disk), _text(disk), numbers=numbers)


def conditions(all_: Sequence[Forecast], ahead_hours: int) -> list[Condition]:
    """The disks that will be full too soon, including those that are full now (pmq:T4). Pure."""
    return [
        Condition(_key(disk), _text(disk))
        for disk in all_
        if disk.first is not None and disk.first <= ahead_hours
    ]


class Capacity(WatchService[SurveyView]):
    """Queries all brokers' disks, saves samples, and updates the alarm."""

    kind = KIND

    async def step(self, work: Work) -> RunReport:
        """One check of every disk. Raises `CoordinatorError` when no broker could be queried."""
        sight = await self._view.disks()
        need("broker", sight.logs, sight.failed)
        options = work.options
        all_ = forecasts(sight, await work.read(history.read), options)
        soon = tuple(conditions(all_, options["ahead_hours"]))
        # The disk of a failed broker is unknown: while one fails, no alarm is resolved.
        blind = bool(sight.failed)
        check = AlarmCheck(RULE, policy_of(options), soon, partial=blind)

        def keep(connection: Connection) -> dict[str, int]:
            history.keep(connection, sight.logs, options["keep_hours"])
            findings.replace(connection, KIND.name, [found(disk) for disk in all_], partial=blind)
            return table.observe(connection, check, work.actor, self._channels)

        untold = sum(log.now.total == 0 for log in sight.logs)
        return report("disks", all_, sight.failed, await work.write(keep) | {"untold": untold})


def _key(disk: Forecast) -> str:
    return " ".join((disk.host, *disk.brokers))


def _text(disk: Forecast) -> str:
    where = f"the disk of {', '.join(disk.brokers)} on {disk.host}"
    growth = f"the log grows by {_size(disk.bytes_an_hour)} an hour, {_size(disk.free)} is free"
    parts = []
    if disk.early_in is not None:
        parts.append(f"messages will be deleted before their retention time {_when(disk.early_in)}")
    if disk.full_in is not None:
        parts.append(f"it will refuse messages {_when(disk.full_in)} unless space is freed")
    return f"{where}: {' and '.join(parts) or f'enough for {HORIZON_HOURS // 24} days'}; {growth}"


def _when(hours: int) -> str:
    return "now" if hours == 0 else f"in {hours} hours"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:.1f} {unit}" if unit != "B" else f"{count:.0f} B"
