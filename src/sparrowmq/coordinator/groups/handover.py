"""The hand-over of queues between members (pmq:3.14): revoke, drain and commit, acknowledge, fence, grant.
Pure.

A `HandOver` is the knowledge of a group's leader. Its inputs are plans, members' reports, brokers' answers
and times; its outputs are the orders for members (`orders`) and the policies for brokers (`fences`). The
caller saves `state()` before it sends anything, so that a later leader continues from there.

A queue moves through the phases of `TRANSITIONS`; a queue that keeps its owner is not affected. It is taken
from its holder when the holder has released it, when the holder's lease has expired, or when the holder must
have known for `drain` seconds that it has to release it. Then the broker gets the new generation, and only
when it has saved it is the queue granted: from then on the broker accepts nothing from the old owner.

Every wait is bounded. A holder that keeps reporting knows of a revocation after `lease` seconds at the
latest: an answer without it was given earlier, and the lease of that answer has expired by then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NewType

from sparrowmq.coordinator.groups.plan import KeptPlan
from sparrowmq.core.errors import InvalidStateError, InvariantError, SettingsError
from sparrowmq.core.grants import Orders, Report
from sparrowmq.core.message import BY_PLACE, MessageQueue
from sparrowmq.protocol.managed import QueueGrant

EPOCH_BITS: Final = 32
"""Revisions of a leader are higher than those of all earlier leaders."""
STEP_QUEUES: Final = 50
"""Number of queues processed in one step of a long operation."""
AT_ONCE: Final = 1000
"""Number of queues that one report changes beyond those it names; the others change with its next report, or
with the next tick."""


class Phase(Enum):
    """Phase of a queue."""

    FREE = "free"
    FENCING = "fencing"
    GRANTED = "granted"
    REVOKING = "revoking"


class HandOverEvent(Enum):
    """Event of a queue."""

    PLANNED = "planned"
    """A plan assigns it to a member, or to none."""
    LET_GO = "let go"
    """Its holder released it, or can no longer be using it."""
    FENCED = "fenced"
    """Its broker enforces the new generation, for an owner."""
    CLOSED = "closed"
    """Its broker enforces the new generation, without an owner."""


TRANSITIONS: Final[dict[tuple[Phase, HandOverEvent], Phase]] = {
    (Phase.FREE, HandOverEvent.PLANNED): Phase.FENCING,
    (Phase.FENCING, HandOverEvent.PLANNED): Phase.FENCING,
    (Phase.GRANTED, HandOverEvent.PLANNED): Phase.REVOKING,
    (Phase.REVOKING, HandOverEvent.PLANNED): Phase.REVOKING,
    (Phase.REVOKING, HandOverEvent.LET_GO): Phase.FENCING,
    (Phase.FENCING, HandOverEvent.FENCED): Phase.GRANTED,
    (Phase.FENCING, HandOverEvent.CLOSED): Phase.FREE,
}


HELD: Final = frozenset({Phase.GRANTED, Phase.REVOKING})
"""A queue has a holder only in these phases."""


def after(phase: Phase, event: HandOverEvent) -> Phase:
    """The next phase. Raises `InvalidStateError` for an impossible event."""
    found = TRANSITIONS.get((phase, event))
    if found is None:
        raise InvalidStateError(
            f"a queue that is {phase.value} cannot be {event.value}", what=event.value, value=phase
        )
    return found


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds: how long a member may act after its request, after which time the leader removes it, and how
    long a member that knows of a revocation may drain.

    `lease` is longer than `member_lease` by more than the maximum difference in clock rates.
    """

    member_lease: float = 8.0
    lease: float = 10.0
    drain: float = 30.0

    def __post_init__(self) -> None:
        if not 0 < self.member_lease * 1.1 <= self.lease:
            raise SettingsError(
                f"lease={self.lease:g} s must be at least a tenth longer than member_lease="
                f"{self.member_lease:g} s: clocks run at different rates",
                "lease",
                self.lease,
            )
        if self.drain < 0:
            raise SettingsError(f"drain={self.drain:g} s must not be negative", "drain", self.drain)


