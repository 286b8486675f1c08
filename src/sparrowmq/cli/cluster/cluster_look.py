"""Measures a cluster: the current figures of its brokers, topics and groups, also from RocketMQ's brokers.

Everything has a time limit, so that a broker that hangs is told apart from the others and does not hold them
up, and every look asks a bounded number of requests.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from sparrowmq.cli.cluster.cluster_rows import MASTER, ClusterLook
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.figures.lag import LagSum, QueueLag, age_ms, queue_lag
from sparrowmq.core.names import DLQ_PREFIX, is_system_group, is_system_topic

if TYPE_CHECKING:
    from sparrowmq.aio import Admin, BrokerStatus, GroupMemberInfo, PullConsumer, QueueProgress
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.message import MessageQueue

BROKER_SECONDS: Final = 3.0
"""Time limit of one broker for all requests about itself and its groups."""
DETAIL_SECONDS: Final = 3.0
"""Time limit for all details of one kind; those that come later are unknown."""
DETAILS_MAX: Final = 200
"""Number of details of one kind in one measurement: topics without groups, queues without a committed offset,
and times of the oldest messages. Groups with most lag come first.
"""
TOGETHER: Final = 16
"""Requests for details at a time."""

Name = TypeVar("Name", bound=Hashable)
Value = TypeVar("Value")
Progress = Mapping[str, "Sequence[QueueProgress]"]
"""Offsets by group."""


class ClusterWatch:
    """Measures one cluster repeatedly.

    `system` includes RocketMQ's own topics and groups.
    """

    def __init__(self, admin: Admin, reader: PullConsumer, clock: Clock, *, system: bool = False) -> None:
        self._admin = admin
        self._reader = reader
        self._clock = clock
        self._system = system

    async def look(self, members_of: str | None = None) -> ClusterLook:
        """Ask every broker; and for the members of one group. Raises `SparrowError` when no name server
        answers.
        """
        at = self._clock.monotonic()
        statuses, topics = await asyncio.gather(self._statuses(), self._topics())
        told = await asyncio.gather(*(self._told(one) for one in statuses))
        brokers = [one for one, _ in told]
        failed = {
            one.broker_name: one.error or "" for one in brokers if one.broker_id == MASTER and one.error
        }
        for name in {one.broker_name for one in brokers} - {
            one.broker_name for one in brokers if one.broker_id == MASTER
        }:
            failed[name] = "no name server knows a master of it"
        places: defaultdict[str, list[QueueProgress]] = defaultdict(list)
        for _, progress in told:
            for group, rows in progress.items():
                places[group] += rows
        ends = {row.queue: row.broker_offset for rows in places.values() for row in rows}
        unread = set(topics) - {queue.topic for queue in ends}
        more, committed, members = await asyncio.gather(
            self._ends(unread), self._committed(places), self._members(members_of)
        )
        lags = await self._lags(places, committed)
        offsets = {
            group: {row.queue: max(0, row.consumer_offset) for row in rows} for group, rows in places.items()
        }
        return ClusterLook(at, brokers, topics, ends | more, offsets, lags, committed, members, failed)

    async def _topics(self) -> list[str]:
        return [name for name in await self._admin.topics.list(system=self._system) if self._counts(name)]

    def _counts(self, topic: str) -> bool:
        return self._system or not (topic.startswith(DLQ_PREFIX) or is_system_topic(topic))

    # Brokers

    async def _statuses(self) -> list[BrokerStatus]:
        from sparrowmq.aio import BrokerStatus

        info = await self._admin.brokers.cluster_info()
        return [
            BrokerStatus(cluster, name, broker_id, address)
            for cluster, names in sorted(info.clusters.items())
            for name in sorted(names)
            if name in info.brokers
            for broker_id, address in sorted(info.brokers[name].addresses.items())
        ]

    async def _told(self, status: BrokerStatus) -> tuple[BrokerStatus, Progress]:
        """The answers of one broker: about itself, and a master about the groups."""
        try:
            async with asyncio.timeout(BROKER_SECONDS):
                status = replace(status, runtime=await self._admin.brokers.info(status.address))
                if status.broker_id != MASTER:
                    return status, {}
                return status, self._wanted(await self._admin.brokers.progress(status.address))
        except SparrowError as error:
            return replace(status, error=str(error)), {}
        except TimeoutError:
            return replace(status, error=f"it did not answer within {BROKER_SECONDS:g} s"), {}

    def _wanted(self, progress: Progress) -> Progress:
        found = {}
        for group, rows in progress.items():
            counted = [row for row in rows if self._counts(row.queue.topic)]
            if counted and (self._system or not is_system_group(group)):
                found[group] = counted
        return found

    # Details

    async def _ends(self, topics: Iterable[str]) -> dict[MessageQueue, int]:
        """The ends of topics that no group reads."""
        asks = {topic: partial(self._admin.topics.status, topic) for topic in sorted(topics)}
        found = await gathered(asks)
        return {row.queue: row.max_offset for rows in found.values() for row in rows}

    async def _members(self, group: str | None) -> dict[str, Sequence[GroupMemberInfo]]:
        """The members of a group by client id; those of several brokers are the same ones."""
        if group is None:
            return {}
        found = await gathered({group: partial(self._admin.groups.members, group)})
        return {
            name: sorted(
                {one.client_id: one for members in told.values() for one in members}.values(),
                key=lambda one: one.client_id,
            )
            for name, told in found.items()
        }

    async def _lags(
        self, places: Progress, committed: Mapping[tuple[str, MessageQueue], int]
    ) -> dict[str, LagSum]:
        lags = {
            group: {
                row.queue: queue_lag(committed.get((group, row.queue)), 0, row.broker_offset) for row in rows
            }
            for group, rows in places.items()
        }
        first = await self._first_waiting(lags)
        now_ms, sums = self._clock.now_ms(), {}
        for group, queues in lags.items():
            sums[group] = whole = LagSum(queues=len(queues))
            for queue, lag in queues.items():
                stored_ms, gone = (0, 0) if lag is None else first.get((queue, lag.oldest), (0, 0))
                left = None if lag is None else queue_lag(lag.oldest + gone, 0, lag.oldest + lag.messages)
                whole.add(left, age_ms(stored_ms, now_ms))
        return sums

    async def _committed(self, places: Progress) -> dict[tuple[str, MessageQueue], int]:
        """The committed offsets that are known. Brokers report 0 even where nothing was committed: there they
        are asked again, queue by queue, unless POP has handed out messages.
        """
        known, asks = {}, {}
        for group, rows in places.items():
            for row in rows:
                place = group, row.queue
                if row.consumer_offset > 0 or row.broker_offset == 0 or row.pull_offset > 0:
                    known[place] = max(0, row.consumer_offset)
                else:
                    asks[place] = partial(self._admin.groups.committed, *place, stored_only=True)
        found = await gathered(asks)
        return known | {place: offset for place, offset in found.items() if offset is not None}

    async def _first_waiting(
        self, lags: Mapping[str, Mapping[MessageQueue, QueueLag | None]]
    ) -> dict[tuple[MessageQueue, int], tuple[int, int]]:
        """By queue and offset, what `_first_left` tells of the oldest waiting messages."""
        late = sorted(lags.values(), key=lambda queues: -sum(lag.messages for lag in queues.values() if lag))
        asks = {
            (queue, lag.oldest): partial(self._first_left, queue, lag.oldest)
            for queues in late
            for queue, lag in queues.items()
            if lag is not None and lag.messages
        }
        return await gathered(asks)

    async def _first_left(self, queue: MessageQueue, offset: int) -> tuple[int, int]:
        """When the first message from an offset on was stored, epoch ms, or 0; and how many were deleted
        before it.
        """
        result = await self._reader.pull(queue, offset, max_messages=1)
        first = max(offset, result.min_offset)
        if not result.messages and first > offset:
            result = await self._reader.pull(queue, first, max_messages=1)
        return (result.messages[0].store_timestamp if result.messages else 0), first - offset


async def gathered(
    asks: Mapping[Name, Callable[[], Awaitable[Value]]],
    *,
    most: int = DETAILS_MAX,
    seconds: float = DETAIL_SECONDS,
) -> dict[Name, Value]:
    """The answers to the first `most` of these requests that come within `seconds`.

    Those that fail are absent.
    """
    found: dict[Name, Value] = {}
    left = iter(list(asks.items())[:most])

    async def work() -> None:
        for name, ask in left:
            try:
                found[name] = await ask()
            except SparrowError:
                continue

    workers = [asyncio.create_task(work()) for _ in range(min(TOGETHER, len(asks)))]
    try:
        if workers:
            await asyncio.wait(workers, timeout=seconds)
    finally:
        for worker in workers:
            worker.cancel()
        answers = await asyncio.gather(*workers, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, asyncio.CancelledError):
            raise answer
    return found
