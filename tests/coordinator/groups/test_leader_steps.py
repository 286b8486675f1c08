"""Steps of the real leader in which time passes at every await, while members join, report, leave and die.

The loop is the schedule: what the leader awaits takes some turns of it, and between them the others act. All
that is random comes from one seed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.coordinator.groups.made_up import TIMES, FakeCluster
from tests.coordinator.groups.storage.test_metadata_writer import FakeLedger
from tests.support import run

from sparrowmq.coordinator.groups.group_metadata import KeptGroup
from sparrowmq.coordinator.groups.initial_state import ReportedState, Terms
from sparrowmq.coordinator.groups.leader import GroupLeader
from sparrowmq.core.errors import ConnectError, SparrowError
from sparrowmq.core.grants import Report
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.route import TopicRoute
from sparrowmq.protocol.managed import GroupPolicies, GroupPolicy
from sparrowmq.transport import slices

SEEDS = 150
STEPS = 12
CALM_SECONDS = TIMES.lease + TIMES.drain
PASSES = (0.0, 0.0, 0.0, 0.1, 0.5, 2.0, 6.0)
"""Seconds that one turn of the loop takes."""


@dataclass
class Client:
    """What a member knows, and sends with its next report."""

    number: int = 0
    revision: int = 0
    released: Mapping[MessageQueue, int] = field(default_factory=dict)


class World(FakeCluster):
    """Brokers, a ledger and members; `faulty` until they rest."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.faulty = True
        self.clients: dict[str, Client] = {}
        self.joined = 0

    async def takes(self) -> None:
        """What takes a while, and may fail."""
        for _ in range(self.rng.randrange(3)):
            await asyncio.sleep(0)
        if self.faulty and self.rng.random() < 0.05:
            raise ConnectError("it does not answer")

    async def topic_route(self, topic: str) -> TopicRoute:
        await self.takes()
        return await super().topic_route(topic)

    async def set_group_policy(self, policy: GroupPolicy, **where: Any) -> None:
        await self.takes()
        await super().set_group_policy(policy, **where)

    async def group_policies(self, group: str | None = None) -> dict[str, GroupPolicies]:
        return await super().group_policies(group)

    def act(self, leader: GroupLeader) -> None:
        """One turn of the loop: time passes, and one of the others does something."""
        self.now += self.rng.choice(PASSES)
        kind = self.rng.random()
        if kind < 0.1 and len(self.clients) < 5:
            self.joined += 1
            self.clients[leader.join(f"c{self.joined}", "", ["T"], self.joined)] = Client()
        elif kind < 0.15 and self.clients:
            leader.leave(self.taken())
        elif kind < 0.2 and self.clients:
            self.taken()  # it dies
        elif self.clients:
            self.report(leader, self.rng.choice(sorted(self.clients)))

    def taken(self) -> str:
        """A member that is no longer there."""
        name = self.rng.choice(sorted(self.clients))
        del self.clients[name]
        return name

    def report(self, leader: GroupLeader, name: str) -> None:
        """A member reports and releases what it is told to."""
        client = self.clients[name]
        client.number += 1
        sent = Report(client.number, client.revision, client.released)
        orders = leader.report(name, "", sent, ["T"], ReportedState())
        if orders is None:
            del self.clients[name]
        else:
            client.revision, client.released = orders.revision, orders.revoked


class SlowLedger(FakeLedger):
    """It takes a while, too."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    async def save(self, group: str, before: KeptGroup, after: KeptGroup, *plan: Any) -> None:
        await self.world.takes()
        await super().save(group, before, after, *plan)


async def scenario(seed: int) -> None:
    world = World(seed)
    # One step of long work a turn, as if there were thousands of queues.
    slices._shared[asyncio.get_running_loop()] = slices.Slices(turn_seconds=0)
    leader = await GroupLeader.take_over(
        "g", world, Terms(TIMES), lambda: world.now, epoch=1, ledger=SlowLedger(world)
    )

    async def step() -> None:
        seen = leader.seen()
        over = {name for name in seen if name not in world.clients and seen[name].lease_ms_left < 0}
        stepping = asyncio.create_task(leader.step())
        while not stepping.done():
            if world.faulty:
                world.act(leader)
            await asyncio.sleep(0)
        failed = stepping.exception()
        assert failed is None or isinstance(failed, SparrowError), failed
        assert leader._hand.members() == leader.members, f"seed {seed}: who has a lease is a candidate"
        assert not over.intersection(leader.members), f"seed {seed}: who is dead is missed"

    for _ in range(STEPS):
        await step()
    world.faulty = False
    await step()
    for name in sorted(world.clients):
        world.report(leader, name)
    world.now += TIMES.lease / 2
    for name in sorted(world.clients):
        world.report(leader, name)
    world.now += TIMES.lease / 2 + 1
    for _ in range(4):
        await step()
    assert leader.members == sorted(world.clients), f"seed {seed}: those who report stay, others go"
    owners = {one.owner for one in leader.plan.queues} - {None}
    assert owners <= set(world.clients), f"seed {seed}: queues are for who is there"
    assert owners or not world.clients


def test_sessions_and_candidates_are_the_same_whenever_leases_end() -> None:
    for seed in range(SEEDS):
        run(scenario(seed))
