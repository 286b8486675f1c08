"""How queues change hands (pmq:3.14): revoke, drain and commit, acknowledge, fence, grant. Pure.

A `HandOver` is what a group's leader knows. Plans, members' reports, brokers' answers and the passing of time
come in as values; what members are told (`orders`) and what brokers are to enforce (`fences`) come out. The
caller stores `state()` before it tells anybody: a leader that comes later goes on from there.

A queue moves through the phases of `TRANSITIONS`; one that keeps its owner is never touched. It is taken from
its holder when that has released it, or when the holder's lease is over, or when the holder must have known
for `drain` seconds that it has to. Then the broker is told, and only when it has the new generation on disk
is that granted: from then on nothing of the old owner's is accepted.

Nothing waits without end. A holder that keeps reporting knows of a revocation after `lease` seconds at the
latest: an answer that does not say so was given before, and what lease that gave is over by then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from sparrowmq.coordinator.groups.plan import Plan
from sparrowmq.core.errors import InvalidStateError, SettingsError
from sparrowmq.core.grants import Orders, Report
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.managed import QueueGrant

EPOCH_BITS: Final = 32
"""Revisions of one leader are above all of the leaders before it."""


class Phase(Enum):
    """Where a queue is on its way."""

    FREE = "free"
    FENCING = "fencing"
    GRANTED = "granted"
    REVOKING = "revoking"


class Event(Enum):
    """What happens to a queue."""

    PLANNED = "planned"
    """A plan gives it to somebody, or to nobody."""
    LET_GO = "let go"
    """Its holder released it, or can be expected to have no more to do with it."""
    FENCED = "fenced"
    """Its broker enforces the new generation, for an owner."""
    CLOSED = "closed"
    """Its broker enforces the new generation, for nobody."""


TRANSITIONS: Final[dict[tuple[Phase, Event], Phase]] = {
    (Phase.FREE, Event.PLANNED): Phase.FENCING,
    (Phase.FENCING, Event.PLANNED): Phase.FENCING,
    (Phase.GRANTED, Event.PLANNED): Phase.REVOKING,
    (Phase.REVOKING, Event.PLANNED): Phase.REVOKING,
    (Phase.REVOKING, Event.LET_GO): Phase.FENCING,
    (Phase.FENCING, Event.FENCED): Phase.GRANTED,
    (Phase.FENCING, Event.CLOSED): Phase.FREE,
}


def after(phase: Phase, event: Event) -> Phase:
    """The phase that follows. Raises `InvalidStateError` for what cannot happen."""
    found = TRANSITIONS.get((phase, event))
    if found is None:
        raise InvalidStateError(f"a queue that is {phase.value} cannot be {event.value}")
    return found


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds: how long a member may act after it asked, after what the leader counts it gone, and how long
    a member that knows of a revocation may drain.

    `lease` is longer than `member_lease` by what clocks may differ in their rate and more.
    """

    member_lease: float = 8.0
    lease: float = 10.0
    drain: float = 30.0

    def __post_init__(self) -> None:
        if not 0 < self.member_lease * 1.1 <= self.lease:
            raise SettingsError(
                f"lease={self.lease:g} s must be at least a tenth longer than member_lease="
                f"{self.member_lease:g} s: clocks run at different rates"
            )
        if self.drain < 0:
            raise SettingsError(f"drain={self.drain:g} s must not be negative")


@dataclass(frozen=True, slots=True)
class Handing:
    """One queue. `holder` has it under `generation`; `target` gets it under `target_generation`.

    `revoked_at` is when the holder began to be told, in the leader's monotonic seconds, `revision` which
    orders told it, and `known_at` when it was seen to know.
    """

    queue: MessageQueue
    phase: Phase
    holder: str | None
    generation: int
    target: str | None
    target_generation: int
    revoked_at: float = 0.0
    revision: int = 0
    known_at: float | None = None


@dataclass(frozen=True, slots=True)
class Fenced:
    """What a broker is to enforce for a queue."""

    queue: MessageQueue
    owner: str | None
    generation: int


@dataclass(slots=True)
class Session:
    """A member as the leader sees it: until when, when it was heard, which of its requests was the last, and
    which orders it knows.
    """

    ends: float
    heard: float
    number: int = 0
    revision: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """What has to survive a leader: queues on their way and who is known."""

    queues: tuple[Handing, ...] = ()
    members: tuple[str, ...] = ()


