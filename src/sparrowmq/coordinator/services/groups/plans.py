"""The plan check: compares the queues that members actually have with each other and, in managed groups, with
the grants (pmq:4).

Unassigned queues are covered by the queue alarm. Differences shorter than a hand-over are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from sparrowmq.aio import MemberStatus
from sparrowmq.coordinator.alarms.machine import AlarmPolicy
from sparrowmq.coordinator.alarms.table import AlarmCheck, Condition
from sparrowmq.coordinator.cluster.member_reports import (
    MemberAnswers,
    MemberReportsView,
    is_broadcasting,
    tells_queues,
)
from sparrowmq.coordinator.services.base.runner import Work
from sparrowmq.coordinator.services.base.schedule import RunReport, ServiceKind, ServiceOption
from sparrowmq.coordinator.services.base.watch import CALM, WatchService, need, policy_of, report
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import RETRY_PREFIX
from sparrowmq.protocol.managed import GENERATIONS_PROPERTY, QueueGrant, generations_of

DOUBLE: Final = "double-queue"
DIFFERENT: Final = "plan-difference"
SUBSCRIPTIONS: Final = "subscription-difference"
ASKED_TOLD: Final = 5
"""Maximum subscriptions of one member in an alarm."""
KIND: Final = ServiceKind(
    "plan-check",
    "What members actually consume, compared with each other and the plan",
    60_000,
    1_000,
    120.0,
    (
        ServiceOption("hold_seconds", 120, 0, 86_400, "how long it must last before it fires"),
        CALM,
        ServiceOption("reminder_seconds", 3600, 0, 604_800, "how often a firing alarm is repeated; 0: never"),
    ),
)

Members = Sequence[MemberStatus]


def _has(member: MemberStatus) -> list[MessageQueue]:
    return (
        sorted(queue for queue, info in member.info.queues.items() if not info.dropped) if member.info else []
    )


def double(group: str, members: Members) -> list[Condition]:
    """Queues that several members report. Pure."""
    owners: dict[MessageQueue, list[str]] = {}
    for member in members:
        for queue in _has(member):
            owners.setdefault(queue, []).append(member.client_id)
    return [
        Condition(
            f"{group} {queue.topic} {queue.broker_name} {queue.queue_id}",
            f"{len(names)} members of group {group} have queue {queue.queue_id} of {queue.topic} on "
            f"{queue.broker_name}: {', '.join(sorted(names)[:10])}",
            group,
            queue.topic,
        )
        for queue, names in sorted(owners.items())
        if len(names) > 1
    ]


def client_of(owner: str, *, fenced: bool) -> str:
    """The client id of a queue's owner: members with generations have numbers. Pure."""
    return (owner.rpartition("#")[0] or owner) if fenced else owner


def different(group: str, members: Members, grants: Sequence[QueueGrant]) -> list[Condition]:
    """Members of a managed group whose queues differ from their grants, or have older generations: the first
    difference of each. Pure.
    """
    granted = {one.queue: one for one in grants}
    online = {member.client_id for member in members}
    first: dict[str, tuple[MessageQueue, str]] = {}

    def note(client_id: str, queue: MessageQueue, text: str) -> None:
        if client_id not in first or queue < first[client_id][0]:
            first[client_id] = queue, text

    for queue, grant in granted.items():
        owner = client_of(grant.owner, fenced=grant.fenced)
        if owner and owner not in online:
            note(owner, queue, "it is granted that queue but is not online")
    for member in members:
        if member.info is None or not tells_queues(member):
            continue
        has = set(_has(member))
        numbers = generations_of(member.info.properties.get(GENERATIONS_PROPERTY, ""))
        for queue, grant in granted.items():
            mine = client_of(grant.owner, fenced=grant.fenced) == member.client_id
            if mine and queue not in has:
                note(member.client_id, queue, "it is granted that queue but does not have it")
            elif not mine and queue in has:
                whose = f"granted to {grant.owner}" if grant.owner else "granted to nobody"
                note(member.client_id, queue, f"it has that queue, which is {whose}")
            elif mine and numbers.get(queue, grant.generation) < grant.generation:
                text = (
                    f"it has that queue under generation {numbers[queue]}; the grant has {grant.generation}"
                )
                note(member.client_id, queue, text)
    return [
        Condition(
            f"{group} {client_id}",
            f"the member {client_id} of group {group} differs from the plan at queue {queue.queue_id} of "
            f"{queue.topic} on {queue.broker_name}: {text}",
            group,
            queue.topic,
        )
        for client_id, (queue, text) in sorted(first.items())
    ]


def unlike(group: str, members: Members) -> list[Condition]:
    """The group if its members' subscriptions differ: some of them lose messages. Pure."""
    seen: dict[tuple[str, ...], list[str]] = {}
    for member in members:
        if member.info is None:
            continue
        wanted = tuple(
            sorted(
                f"{one.topic} {one.expression_type} {' || '.join(sorted(one.tags)) or one.expression}"
                for one in member.info.subscriptions
                if not one.topic.startswith(RETRY_PREFIX)
            )
        )
        seen.setdefault(wanted, []).append(member.client_id)
    if len(seen) < 2:
        return []
    (few, fewer), *_, (most, more) = sorted(seen.items(), key=lambda pair: (len(pair[1]), pair[0]))
    text = (
        f"members of group {group} have {len(seen)} different subscriptions; {fewer[0]} asks for "
        f"{_told(few)}, {more[0]} for {_told(most)}"
    )
    return [Condition(group, text, group)]


def _told(wanted: tuple[str, ...]) -> str:
    """Subscriptions in an alarm: the first ones, and how many more there are."""
    more = f" and {len(wanted) - ASKED_TOLD} more" if len(wanted) > ASKED_TOLD else ""
    return f"{', '.join(wanted[:ASKED_TOLD])}{more}" if wanted else "nothing"


class PlanCheck(WatchService[MemberReportsView]):
    """Queries all members, and the grants of brokers."""

    kind = KIND

    async def step(self, work: Work) -> RunReport:
        """One check of every group. Raises `CoordinatorError` when no group could be queried."""
        told = await self._view.told(work.fresh_seconds)
        need("group", told.groups, told.failed)
        grants = await self._view.grants()
        found = checks(told, grants, policy_of(work.options))
        counts = {"managed": len(grants), "age_seconds": told.age_seconds}
        counts |= await work.write(partial(self._observe, work=work, checks=found))
        return report("groups", told.groups, told.failed, counts)


def checks(
    told: MemberAnswers, grants: Mapping[str, Sequence[QueueGrant]], policy: AlarmPolicy
) -> list[AlarmCheck]:
    """The result of one check for the three rules. Pure."""
    twice: list[Condition] = []
    other: list[Condition] = []
    unequal: list[Condition] = []
    for group, members in sorted(told.groups.items()):
        if not is_broadcasting(members):
            twice += double(group, members)
            if members and group in grants:
                other += different(group, members, grants[group])
        unequal += unlike(group, members)
    unknown = told.silent
    return [
        AlarmCheck(DOUBLE, policy, tuple(twice), unknown),
        AlarmCheck(DIFFERENT, policy, tuple(other), unknown),
        AlarmCheck(SUBSCRIPTIONS, policy, tuple(unequal), unknown),
    ]
