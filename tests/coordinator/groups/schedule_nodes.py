"""Nodes of a schedule, which crash, freeze and have their own clocks; brokers among them, with the real
fence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.members.fence import ManagedGroup, judge
from sparrowmq.coordinator.groups.handover import Times
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.managed import GroupPolicy

if TYPE_CHECKING:
    from tests.coordinator.groups.schedules import World

TIMES: Final = Times(member_lease=4.0, lease=5.0, drain=12.0)
DRIFT: Final = 0.04
LOCK_SECONDS: Final = 60.0
CALL_SECONDS: Final = 2.0
"""After so long without answer a call has failed."""
QUEUES: Final = [MessageQueue("T", f"b{number % 2}", number) for number in range(6)]

Call = Callable[[], None]


class Node:
    """A node that can crash, freeze, and has its own clock."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.rate = 1 + world.rng.uniform(-DRIFT, DRIFT)
        self.start = world.rng.uniform(0, 1e6)
        self.life = 0
        self.alive = True
        self.thaws = 0.0

    @property
    def clock(self) -> float:
        """Its monotonic time."""
        return self.start + self.world.now * self.rate

    def after(self, seconds: float, call: Call) -> None:
        """Do something later, unless it died meanwhile; a frozen node does it when it is resumed."""
        life = self.life

        def due() -> None:
            if not self.alive or self.life != life:
                return
            if self.thaws > self.world.now:
                self.world.at(self.thaws, due)
            else:
                call()

        self.world.at(self.world.now + seconds, due)

    def die(self) -> None:
        """kill -9."""
        self.alive = False
        self.life += 1


class Broker(Node):
    """Queues, a group's offsets and its policy. A crash loses offsets of the last seconds, but no policy."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.logs: dict[MessageQueue, list[int]] = {q: [] for q in QUEUES if q.broker_name == name}
        self.offsets = dict.fromkeys(self.logs, 0)
        self._kept = dict(self.offsets)
        self._disk = GroupPolicy("g").encode()
        self._locks: dict[MessageQueue, tuple[str, float]] = {}
        self.policy = ManagedGroup(GroupPolicy("g"), name)
        self.keep()

    def keep(self) -> None:
        """Write offsets every five seconds."""
        self._kept = dict(self.offsets)
        self.after(5, self.keep)

    def crash(self) -> None:
        """Crash for a while, then restart with the state on disk."""
        self.die()
        self.offsets = dict(self._kept)
        self._locks = {}
        self.world.at(self.world.now + self.world.rng.uniform(0.2, 4), self._again)

    def _again(self) -> None:
        if self.alive:
            return
        self.alive = True
        self.policy = ManagedGroup(GroupPolicy.decode(self._disk), self.name)
        self.keep()

    def put(self, policy: GroupPolicy) -> bool:
        """Set the policy; returns whether it was accepted."""
        old = self.policy.policy
        if judge(policy, old if old.epoch else None, 0, self.name) is not None:
            self.world.events["policies refused"] += 1
            return False
        self._disk = policy.encode()
        before, self.policy = self.policy, ManagedGroup(policy, self.name)
        for queue in self.policy.moved(before):
            self._locks.pop(queue, None)
        return True

    def lock(self, queue: MessageQueue, generation: int, owner: str) -> bool:
        """Lock a queue for an ordered member (41); the lock lasts for a minute, as at brokers."""
        if not self.take("lock", queue, generation):
            return False
        holder, until = self._locks.get(queue, (owner, 0.0))
        if holder != owner and until > self.world.now:
            self.world.events["locks of others"] += 1
            return False
        self._locks[queue] = owner, self.world.now + LOCK_SECONDS
        return True

    def take(self, what: str, queue: MessageQueue, generation: int) -> bool:
        """Whether a request passes the fence."""
        if self.policy.refusal(queue.topic, queue.queue_id, generation):
            self.world.events[f"{what} refused"] += 1
            return False
        self.world.accepted(what, queue, generation)
        return True
