"""The queue alarm: queues of a group that no member reads, and groups with unread messages but without online
members (pmq:4).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from sparrowmq.aio import MemberStatus
from sparrowmq.coordinator.alarms.machine import AlarmPolicy
from sparrowmq.coordinator.alarms.table import AlarmCheck, Condition
from sparrowmq.coordinator.cluster.member_reports import is_broadcasting, tells_queues
from sparrowmq.coordinator.cluster.view import ClusterView, GroupPosition
from sparrowmq.coordinator.services.base.runner import Work
from sparrowmq.coordinator.services.base.schedule import RunReport, ServiceKind, ServiceOption
from sparrowmq.coordinator.services.base.watch import CALM, WatchService, need, policy_of, report
from sparrowmq.core.message import MessageQueue

UNASSIGNED: Final = "unassigned-queue"
INACTIVE: Final = "inactive-group"
KIND: Final = ServiceKind(
    "queue-alarm",
    "Queues that nobody reads, groups without online members",
    30_000,
    1_000,
    120.0,
    (
        ServiceOption("hold_seconds", 60, 0, 86_400, "how long it must last before it fires"),
        CALM,
        ServiceOption("reminder_seconds", 3600, 0, 604_800, "how often a firing alarm is repeated; 0: never"),
    ),
)


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """Online members of a group: client ids, the queues they should have, and those they report.

    `silent` are members that did not report.
    """

    online: Sequence[str]
    wanted: frozenset[MessageQueue] = frozenset()
    owned: frozenset[MessageQueue] = frozenset()
    silent: Sequence[str] = ()
    broadcasting: bool = False


def unassigned(group: str, members: GroupMembers) -> list[Condition]:
    """The queues that members should read and none has. Empty while a member does not answer. Pure."""
    if not members.online or members.broadcasting or members.silent:
        return []
    count = len(members.online)
    who = "1 member is online" if count == 1 else f"{count} members are online"
    return [
        Condition(
            f"{group} {queue.topic} {queue.broker_name} {queue.queue_id}",
            f"no member of group {group} reads queue {queue.queue_id} of {queue.topic} on "
            f"{queue.broker_name}: "
            f"{who}",
            group,
            queue.topic,
        )
        for queue in sorted(members.wanted - members.owned)
    ]


def inactive(group: str, members: GroupMembers, places: Sequence[GroupPosition]) -> list[Condition]:
    """The group itself if it has unread messages and no online members. Pure."""
    lag = sum(place.lag for place in places)
    if members.online or lag == 0:
        return []
    topics = ", ".join(sorted({place.queue.topic for place in places if place.lag})[:10])
    return [
        Condition(group, f"no member of group {group} is online; {lag} unread messages of {topics}", group)
    ]


def topics_of(members: Sequence[MemberStatus]) -> set[str]:
    """The subscriptions that members report. Pure."""
    return {one.topic for member in members if member.info for one in member.info.subscriptions}


def members_of(
    members: Sequence[MemberStatus], queues: Mapping[str, frozenset[MessageQueue]], unknown: Collection[str]
) -> GroupMembers:
    """Online members, from their reports and the queues of topics. A member that does not report its queues,
    or subscribes to a topic that could not be queried, counts as silent. Pure.
    """
    online = [one.client_id for one in members]
    if is_broadcasting(members):
        return GroupMembers(online, broadcasting=True)
    topics = topics_of(members)
    silent = (
        online
        if topics.intersection(unknown)
        else [one.client_id for one in members if not tells_queues(one)]
    )
    wanted = frozenset[MessageQueue]().union(*(queues.get(topic, ()) for topic in topics))
    owned = frozenset(queue for one in members if one.info for queue in one.info.queues)
    return GroupMembers(online, wanted, owned, silent)


def checks(
    members: Mapping[str, GroupMembers],
    places: Mapping[str, Sequence[GroupPosition]],
    failed: Collection[str],
    policy: AlarmPolicy,
) -> list[AlarmCheck]:
    """The result of one check for both rules. Pure."""
    queues: list[Condition] = []
    groups: list[Condition] = []
    silent = set(failed)
    for group, of_group in sorted(members.items()):
        queues += unassigned(group, of_group)
        groups += inactive(group, of_group, places.get(group, ()))
        if of_group.silent:
            silent.add(group)
    return [
        AlarmCheck(UNASSIGNED, policy, tuple(queues), silent),
        AlarmCheck(INACTIVE, policy, tuple(groups), frozenset(failed)),
    ]


class QueueAlarm(WatchService[ClusterView]):
    """Queries all groups' members and updates both alarms."""

    kind = KIND

    async def step(self, work: Work) -> RunReport:
        """One check of every group. Raises `CoordinatorError` when no group could be queried."""
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
