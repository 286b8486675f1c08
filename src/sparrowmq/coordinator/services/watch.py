"""What services that look at clusters and keep alarms have in common: the head of their step, and its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from typing import Final, Generic, TypeVar

from sqlalchemy import Connection

from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.machine import Policy
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.alarms.table import Check
from sparrowmq.coordinator.services.frame import Work
from sparrowmq.coordinator.services.schedule import Kind, Option, Report
from sparrowmq.core.errors import CoordinatorError

View = TypeVar("View")
CALM: Final = Option("calm_checks", 2, 1, 100, "checks running that must not see it before it is resolved")
"""The option of services that look every minute or so: what comes and goes shall be one alarm."""


class Watch(Generic[View]):
    """Looks at `view` and tells `channels`. Who derives from it gives `kind` and `step`."""

    kind: Kind

    def __init__(self, view: View, channels: Channels) -> None:
        self._view = view
        self._channels = channels

    def _observe(self, connection: Connection, work: Work, checks: Iterable[Check]) -> dict[str, int]:
        """Bring the alarms of all checks up to date; gives what became of them, by rule."""
        counts: dict[str, int] = {}
        for check in checks:
            found = table.observe(connection, check, work.actor, self._channels)
            counts |= {f"{check.rule} {name}": count for name, count in found.items()}
        return counts


def need(what: str, found: Sized, failed: Mapping[str, str]) -> None:
    """Raise `CoordinatorError` when there were some, and none of them could be looked at."""
    if failed and not found:
        raise CoordinatorError(f"no {what} could be looked at: {next(iter(failed.values()))}")


def policy_of(options: Mapping[str, int]) -> Policy:
    """When conditions fire and end, by those of a service's options that are about it."""
    hold, reminder = options.get("hold_seconds", 0), options["reminder_seconds"]
    calm = options.get(CALM.name, 1)
    return Policy(options.get("checks", 1), hold * 1000, reminder * 1000, calm)


def report(what: str, found: Sized, failed: Mapping[str, str], counts: dict[str, int]) -> Report:
    """What a look came to, with the first of what could not be looked at."""
    return Report({what: len(found), "failed": len(failed)} | counts, next(iter(failed.values()), ""))