@dataclass(frozen=True, slots=True)
class QueueHandOver:
    """One queue. `holder` has it under `generation`; `target` gets it under `target_generation`.

    `revoked_at` is when the revocation was first sent to the holder, in the leader's monotonic seconds,
    `revision` the orders that contained it, and `known_at` when the holder was known to have received it.
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
class QueueFence:
    """What a broker is to enforce for a queue."""

    queue: MessageQueue
    owner: str | None
    generation: int


Fenced = NewType("Fenced", QueueFence)
"""A fence that its broker enforces, so that its owner may get the queue. Only `Fencing` makes them."""


@dataclass(slots=True)
class Session:
    """A member as seen by the leader: end of its lease, time and number of its last request, and the orders
    it knows.
    """

    ends: float
    heard: float
    number: int = 0
    revision: int = 0


@dataclass(frozen=True, slots=True)
class HandOverState:
    """State that a new leader needs: queues with their phases, and known members."""

    queues: tuple[QueueHandOver, ...] = ()
    members: tuple[str, ...] = ()


@dataclass(slots=True)
class Counts:
    """Counts how queues were released since the leader began."""

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
        state: HandOverState = HandOverState(),
        now: float = 0.0,
        revision: int = 0,
        lease: float = 0.0,
    ) -> None:
        """Continue from `state`: every member counts as seen now, every revocation as just sent.

        Orders are numbered above `revision`. `lease` is the duration of leases granted before.
        """
        if not 0 < epoch < 1 << EPOCH_BITS:
            text = f"epoch {epoch} is out of range: 1 to {(1 << EPOCH_BITS) - 1}"
            raise InvariantError(text, what="epoch", value=epoch)
        self._times = times
        self._revision = max(epoch << EPOCH_BITS, revision)
        self._old_leases_end = now + max(lease, times.lease)
        self._queues: dict[MessageQueue, QueueHandOver] = {}
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

    def state(self) -> HandOverState:
        """State to save before any order is sent."""
        return HandOverState(
            tuple(self._queues[queue] for queue in sorted(self._queues, key=BY_PLACE)), tuple(self.members())
        )

    def members(self) -> list[str]:
        """All members, sorted."""
        return sorted(self._sessions)

    def find(self, queue: MessageQueue) -> QueueHandOver | None:
        """The state of a queue."""
        return self._queues.get(queue)

    @property
    def revision(self) -> int:
        """The number of the current orders; it rises when the orders of any member change."""
        return self._revision

    def session(self, member: str) -> Session | None:
        """A member of the group."""
        return self._sessions.get(member)

    def retime(self, times: Times, now: float) -> None:
        """Change how long leases and drains last. Existing leases keep their duration, and the leader still
        waits for them.
        """
        self._old_leases_end = max(self._old_leases_end, now + self._times.lease)
        self._times = times

    def longest_lease(self, now: float) -> float:
        """Maximum number of seconds for which a lease may still run; a new leader has to wait for it."""
        return max(self._times.lease, self._old_leases_end - now)

    @property
    def settled(self) -> bool:
        """Whether every queue is where the plan puts it."""
        return not self._in[Phase.FENCING] and not self._in[Phase.REVOKING]

    # Members

    def join(self, client_id: str, now: float) -> None:
        """Count a member in. Ids are never used twice: a client that rejoins is a new member, because its
        previous incarnation may still be working.
        """
        if client_id in self._sessions or client_id in self._of:
            text = f"{client_id} is already a member; a new member needs a new id"
            raise InvalidStateError(text, what="member", value=client_id)
        self._sessions[client_id] = Session(now + self._times.lease, now)

    def leave(self, client_id: str) -> None:
        """A member reported that it has released everything."""
        self._sessions.pop(client_id, None)
        for one in self._revoked_from(client_id)[:AT_ONCE]:
            self.counts.released += 1
            self._let_go(one)

    def report(self, client_id: str, report: Report, now: float) -> bool:
        """Process a member's report; False for an unknown member, which must join again.

        Reports of queues and generations that are not being revoked from it are ignored.
        """
        session = self._sessions.get(client_id)
        if session is None:
            return False
        if report.number <= session.number:
            return True
        session.number, session.revision = report.number, report.revision
        session.heard, session.ends = now, max(session.ends, now + self._times.lease)
        marked = 0
        for one in self._revoked_from(client_id):
            if report.revision < one.revision:
                continue
            if report.released.get(one.queue) == one.generation:
                self.counts.released += 1
                self._let_go(one)
            elif one.known_at is None and marked < AT_ONCE:
                marked += 1
                self._put(replace(one, known_at=now))
        return True

    def _has(self, client_id: str) -> set[MessageQueue]:
        return self._of.get(client_id, set())

    def _revoked_from(self, client_id: str) -> list[QueueHandOver]:
        queues = self._has(client_id) & self._in[Phase.REVOKING]
        return [self._queues[queue] for queue in sorted(queues, key=BY_PLACE)]

    def orders(self, client_id: str) -> Orders:
        """The orders for a member. Raises `InvalidStateError` for an unknown member."""
        if client_id not in self._sessions:
            text = f"{client_id} is not a member; it has to join first"
            raise InvalidStateError(text, what="stranger", value=client_id)
        granted, revoked = {}, {}
        for queue in sorted(self._has(client_id), key=BY_PLACE):
            one = self._queues[queue]
            if one.phase is Phase.GRANTED:
                granted[queue] = one.generation
            elif one.phase is Phase.REVOKING:
                revoked[queue] = one.generation
        return Orders(self._revision, self._times.member_lease, granted, revoked)

    # Plans

    def planning(self, plan: KeptPlan, now: float) -> Generator[None, None, None]:
        """Start applying a plan; a queue that keeps its owner and generation is not changed. Queues missing
        from the plan are revoked, and forgotten once no member has them.

        This takes steps, between which members may report, join and leave: each queue is planned separately.
        Orders sent between two steps have a lower number than later ones.
        """
        wanted = {one.queue: (one.owner, one.generation) for one in plan.queues}
        revision = self._revision + 1
        queues = [*self._queues, *(queue for queue in wanted if queue not in self._queues)]
        for number, queue in enumerate(queues, 1):
            if number % STEP_QUEUES == 0:
                yield
                revision = self._revision + 1
            one = self._queues.get(queue) or QueueHandOver(queue, Phase.FREE, None, 0, None, 0)
            target, generation = wanted.get(queue, (None, plan.generation))
            is_known = queue in self._queues and one.target == target
            if is_known and (one.target_generation == generation or queue not in wanted):
                continue
            if generation < one.target_generation:
                raise InvariantError(
                    f"{queue} has generation {one.target_generation}, but the plan has {generation}; "
                    f"generations only increase",
                    what="generation",
                    value=generation,
                    limit=one.target_generation,
                )
            phase = after(one.phase, HandOverEvent.PLANNED)
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

    def ticking(self, now: float) -> Generator[None, None, list[str]]:
        """Release queues whose wait has timed out, in steps as `planning`; return the members whose leases
        have expired and who are removed.
        """
        gone = sorted(member for member, session in self._sessions.items() if session.ends <= now)
        for member in gone:
            del self._sessions[member]
        times = self._times
        for number, queue in enumerate(sorted(self._in[Phase.REVOKING], key=BY_PLACE), 1):
            if number % STEP_QUEUES == 0:
                yield
            one = self._queues[queue]
            if one.phase is not Phase.REVOKING:
                continue  # released in the meantime
            knows_by = max(one.revoked_at + times.lease, self._old_leases_end)
            known_at = knows_by if one.known_at is None else min(one.known_at, knows_by)
            if one.holder not in self._sessions:
                self.counts.lease_over += 1
                self._let_go(one)
            elif now >= known_at + times.drain:
                self.counts.drained_too_long += 1
                self._let_go(one)
        return gone

    def _let_go(self, one: QueueHandOver) -> None:
        self._put(replace(one, phase=after(one.phase, HandOverEvent.LET_GO), holder=None))
        self._revision += 1

    def _put(self, one: QueueHandOver) -> None:
        """The only place where a queue changes. Raises `InvariantError`, and then nothing is changed."""
        before = self._queues.get(one.queue)
        if (one.holder is not None) != (one.phase in HELD):
            text = f"{one.queue} is {one.phase.value}, but its holder is {one.holder}"
            raise InvariantError(text, what="holder", value=one.holder)
        if before is not None and one.generation < before.generation:
            raise InvariantError(
                f"the generation of {one.queue} decreased from {before.generation} to {one.generation}",
                what="generation",
                value=one.generation,
                limit=before.generation,
            )
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

    def fences(self) -> list[QueueFence]:
        """Grants that brokers must enforce before they take effect, sorted by queue."""
        return [
            QueueFence(queue, self._queues[queue].target, self._queues[queue].target_generation)
            for queue in sorted(self._in[Phase.FENCING], key=BY_PLACE)
        ]

    def grants(self) -> list[QueueGrant]:
        """All grants of a policy: current owners, or the next owner of a queue that waits for its broker."""
        found = []
        for queue in sorted(self._queues, key=BY_PLACE):
            one = self._queues[queue]
            owner, generation = one.holder, one.generation
            if one.phase is Phase.FENCING:
                owner, generation = one.target, one.target_generation
            if generation:
                place = queue.topic, queue.broker_name, queue.queue_id
                found.append(QueueGrant(*place, generation, owner or ""))
        return found

    def fencing(self, done: Iterable[Fenced]) -> Generator[None, None, None]:
        """Brokers now durably enforce these grants: queues get their owners, in steps as `planning`. A queue
        that was planned differently in the meantime waits for its own grant.
        """
        for number, fence in enumerate(done, 1):
            if number % STEP_QUEUES == 0:
                yield
            one = self._queues.get(fence.queue)
            if one is None or one.phase is not Phase.FENCING:
                continue
            if (one.target, one.target_generation) != (fence.owner, fence.generation):
                continue
            event = HandOverEvent.CLOSED if one.target is None else HandOverEvent.FENCED
            phase = after(one.phase, event)
            self._put(replace(one, phase=phase, holder=one.target, generation=one.target_generation))
            self._revision += 1
