"""What a leader keeps of its groups in the database: who is in them, who has what and why, plans, counts.

Brokers' policies are the truth of what is granted; a leader that begins reads them first. What brokers do not
know comes from here: members without queues, who joined before whom, why a queue is where it is, and what
happened under the leaders before. It is written when something changes, in one transaction for all of it,
never for each report: `changed_rows` finds what differs from what was written last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from sparrowmq.coordinator.groups.handover import Counts, Handing
from sparrowmq.coordinator.groups.plan import Admission, Candidate, Plan, PlannedQueue, Standing, explain
from sparrowmq.core.message import MessageQueue

MOVES_KEPT: Final = 200
"""Moves of one plan that are kept by name; the others are counted."""
NAMES_SHOWN: Final = 5
CAUSE_CHARS_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member that is counted in. `seniority` orders by who came first."""

    client_id: str
    address: str
    version: str
    seniority: int
    topics: tuple[str, ...]
    standing: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """Who has a queue under which generation, and who is to have it."""

    owner: str
    generation: int
    phase: str
    target: str
    why: str


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group's numbers, counted over all its leaders. `lease_ms`: the longest lease that may still run."""

    epoch: int = 0
    generation: int = 0
    settled: bool = True
    lease_ms: int = 0
    released: int = 0
    lease_over: int = 0
    drained_too_long: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """All that is kept of a group that changes seldom."""

    group: GroupRow = field(default_factory=GroupRow)
    members: Mapping[str, MemberRow] = field(default_factory=dict)
    queues: Mapping[MessageQueue, QueueRow] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Move:
    """A queue that a plan gives to somebody else."""

    queue: MessageQueue
    before: str
    after: str
    why: str


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A plan that was made, and why it was. `moved` counts all moves, `moves` names the first of them."""

    generation: int
    members: int
    queues: int
    moved: int
    cause: str
    moves: tuple[Move, ...] = ()


@dataclass(frozen=True, slots=True)
class SeenMember:
    """What a member said last: milliseconds since it was heard, until its lease ends, the generation whose
    plan it knows, its results that brokers refused; the number of the live knobs it goes by (-1: it did not
    say yet), and those it cannot go by, each with a word why (`Unable`).
    """

    heard_ms_ago: int
    lease_ms_left: int
    knows: int
    late: int
    knobs: int = -1
    unable: Mapping[str, str] = field(default_factory=dict)


class Ledger(Protocol):
    """Where a leader keeps its groups. What writes raises `LeaseLostError` once somebody else leads, and the
    `DatabaseError` family; nothing of that call is kept then.
    """

    async def groups(self) -> list[str]:
        """Groups that have members."""

    async def load(self, group: str) -> Kept:
        """What is kept of a group; nothing for one that is new."""

    async def save(self, group: str, before: Kept, after: Kept, plan: PlanRow | None = None) -> None:
        """Write what differs, and a plan that was just made."""

    async def see(self, found: Mapping[str, tuple[Mapping[str, SeenMember], str]]) -> None:
        """Write by group what members said, and what stands in the way of the plan."""


K = TypeVar("K")
V = TypeVar("V")


def changed_rows(before: Mapping[K, V], after: Mapping[K, V]) -> tuple[dict[K, V], list[K]]:
    """Rows to write, and those to delete."""
    written = {key: row for key, row in after.items() if before.get(key) != row}
    return written, [key for key in before if key not in after]


def queue_rows(
    queues: tuple[Handing, ...], reasons: Mapping[MessageQueue, str]
) -> dict[MessageQueue, QueueRow]:
    """The rows of queues on their way. A queue nobody has or gets is a row, too: brokers guard it."""
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
    plan: Plan,
) -> dict[str, MemberRow]:
    """The rows of members, with their standing in the plan."""
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
        )
    return found


def client_of(member: str) -> str:
    """The client id of a member."""
    return member.rpartition("#")[0] or member


def counted(base: GroupRow, counts: Counts, late: int) -> GroupRow:
    """A group's numbers with those of its present leader."""
    return GroupRow(
        released=base.released + counts.released,
        lease_over=base.lease_over + counts.lease_over,
        drained_too_long=base.drained_too_long + counts.drained_too_long,
        late=base.late + late,
    )


def reasons_after(plan: Plan, before: Mapping[MessageQueue, str]) -> dict[MessageQueue, str]:
    """Why each queue is where it is: what a plan leaves alone keeps the reason it had."""
    explained = explain(plan)
    return {
        one.queue: explained[one.queue]
        if one.generation == plan.generation or one.queue not in before
        else before[one.queue]
        for one in plan.queues
    }


def plan_row(plan: Plan, before: Plan, rules_changed: bool) -> PlanRow:
    """A plan as history has it."""
    moves = [
        Move(one.queue, one.previous or "", one.owner or "", one.why.value)
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


def _cause(plan: Plan, before: Plan, rules_changed: bool) -> str:
    """What made a new plan necessary, in words."""
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
        _named("gone", then - now),
        _queues(len(has - had), "more"),
        _queues(len(had - has), "fewer"),
        "rules changed" if rules_changed else "",
        f"{again} queue{'s go' if again > 1 else ' goes'} on elsewhere" if again else "",
    ]
    return ("; ".join(filter(None, parts)) or "evened out")[:CAUSE_CHARS_MAX]


def _queues(count: int, what: str) -> str:
    return f"{count} queue{'s' if count > 1 else ''} {what}" if count else ""


def _named(what: str, names: set[str]) -> str:
    if not names:
        return ""
    shown = ", ".join(sorted(names)[:NAMES_SHOWN])
    rest = len(names) - NAMES_SHOWN
    return f"{what}: {shown}" + (f" and {rest} more" if rest > 0 else "")


def plan_of(group: str, kept: Kept, planned: tuple[PlannedQueue, ...], generation: int) -> Plan:
    """The plan in force as brokers say it, with the members that are kept: a later plan tells who is new."""
    standings = {one.value: one for one in Standing}
    members = [
        Admission(name, standings.get(row.standing, Standing.ACTIVE), row.reason)
        for name, row in sorted(kept.members.items(), key=lambda item: (item[1].seniority, item[0]))
    ]
    return Plan(group, generation, tuple(members), planned)


def granted_rows(rows: Mapping[MessageQueue, QueueRow]) -> dict[MessageQueue, str]:
    """Reasons by queue, as they were kept."""
    return {queue: row.why for queue, row in rows.items() if row.why}
