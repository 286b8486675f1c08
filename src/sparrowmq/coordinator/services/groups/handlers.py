"""The handler alarm: slow or failing handlers, retried messages, dead letters (pmq:4, T11).

The members' running info (307) shows the first two, also for Java's members; the brokers' topics show the
others. The processing time of a message is measured here, between checks, without the members' clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sqlalchemy import Connection

from sparrowmq.aio import MemberStatus
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.alarms.table import AlarmCheck, Condition
from sparrowmq.coordinator.cluster.member_reports import MemberAnswers, MemberReportsView, StoredCounts
from sparrowmq.coordinator.services.base.runner import Work
from sparrowmq.coordinator.services.base.schedule import RunReport, ServiceKind, ServiceOption
from sparrowmq.coordinator.services.base.watch import CALM, WatchService, need, policy_of, report
from sparrowmq.coordinator.services.groups import growth
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import DLQ_PREFIX, RETRY_PREFIX
from sparrowmq.protocol.bodies import ProcessQueueInfo
from sparrowmq.protocol.failing import FAILING_PROPERTY, failing_of

SLOW: Final = "slow-handler"
FAILING: Final = "failing-queue"
RETRIES: Final = "retries"
DEAD: Final = "dead-letters"
KIND: Final = ServiceKind(
    "handler-alarm",
    "Slow or failing handlers, retried messages, dead letters",
    30_000,
    1_000,
    120.0,
    (
        ServiceOption("slow_seconds", 300, 1, 86_400, "how long a member may process the same message"),
        ServiceOption(
            "average_ms", 0, 0, 86_400_000, "how long a handler call may take on average; 0: no limit"
        ),
        ServiceOption(
            "failing_seconds",
            60,
            0,
            86_400,
            "how long a queue (for Java members, a topic) may fail without a success",
        ),
        ServiceOption("retries", 1000, 0, 10**9, "messages that may be retried; 0: no limit"),
        ServiceOption("dead_letters", 1, 0, 10**9, "dead letters that fire the alarm; 0: never"),
        ServiceOption("window_seconds", 600, 1, 86_400, "resolved after this time without further ones"),
        CALM,
        ServiceOption("reminder_seconds", 3600, 0, 604_800, "how often a firing alarm is repeated; 0: never"),
    ),
)


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """The oldest unfinished message of a queue at a member, and for how many seconds it has been seen."""

    group: str
    client_id: str
    queue: MessageQueue
    offset: int
    seconds: float


@dataclass
class Heads:
    """The oldest unfinished message of each member and queue, and when it was first seen."""

    _heads: dict[tuple[str, str, MessageQueue], tuple[int, float]] = field(default_factory=dict)
    _watched: dict[str, float] = field(default_factory=dict)
    _at: float = 0.0

    def look(self, told: MemberAnswers) -> list[HeldMessage]:
        """Add the members' reports of all groups at their time; returns the unfinished messages of each
        member.
        """
        now, before = told.at, self._heads
        self._heads, self._at, found = {}, now, []
        for group, members in told.groups.items():
            for member in members:
                if member.info is None:
                    continue
                for queue, info in member.info.queues.items():
                    offset = head(info)
                    if offset is None:
                        continue
                    key = group, member.client_id, queue
                    known, since = before.get(key, (offset, now))
                    since = since if known == offset else now
                    self._heads[key] = offset, since
                    found.append(HeldMessage(*key, offset, now - since))
        self._watched = {group: self._watched.get(group, now) for group in told.groups}
        return found

    def young(self, seconds: float) -> frozenset[str]:
        """Groups that have not been watched for long enough to judge."""
        return frozenset(group for group, since in self._watched.items() if self._at - since < seconds)


def head(info: ProcessQueueInfo) -> int | None:
    """The smallest unfinished offset, including ordered consumption; None if there is none. Pure."""
    found = []
    if info.cached_msg_count:
        found.append(info.cached_msg_min_offset)
    if info.transaction_msg_count:
        found.append(info.transaction_msg_min_offset)
    return None if info.dropped or not found else min(found)


def slow(held: Iterable[HeldMessage], seconds: int) -> list[Condition]:
    """Members with a message that takes too long, by topic. Pure."""
    late: dict[tuple[str, str, str], list[HeldMessage]] = {}
    for one in held:
        if one.seconds >= seconds:
            late.setdefault((one.group, one.queue.topic, one.client_id), []).append(one)
    found = []
    for (group, topic, client_id), ones in sorted(late.items()):
        worst = max(ones, key=lambda one: one.seconds)
        others = f", and so it is in {len(ones) - 1} more of its queues" if len(ones) > 1 else ""
        text = (
            f"the member {client_id} of group {group} has the message at offset {worst.offset} of queue "
            f"{worst.queue.queue_id} of {topic} on {worst.queue.broker_name} in hand for "
            f"{worst.seconds:.0f} s, the limit is {seconds} s{others}"
        )
        found.append(Condition(f"{group} {topic} {client_id}", text, group, topic))
    return found


def slow_on_average(groups: Mapping[str, Sequence[MemberStatus]], limit_ms: int) -> list[Condition]:
    """Members whose handlers are too slow on average. Pure."""
    found = []
    for group, members in sorted(groups.items()):
        for member in members:
            for topic, status in (member.info.statuses if member.info else {}).items():
                if 0 < limit_ms < status.consume_rt:
                    text = (
                        f"a call of the handler of {topic} takes the member {member.client_id} of group "
                        f"{group} {status.consume_rt:.0f} ms on average, the limit is {limit_ms} ms"
                    )
                    found.append(Condition(f"{group} {topic} {member.client_id} average", text, group, topic))
    return found


def failing(groups: Mapping[str, Sequence[MemberStatus]]) -> list[Condition]:
    """Queues in which handlers only failed in the last minute; for members that report only topics, such as
    Java's, the member and its topic. Pure.
    """
    found: dict[str, Condition] = {}
    for group, members in sorted(groups.items()):
        for member in members:
            told = member.info.properties.get(FAILING_PROPERTY) if member.info else None
            of_member = _by_topic(group, member) if told is None else _by_queue(group, member, told)
            found |= {one.key: one for one in of_member}
    return list(found.values())


def _by_queue(group: str, member: MemberStatus, told: str) -> Iterator[Condition]:
    for queue, failed, seconds in failing_of(told):
        topic, where = queue.topic, f"{queue.broker_name} {queue.queue_id}"
        text = (
            f"the member {member.client_id} of group {group} fails with every message of queue "
            f"{queue.queue_id} of {topic} on {queue.broker_name}, {failed} in {seconds} s"
        )
        yield Condition(f"{group} {topic} {where}", text, group, topic)


def _by_topic(group: str, member: MemberStatus) -> Iterator[Condition]:
    for topic, status in (member.info.statuses if member.info else {}).items():
        if status.consume_failed_tps > 0 and status.consume_ok_tps == 0:
            queues = [one for one in member.info.queues if one.topic == topic] if member.info else []
            where = ", ".join(f"{one.broker_name} {one.queue_id}" for one in sorted(queues)[:10])
            text = (
                f"the member {member.client_id} of group {group} fails with every message of {topic}, "
                f"{status.consume_failed_tps * 60:.0f} in the last minute"
                + (f"; it has the queues {where}" if where else "")
            )
            yield Condition(f"{group} {topic} {member.client_id}", text, group, topic)


def many(grown: Mapping[str, int], limit: int, prefix: str, what: str) -> list[Condition]:
    """Groups that got at least `limit` messages in their topic with that prefix. Pure."""
    return [
        Condition(group, f"{count} messages of group {group} {what}", group, prefix + group)
        for group, count in sorted(grown.items())
        if 0 < limit <= count
    ]


class HandlerAlarm(WatchService[MemberReportsView]):
    """Queries all members, and topics of retries and dead letters."""

    kind = KIND

    def __init__(self, view: MemberReportsView, channels: Channels) -> None:
        super().__init__(view, channels)
        self._heads = Heads()

    async def step(self, work: Work) -> RunReport:
        """One check of every group. Raises `CoordinatorError` when no group could be queried."""
        told = await self._view.told(work.fresh_seconds)
        need("group", told.groups, told.failed)
        retries, dead = await self._view.stored(RETRY_PREFIX), await self._view.stored(DLQ_PREFIX)
        checks = self._of_members(told, work.options)

        def write(connection: Connection) -> dict[str, int]:
            counted = _of_brokers(connection, work.options, retries, dead)
            return self._observe(connection, work, (*checks, *counted))

        counts = await work.write(write) | {"age_seconds": told.age_seconds}
        return report("groups", told.groups, told.failed, counts)

    def _of_members(self, told: MemberAnswers, options: Mapping[str, int]) -> list[AlarmCheck]:
        limit, policy = options["slow_seconds"], policy_of(options)
        held = slow(self._heads.look(told), limit)
        held += slow_on_average(told.groups, options["average_ms"])
        fails = replace(policy, hold_ms=options["failing_seconds"] * 1000)
        return [
            AlarmCheck(SLOW, policy, tuple(held), told.silent | self._heads.young(limit)),
            AlarmCheck(FAILING, fails, tuple(failing(told.groups)), told.silent),
        ]


def _of_brokers(
    connection: Connection, options: Mapping[str, int], retries: StoredCounts, dead: StoredCounts
) -> list[AlarmCheck]:
    window, policy = options["window_seconds"] * 1000, policy_of(options)
    checks = []
    for rule, stored, limit, prefix, what in (
        (RETRIES, retries, options["retries"], RETRY_PREFIX, "were sent back for a retry"),
        (DEAD, dead, options["dead_letters"], DLQ_PREFIX, "became dead letters"),
    ):
        grown = growth.look(connection, rule, stored.counts, window, stored.failed)
        checks.append(AlarmCheck(rule, policy, tuple(many(grown, limit, prefix, what)), stored.failed))
    return checks
