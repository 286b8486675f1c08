"""Coordinators in a schedule: they carry out what the real `HandOver` and `make_plan` decide, as
`GroupLeader` does: a plan is kept before anybody is told, a queue granted once its broker has it on disk, and
who leads next begins where brokers say that the group is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.coordinator.groups.made_up import at_once
from tests.coordinator.groups.schedule_database import LEADER_LEASE, LostError
from tests.coordinator.groups.schedule_nodes import CALL_SECONDS, QUEUES, TIMES, Broker, Node

from sparrowmq.coordinator.groups.group_metadata import KeptGroup, MemberRow
from sparrowmq.coordinator.groups.handover import HandOver, Phase, QueueFence
from sparrowmq.coordinator.groups.initial_state import Start, begin, members_of
from sparrowmq.coordinator.groups.plan import Candidate, GroupPlan, make_plan
from sparrowmq.core.grants import Report
from sparrowmq.protocol.managed import GroupPolicies, GroupPolicy, QueueGrant

if TYPE_CHECKING:
    from tests.coordinator.groups.schedule_member import Member
    from tests.coordinator.groups.schedules import World

TURN_SECONDS = 0.4


class Leader(Node):
    """A coordinator: leads when the database says so."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._reset()
        self.after(world.rng.random(), self._turn)

    def _reset(self) -> None:
        self.hand: HandOver | None = None
        self.epoch = 0
        self.plan = GroupPlan("g")
        self.candidates: dict[str, Candidate] = {}
        self.busy: object = None
        """What it is at, one thing at a time: taking over, or a step."""
        self._valid = 0.0
        self._asks = 0
        self._asked_at: float | None = None
        self._told = 0
        self._revision = 0
        self._joined = 0
        self._noted: object = None
        self._unclaimed: set[str] = set()

    def crash(self) -> None:
        """Crash; another process replaces it soon."""
        self.die()
        self._reset()
        self.world.at(self.world.now + self.world.rng.uniform(0.5, 5), self._again)

    def _again(self) -> None:
        if not self.alive:
            self.alive = True
            self._turn()

    @property
    def leads(self) -> bool:
        """Whether its lease is valid, by its own clock."""
        return bool(self.epoch) and self.clock < self._valid

    def _turn(self) -> None:
        self.after(TURN_SECONDS, self._turn)
        self._hold_lease()
        if not self.leads:
            self._resign()
        elif self.busy is None:
            self.busy = object()
            if self.hand is None:
                self._take_over(self.busy)
            else:
                self._step(self.hand)

    def _resign(self) -> None:
        """Stop leading: operations in progress and answers about the lease are ignored."""
        if self.epoch:
            self._asks += 1
            self._asked_at = None
        self.hand, self.busy, self.epoch, self._told = None, None, 0, 0

    def _depose(self) -> None:
        """An answer contradicts the leader's state: start again, if it still leads."""
        if self.hand is not None:
            self.world.events["leaders that begin anew"] += 1
            self._told = self.hand.revision
        self.hand = self.busy = None

    def _while(self, busy: object, call: Callable[[], None]) -> Call:
        """Run the call, unless another operation has started by then."""

        def checked() -> None:
            if self.busy is busy:
                call()

        return checked

    # The lease

    def _hold_lease(self) -> None:
        if self._asked_at is not None and self.clock - self._asked_at < 1.0:
            return
        self._asks += 1
        number, epoch, sent = self._asks, self.epoch if self.leads else 0, self.clock
        self._asked_at = sent

        def answered(found: int) -> None:
            if number != self._asks or self._asked_at is None:
                return
            self._asked_at = None
            if found != self.epoch:
                self._resign()
            if found:
                self.world.events["leaders"] += found != self.epoch
                self.epoch, self._valid = found, sent + LEADER_LEASE * 0.8

        def failed(_: Exception) -> None:
            if number == self._asks:
                self._asked_at = None

        db = self.world.db
        db.ask(self, lambda: db.lead(self.name, epoch), answered, failed)

    # Taking over

    def _take_over(self, busy: object) -> None:
        """Query all brokers, then the database, and continue from there; start again when one does not
        answer."""
        found: dict[str, GroupPolicies] = {}
        db, epoch = self.world.db, self.epoch

        def told(broker: Broker, policy: GroupPolicy) -> None:
            found[broker.name] = GroupPolicies([policy])
            if len(found) == len(self.world.brokers):
                db.ask(self, lambda: db.kept, loaded, lambda _: give_up())

        def loaded(kept: KeptGroup) -> None:
            if self.busy is busy:
                self._begin(begin("g", found, kept, epoch, self._told))
                self.busy = None

        def serve(broker: Broker) -> None:
            policy = broker.policy.policy
            self.world.send(broker, self, self._while(busy, lambda: told(broker, policy)))

        def give_up() -> None:
            if self.busy is busy:
                self.busy = None

        for broker in self.world.brokers.values():
            self.world.send(self, broker, lambda b=broker: serve(b))  # type: ignore[misc]
        self.after(2 * CALL_SECONDS, give_up)

    def _begin(self, start: Start) -> None:
        self.plan, self._revision, self._joined = start.plan, start.revision, 0
        self.hand = HandOver(TIMES, self.epoch, state=start.state, now=self.clock, revision=start.told)
        self.candidates = members_of(start).candidates
        self._noted = None
        self._unclaimed = set(self.world.brokers)
        self.world.out -= set(start.state.members)  # who has queues at brokers still is counted in again

    # Steps

    def _step(self, hand: HandOver) -> None:
        gone = at_once(hand.ticking(self.clock))
        self.world.out |= set(gone)
        for name in gone:
            self.candidates.pop(name, None)
        self._watch_waits(hand)
        plan = make_plan("g", QUEUES, self.candidates.values(), before=self.plan)
        if plan.generation == self.plan.generation:
            self._planned(hand, plan)
            self._fence(hand)
            return
        self._save(plan.generation, lambda: self._kept(hand, plan), lambda: self._fence(hand))

    def _kept(self, hand: HandOver, plan: GroupPlan) -> None:
        self.world.changed = self.world.now
        self._planned(hand, plan)
        self._fence(hand)

    def _planned(self, hand: HandOver, plan: GroupPlan) -> None:
        before = {one.queue: one for one in hand.state().queues}
        at_once(hand.planning(plan, self.clock))
        self.plan = plan
        for one in hand.state().queues:
            old = before.get(one.queue)
            if old is None or old.phase is not Phase.GRANTED or one == old:
                continue
            if (one.target, one.target_generation) == (old.holder, old.generation):
                self.world.problems.append(f"{one.queue} was stopped though it stays with {one.holder}")

    def _save(self, generation: int, then: Call, else_then: Call) -> None:
        """Store it in the database; `else_then` runs when the database does not answer."""
        rows = {name: MemberRow("", "", "", one.joined, ("T",)) for name, one in self.candidates.items()}
        busy, epoch, db = self.busy, self.epoch, self.world.db

        def failed(error: Exception) -> None:
            if isinstance(error, LostError):
                self._depose()
            else:
                else_then()

        db.ask(
            self,
            lambda: db.save(self.name, epoch, generation, rows),
            lambda _: self._while(busy, then)(),
            lambda error: self._while(busy, lambda: failed(error))(),
        )

    def _watch_waits(self, hand: HandOver) -> None:
        limit = TIMES.lease + TIMES.drain
        for one in hand.state().queues:
            if one.phase is Phase.REVOKING and self.clock - one.revoked_at > limit + 2 * CALL_SECONDS:
                self.world.problems.append(f"{self.world.now:.2f}: {one} waits for more than {limit} s")

    def _fence(self, hand: HandOver) -> None:
        """Send policies to brokers and wait; a broker that does not answer in time gets them again in the
        next step."""
        if not self.leads:
            self._resign()
            return
        wanted: dict[str, list[QueueFence]] = {name: [] for name in self._unclaimed}
        for fence in hand.fences():
            wanted.setdefault(fence.queue.broker_name, []).append(fence)
        if not wanted:
            self._note(hand)
            return
        self._revision += 1
        self._unclaimed = set(wanted)
        waiting, busy, grants = set(wanted), self.busy, hand.grants()

        def done(name: str) -> None:
            waiting.discard(name)
            if not waiting:
                self._note(hand)

        def fenced(name: str) -> None:
            self._unclaimed.discard(name)
            at_once(hand.fencing(wanted[name]))
            self.world.granting(hand.state())
            done(name)

        def late() -> None:
            if waiting:
                self._note(hand)

        for name in sorted(wanted):
            self._put(self.world.brokers[name], grants, lambda n=name: self._while(busy, lambda: fenced(n))())  # type: ignore[misc]
        self.after(CALL_SECONDS, self._while(busy, late))

    def _put(self, broker: Broker, grants: list[QueueGrant], fenced: Call) -> None:
        policy, busy = GroupPolicy("g", self.epoch, self._revision, queues=grants), self.busy

        def serve() -> None:
            if broker.put(policy):
                self.world.send(broker, self, fenced)
            else:
                self.world.send(broker, self, self._while(busy, self._depose))

        self.world.send(self, broker, serve)

    def _note(self, hand: HandOver) -> None:
        """Store the members if they changed; the step ends whether the database answers or not."""
        mark = (self.plan.generation, sorted(self.candidates))
        if mark == self._noted:
            self.busy = None
            return

        def noted() -> None:
            self.busy, self._noted = None, mark

        def failed() -> None:
            self.busy = None

        self._save(self.plan.generation, noted, failed)

    # Requests of members

    def join(self, member: Member, life: int) -> None:
        """Add a member; it gets queues in the next step."""
        hand = self.hand
        if hand is None or not self.leads:
            return
        self._joined += 1
        name = f"{member.name}#{self.epoch}.{self.world.now:.6f}.{self._joined}"
        hand.join(name, self.clock)
        self.candidates[name] = Candidate(name, joined=int(self.world.now * 1e6) + self._joined)
        self.world.send(self, member, lambda: member.joined(name, life))

    def report(self, member: Member, name: str, report: Report, sent: float) -> None:
        """Answer a member."""
        hand = self.hand
        if hand is None or not self.leads:
            return
        known = hand.report(name, report, self.clock)
        orders = hand.orders(name) if known else None
        self.world.send(self, member, lambda: member.answered(name, orders, sent))

    def leave(self, name: str) -> None:
        """A member leaves after its work is done."""
        if self.hand is not None and self.leads:
            self.hand.leave(name)
            self.candidates.pop(name, None)


Call = Callable[[], None]
