"""A managed group through faults, simulated: leaders, members and brokers crash, freeze and are cut off, and
the database is gone, slow, or gone right after a commit.

Everything random comes from one seed and time is virtual, so a schedule replays exactly. What decides is the
real code: the leader's `begin`, `make_plan` and `HandOver`, the members' `Grants`, the brokers' `judge` and
`ManagedGroup`. The rest, clocks at different rates, a network, a database, handlers, is made here.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from tests.coordinator.groups.schedule_database import LEADER_LEASE, Database
from tests.coordinator.groups.schedule_leader import Leader
from tests.coordinator.groups.schedule_member import Member
from tests.coordinator.groups.schedule_nodes import QUEUES, TIMES, Broker, Call, Node

from sparrowmq.coordinator.groups.handover import HandOverState, Phase
from sparrowmq.core.message import MessageQueue

FAULT_SECONDS = 60.0
SETTLE_SECONDS = TIMES.lease + TIMES.drain + 3 * LEADER_LEASE + 10.0
"""How long after the last fault a plan may take: a lease, a drain, a new leader, and the way there."""
PEACE_SECONDS = 3 * SETTLE_SECONDS
"""How long after the last fault there may be new plans: who was away comes back, one after the other."""
DATABASE_FAULTS = ("database gone", "database slow", "answer lost")
FAULTS = (
    *("crash", "freeze", "cut", "leader", "leader freeze", "broker", "join", "leave"),
    *DATABASE_FAULTS,
)


class World:
    """One schedule."""

    def __init__(self, seed: int, faults: Sequence[str] = FAULTS) -> None:
        self.faults = faults
        self.rng = random.Random(seed)
        self.now = 0.0
        self._heap: list[tuple[float, int, Call]] = []
        self._count = 0
        self.cuts: dict[frozenset[str], float] = {}
        self.db = Database(self)
        self.problems: list[str] = []
        self.events: Counter[str] = Counter()
        self.granted: dict[MessageQueue, int] = {}
        self.out: set[str] = set()
        self.sent: set[int] = set()
        self.handled: Counter[int] = Counter()
        self.running: dict[MessageQueue, Counter[int]] = defaultdict(Counter)
        self.faulty = True
        self.changed = 0.0
        """When the last plan was made."""
        self.brokers = {name: Broker(self, name) for name in ("b0", "b1")}
        self.leaders = [Leader(self, f"l{number}") for number in range(2)]
        self.members = [Member(self, f"m{number}") for number in range(self.rng.randint(2, 4))]

    def at(self, when: float, call: Call) -> None:
        """Run something at a time."""
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, call))

    def send(self, source: Node, target: Node, call: Call) -> None:
        """Send a message: late, rarely very late, lost when the network is cut or the target is down."""
        if self.faulty and self.rng.random() < 0.01:
            delay = self.rng.uniform(1, 15)
        else:
            delay = self.rng.uniform(0.001, 0.1)
        if self.faulty and self.rng.random() < 0.01:
            return
        life = target.life

        def arrive() -> None:
            cut = self.cuts.get(frozenset((source.name, target.name)), 0.0) > self.now
            if not cut and target.alive and target.life == life:
                target.after(0, call)

        self.at(self.now + delay, arrive)

    def run(self, until: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Advance the time."""
        while self._heap and self._heap[0][0] <= until and not self.problems and not stop():
            self.now, _, call = heapq.heappop(self._heap)
            call()

    # Faults

    def harm(self) -> None:
        """Cause one fault, and the next a little later."""
        if not self.faulty:
            return
        rng = self.rng
        kind = rng.choice(self.faults)
        self.events[kind] += 1
        member = rng.choice(self.members)
        if kind == "crash":
            member.crash()
        elif kind == "freeze":
            member.thaws = self.now + rng.uniform(0.5, 15)
        elif kind == "cut":
            other = rng.choice([*self.leaders, *self.brokers.values()])
            source: Node = rng.choice([member, *self.leaders])
            self.cuts[frozenset((source.name, other.name))] = self.now + rng.uniform(1, 15)
        elif kind == "leader":
            rng.choice(self.leaders).crash()
        elif kind == "leader freeze":
            rng.choice(self.leaders).thaws = self.now + rng.uniform(0.5, 10)
        elif kind == "broker":
            rng.choice(list(self.brokers.values())).crash()
        elif kind == "database gone":
            self.db.back_at = self.now + rng.uniform(0.5, 15)
        elif kind == "database slow":
            self.db.slow_until = self.now + rng.uniform(1, 15)
        elif kind == "answer lost":
            self.db.answer_lost = True
        elif kind == "join" and len(self.members) < 6:
            self.members.append(Member(self, f"m{len(self.members)}"))
        elif kind == "leave":
            member.leave()
        self.at(self.now + rng.expovariate(0.5), self.harm)

    def heal(self) -> None:
        """End all faults: frozen nodes resume, dead or left ones restart."""
        self.faulty = False
        self.cuts.clear()
        self.db.back_at = self.db.slow_until = 0.0
        self.db.answer_lost = False
        for node in [*self.leaders, *self.members, *self.brokers.values()]:
            node.thaws = min(node.thaws, self.now)
        for member in self.members:
            if not member.alive:
                member.begin()

    # What is watched

    def accepted(self, what: str, queue: MessageQueue, generation: int) -> None:
        """A broker accepted a request."""
        if generation < self.granted.get(queue, 0):
            self.problems.append(
                f"{self.now:.2f}: {what} of {queue} under {generation} accepted after {self.granted[queue]}"
            )

    def granting(self, state: HandOverState) -> None:
        """A leader begins to send grants to members: they count from now on."""
        for one in state.queues:
            if one.phase is Phase.GRANTED:
                self.granted[one.queue] = max(one.generation, self.granted.get(one.queue, 0))

    @property
    def leader(self) -> Leader | None:
        """The current leader, if any."""
        return next(
            (one for one in self.leaders if one.hand is not None and one.epoch == self.db.epoch), None
        )

    @property
    def in_force(self) -> bool:
        """Whether every member has exactly its queues of the plan, or is still finishing its handlers
        there."""
        leader = self.leader
        if leader is None or leader.hand is None or not leader.hand.settled:
            return False
        staying = {one.id: one for one in self.members if one.id and one.alive and not one.leaves}
        if set(staying) != set(leader.candidates):
            return False
        for name, member in staying.items():
            planned = {one.queue: one.generation for one in leader.plan.queues if one.owner == name}
            at_work = {queue for queue, run in member.runs.items() if run.leaving and run.running}
            running = {queue: run.generation for queue, run in member.runs.items() if not run.leaving}
            if running != {queue: number for queue, number in planned.items() if queue not in at_work}:
                return False
        return True


