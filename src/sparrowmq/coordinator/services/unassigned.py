"""The queue alarm: queues of a group that nobody reads, and groups with unread messages but nobody online
(pmq:4).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from sparrowmq.aio import MemberStatus
from sparrowmq.coordinator.alarms.machine import Policy
from sparrowmq.coordinator.alarms.table import Check, Condition
from sparrowmq.coordinator.cluster.told import is_broadcasting, tells_queues
from sparrowmq.coordinator.cluster.view import ClusterView, Place
from sparrowmq.coordinator.services.frame import Work
from sparrowmq.coordinator.services.schedule import Kind, Option, Report
from sparrowmq.coordinator.services.watch import CALM, Watch, need, policy_of, report
from sparrowmq.core.message import MessageQueue

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
        CALM,
        Option("reminder_seconds", 3600, 0, 604_800, "how often a firing alarm is told again; 0: once"),
    ),
)


@dataclass(frozen=True, slots=True)
class Members:
    """Who of a group is online: client ids, the queues they should have, and those they say they have.

    `silent` are members that did not say.
    """

    online: Sequence[str]
    wanted: frozenset[MessageQueue] = frozenset()
    owned: frozenset[MessageQueue] = frozenset()
    silent: Sequence[str] = ()
    broadcasting: bool = False


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


def inactive(group: str, members: Members, places: Sequence[Place]) -> list[Condition]:
    """The group itself when it has unread messages and nobody is online. Pure."""
    lag = sum(place.lag for place in places)
    if members.online or lag == 0:
        return []
    topics = ", ".join(sorted({place.queue.topic for place in places if place.lag})[:10])
    return [
        Condition(group, f"nobody of the group {group} is online; {lag} messages of {topics} wait", group)
    ]


def topics_of(members: Sequence[MemberStatus]) -> set[str]:
    """What the members say they subscribe. Pure."""
    return {one.topic for member in members if member.info for one in member.info.subscriptions}


def members_of(
    members: Sequence[MemberStatus], queues: Mapping[str, frozenset[MessageQueue]], unknown: Collection[str]
) -> Members:
    """Who is there, by what members say and the queues of topics. One that does not say what it reads, or
    subscribes a topic which nobody could look at, counts as silent. Pure.
    """
    online = [one.client_id for one in members]
    if is_broadcasting(members):
        return Members(online, broadcasting=True)
    topics = topics_of(members)
    silent = (
        online
        if topics.intersection(unknown)
        else [one.client_id for one in members if not tells_queues(one)]
    )
    wanted = frozenset[MessageQueue]().union(*(queues.get(topic, ()) for topic in topics))
    owned = frozenset(queue for one in members if one.info for queue in one.info.queues)
    return Members(online, wanted, owned, silent)


def checks(
    members: Mapping[str, Members],
    places: Mapping[str, Sequence[Place]],
    failed: Collection[str],
    policy: Policy,
) -> list[Check]:
    """What one look says of both rules. Pure."""
    queues: list[Condition] = []
    groups: list[Condition] = []
    silent = set(failed)
    for group, of_group in sorted(members.items()):
        queues += unassigned(group, of_group)
        groups += inactive(group, of_group, places.get(group, ()))
        if of_group.silent:
            silent.add(group)
    return [
        Check(UNASSIGNED, policy, tuple(queues), silent),
        Check(INACTIVE, policy, tuple(groups), frozenset(failed)),
    ]


class QueueAlarm(Watch[ClusterView]):
    """Looks at all groups' members and brings both alarms up to date."""

    kind = KIND

    async def step(self, work: Work) -> Report:
        """One look at every group. Raises `CoordinatorError` when no group could be looked at."""
        told = await self._view.told(work.fresh_seconds)
        need("group", told.groups, told.failed)
        subscribed = {topic for members in told.groups.values() for topic in topics_of(members)}
        queues, unknown = await self._view.queues(subscribed)
        seen = await self._view.places(ages=False)
        all_ = {group: members_of(members, queues, unknown) for group, members in told.groups.items()}
        failed = {**told.failed, **seen.failed}
        found = checks(all_, seen.places, failed, policy_of(work.options))
        counts = {"age_seconds": told.age_seconds}
        counts |= await work.write(partial(self._observe, work=work, checks=found))
        return report("groups", told.groups, failed, counts)
