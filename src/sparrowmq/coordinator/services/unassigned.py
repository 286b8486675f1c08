"""The queue alarm: queues of a group that nobody reads, and groups with unread messages but nobody online
(pmq:4).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.machine import Policy
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.alarms.table import Check, Condition
from sparrowmq.coordinator.cluster.view import ClusterView, Members, Place, Seen
from sparrowmq.coordinator.services.frame import Work
from sparrowmq.coordinator.services.schedule import Kind, Option, Report
from sparrowmq.core.errors import CoordinatorError

UNASSIGNED: Final = "unassigned-queue"
INACTIVE: Final = "inactive-group"
KIND: Final = Kind(
    "queue-alarm",
    "Queues nobody reads, groups nobody is online of",
    30_000,
    1_000,
    120.0,
    (
        Option("hold_seconds", 60, 0, 86_400, "how long it must last before it fires"),
        Option("reminder_seconds", 3600, 0, 604_800, "how often a firing alarm is told again; 0: once"),
    ),
)


def unassigned(group: str, members: Members) -> list[Condition]:
    """The queues that members should read and none has. Nothing is said while a member does not answer.
    Pure.
    """
    if not members.online or members.broadcasting or members.silent:
        return []
    count = len(members.online)
    who = "1 member is online and does" if count == 1 else f"{count} members are online, none does"
    return [
        Condition(
            f"{group} {queue.topic} {queue.broker_name} {queue.queue_id}",
            f"nobody of the group {group} reads queue {queue.queue_id} of {queue.topic} on "
            f"{queue.broker_name}: "
            f"{who}{' not' if count == 1 else ''}",
            group,
            queue.topic,
        )
        for queue in sorted(members.wanted - members.owned)
    ]


def inactive(group: str, members: Members, places: list[Place]) -> list[Condition]:
    """The group itself when it has unread messages and nobody is online. Pure."""
    lag = sum(place.lag for place in places)
    if members.online or lag == 0:
        return []
    topics = ", ".join(sorted({place.queue.topic for place in places if place.lag})[:10])
    return [
        Condition(group, f"nobody of the group {group} is online; {lag} messages of {topics} wait", group)
    ]


def checks(seen: Seen, policy: Policy) -> list[Check]:
    """What one look says of both rules. Pure."""
    queues: list[Condition] = []
    groups: list[Condition] = []
    silent = set(seen.failed)
    for group, members in sorted(seen.members.items()):
        queues += unassigned(group, members)
        groups += inactive(group, members, seen.places[group])
        if members.silent:
            silent.add(group)
    return [
        Check(UNASSIGNED, policy, tuple(queues), silent),
        Check(INACTIVE, policy, tuple(groups), frozenset(seen.failed)),
    ]


class QueueAlarm:
    """Looks at all groups' members and brings both alarms up to date."""

    def __init__(self, cluster: ClusterView, channels: Channels) -> None:
        self._cluster = cluster
        self._channels = channels

    @property
    def kind(self) -> Kind:
        """Name, defaults and bounds."""
        return KIND

    async def step(self, work: Work) -> Report:
        """One look at every group. Raises `CoordinatorError` when no group could be looked at."""
        seen = await self._cluster.members()
        if seen.failed and not seen.members:
            raise CoordinatorError(f"no group could be looked at: {next(iter(seen.failed.values()))}")
        options = work.options
        policy = Policy(1, options["hold_seconds"] * 1000, options["reminder_seconds"] * 1000)
        counts = {"groups": len(seen.members), "failed": len(seen.failed)}
        for check in checks(seen, policy):
            found = await work.write(
                partial(table.observe, check=check, actor=work.actor, channels=self._channels)
            )
            counts |= {f"{check.rule} {name}": value for name, value in found.items()}
        return Report(counts, next(iter(seen.failed.values()), ""))