def simulate(seed: int, faults: Sequence[str] = FAULTS) -> World:
    """Cause faults for a minute, then wait until the plan is in force and all messages are consumed."""
    world = World(seed, faults)
    rng = world.rng

    def produce() -> None:
        if world.now > FAULT_SECONDS:
            return
        queue = rng.choice(QUEUES)
        number = len(world.sent)
        world.sent.add(number)
        world.brokers[queue.broker_name].logs[queue].append(number)
        world.at(world.now + rng.expovariate(10), produce)

    produce()
    world.at(5.0, world.harm)
    world.run(FAULT_SECONDS)
    world.now = max(world.now, FAULT_SECONDS)
    world.heal()
    while not world.problems and not world.in_force:
        # Members that left come back after the last fault, and each of them makes another plan.
        if world.now > max(world.changed, FAULT_SECONDS) + SETTLE_SECONDS:
            world.problems.append(f"a plan is not in force {SETTLE_SECONDS:g} s after it was made")
        if world.now > FAULT_SECONDS + PEACE_SECONDS:
            world.problems.append(f"plans do not end {PEACE_SECONDS:g} s after the last fault")
        world.run(world.now + 1.0, lambda: world.in_force)
    world.run(world.now + 300, lambda: len(world.handled) == len(world.sent))
    lost = world.sent - set(world.handled)
    if lost and not world.problems:
        world.problems.append(f"{len(lost)} messages were never handled: {sorted(lost)[:5]}")
    return world


def outages(seed: int) -> World:
    """A group whose plan is in force, and a minute in which nothing but the database fails, again and again:
    nobody loses a queue, nobody is stopped, handlers rest while leases are over and go on.
    """
    world = World(seed, DATABASE_FAULTS)
    world.run(SETTLE_SECONDS)  # until everybody has joined
    assert world.in_force, "nothing failed so far"
    before = {member.name: dict(member.runs) for member in world.members}
    world.harm()
    for number in range(100):
        world.sent.add(number)
        world.brokers["b0"].logs[QUEUES[0]].append(number)
        world.run(world.now + FAULT_SECONDS / 100)
    world.heal()
    world.run(world.now + SETTLE_SECONDS, lambda: world.in_force)
    if not world.in_force:
        world.problems.append(f"it is not as before {SETTLE_SECONDS:g} s after the database was back")
    world.run(world.now + 300, lambda: len(world.handled) == len(world.sent))
    after = {member.name: dict(member.runs) for member in world.members}
    if after != before or any(run.leaving for runs in after.values() for run in runs.values()):
        world.problems.append("queues were stopped though nothing but the database failed")
    if len(world.handled) != len(world.sent):
        world.problems.append("messages were never handled")
    return world
