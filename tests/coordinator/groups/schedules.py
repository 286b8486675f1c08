"""A managed group through faults, simulated: leaders, members and brokers crash, freeze and are cut off.

Everything random comes from one seed and time is virtual, so a schedule replays exactly. What decides is the
real code: the leader's `HandOver` and `make_plan`, the members' `Grants`, the brokers' `judge` and
`ManagedGroup`. The rest, clocks at different rates, a network, handlers, is made here.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sparrowmq.broker.fence import ManagedGroup, judge
from sparrowmq.coordinator.groups.handover import Fenced, HandOver, Phase, State, Times
from sparrowmq.coordinator.groups.plan import Candidate, Plan, make_plan
from sparrowmq.core.grants import Grants, Orders, Report
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.managed import GroupPolicy, QueueGrant

TIMES = Times(member_lease=4.0, lease=5.0, drain=12.0)
DRIFT = 0.04
LEADER_LEASE = 3.0
LOCK_SECONDS = 60.0
FAULT_SECONDS = 60.0
SETTLE_SECONDS = TIMES.lease + TIMES.drain + 3 * LEADER_LEASE + 10.0
"""How long after the last fault a plan may take: a lease, a drain, a new leader, and the way there."""
QUEUES = [MessageQueue("T", f"b{number % 2}", number) for number in range(6)]

Call = Callable[[], None]


class Node:
    """What can crash, freeze, and has a clock of its own."""

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
        """Do something later, unless it died meanwhile; a frozen node does it when it thaws."""
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


@dataclass
class Database:
    """What leaders share. Its time is the world's."""

    epoch: int = 0
    until: float = 0.0
    state: State = field(default_factory=State)
    plan: Plan = field(default_factory=lambda: Plan("g"))
    candidates: tuple[Candidate, ...] = ()
    joined: int = 0


class World:
    """One schedule."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self._heap: list[tuple[float, int, Call]] = []
        self._count = 0
        self.cuts: dict[frozenset[str], float] = {}
        self.db = Database()
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
        """Do something at a time."""
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, call))

    def send(self, source: Node, target: Node, call: Call) -> None:
        """A message: late, seldom very late, lost when the way is cut or the target is not there."""
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
        """Let time pass."""
        while self._heap and self._heap[0][0] <= until and not self.problems and not stop():
            self.now, _, call = heapq.heappop(self._heap)
            call()

    # Faults

    def harm(self) -> None:
        """One fault, and the next a little later."""
        if not self.faulty:
            return
        rng = self.rng
        kind = rng.choice(["crash", "freeze", "cut", "leader", "leader freeze", "broker", "join", "leave"])
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
        elif kind == "join" and len(self.members) < 6:
            self.members.append(Member(self, f"m{len(self.members)}"))
        elif kind == "leave":
            member.leave()
        self.at(self.now + rng.expovariate(0.5), self.harm)

    def heal(self) -> None:
        """No faults any more: who is frozen thaws, who is dead or left comes back."""
        self.faulty = False
        self.cuts.clear()
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

    def saved(self, state: State) -> None:
        """A leader's state is in the database: its grants count from now on."""
        for one in state.queues:
            if one.phase is Phase.GRANTED:
                self.granted[one.queue] = max(one.generation, self.granted.get(one.queue, 0))

    @property
    def leader(self) -> Leader | None:
        """The one that leads, if any."""
        return next(
            (one for one in self.leaders if one.hand is not None and one.epoch == self.db.epoch), None
        )

    @property
    def in_force(self) -> bool:
        """Whether every member has exactly what the plan gives it, or still ends its own handlers there."""
        leader = self.leader
        if leader is None or leader.hand is None or not leader.hand.settled:
            return False
        staying = {one.id: one for one in self.members if one.id and one.alive and not one.leaves}
        if set(staying) != {one.client_id for one in self.db.candidates}:
            return False
        for name, member in staying.items():
            planned = {one.queue: one.generation for one in self.db.plan.queues if one.owner == name}
            at_work = {queue for queue, run in member.runs.items() if run.leaving and run.running}
            running = {queue: run.generation for queue, run in member.runs.items() if not run.leaving}
            if running != {queue: number for queue, number in planned.items() if queue not in at_work}:
                return False
        return True


class Broker(Node):
    """Queues, a group's offsets and its policy. A crash takes offsets of the last seconds, no policy."""

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
        """Offsets are written every five seconds."""
        self._kept = dict(self.offsets)
        self.after(5, self.keep)

    def crash(self) -> None:
        """Dead for a while, then there again with what is on disk."""
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
        """Set the policy; whether it was taken."""
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
        """Have a queue for one who handles it in order (41); as at brokers a lock lasts for a minute."""
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


