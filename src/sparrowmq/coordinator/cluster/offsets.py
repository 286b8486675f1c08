"""The offsets of all groups and the reports of all brokers, asked once for all who need them.

One request to each master returns the offsets of all groups there. The service `history` asks regularly; the
lag that users see, and the alarms, take what it got. So it makes no difference to brokers how many pages are
open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from sparrowmq.aio import Admin, BrokerStatus, PullConsumer, QueueProgress
from sparrowmq.coordinator.cluster.asking import LOOK_SECONDS, SharedAnswer, each
from sparrowmq.coordinator.cluster.clients import ClusterClients
from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import BrokerError, NoRouteError, TransportError
from sparrowmq.core.message import MessageQueue

ASK_SECONDS: Final = 8.0
"""Time limit of one query of all masters."""
SETTLE_SECONDS: Final = 60.0
"""How long queues may lag behind when a broker deletes a part of its log. During that time, first offsets are
at most this old."""
FIRSTS_SECONDS: Final = 900.0
"""Maximum age of the first offsets of a topic: it may have been created again."""
KEPT_SECONDS: Final = 120.0
"""How long the time of a message is kept that nobody asks for."""
LOG_BEGINS: Final = "commitLogMinOffset"


@dataclass(frozen=True, slots=True)
class BrokerReports:
    """What every registered broker reports of itself. `at` is monotonic seconds."""

    at: float
    brokers: Sequence[BrokerStatus] = ()


@dataclass(frozen=True, slots=True)
class AllOffsets:
    """The offsets of all groups by group. `failed` are masters that did not report, with the reason;
    `unknown` are the groups that had offsets there before. `at` is monotonic seconds.
    """

    at: float
    now_ms: int
    groups: Mapping[str, Sequence[QueueProgress]] = field(default_factory=dict)
    brokers: Sequence[BrokerStatus] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    unseen: str = ""
    """A failed master that was never heard, so it is not known which groups have offsets there."""


def unread(one: QueueProgress, firsts: Mapping[MessageQueue, int]) -> int:
    """Messages that a group has not read and can still read: those that the broker has deleted do not wait.
    Pure.
    """
    return max(0, one.broker_offset - max(one.consumer_offset, firsts.get(one.queue, 0)))


class LogBegins:
    """Where the logs of masters begin. Queues lose their first messages only when a log does. No I/O."""

    def __init__(self) -> None:
        self._begins: dict[str, tuple[int, float]] = {}
        """Where a log begins, and since when it does, at most."""

    def note(self, reports: BrokerReports) -> None:
        """Take what brokers reported; one that does not tell is forgotten."""
        for one in reports.brokers:
            if one.broker_id or one.error:
                continue
            text = one.runtime.get(LOG_BEGINS, "")
            if not (text.isascii() and text.isdecimal() and len(text) <= 18):
                self._begins.pop(one.broker_name, None)
            elif self._begins.get(one.broker_name, (-1, 0.0))[0] != int(text):
                self._begins[one.broker_name] = int(text), reports.at if int(text) else -inf

    def has_kept(self, brokers: Iterable[str], at: float) -> bool:
        """Whether these brokers have deleted nothing since `at`, as far as they tell."""
        return all(self._begins.get(broker, (0, inf))[1] + SETTLE_SECONDS <= at for broker in brokers)


class FirstOffsets:
    """The first offsets of queues, where a group may be before them. Brokers do not report them with offsets.

    The store time of the last consumed message is 0 when it is deleted, or when nothing was consumed. Only
    the topics of such queues are requested, and only when their brokers have deleted messages since.
    """

    def __init__(self, clock: Clock, begins: LogBegins) -> None:
        self._monotonic = clock.monotonic
        self._begins = begins
        self._known: dict[str, tuple[float, Mapping[MessageQueue, int]]] = {}

    async def of(self, admin: Admin, rows: Iterable[QueueProgress]) -> dict[MessageQueue, int]:
        """First offsets above 0 of the queues in which a group may be before them; unknown ones are left
        out.
        """
        topics: defaultdict[str, dict[str, bool]] = defaultdict(dict)
        for one in rows:
            if one.lag > 0 and one.last_timestamp_ms <= 0:
                fits = topics[one.queue.topic].get(one.queue.broker_name, True) and self._fits(one)
                topics[one.queue.topic][one.queue.broker_name] = fits
        now = self._monotonic()
        old = [topic for topic, brokers in topics.items() if not self._holds(topic, brokers, now)]

        async def look(topic: str) -> Mapping[MessageQueue, int]:
            return {
                one.queue: one.min_offset for one in await admin.topics.status(topic) if one.min_offset > 0
            }

        for topic, found in (await each(old, look, {}, seconds=LOOK_SECONDS / 3)).items():
            self._known[topic] = now, found
        known = (self._known[topic][1] for topic in topics if topic in self._known)
        return {queue: offset for found in known for queue, offset in found.items()}

    def _fits(self, one: QueueProgress) -> bool:
        """Whether what is known of a queue can be: it cannot be if the topic was created again."""
        _, found = self._known.get(one.queue.topic, (0.0, {}))
        return found.get(one.queue, 0) <= one.broker_offset

    def _holds(self, topic: str, brokers: Mapping[str, bool], now: float) -> bool:
        """Whether what is known of a topic need not be asked for again."""
        if topic not in self._known or not all(brokers.values()):
            return False
        at = self._known[topic][0]
        return now - at <= (FIRSTS_SECONDS if self._begins.has_kept(brokers, at) else SETTLE_SECONDS)


class StoredTimes:
    """When messages were stored, by queue and offset. It never changes, so each is read once, and kept as
    long as it is asked for.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._known: dict[tuple[MessageQueue, int], int] = {}
        self._before: dict[tuple[MessageQueue, int], int] = {}
        self._turned = monotonic()

    async def of(self, reader: PullConsumer, queue: MessageQueue, offset: int) -> int:
        """When the message at an offset was stored; if it is deleted, the first one after it; 0 if there is
        none.
        """
        place = queue, offset
        found = self._known.get(place) or self._before.get(place)
        is_there = True
        if found is None:
            found, is_there = await _read_time(reader, queue, offset)
        if found and is_there:
            self._turn()
            self._known[place] = found
        return found

    def _turn(self) -> None:
        now = self._monotonic()
        if now - self._turned > KEPT_SECONDS:
            self._before, self._known, self._turned = self._known, {}, now


