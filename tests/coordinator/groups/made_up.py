"""A fake cluster with two brokers that check policies as real ones do."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from tests.support import run

from sparrowmq.broker.members.fence import judge
from sparrowmq.coordinator.groups.handover import Times
from sparrowmq.coordinator.groups.initial_state import Terms
from sparrowmq.coordinator.groups.leader import GroupLeader
from sparrowmq.core.errors import (
    BrokerError,
    ConnectError,
    NoFencesError,
    NoRouteError,
)
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.route import BrokerData, QueueData, TopicRoute
from sparrowmq.protocol.managed import GroupPolicies, GroupPolicy

T = TypeVar("T")
TIMES = Times(member_lease=8.0, lease=10.0, drain=30.0)
A, B = MessageQueue("T", "a", 0), MessageQueue("T", "b", 0)


def at_once(steps: Generator[None, None, T]) -> T:
    """The result of work in steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


class FakeCluster:
    """Topic `T` with a queue at each of two brokers; brokers in `down` accept no policies."""

    def __init__(self) -> None:
        self.policies: dict[str, GroupPolicies] = {"a": GroupPolicies(), "b": GroupPolicies()}
        self.down: set[str] = set()
        self.now = 0.0
        self.asked = 0
        self.sent: list[tuple[str, float]] = []
        """Each policy that was sent: to which broker, and when."""

    async def topic_route(self, topic: str) -> TopicRoute:
        self.asked += 1
        if topic != "T":
            raise NoRouteError(f"no broker serves {topic}")
        queues = [QueueData(name, 1, 1, 6) for name in ("a", "b")]
        return TopicRoute(
            tuple(queues), tuple(BrokerData("c", name, {0: f"{name}:1"}) for name in ("a", "b"))
        )

    async def group_policies(self, group: str | None = None) -> dict[str, GroupPolicies]:
        if "all" in self.down:
            raise ConnectError("nobody is there")
        return dict(self.policies)

    async def set_group_policy(
        self, policy: GroupPolicy, *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        assert broker is not None
        self.sent.append((broker, self.now))
        if broker in self.down:
            raise ConnectError("it is down")
        known = self.policies[broker]
        wrong = judge(policy, next(iter(known.policies), None), known.retired.get("g", 0), broker)
        if wrong is not None:
            raise BrokerError(wrong.code, wrong.text)
        self.policies[broker] = GroupPolicies([policy])

    def grants(self, broker: str) -> dict[MessageQueue, tuple[str, int]]:
        found = self.policies[broker].policies[0].queues
        return {one.queue: (one.owner, one.generation) for one in found}


class WithApache(FakeCluster):
    """Broker `b` is Apache's, while `is_apache`."""

    is_apache = True

    async def group_policies(self, group: str | None = None) -> dict[str, GroupPolicies]:
        found = await super().group_policies(group)
        return {name: one for name, one in found.items() if name != "b" or not self.is_apache}

    async def set_group_policy(
        self, policy: GroupPolicy, *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        if broker == "b" and self.is_apache:
            raise NoFencesError("it is not SparrowMQ's")
        await super().set_group_policy(policy, cluster=cluster, broker=broker)


def lead(cluster: FakeCluster) -> GroupLeader:
    return run(GroupLeader.take_over("g", cluster, Terms(TIMES), lambda: cluster.now))


def step(leader: GroupLeader) -> None:
    run(leader.step())