class Leader(Node):
    """A coordinator: leads when the database says so."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.hand: HandOver | None = None
        self.epoch = 0
        self._valid = 0.0
        self._revision = 0
        self.after(world.rng.random(), self._step)

    def crash(self) -> None:
        """Dead; another process in its place soon."""
        self.die()
        self.hand = None
        self.world.at(self.world.now + self.world.rng.uniform(0.5, 5), self._again)

    def _again(self) -> None:
        if not self.alive:
            self.alive = True
            self._step()

    def _step(self) -> None:
        self.after(0.4, self._step)
        db, now = self.world.db, self.world.now
        if self.hand is None:
            if db.until > now:
                return
            db.epoch += 1
            self.epoch, self._revision = db.epoch, 0
            self.hand = HandOver(TIMES, self.epoch, state=db.state, now=self.clock)
            self.world.events["leaders"] += 1
        elif db.epoch != self.epoch:
            self.hand = None
            return
        db.until, self._valid = now + LEADER_LEASE, self.clock + LEADER_LEASE * 0.8
        gone = self.hand.tick(self.clock)
        self.world.out |= set(gone)
        self._watch_waits(self.hand)
        self._plan([one for one in db.candidates if one.client_id not in gone])
        if self._save():
            self._fence()

    def _watch_waits(self, hand: HandOver) -> None:
        limit = TIMES.lease + TIMES.drain
        for one in hand.state().queues:
            if one.phase is Phase.REVOKING and self.clock - one.revoked_at > limit:
                self.world.problems.append(f"{self.world.now:.2f}: {one} waits for more than {limit} s")

    def _plan(self, candidates: list[Candidate]) -> None:
        db, hand = self.world.db, self.hand
        assert hand is not None
        known = set(hand.members())
        db_candidates = tuple(one for one in candidates if one.client_id in known)
        plan = make_plan("g", QUEUES, db_candidates, before=db.plan)
        if plan.generation != db.plan.generation:
            self.world.changed = self.world.now
        before = {one.queue: one for one in hand.state().queues}
        hand.plan(plan, self.clock)
        for one in hand.state().queues:
            old = before.get(one.queue)
            if old is None or old.phase is not Phase.GRANTED or one == old:
                continue
            if (one.target, one.target_generation) == (old.holder, old.generation):
                self.world.problems.append(f"{one.queue} was stopped though it stays with {one.holder}")
        self._wanted = (plan, db_candidates)

    def _save(self) -> bool:
        """Store what is known, unless another leads by now: then this one does not any more."""
        db, hand = self.world.db, self.hand
        assert hand is not None
        if db.epoch != self.epoch:
            self.world.events["writes of old leaders refused"] += 1
            self.hand = None
            return False
        db.state = hand.state()
        db.plan, db.candidates = self._wanted
        self.world.saved(db.state)
        return True

    @property
    def _leads(self) -> bool:
        return self.hand is not None and self.clock < self._valid

    def _fence(self) -> None:
        hand = self.hand
        assert hand is not None
        fences = hand.fences()
        for name, broker in self.world.brokers.items():
            wanted = [one for one in fences if one.queue.broker_name == name]
            if wanted:
                self._revision += 1
                policy = GroupPolicy("g", self.epoch, self._revision, queues=self._grants(hand, name))
                self.world.send(self, broker, lambda b=broker, p=policy, w=wanted: self._put(b, p, w))

    def _grants(self, hand: HandOver, broker: str) -> list[QueueGrant]:
        found = []
        for one in hand.state().queues:
            queue = one.queue
            if queue.broker_name != broker:
                continue
            owner, generation = one.holder, one.generation
            if one.phase is Phase.FENCING:
                owner, generation = one.target, one.target_generation
            if generation:
                found.append(QueueGrant(queue.topic, broker, queue.queue_id, generation, owner or ""))
        return found

    def _put(self, broker: Broker, policy: GroupPolicy, wanted: list[Fenced]) -> None:
        if broker.put(policy):
            self.world.send(broker, self, lambda: self._fenced(policy.epoch, wanted))

    def _fenced(self, epoch: int, wanted: list[Fenced]) -> None:
        if self.hand is not None and epoch == self.epoch:
            self.hand.fenced(wanted)
            self._save()

    # Requests of members

    def join(self, member: Member, life: int) -> None:
        """Count a member in."""
        if not self._leads:
            return
        db, hand = self.world.db, self.hand
        assert hand is not None
        if db.epoch != self.epoch:
            return
        db.joined += 1
        name = f"{member.name}.{db.joined}"
        hand.join(name, self.clock)
        self._plan([*db.candidates, Candidate(name, joined=db.joined)])
        if self._save():
            self.world.send(self, member, lambda: member.joined(name, life))

    def report(self, member: Member, name: str, report: Report, sent: float) -> None:
        """Answer a member."""
        if not self._leads:
            return
        hand = self.hand
        assert hand is not None
        known = hand.report(name, report, self.clock)
        orders = hand.orders(name) if known else None
        if self._save():
            self.world.send(self, member, lambda: member.answered(name, orders, sent))

    def leave(self, name: str) -> None:
        """A member goes, with everything done."""
        if not self._leads:
            return
        hand = self.hand
        assert hand is not None
        hand.leave(name)
        self._plan([one for one in self.world.db.candidates if one.client_id != name])
        self._save()


@dataclass(eq=False)
class Run:
    """A queue at work in a member."""

    queue: MessageQueue
    generation: int
    next_offset: int | None = None
    buffer: list[tuple[int, int]] = field(default_factory=list)
    in_hand: set[int] = field(default_factory=set)
    pulled: int = 0
    running: int = 0
    leaving: bool = False
    committing: bool = False


class Member(Node):
    """A consumer: two handlers at once for each queue; some are slow, some fail. One that handles in order
    has one handler for each queue, and a lock of it.
    """

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.alive = False
        self.ordered = world.rng.random() < 0.4
        self.begin()

    def begin(self) -> None:
        """Start as a new process."""
        self.alive = True
        self.id: str | None = None
        self.grants = Grants()
        self.runs: dict[MessageQueue, Run] = {}
        self.leaves = False
        self.after(self.world.rng.random(), self._poll)

    def crash(self) -> None:
        """Dead; started again later."""
        self.die()
        for counter in self.world.running.values():
            counter[id(self)] = 0
        self.world.at(self.world.now + self.world.rng.uniform(0.2, 10), self._again)

    def _again(self) -> None:
        if not self.alive:
            self.begin()

    def leave(self) -> None:
        """Stop everything, then say so."""
        self.leaves = True

    def _poll(self) -> None:
        self.after(0.7, self._poll)
        if self.runs and self.clock >= self.grants.lease_end:
            self.world.events["leases ran out"] += 1
        if self.leaves and self.id is not None:
            self._leave()
            return
        name, life = self.id, self.life
        sent, report = self.clock, self.grants.report()
        for leader in self.world.leaders:
            if name is None:
                self.world.send(self, leader, lambda at=leader: at.join(self, life))
            else:
                self.world.send(self, leader, lambda at=leader: at.report(self, name, report, sent))

    def _leave(self) -> None:
        for queue, run in list(self.runs.items()):
            if not run.leaving:
                self.grants.give_up()
                self._stop(queue)
        if not self.runs:
            for leader in self.world.leaders:
                self.world.send(self, leader, lambda at=leader, name=str(self.id): at.leave(name))
            self.die()
            self.world.at(self.world.now + self.world.rng.uniform(1, 10), self._again)

    def joined(self, name: str, life: int) -> None:
        """The coordinator counts it in; a second one that did too is left to its lease."""
        if self.id is None and life == self.life:
            self.id = name

    def answered(self, name: str, orders: Orders | None, sent: float) -> None:
        """What the coordinator says."""
        if name != self.id or self.leaves:
            return
        if orders is None:
            for queue in self.grants.give_up():
                self._stop(queue)
            if not self.runs:
                self.id, self.grants = None, Grants()
            return
        changes = self.grants.obey(orders, sent)
        for queue in changes.stop:
            self._stop(queue)
        for queue, generation in changes.begin.items():
            run = self.runs[queue] = Run(queue, generation)
            self._ask_offset(run)
        for run in self.runs.values():
            self._handle(run)  # the lease may have been over

    # Queues

    def _broker(self, run: Run) -> Broker:
        return self.world.brokers[run.queue.broker_name]

    def _call(self, run: Run, work: Callable[[Broker], Any], then: Callable[[Any], None]) -> None:
        """Ask the queue's broker; `then` gets None when no answer came in two seconds."""
        broker, done = self._broker(run), [False]

        def end(value: Any) -> None:
            if not done[0]:
                done[0] = True
                then(value)

        def serve() -> None:
            value = work(broker)
            self.world.send(broker, self, lambda: end(value))

        self.world.send(self, broker, serve)
        self.after(2.0, lambda: end(None))

    def _ask_offset(self, run: Run) -> None:
        def got(offset: int | None) -> None:
            if run.leaving:
                return
            if offset is None:
                self._ask_offset(run)
                return
            run.next_offset = run.pulled = offset
            self._pull(run)

        self._call(run, lambda broker: broker.offsets[run.queue], got)

    def _pull(self, run: Run) -> None:
        if run.leaving:
            return
        offset, generation, owner = run.pulled, run.generation, self.id or ""

        def serve(broker: Broker) -> list[int] | None:
            if self.ordered and not broker.lock(run.queue, generation, owner):
                return None
            if broker.take("pull", run.queue, generation):
                return broker.logs[run.queue][offset : offset + 4]
            return None

        def got(found: list[int] | None) -> None:
            if run.leaving:
                return
            for message in found or ():
                run.buffer.append((run.pulled, message))
                run.in_hand.add(run.pulled)
                run.pulled += 1
            self._handle(run)
            self.after(0.05 if found else 0.5, lambda: self._pull(run))

        if len(run.in_hand) > 20:
            self.after(0.5, lambda: self._pull(run))
        else:
            self._call(run, serve, got)

    def _handle(self, run: Run) -> None:
        """Start handlers, if the lease allows it."""
        while run.buffer and run.running < (1 if self.ordered else 2) and not run.leaving:
            if not self.grants.may_start(run.queue, run.generation, self.clock):
                self.world.events["starts refused by the lease"] += 1
                return
            if self.id in self.world.out:
                text = f"{self.world.now:.2f}: {self.id} starts a handler after its leader let go of it"
                self.world.problems.append(text)
            offset, message = run.buffer.pop(0)
            counter = self.world.running[run.queue]
            if any(count for owner, count in counter.items() if owner != id(self)):
                self.world.events["overlaps"] += 1
            counter[id(self)] += 1
            run.running += 1
            rng = self.world.rng
            seconds = rng.choices((0.05, rng.uniform(0.2, 2), rng.uniform(5, 40)), (90, 9, 1))[0]
            self.after(seconds, lambda o=offset, m=message: self._ended(run, o, m))

    def _ended(self, run: Run, offset: int, message: int) -> None:
        run.running -= 1
        self.world.running[run.queue][id(self)] -= 1
        if self.world.rng.random() < 0.05:
            self._send_back(run, offset, message)
        else:
            self.world.handled[message] += 1
            self._finish(run, offset)

    def _send_back(self, run: Run, offset: int, message: int) -> None:
        """Have it again later: it goes to the end of its queue."""

        def serve(broker: Broker) -> bool:
            if not broker.take("send-back", run.queue, run.generation):
                return False
            broker.logs[run.queue].append(message)
            return True

        def got(stored: bool | None) -> None:
            if stored:
                self._finish(run, offset)
            elif run.leaving:
                self._finish(run, None)
            else:
                run.buffer.insert(0, (offset, message))
                self._handle(run)

        self._call(run, serve, got)

    def _finish(self, run: Run, offset: int | None) -> None:
        if offset is not None:
            run.in_hand.discard(offset)
            if not run.leaving or run.next_offset is not None:
                run.next_offset = min(run.in_hand, default=run.pulled)
        if run.leaving:
            self._drain(run)
            return
        self._handle(run)
        self._commit(run, lambda _: None)

    def _commit(self, run: Run, then: Callable[[Any], None]) -> None:
        offset = run.next_offset

        def serve(broker: Broker) -> bool:
            if offset is None or not broker.take("commit", run.queue, run.generation):
                return False
            broker.offsets[run.queue] = offset
            return True

        self._call(run, serve, then)

    def _stop(self, queue: MessageQueue) -> None:
        run = self.runs.get(queue)
        if run is None or run.leaving:
            return
        run.leaving = True
        run.buffer.clear()
        self._drain(run)

    def _drain(self, run: Run) -> None:
        """When nothing runs any more: commit, then release, whether that was accepted or refused."""
        if run.running or run.committing:
            return
        run.committing = True
        life = self.life

        def released(answer: bool | None, tries: int = 3) -> None:
            if answer is None and tries:
                self._commit(run, lambda again: released(again, tries - 1))
                return
            if self.life == life and self.runs.get(run.queue) is run:
                del self.runs[run.queue]
                self.grants.released(run.queue)

        self._commit(run, released)


def simulate(seed: int) -> World:
    """Faults for a minute, then peace until the plan is in force and all messages are consumed."""
    world = World(seed)
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
        world.run(world.now + 1.0, lambda: world.in_force)
    world.run(world.now + 300, lambda: len(world.handled) == len(world.sent))
    lost = world.sent - set(world.handled)
    if lost and not world.problems:
        world.problems.append(f"{len(lost)} messages were never handled: {sorted(lost)[:5]}")
    return world
