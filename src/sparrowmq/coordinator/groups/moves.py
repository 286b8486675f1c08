"""Offset resets of running groups.

In a managed group the queues get a new generation with the same owners: these drain, commit and release, and
the broker fences the old generation. Then, before the new generation is granted, the offset is set under it.
So no old offset is committed afterwards, and the next owner begins at the new offset. Other groups are reset
as RocketMQ's tools do it (client:D.14).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from sparrowmq.core.errors import BrokerError, CoordinatorError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.managed import GroupPolicies, GroupPolicy

if TYPE_CHECKING:
    from sparrowmq import aio
    from sparrowmq.coordinator.groups.handover import QueueFence
    from sparrowmq.coordinator.groups.resets import ResetRow, ResetTarget
    from sparrowmq.core.dynamic_settings import SettingPlace
    from sparrowmq.core.route import TopicRoute

log = logging.getLogger("sparrowmq.coordinator")

DIRECT_SECONDS: Final = 30.0
"""Time for brokers to set the offsets of an unmanaged group."""


class Offsets(Protocol):
    """The admin client's calls about offsets."""

    async def topic_status(self, topic: str) -> list[aio.QueueStatus]:
        """First and next offset of every queue."""

    async def group_progress(self, group: str, topic: str | None = None) -> list[aio.QueueProgress]:
        """The group's lag in every queue."""

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """A group's committed offset."""

    async def commit(
        self, group: str, queue: MessageQueue, offset: int, *, generation: int | None = None
    ) -> None:
        """Set a group's offset."""

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int, /) -> int:
        """The offset of a time."""

    async def reset_offsets(
        self, group: str, topic: str, to: Literal["last", "first"] | datetime, *, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Reset the offsets of a group and its members in a topic."""

    async def reset_queue(self, group: str, queue: MessageQueue, offset: int) -> None:
        """The same for one queue."""

    async def group_policies(self, group: str | None = None) -> dict[str, GroupPolicies]:
        """Policies by broker name."""


class ManagedCluster(Offsets, Protocol):
    """The calls of the admin client that a leader needs."""

    async def topic_route(self, topic: str) -> TopicRoute:
        """Queues and brokers of a topic. Raises `NoRouteError` if no broker has the topic."""

    async def set_group_policy(
        self, policy: GroupPolicy, *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        """Make a broker enforce a policy, durably."""


def is_in(place: SettingPlace, queue: MessageQueue) -> bool:
    """Whether a queue belongs to the scope of a reset."""
    return (
        place.topic == queue.topic
        and place.queue_id in (-1, queue.queue_id)
        and place.broker in ("", queue.broker_name)
    )


def named(queue: MessageQueue) -> str:
    """A queue as the audit log has it."""
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


def is_moved(place: SettingPlace, target: ResetTarget, queue: MessageQueue) -> bool:
    """Whether a reset moves a queue."""
    return is_in(place, queue) and target.covers(named(queue))


async def offset_of(cluster: Offsets, queue: MessageQueue, target: ResetTarget) -> int:
    """The offset of a target in a queue; offsets outside the stored range become the first or the next
    offset.

    Raises `SparrowError`.
    """
    if target.kind == "time":
        return await cluster.search_offset(queue, target.number)
    found = [one for one in await cluster.topic_status(queue.topic) if one.queue == queue]
    if not found:
        raise CoordinatorError(f"{queue} no longer exists", what="queue", value=queue)
    low, high = found[0].min_offset, found[0].max_offset
    if target.kind == "first":
        return low
    return high if target.kind == "last" else min(max(target.offset(named(queue)), low), high)


@dataclass(frozen=True, slots=True)
class MoveResult:
    """Result of a request: offsets by queue, or a problem."""

    wish: ResetRow
    before: Mapping[str, int] = field(default_factory=dict)
    after: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""
    generation: int | None = None


@dataclass(slots=True)
class _Moving:
    """A request in progress: queues that wait for their new generation, and the finished ones."""

    wish: ResetRow
    generation: int
    left: set[MessageQueue]
    before: dict[str, int] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)


class Moves:
    """The requests for one managed group, until their offsets are set."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._new: dict[int, ResetRow] = {}
        self._moving: dict[int, _Moving] = {}
        self._ended: list[MoveResult] = []

    def __repr__(self) -> str:
        return f"<Moves new={len(self._new)} moving={len(self._moving)}>"

    def add(self, wish: ResetRow) -> bool:
        """Start a request; False if it is already known."""
        known = {*self._new, *self._moving, *(one.wish.id for one in self._ended)}
        if wish.id in known:
            return False
        self._new[wish.id] = wish
        return True

    @property
    def wanted(self) -> bool:
        """Whether a plan is needed for them."""
        return bool(self._new)

    def chosen(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """The queues to release for new requests."""
        wishes = self._new.values()
        return {queue for queue in queues if any(is_moved(one.place, one.target, queue) for one in wishes)}

    def begin(self, queues: Collection[MessageQueue], generation: int) -> None:
        """A plan with this generation releases the chosen queues. A queue that is no longer in the plan is
        resumed together with its group.
        """
        if not self._new and not self._moving:
            return
        for wish in self._new.values():
            left = {queue for queue in queues if is_moved(wish.place, wish.target, queue)}
            if left:
                self._moving[wish.id] = _Moving(wish, generation, left)
            else:
                text = f"group {self._group} does not consume any queue of {wish.place}"
                self._ended.append(MoveResult(wish, problem=text))
        self._new.clear()
        known = set(queues)
        for number, one in list(self._moving.items()):
            if not one.left <= known:
                del self._moving[number]

    async def set(self, cluster: Offsets, fence: QueueFence) -> None:
        """Set the requested offsets of a queue whose broker has the new generation but has not granted it
        yet. Raises `SparrowError`: then the call must be repeated.
        """
        queue = fence.queue
        for number, one in sorted(self._moving.items()):
            if queue not in one.left or fence.generation < one.generation:
                continue
            offset = await offset_of(cluster, queue, one.wish.target)
            before = await cluster.committed(self._group, queue)
            await cluster.commit(self._group, queue, offset, generation=fence.generation)
            one.left.discard(queue)
            if before is not None:
                one.before[named(queue)] = before
            one.after[named(queue)] = offset
            log.info("group %s continues at offset %d in %s", self._group, offset, queue)
            if not one.left:
                del self._moving[number]
                self._ended.append(MoveResult(one.wish, one.before, one.after, generation=one.generation))

    def ended(self) -> list[MoveResult]:
        """Finished requests; the caller records them, and then calls `forget`."""
        return list(self._ended)

    def forget(self, moved: MoveResult) -> None:
        """Forget a recorded request."""
        self._ended.remove(moved)


class DirectMoves:
    """Requests for groups that are not managed, or have no members now. Each runs in its own task, so that
    none delays others.
    """

    def __init__(self, cluster: Offsets) -> None:
        self._cluster = cluster
        self._tasks: dict[int, asyncio.Task[MoveResult | None]] = {}
        self._managed: set[str] = set()

    def add(self, wish: ResetRow) -> None:
        """Start a request, unless it is already running."""
        if wish.id not in self._tasks:
            self._tasks[wish.id] = asyncio.get_running_loop().create_task(self._carry_out(wish))

    def take_managed(self) -> list[str]:
        """Groups found since the last call whose queues are granted by brokers: they need a leader, which
        waits for leases and releases the queues.
        """
        found, self._managed = sorted(self._managed), set()
        return found

    def ended(self) -> list[MoveResult]:
        """Finished requests; the caller records them, and then calls `forget`."""
        found = []
        for number, task in list(self._tasks.items()):
            if not task.done():
                continue
            moved = None if task.cancelled() else task.result()
            if moved is None:
                del self._tasks[number]  # once more, when it is read again
            else:
                found.append(moved)
        return found

    def forget(self, moved: MoveResult) -> None:
        """Forget a recorded request."""
        self._tasks.pop(moved.wish.id, None)

    async def close(self) -> None:
        """Cancel all; another leader starts them again."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    async def _carry_out(self, wish: ResetRow) -> MoveResult | None:
        try:
            async with asyncio.timeout(DIRECT_SECONDS):
                return await self._moved(wish)
        except BrokerError as error:
            if error.code == ResponseCode.GENERATION_FENCED:
                self._managed.add(wish.group)
                return None  # the group is managed, and its leader has not started the request
            return MoveResult(wish, problem=str(error))
        except (SparrowError, TimeoutError) as error:
            return MoveResult(
                wish, problem=str(error) or f"brokers did not answer within {DIRECT_SECONDS:g} s"
            )

    async def _set(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set an offset; under the queue's last generation if it belongs to a managed group without
        members.
        """
        try:
            await self._cluster.reset_queue(group, queue, offset)
        except BrokerError as error:
            if error.code != ResponseCode.GENERATION_FENCED:
                raise
            found = (await self._cluster.group_policies(group)).get(queue.broker_name, GroupPolicies())
            grants = [one for policy in found.policies for one in policy.queues if one.queue == queue]
            if not grants or grants[0].owner:
                raise
            await self._cluster.commit(group, queue, offset, generation=grants[0].generation)

    async def _moved(self, wish: ResetRow) -> MoveResult:
        group, place, target, cluster = wish.group, wish.place, wish.target, self._cluster
        found = [one.queue for one in await cluster.topic_status(place.topic)]
        queues = [queue for queue in found if is_moved(place, target, queue)]
        if not queues:
            return MoveResult(wish, problem=f"{place} has no queue")
        progress = await cluster.group_progress(group, place.topic)
        before = {named(one.queue): one.consumer_offset for one in progress if one.queue in queues}
        after: dict[MessageQueue, int]
        if place.queue_id < 0 and target.kind in ("first", "last", "time"):
            to: Any = target.kind
            if target.kind == "time":
                to = datetime.fromtimestamp(target.number / 1000, UTC)
            after = await cluster.reset_offsets(group, place.topic, to)
        else:
            after = {}
            for queue in sorted(queues):
                after[queue] = await offset_of(cluster, queue, target)
                await self._set(group, queue, after[queue])
        return MoveResult(wish, before, {named(queue): offset for queue, offset in sorted(after.items())})
