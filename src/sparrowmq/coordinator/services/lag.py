"""The lag alarm: groups with more unread messages, or older ones, than their limit allows (pmq:4, T6, T12).

Lag comes from the brokers' own ends of queues, age from the oldest unread message itself: a quiet topic whose
last message was read long ago has neither.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.alarms.table import Check, Condition
from sparrowmq.coordinator.cluster.view import ClusterView, Place
from sparrowmq.coordinator.services import limits
from sparrowmq.coordinator.services.frame import Work
from sparrowmq.coordinator.services.limits import Limit, Limits, limit_of
from sparrowmq.coordinator.services.schedule import Kind, Option, Report
from sparrowmq.coordinator.services.watch import CALM, Watch, need, policy_of, report
from sparrowmq.core.clock import Clock

RULE: Final = "lag"
KIND: Final = Kind(
    "lag-alarm",
    "Unread messages above a group's limit",
    60_000,
    1_000,
    120.0,
    (
        Option(
            "messages",
            100_000,
            0,
            10**12,
            "unread messages of a group on a topic without limits; 0: no limit",
        ),
        Option("age_seconds", 3600, 0, 31_536_000, "age of the oldest unread message, likewise"),
        Option("checks", 2, 1, 100, "checks running that must see it before it fires"),
        CALM,
        Option("reminder_seconds", 3600, 0, 604_800, "how often a firing alarm is told again; 0: once"),
    ),
)


def conditions(
    places: dict[str, list[Place]], set_limits: Limits, default: Limit, now_ms: int
) -> list[Condition]:
    """Who is too far behind, by group and topic. Pure; `now_ms` is the brokers' time as well as it is
    known.
    """
    found = []
    for group, of_group in sorted(places.items()):
        by_topic: defaultdict[str, list[Place]] = defaultdict(list)
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


def _excess(places: list[Place], limit: Limit, now_ms: int) -> str:
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


class LagAlarm(Watch[ClusterView]):
    """Looks at all groups and brings their lag alarms up to date."""

    kind = KIND

    def __init__(self, view: ClusterView, channels: Channels, clock: Clock) -> None:
        super().__init__(view, channels)
        self._clock = clock

    async def step(self, work: Work) -> Report:
        """One look at every group. Raises `CoordinatorError` when no group could be looked at."""
        set_limits = await work.read(limits.read)
        options = work.options
        default = Limit(options["messages"], options["age_seconds"] * 1000)
        seen = await self._view.places(ages=True)
        need("group", seen.places, seen.failed)
        found = conditions(seen.places, set_limits, default, self._clock.now_ms())
        check = Check(RULE, policy_of(options), tuple(found), frozenset(seen.failed))
        counts = await work.write(lambda c: table.observe(c, check, work.actor, self._channels))
        return report("groups", seen.places, seen.failed, counts)
