"""The base of services that check clusters and raise alarms: the first and the last part of their step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from typing import Final, Generic, TypeVar

from sqlalchemy import Connection

from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.machine import AlarmPolicy
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.alarms.table import AlarmCheck
from sparrowmq.coordinator.services.base.runner import Work
from sparrowmq.coordinator.services.base.schedule import RunReport, ServiceKind, ServiceOption
from sparrowmq.core.errors import CoordinatorError

View = TypeVar("View")
CALM: Final = ServiceOption(
    "calm_checks", 2, 1, 100, "consecutive checks that must not see it before it is resolved"
)
"""The option of services that check every minute or so: an intermittent condition should be one alarm."""


class WatchService(Generic[View]):
    """Queries `view` and notifies `channels`. Subclasses define `kind` and `step`."""

    kind: ServiceKind

    def __init__(self, view: View, channels: Channels) -> None:
        self._view = view
        self._channels = channels

    def _observe(self, connection: Connection, work: Work, checks: Iterable[AlarmCheck]) -> dict[str, int]:
        """Update the alarms of all checks; returns the results by rule."""
        counts: dict[str, int] = {}
        for check in checks:
            found = table.observe(connection, check, work.actor, self._channels)
            counts |= {f"{check.rule} {name}": count for name, count in found.items()}
        return counts


def need(what: str, found: Sized, failed: Mapping[str, str]) -> None:
    """Raise `CoordinatorError` if there were some objects, and none could be queried."""
    if failed and not found:
        why = next(iter(failed.values()))
        raise CoordinatorError(f"no {what} could be checked: {why}", what=what, value=why)


def policy_of(options: Mapping[str, int]) -> AlarmPolicy:
    """When conditions fire and end, according to the options of a service."""
    hold, reminder = options.get("hold_seconds", 0), options["reminder_seconds"]
    calm = options.get(CALM.name, 1)
    return AlarmPolicy(options.get("checks", 1), hold * 1000, reminder * 1000, calm)


def report(what: str, found: Sized, failed: Mapping[str, str], counts: dict[str, int]) -> RunReport:
    """Summary of a check, with the first objects that could not be queried."""
    return RunReport({what: len(found), "failed": len(failed)} | counts, next(iter(failed.values()), ""))
