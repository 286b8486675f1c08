"""A leader's data about its groups in the database: members, assignments with reasons, plans, counts.

The brokers' policies are the source of truth for grants; a new leader reads them first. This table has what
brokers do not know: members without queues, the order of joining, the reasons for assignments, and what
happened under earlier leaders. It is written when something changes, in one transaction, but not for each
report: `changed_rows` finds the differences from the last write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from sparrowmq.coordinator.groups.handover import Counts, QueueHandOver
from sparrowmq.coordinator.groups.plan import (
    Admission,
    AdmissionStatus,
    Candidate,
    GroupPlan,
    PlannedQueue,
    explain,
)
from sparrowmq.core.message import MessageQueue

MOVES_KEPT: Final = 200
"""Maximum number of moves of a plan that are kept by name; the others are counted."""
NAMES_SHOWN: Final = 5
CAUSE_CHARS_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member of a group. `seniority` orders by time of joining."""

    client_id: str
    address: str
    version: str
    seniority: int
    topics: tuple[str, ...]
    standing: str = ""
    reason: str = ""
    proof: str = ""
    """The digest of its proof of identity."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """The owner of a queue with its generation, and the next owner."""

    owner: str
    generation: int
    phase: str
    target: str
    why: str


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group's numbers, counted over all leaders. `lease_ms`: the longest lease that may still run."""

    epoch: int = 0
    generation: int = 0
    settled: bool = True
    lease_ms: int = 0
    released: int = 0
    lease_over: int = 0
    drained_too_long: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True)
class KeptGroup:
    """All data of a group that rarely changes."""

    group: GroupRow = field(default_factory=GroupRow)
    members: Mapping[str, MemberRow] = field(default_factory=dict)
    queues: Mapping[MessageQueue, QueueRow] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueMove:
    """A queue that a plan moves to another member."""

    queue: MessageQueue
    before: str
    after: str
    why: str


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A plan, and the reason for it. `moved` counts all moves, `moves` has the first of them."""

    generation: int
    members: int
    queues: int
    moved: int
    cause: str
    moves: tuple[QueueMove, ...] = ()


@dataclass(frozen=True, slots=True)
class SeenMember:
    """A member's last report: milliseconds since it arrived and until its lease ends, the generation of the
    plan it knows, the number of its results that brokers refused; the revision of the dynamic settings it
    applies (-1: not reported yet), and those it cannot apply, each with a reason (`Unable`).
    """

    heard_ms_ago: int
    lease_ms_left: int
    knows: int
    late: int
    applied_revision: int = -1
    unable: Mapping[str, str] = field(default_factory=dict)


class GroupMetadata(Protocol):
    """Storage of a leader's groups. Writing methods raise `LeaseLostError` once another process leads, and
    the `DatabaseError` family; then nothing of that call is committed.
    """

    async def groups(self) -> list[str]:
        """Groups that have members."""

    async def load(self, group: str) -> KeptGroup:
        """The data of a group; empty for a new one."""

    async def save(
        self, group: str, before: KeptGroup, after: KeptGroup, plan: PlanRow | None = None
    ) -> None:
        """Write the differences, and a new plan."""

    async def see(self, found: Mapping[str, tuple[Mapping[str, SeenMember], str]]) -> None:
        """Write the members' reports and the current problem, by group."""


K = TypeVar("K")
V = TypeVar("V")


def changed_rows(before: Mapping[K, V], after: Mapping[K, V]) -> tuple[dict[K, V], list[K]]:
    """Rows to write, and those to delete."""
    written = {key: row for key, row in after.items() if before.get(key) != row}
    return written, [key for key in before if key not in after]


def queue_rows(
    queues: tuple[QueueHandOver, ...], reasons: Mapping[MessageQueue, str]
) -> dict[MessageQueue, QueueRow]:
    """The rows of queues with their phase. A queue without owner and target also has a row: brokers guard
    it.
    """
    return {
        one.queue: QueueRow(
            one.holder or "", one.generation, one.phase.value, one.target or "", reasons.get(one.queue, "")
        )
        for one in queues
    }


