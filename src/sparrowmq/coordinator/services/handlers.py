"""The handler alarm: handlers that are slow or only fail, messages that come back, dead letters (pmq:4, T11).

What members tell of themselves (307) shows the first two, of Java's members as of ours; what brokers store
shows the others. How long a message is in hand is measured here, from look to look: members' clocks play no
part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sqlalchemy import Connection

from sparrowmq.aio import MemberStatus
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.alarms.table import Check, Condition
from sparrowmq.coordinator.cluster.told import Stored, TellingView, Told
from sparrowmq.coordinator.services import growth
from sparrowmq.coordinator.services.frame import Work
from sparrowmq.coordinator.services.schedule import Kind, Option, Report
from sparrowmq.coordinator.services.watch import CALM, Watch, need, policy_of, report
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import DLQ_PREFIX, RETRY_PREFIX
from sparrowmq.protocol.bodies import ProcessQueueInfo
from sparrowmq.protocol.failing import FAILING_PROPERTY, failing_of

SLOW: Final = "slow-handler"
FAILING: Final = "failing-queue"
RETRIES: Final = "retries"
DEAD: Final = "dead-letters"
KIND: Final = Kind(
    "handler-alarm",
    "Handlers that are slow or fail, messages that come back, dead letters",
    30_000,
    1_000,
    120.0,
    (
        Option("slow_seconds", 300, 1, 86_400, "how long a member may have the same message in hand"),
        Option(
            "average_ms", 0, 0, 86_400_000, "how long a call of a handler may take on average; 0: any time"
        ),
        Option(
            "failing_seconds",
            60,
            0,
            86_400,
            "how long a queue may fail without success; of Java's members: a topic",
        ),
        Option("retries", 1000, 0, 10**9, "messages that may come back for another try; 0: any number"),
        Option("dead_letters", 1, 0, 10**9, "dead letters that make an alarm; 0: none does"),
        Option("window_seconds", 600, 1, 86_400, "without more of them for so long it is over"),
        CALM,
        Option("reminder_seconds", 3600, 0, 604_800, "how often a firing alarm is told again; 0: once"),
    ),
)


@dataclass(frozen=True, slots=True)
class Held:
    """The first message a member has in hand of a queue, and how many seconds it was seen there."""

    group: str
    client_id: str
    queue: MessageQueue
    offset: int
    seconds: float


@dataclass
class Heads:
    """Which message each member has first in each queue, and since which look."""

    _heads: dict[tuple[str, str, MessageQueue], tuple[int, float]] = field(default_factory=dict)
    _watched: dict[str, float] = field(default_factory=dict)
    _at: float = 0.0

    def look(self, told: Told) -> list[Held]:
        """Take in what members of all groups said, as of then; what each has in hand."""
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
                    found.append(Held(*key, offset, now - since))
        self._watched = {group: self._watched.get(group, now) for group in told.groups}
        return found

    def young(self, seconds: float) -> frozenset[str]:
        """Groups that are not watched for so long yet: nothing can be said of them."""
        return frozenset(group for group, since in self._watched.items() if self._at - since < seconds)


def head(info: ProcessQueueInfo) -> int | None:
    """The smallest offset in hand, of ordered consumption too; None when there is none. Pure."""
    found = []
    if info.cached_msg_count:
        found.append(info.cached_msg_min_offset)
    if info.transaction_msg_count:
        found.append(info.transaction_msg_min_offset)
    return None if info.dropped or not found else min(found)


def slow(held: Iterable[Held], seconds: int) -> list[Condition]:
    """Members that have a message in hand for too long, by topic. Pure."""
    late: dict[tuple[str, str, str], list[Held]] = {}
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
    """Members whose handlers take too long on average. Pure."""
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
    """Queues in which handlers failed in the last minute and did nothing well; of members that know topics
    alone, as Java's, the member and its topic. Pure.
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
    """Groups that got at least `limit` messages in their topic of that prefix. Pure."""
    return [
        Condition(group, f"{count} messages of group {group} {what}", group, prefix + group)
        for group, count in sorted(grown.items())
        if 0 < limit <= count
    ]


class HandlerAlarm(Watch[TellingView]):
    """Asks all members, and looks at topics of retries and dead letters."""

    kind = KIND

    def __init__(self, view: TellingView, channels: Channels) -> None:
        super().__init__(view, channels)
        self._heads = Heads()

    async def step(self, work: Work) -> Report:
        """One look at every group. Raises `CoordinatorError` when no group could be looked at."""
        told = await self._view.told(work.fresh_seconds)
        need("group", told.groups, told.failed)
        retries, dead = await self._view.stored(RETRY_PREFIX), await self._view.stored(DLQ_PREFIX)
        checks = self._of_members(told, work.options)

        def write(connection: Connection) -> dict[str, int]:
            counted = _of_brokers(connection, work.options, retries, dead)
            return self._observe(connection, work, (*checks, *counted))

        counts = await work.write(write) | {"age_seconds": told.age_seconds}
        return report("groups", told.groups, told.failed, counts)

    def _of_members(self, told: Told, options: Mapping[str, int]) -> list[Check]:
        limit, policy = options["slow_seconds"], policy_of(options)
        held = slow(self._heads.look(told), limit)
        held += slow_on_average(told.groups, options["average_ms"])
        fails = replace(policy, hold_ms=options["failing_seconds"] * 1000)
        return [
            Check(SLOW, policy, tuple(held), told.silent | self._heads.young(limit)),
            Check(FAILING, fails, tuple(failing(told.groups)), told.silent),
        ]


def _of_brokers(
    connection: Connection, options: Mapping[str, int], retries: Stored, dead: Stored
) -> list[Check]:
    window, policy = options["window_seconds"] * 1000, policy_of(options)
    checks = []
    for rule, stored, limit, prefix, what in (
        (RETRIES, retries, options["retries"], RETRY_PREFIX, "came back for another try"),
        (DEAD, dead, options["dead_letters"], DLQ_PREFIX, "became dead letters"),
    ):
        grown = growth.look(connection, rule, stored.counts, window, stored.failed)
        checks.append(Check(rule, policy, tuple(many(grown, limit, prefix, what)), stored.failed))
    return checks
