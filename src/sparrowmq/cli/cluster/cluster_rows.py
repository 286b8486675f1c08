"""The current state of a cluster as rows: brokers, topics, groups, from two measurements. Pure.

Unknown values are None, never zero.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Final

from sparrowmq.core.figures.lag import LagSum
from sparrowmq.core.stalls import KEY_COUNT, KEY_LONGEST_MILLIS

if TYPE_CHECKING:
    from sparrowmq.aio import BrokerStatus, GroupMemberInfo
    from sparrowmq.core.message import MessageQueue

LOG_END: Final = "commitLogMaxOffset"
MASTER: Final = 0


@dataclass(frozen=True, slots=True)
class ClusterLook:
    """One measurement of a cluster; `at` is monotonic seconds.

    `ends` has the next offset of each queue; None for topics that no broker reported. `offsets` are the
    groups' committed offsets, `lags` their sums over all queues. `committed` has the offsets that are known.
    """

    at: float
    brokers: Sequence[BrokerStatus] = ()
    topics: Sequence[str] = ()
    ends: Mapping[MessageQueue, int] = field(default_factory=dict)
    offsets: Mapping[str, Mapping[MessageQueue, int]] = field(default_factory=dict)
    lags: Mapping[str, LagSum] = field(default_factory=dict)
    committed: Mapping[tuple[str, MessageQueue], int] = field(default_factory=dict)
    members: Mapping[str, Sequence[GroupMemberInfo]] = field(default_factory=dict)
    """Members of the groups that were asked for."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Masters that did not answer, with the reason: the rows of topics and groups lack their part."""


@dataclass(frozen=True, slots=True)
class TopBroker:
    """A broker: messages per second, percent of its disk, stalls of its loop since it started.

    `behind_bytes` is what a slave lacks of its master's log.
    """

    broker: str
    id: int
    address: str
    stored_per_second: float | None
    delivered_per_second: float | None
    disk_percent: int | None
    behind_bytes: int | None
    stalls: int | None
    longest_stall_ms: float | None
    error: str | None


@dataclass(frozen=True, slots=True)
class TopTopic:
    """A topic: what it stores, and how many groups have offsets in it."""

    topic: str
    stored_per_second: float | None
    groups: int


@dataclass(frozen=True, slots=True)
class TopGroup:
    """A group: waiting messages, the age of the oldest, what it consumes, and queues of unknown lag."""

    group: str
    lag_messages: int | None
    lag_seconds: float | None
    consumed_per_second: float | None
    unknown_queues: int


@dataclass(frozen=True, slots=True)
class ClusterRows:
    """All rows, by name."""

    brokers: Sequence[TopBroker] = ()
    topics: Sequence[TopTopic] = ()
    groups: Sequence[TopGroup] = ()
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopPlace:
    """A broker, a topic or a group: what `kind` says."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class TopQueue:
    """A queue, for one of the groups that read it; without any, `group` is empty."""

    topic: str
    broker: str
    queue_id: int
    stored_per_second: float | None
    group: str = ""
    lag_messages: int | None = None
    consumed_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class TopInside:
    """What a broker, topic or group consists of. `members` is None if they are unknown."""

    queues: Sequence[TopQueue] = ()
    members: Sequence[GroupMemberInfo] | None = None


def inside_of(before: ClusterLook | None, now: ClusterLook, place: TopPlace) -> TopInside:
    """The queues of a broker, topic or group, and the members of a group."""
    readers: defaultdict[MessageQueue, list[str]] = defaultdict(list)
    for group, offsets in now.offsets.items():
        for queue in offsets:
            readers[queue].append(group)
    earlier = before or ClusterLook(now.at)
    seconds = now.at - earlier.at
    found = []
    for queue, end in now.ends.items():
        stored = _rate(_step(earlier.ends.get(queue), end), seconds)
        for group in readers[queue] or [""]:
            named = {"topic": queue.topic, "broker": queue.broker_name, "group": group}
            if named[place.kind] != place.name:
                continue
            offset = now.committed.get((group, queue))
            moved = _step(earlier.committed.get((group, queue)), offset)
            found.append(
                TopQueue(
                    queue.topic,
                    queue.broker_name,
                    queue.queue_id,
                    stored,
                    group,
                    None if offset is None else max(0, end - offset),
                    _rate(moved, seconds),
                )
            )
    return TopInside(found, now.members.get(place.name) if place.kind == "group" else None)


def _step(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else max(0, now - before)


def rows_of(before: ClusterLook | None, now: ClusterLook) -> ClusterRows:
    """The rows; without an earlier measurement, the rates of topics and groups are unknown."""
    earlier = before or ClusterLook(now.at)
    seconds = now.at - earlier.at
    stored = _moved(earlier.ends, now.ends)
    topics = [
        TopTopic(topic, _rate(stored.get(topic), seconds), groups)
        for topic, groups in sorted(_readers(now).items())
    ]
    groups = [
        TopGroup(
            group,
            lag.messages if lag.is_known else None,
            None if lag.age_ms is None or not lag.is_known else lag.age_ms / 1000,
            _rate(_all(_moved(earlier.offsets.get(group, {}), now.offsets.get(group, {})).values()), seconds),
            lag.unknown,
        )
        for group, lag in sorted(now.lags.items())
    ]
    return ClusterRows(list(_brokers(now.brokers)), topics, groups, now.failed)


def _readers(look: ClusterLook) -> dict[str, int]:
    """The number of groups of every topic."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for group, offsets in look.offsets.items():
        for queue in offsets:
            found[queue.topic].add(group)
    return {topic: len(found[topic]) for topic in {*look.topics, *found}}


def _moved(before: Mapping[MessageQueue, int], now: Mapping[MessageQueue, int]) -> dict[str, int]:
    """By topic, how far the queues moved that are in both measurements. One that went back did not move."""
    found: defaultdict[str, int] = defaultdict(int)
    for queue, offset in now.items():
        if (earlier := before.get(queue)) is not None:
            found[queue.topic] += max(0, offset - earlier)
    return dict(found)


def _all(moved: Iterable[int]) -> int | None:
    known = list(moved)
    return sum(known) if known else None


def _rate(moved: int | None, seconds: float) -> float | None:
    return None if moved is None or seconds <= 0 else round(moved / seconds, 1)


def _brokers(found: Sequence[BrokerStatus]) -> Iterable[TopBroker]:
    ends = {one.broker_name: _number(one.runtime.get(LOG_END)) for one in found if one.broker_id == MASTER}
    for one in found:
        told = one.runtime
        disk = _number(told.get("commitLogDiskRatio"))
        stalls, end = _number(told.get(KEY_COUNT)), _number(told.get(LOG_END))
        master_end = ends.get(one.broker_name)
        is_behind_known = one.broker_id != MASTER and end is not None and master_end is not None
        yield TopBroker(
            one.broker_name,
            one.broker_id,
            one.address,
            _number(told.get("putTps", "").strip().partition(" ")[0]),
            _number(told.get("getTransferredTps", "").strip().partition(" ")[0]),
            None if disk is None or disk < 0 else round(disk * 100),
            max(0, int((master_end or 0) - (end or 0))) if is_behind_known else None,
            None if stalls is None else int(stalls),
            _number(told.get(KEY_LONGEST_MILLIS)),
            one.error,
        )


def _number(text: str | None) -> float | None:
    """A number as a broker reports it; None for a text that is none, or not finite."""
    try:
        found = float(text or "")
    except ValueError:
        return None
    return round(found, 2) if isfinite(found) else None