def member_rows(
    candidates: Mapping[str, Candidate],
    topics: Mapping[str, frozenset[str]],
    versions: Mapping[str, str],
    proofs: Mapping[str, str],
    plan: GroupPlan,
) -> dict[str, MemberRow]:
    """The rows of members, with their status in the plan."""
    standings = {one.client_id: one for one in plan.members}
    found = {}
    for name, one in candidates.items():
        admission = standings.get(name)
        found[name] = MemberRow(
            client_of(name),
            one.address,
            versions.get(name, ""),
            one.joined,
            tuple(sorted(topics.get(name, ()))),
            admission.standing.value if admission else "",
            admission.reason if admission else "",
            proofs.get(name, ""),
        )
    return found


def client_of(member: str) -> str:
    """The client id of a member."""
    return member.rpartition("#")[0] or member


def counted(base: GroupRow, counts: Counts, late: int) -> GroupRow:
    """A group's numbers including those of its current leader."""
    return GroupRow(
        released=base.released + counts.released,
        lease_over=base.lease_over + counts.lease_over,
        drained_too_long=base.drained_too_long + counts.drained_too_long,
        late=base.late + late,
    )


def reasons_after(plan: GroupPlan, before: Mapping[MessageQueue, str]) -> dict[MessageQueue, str]:
    """The reason for each queue's place: a queue that a plan leaves alone keeps its reason."""
    explained = explain(plan)
    return {
        one.queue: explained[one.queue]
        if one.generation == plan.generation or one.queue not in before
        else before[one.queue]
        for one in plan.queues
    }


def plan_row(plan: GroupPlan, before: GroupPlan, rules_changed: bool) -> PlanRow:
    """A plan for the history."""
    moves = [
        QueueMove(one.queue, one.previous or "", one.owner or "", one.why.value)
        for one in plan.queues
        if one.previous != one.owner
    ]
    return PlanRow(
        plan.generation,
        len(plan.members),
        len(plan.queues),
        len(moves),
        _cause(plan, before, rules_changed),
        tuple(moves[:MOVES_KEPT]),
    )


def _cause(plan: GroupPlan, before: GroupPlan, rules_changed: bool) -> str:
    """The reason for a new plan, in words."""
    now, then = ({one.client_id for one in one_plan.members} for one_plan in (plan, before))
    had = {one.queue for one in before.queues}
    has = {one.queue for one in plan.queues}
    again = sum(
        (known := before.find(one.queue)) is not None
        and known.owner == one.owner
        and known.generation != one.generation
        for one in plan.queues
    )
    parts = [
        _named("joined", now - then),
        _named("left", then - now),
        _queues(len(has - had), "more"),
        _queues(len(had - has), "fewer"),
        "rules changed" if rules_changed else "",
        f"{again} queue{'s' if again > 1 else ''} moved to other offsets" if again else "",
    ]
    return ("; ".join(filter(None, parts)) or "rebalanced")[:CAUSE_CHARS_MAX]


def _queues(count: int, what: str) -> str:
    return f"{count} queue{'s' if count > 1 else ''} {what}" if count else ""


def _named(what: str, names: set[str]) -> str:
    if not names:
        return ""
    shown = ", ".join(sorted(names)[:NAMES_SHOWN])
    rest = len(names) - NAMES_SHOWN
    return f"{what}: {shown}" + (f" and {rest} more" if rest > 0 else "")


def plan_of(group: str, kept: KeptGroup, planned: tuple[PlannedQueue, ...], generation: int) -> GroupPlan:
    """The plan in force according to brokers, with the stored members: a later plan can then tell which are
    new.
    """
    standings = {one.value: one for one in AdmissionStatus}
    members = [
        Admission(name, standings.get(row.standing, AdmissionStatus.ACTIVE), row.reason)
        for name, row in sorted(kept.members.items(), key=lambda item: (item[1].seniority, item[0]))
    ]
    return GroupPlan(group, generation, tuple(members), planned)


def granted_rows(rows: Mapping[MessageQueue, QueueRow]) -> dict[MessageQueue, str]:
    """Stored reasons, by queue."""
    return {queue: row.why for queue, row in rows.items() if row.why}
