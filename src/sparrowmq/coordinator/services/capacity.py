"""The capacity forecast: when disks will be full, by the growth of brokers' logs, their retention and space.

It keeps the samples that the retention watch looks at, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Final

from sqlalchemy import Connection

from sparrowmq.coordinator import findings, history
from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.table import Check, Condition
from sparrowmq.coordinator.cluster.survey import SurveyView
from sparrowmq.coordinator.findings import Finding
from sparrowmq.coordinator.services.frame import Work
from sparrowmq.coordinator.services.schedule import Kind, Option, Report
from sparrowmq.coordinator.services.watch import Watch, need, policy_of, report
from sparrowmq.coordinator.upkeep.forecast import HORIZON_HOURS, Forecast, disks, forecast
from sparrowmq.coordinator.upkeep.logs import Sample, Sight, local_hour

RULE: Final = "capacity"
DISK: Final = "disk"
KIND: Final = Kind(
    "capacity",
    "When disks will be full, by growth, retention and space",
    600_000,
    60_000,
    120.0,
    (
        Option("ahead_hours", 24, 1, HORIZON_HOURS, "how far ahead a full disk fires the alarm"),
        Option("window_hours", 24, 1, 168, "how far back growth is measured; the last hour counts, too"),
        Option("overhead_percent", 20, 0, 500, "bytes of queues and index to 100 bytes of log"),
        Option("keep_hours", 336, 24, 8760, "hours samples are kept; longer than brokers keep messages"),
        Option("checks", 2, 1, 100, "checks running that must see it before it fires"),
        Option("reminder_seconds", 14_400, 0, 604_800, "how often a firing alarm is told again; 0: once"),
    ),
)


def forecasts(
    sight: Sight,
    kept: Mapping[str, Sequence[Sample]],
    options: Mapping[str, int],
    hour_of: Callable[[int], int] = local_hour,
) -> list[Forecast]:
    """What becomes of every disk. Pure."""
    window, overhead = options["window_hours"], options["overhead_percent"]
    return [
        forecast(logs, kept, window_hours=window, overhead_percent=overhead, hour_of=hour_of)
        for logs in disks(sight.logs)
    ]


def found(disk: Forecast) -> Finding:
    """A disk as people see it. Pure."""
    numbers = asdict(disk) | {"first_in": disk.first}
    return Finding(DISK, _key(disk), _text(disk), numbers=numbers)


def conditions(all_: Sequence[Forecast], ahead_hours: int) -> list[Condition]:
    """The disks that will be full too soon, those that are full now among them (pmq:T4). Pure."""
    return [
        Condition(_key(disk), _text(disk))
        for disk in all_
        if disk.first is not None and disk.first <= ahead_hours
    ]


class Capacity(Watch[SurveyView]):
    """Looks at all brokers' disks, keeps samples, and brings the alarm up to date."""

    kind = KIND

    async def step(self, work: Work) -> Report:
        """One look at every disk. Raises `CoordinatorError` when no broker could be looked at."""
        sight = await self._view.disks()
        need("broker", sight.logs, sight.failed)
        options = work.options
        all_ = forecasts(sight, await work.read(history.read), options)
        soon = tuple(conditions(all_, options["ahead_hours"]))
        # Which disk a broker that fails is on is not known: while one does, no alarm is called off.
        blind = bool(sight.failed)
        check = Check(RULE, policy_of(options), soon, partial=blind)

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
    growth = f"the log grows by {_size(disk.bytes_an_hour)} an hour, {_size(disk.free)} are free"
    parts = []
    if disk.early_in is not None:
        parts.append(f"messages are deleted before their time {_when(disk.early_in)}")
    if disk.full_in is not None:
        parts.append(f"it refuses messages {_when(disk.full_in)} unless room is made")
    return f"{where}: {' and '.join(parts) or f'enough for {HORIZON_HOURS // 24} days'}; {growth}"


def _when(hours: int) -> str:
    return "now" if hours == 0 else f"in {hours} hours"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:.1f} {unit}" if unit != "B" else f"{count:.0f} B"
