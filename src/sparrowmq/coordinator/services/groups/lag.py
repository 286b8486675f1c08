"""The lag alarm: groups with more unread messages, or older ones, than their limit allows (pmq:4, T6, T12).

Lag is computed from the brokers' queue ends, age from the oldest unread message: a quiet topic whose messages
were all read has neither.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.alarms.table import AlarmCheck, Condition
from sparrowmq.coordinator.cluster.view import ClusterView, GroupPosition
from sparrowmq.coordinator.services.base.runner import Work
from sparrowmq.coordinator.services.base.schedule import RunReport, ServiceKind, ServiceOption
from sparrowmq.coordinator.services.base.watch import CALM, WatchService, need, policy_of, report
from sparrowmq.coordinator.services.groups import limits
from sparrowmq.coordinator.services.groups.limits import Limit, Limits, limit_of
from sparrowmq.core.clock import Clock

RULE: Final = "lag"
KIND: Final = ServiceKind(
    "lag-alarm",
    "Unread messages above a group's limit",
    60_000,
    1_000,
    120.0,
    (
        ServiceOption(
            "messages",
            100_000,
            0,
            10**12,
            "unread messages of a group on a topic without limits; 0: no limit",
        ),
        ServiceOption("age_seconds", 3600, 0, 31_536_000, "age of the oldest of them; 0: no limit"),
        ServiceOption("checks", 2, 1, 100, "consecutive checks that must see it before it fires"),
        CALM,
        ServiceOption("reminder_seconds", 3600, 0, 604_800, "how often a firing alarm is repeated; 0: never"),
    ),
)


def conditions(
    places: dict[str, list[GroupPosition]], set_limits: Limits, default: Limit, now_ms: int
) -> list[Condition]:
    """Groups with too much lag, by group and topic. Pure; `now_ms` approximates the brokers' time."""
    found = []
    for group, of_group in sorted(places.items()):
        by_topic: defaultdict[str, list[GroupPosition]] = defaultdict(list)
        for place in of_group:
            by_topic[place.queue.topic].append(place)
        for topic, of_topic in sorted(by_topic.items()):
            limit = limit_of(set_limits, group, topic, default)
            text = _excess(of_topic, limit, now_ms)
            if limit.enabled and text:
                found.append(
                    Condition(f"{group} {topic}", f"the group {group} on {topic}: {text}", group, topic)
                )
    return found


def _excess(places: list[GroupPosition], limit: Limit, now_ms: int) -> str:
    lag = sum(place.lag for place in places)
    oldest = min((place.oldest_ms for place in places if place.lag and place.oldest_ms), default=now_ms)
    age = max(0, now_ms - oldest)
    parts = []
    if 0 < limit.messages < lag:
        parts.append(f"{lag} unread messages, the limit is {limit.messages}")
    if 0 < limit.age_ms < age:
        parts.append(
            f"the oldest unread message is {age // 1000} s old, the limit is {limit.age_ms // 1000} s"
        )
    return " and ".join(parts)


class LagAlarm(WatchService[ClusterView]):
    """Queries all groups and updates their lag alarms."""

    kind = KIND

    def __init__(self, view: ClusterView, channels: Channels, clock: Clock) -> None:
        super().__init__(view, channels)
        self._clock = clock

    async def step(self, work: Work) -> RunReport:
        """One check of every group. Raises `CoordinatorError` when no group could be queried."""
        set_limits = await work.read(limits.read)
        options = work.options
        default = Limit(options["messages"], options["age_seconds"] * 1000)
        seen = await self._view.places(ages=True)
        need("group", seen.places, seen.failed)
        found = conditions(seen.places, set_limits, default, self._clock.now_ms())
        check = AlarmCheck(RULE, policy_of(options), tuple(found), frozenset(seen.failed))
        counts = await work.write(lambda c: table.observe(c, check, work.actor, self._channels))
        return report("groups", seen.places, seen.failed, counts)