class GroupOffsets:
    """The offsets of all groups, and what brokers report of themselves."""

    def __init__(self, clients: ClusterClients, clock: Clock) -> None:
        self.clients = clients
        self._clock = clock
        self._reports = SharedAnswer(self._ask_brokers, clock.monotonic)
        self._offsets = SharedAnswer(self._ask_offsets, clock.monotonic)
        self._seen: dict[str, frozenset[str]] = {}
        """The groups of each master, when it last reported."""
        self._begins = LogBegins()
        self.firsts = FirstOffsets(clock, self._begins)
        self.stored = StoredTimes(clock.monotonic)

    def __repr__(self) -> str:
        return f"<GroupOffsets {self.clients.namesrv}>"

    async def brokers(self, fresh_seconds: float) -> BrokerReports:
        """What all brokers report, at most this old. Raises `SparrowError` if they cannot be listed."""
        return await self._reports.get(fresh_seconds)

    async def all(self, fresh_seconds: float) -> AllOffsets:
        """The offsets of all groups, at most this old. Raises `SparrowError` if brokers cannot be listed."""
        return await self._offsets.get(fresh_seconds)

    async def close(self) -> None:
        """Cancel running queries. Idempotent."""
        await self._offsets.close()
        await self._reports.close()

    async def _ask_brokers(self) -> BrokerReports:
        at, admin = self._clock.monotonic(), await self.clients.admin()
        found = BrokerReports(at, await admin.brokers.list())
        self._begins.note(found)
        return found

    async def _ask_offsets(self) -> AllOffsets:
        at, now, admin = self._clock.monotonic(), self._clock.now_ms(), await self.clients.admin()
        brokers = (await self._reports.get(0.0)).brokers
        failed: dict[str, str] = {}
        masters = {one.broker_name for one in brokers if one.broker_id == 0}
        told = await each(masters, admin.brokers.progress, failed, seconds=ASK_SECONDS)
        places: defaultdict[str, list[QueueProgress]] = defaultdict(list)
        for groups in told.values():
            for group, rows in groups.items():
                places[group] += rows
        self._seen = {name: known for name, known in self._seen.items() if name in masters}
        self._seen |= {name: frozenset(groups) for name, groups in told.items()}
        silent = {name: f"{name}: {why}" for name, why in failed.items()}
        unknown = {group: why for name, why in silent.items() for group in self._seen.get(name, ())}
        unseen = next((why for name, why in silent.items() if name not in self._seen), "")
        return AllOffsets(at, now, dict(places), brokers, failed, unknown, unseen)


def complete(found: AllOffsets) -> AllOffsets:
    """The same. Raises `NoRouteError` if it is not known which groups a silent master has."""
    if found.unseen:
        raise NoRouteError(f"the offsets of groups are not known: {found.unseen}")
    return found


async def oldest_waiting(
    reader: PullConsumer, places: Iterable[QueueProgress], stored: StoredTimes
) -> dict[MessageQueue, int]:
    """Since when messages wait, by queue: epoch ms, 0 if unknown.

    It is exact for the queue of each topic whose message is the oldest. Messages are stored in order: if the
    last consumed message of a queue is newer than that oldest one, the queue is not read, and gets the time
    of its last consumed message.
    """
    by_topic: defaultdict[str, list[QueueProgress]] = defaultdict(list)
    for one in places:
        if one.lag > 0:
            by_topic[one.queue.topic].append(one)
    found: dict[MessageQueue, int] = {}
    for rows in by_topic.values():
        oldest = 0
        for one in sorted(rows, key=lambda row: row.last_timestamp_ms):
            if 0 < oldest <= one.last_timestamp_ms:
                found[one.queue] = one.last_timestamp_ms
                continue
            at = found[one.queue] = await stored.of(reader, one.queue, one.consumer_offset)
            oldest = min(oldest or at, at) if at else oldest
    return found


async def store_time(reader: PullConsumer, queue: MessageQueue, offset: int) -> int:
    """When the message at an offset was stored; if it is deleted, the first one after it; 0 if there is
    none.
    """
    return (await _read_time(reader, queue, offset))[0]


async def _read_time(reader: PullConsumer, queue: MessageQueue, offset: int) -> tuple[int, bool]:
    """The same, and whether it is the message at this offset."""
    is_there = True
    try:
        result = await reader.pull(queue, offset, max_messages=1)
        if not result.messages and result.min_offset > offset:
            is_there = False
            result = await reader.pull(queue, result.min_offset, max_messages=1)
    except (BrokerError, TransportError):
        return 0, False
    return (result.messages[0].store_timestamp, is_there) if result.messages else (0, False)