@dataclass(slots=True)
class Counts:
    """How queues were let go since the leader began."""

    released: int = 0
    lease_over: int = 0
    drained_too_long: int = 0


class HandOver:
    """The queues of one group under one leader, whose lease has number `epoch`. Times are monotonic."""

    def __init__(
        self,
        times: Times,
        epoch: int,
        *,
        state: State = State(),
        now: float = 0.0,
        revision: int = 0,
        lease: float = 0.0,
    ) -> None:
        """Go on from `state`: every member counts as heard of just now, every revocation as just begun.

        Orders are numbered above `revision`. `lease` is how long leases may run that were given before.
        """
        assert 0 < epoch < 1 << EPOCH_BITS, "epochs count leaders"
        self._times = times
        self._revision = max(epoch << EPOCH_BITS, revision)
        self._old_leases_end = now + max(lease, times.lease)
        self._queues: dict[MessageQueue, Handing] = {}
        self._of: dict[str, set[MessageQueue]] = defaultdict(set)
        self._in: dict[Phase, set[MessageQueue]] = {phase: set() for phase in Phase}
        self._sessions = {member: Session(self._old_leases_end, now) for member in state.members}
        self.counts = Counts()
        for one in state.queues:
            if one.phase is Phase.REVOKING:
                one = replace(one, revoked_at=now, revision=self._revision, known_at=None)
            self._put(one)

    def __repr__(self) -> str:
        return f"<HandOver queues={len(self._queues)} members={len(self._sessions)}>"

    def state(self) -> State:
        """What to store before anybody is told."""
        return State(tuple(self._queues[queue] for queue in sorted(self._queues)), tuple(self.members()))

    def members(self) -> list[str]:
        """Members that are counted in, sorted."""
        return sorted(self._sessions)

    def find(self, queue: MessageQueue) -> Handing | None:
        """Where a queue is."""
        return self._queues.get(queue)

    @property
    def revision(self) -> int:
        """The number of the orders in force; it rises when anybody's change."""
        return self._revision

    def session(self, member: str) -> Session | None:
        """A member that is counted in."""
        return self._sessions.get(member)

    def retime(self, times: Times, now: float) -> None:
        """Change how long leases and drains last. Leases that were given run as long as they were given for,
        and are waited for.
        """
        self._old_leases_end = max(self._old_leases_end, now + self._times.lease)
        self._times = times

    def longest_lease(self, now: float) -> float:
        """Seconds that a lease may still run at most, which a next leader has to wait for."""
        return max(self._times.lease, self._old_leases_end - now)

    @property
    def settled(self) -> bool:
        """Whether every queue is where the plan wants it."""
        return not self._in[Phase.FENCING] and not self._in[Phase.REVOKING]

    # Members

    def join(self, client_id: str, now: float) -> None:
        """Count a member in. Ids are never used twice: a client that comes again is another member, because
        what it was before may still be at work.
        """
        if client_id in self._sessions or client_id in self._of:
            raise InvalidStateError(f"{client_id} is counted in already; a new member needs a new id")
        self._sessions[client_id] = Session(now + self._times.lease, now)

    def leave(self, client_id: str) -> None:
        """A member said that it is done with everything it had."""
        self._sessions.pop(client_id, None)
        for one in self._revoked_from(client_id):
            self.counts.released += 1
            self._let_go(one)

    def report(self, client_id: str, report: Report, now: float) -> bool:
        """Take in what a member says; False for one that is not counted in, and must join again.

        What it says of queues and generations that are not revoked from it means nothing.
        """
        session = self._sessions.get(client_id)
        if session is None:
            return False
        if report.number <= session.number:
            return True
        session.number, session.revision = report.number, report.revision
        session.heard, session.ends = now, max(session.ends, now + self._times.lease)
        for one in self._revoked_from(client_id):
            if report.revision < one.revision:
                continue
            if report.released.get(one.queue) == one.generation:
                self.counts.released += 1
                self._let_go(one)
            elif one.known_at is None:
                self._put(replace(one, known_at=now))
        return True

    def _has(self, client_id: str) -> set[MessageQueue]:
        return self._of.get(client_id, set())

    def _revoked_from(self, client_id: str) -> list[Handing]:
        return [self._queues[queue] for queue in sorted(self._has(client_id) & self._in[Phase.REVOKING])]

    def orders(self, client_id: str) -> Orders:
        """What a member is to do. Raises `InvalidStateError` for one that is not counted in."""
        if client_id not in self._sessions:
            raise InvalidStateError(f"{client_id} is not counted in; it has to join")
        granted, revoked = {}, {}
        for queue in sorted(self._has(client_id)):
            one = self._queues[queue]
            if one.phase is Phase.GRANTED:
                granted[queue] = one.generation
            elif one.phase is Phase.REVOKING:
                revoked[queue] = one.generation
        return Orders(self._revision, self._times.member_lease, granted, revoked)

    # Plans

    def plan(self, plan: Plan, now: float) -> None:
        """Begin to bring about a plan; what keeps its owner and generation stays as it is.

        Queues the plan does not name are taken from everybody, and forgotten once nobody has them.
        """
        wanted = {one.queue: (one.owner, one.generation) for one in plan.queues}
        revision = self._revision + 1
        for queue in [*self._queues, *(queue for queue in wanted if queue not in self._queues)]:
            one = self._queues.get(queue) or Handing(queue, Phase.FREE, None, 0, None, 0)
            target, generation = wanted.get(queue, (None, plan.generation))
            is_known = queue in self._queues and one.target == target
            if is_known and (one.target_generation == generation or queue not in wanted):
                continue
            assert generation >= one.target_generation, "generations only rise"
            phase = after(one.phase, Event.PLANNED)
            if one.phase is Phase.GRANTED:
                one = replace(one, revoked_at=now, revision=revision, known_at=None)
            self._put(replace(one, phase=phase, target=target, target_generation=generation))
            self._revision = revision
        self._forget(wanted)

    def _forget(self, wanted: Mapping[MessageQueue, object]) -> None:
        for queue in [queue for queue in self._in[Phase.FREE] if queue not in wanted]:
            self._in[Phase.FREE].discard(queue)
            del self._queues[queue]

    # Time

    def tick(self, now: float) -> list[str]:
        """Let go of what was waited for long enough; the members whose leases are over, who are out now."""
        gone = sorted(member for member, session in self._sessions.items() if session.ends <= now)
        for member in gone:
            del self._sessions[member]
        times = self._times
        for one in [self._queues[queue] for queue in sorted(self._in[Phase.REVOKING])]:
            knows_by = max(one.revoked_at + times.lease, self._old_leases_end)
            known_at = knows_by if one.known_at is None else min(one.known_at, knows_by)
            if one.holder not in self._sessions:
                self.counts.lease_over += 1
                self._let_go(one)
            elif now >= known_at + times.drain:
                self.counts.drained_too_long += 1
                self._let_go(one)
        return gone

    def _let_go(self, one: Handing) -> None:
        self._put(replace(one, phase=after(one.phase, Event.LET_GO), holder=None))
        self._revision += 1

    def _put(self, one: Handing) -> None:
        """The one place where a queue changes."""
        before = self._queues.get(one.queue)
        if before is not None:
            self._in[before.phase].discard(one.queue)
            if before.holder is not None:
                self._of[before.holder].discard(one.queue)
                if not self._of[before.holder]:
                    del self._of[before.holder]
        self._queues[one.queue] = one
        self._in[one.phase].add(one.queue)
        if one.holder is not None:
            self._of[one.holder].add(one.queue)

    # Brokers

    def fences(self) -> list[Fenced]:
        """What brokers are to enforce before it can be granted, sorted by queue."""
        return [
            Fenced(queue, self._queues[queue].target, self._queues[queue].target_generation)
            for queue in sorted(self._in[Phase.FENCING])
        ]

    def grants(self) -> list[QueueGrant]:
        """All that a policy says of queues: who has them, or is to have what waits for its broker."""
        found = []
        for queue in sorted(self._queues):
            one = self._queues[queue]
            owner, generation = one.holder, one.generation
            if one.phase is Phase.FENCING:
                owner, generation = one.target, one.target_generation
            if generation:
                place = queue.topic, queue.broker_name, queue.queue_id
                found.append(QueueGrant(*place, generation, owner or ""))
        return found

    def fenced(self, done: Iterable[Fenced]) -> None:
        """Brokers enforce this now, durably. What is planned otherwise meanwhile waits for its own."""
        for fence in done:
            one = self._queues.get(fence.queue)
            if one is None or one.phase is not Phase.FENCING:
                continue
            if (one.target, one.target_generation) != (fence.owner, fence.generation):
                continue
            event = Event.CLOSED if one.target is None else Event.FENCED
            phase = after(one.phase, event)
            self._put(replace(one, phase=phase, holder=one.target, generation=one.target_generation))
            self._revision += 1
