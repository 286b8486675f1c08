"""Where the leader of a group begins: what brokers enforce, what is kept, what people set. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.coordinator.groups.handover import Handing, Phase, State, Times
from sparrowmq.coordinator.groups.ledger import Kept, plan_of
from sparrowmq.coordinator.groups.plan import Candidate, Plan, PlannedQueue, Rules, Why
from sparrowmq.core.errors import EpochBehindError
from sparrowmq.core.knobs import Place, Setting
from sparrowmq.protocol.managed import GroupPolicies, GroupPolicy, KnobsBody, PauseRule


def recovered(group: str, found: Mapping[str, GroupPolicies]) -> tuple[int, State, Plan]:
    """What brokers' policies say: the epoch for the next leader, where queues are, and the plan in force."""
    policies = [(name, one) for name, table in found.items() for one in table.policies]
    epoch = max((one.epoch for _, one in policies), default=0) + 1
    grants = sorted(
        (grant for name, one in policies for grant in one.queues if grant.broker_name == name),
        key=lambda grant: grant.queue,
    )
    retired = max((table.retired.get(group, 0) for table in found.values()), default=0)
    generation = max([retired, *(grant.generation for _, one in policies for grant in one.queues)])
    queues = tuple(
        Handing(
            grant.queue,
            Phase.GRANTED if grant.owner else Phase.FREE,
            grant.owner or None,
            grant.generation,
            grant.owner or None,
            grant.generation,
        )
        for grant in grants
    )
    planned = tuple(
        PlannedQueue(
            grant.queue,
            grant.owner or None,
            grant.generation,
            grant.owner or None,
            Why.KEPT if grant.owner else Why.NOBODY,
        )
        for grant in grants
    )
    members = tuple(sorted({grant.owner for grant in grants if grant.owner}))
    return epoch, State(queues, members), Plan(group, generation, queues=planned)


EVERYWHERE: Final = Place()
MEMBER_SHARE: Final = 0.8
"""Of a lease the part that its member counts: clocks may differ in their rate by less than the rest."""
_USUAL: Final = Times()
_TIMES: Final = (("lease", _USUAL.lease), ("drain", _USUAL.drain))


@dataclass(frozen=True, slots=True)
class Terms:
    """What people set of a group. `settings` are all its live knobs; None: brokers' pauses stay."""

    times: Times = field(default_factory=Times)
    rules: Rules = field(default_factory=Rules)
    settings: tuple[Setting, ...] | None = None
    knobs: KnobsBody | None = None
    """What members are told of them."""

    @classmethod
    def of(cls, settings: Iterable[Setting]) -> Terms:
        """The terms that knobs make."""
        found = tuple(settings)
        whole = {one.name: one.value for one in found if one.place == EVERYWHERE}
        lease, drain = (float(whole.get(name, default)) for name, default in _TIMES)  # type: ignore[arg-type]
        rules = Rules.parse(
            allow=whole.get("allow", ()),  # type: ignore[arg-type]
            deny=whole.get("deny", ()),  # type: ignore[arg-type]
            maximum=whole.get("maximum", 0),  # type: ignore[arg-type]
        )
        return cls(Times(lease * MEMBER_SHARE, lease, drain), rules, found, KnobsBody.of(found))

    def pauses_at(self, broker: str) -> list[PauseRule]:
        """What a broker is to pause."""
        return [
            PauseRule(one.place.topic, one.place.queue_id, one.until, one.reason)
            for one in self.settings or ()
            if one.name == "pause" and one.place.broker in ("", broker)
        ]


@dataclass(frozen=True, slots=True)
class Start:
    """Where a leader goes on: what brokers enforce, `maximum` and `pauses` too, and what is kept.

    `revision` is the last one that brokers have of this epoch, `told` the last orders of it.
    """

    epoch: int
    state: State
    plan: Plan
    kept: Kept
    maximum: int = 0
    pauses: tuple[PauseRule, ...] = ()
    revision: int = 0
    told: int = 0


@dataclass(frozen=True, slots=True)
class Said:
    """What a member says of itself: its results that brokers refused, the number of the live knobs it goes by
    (-1: it did not say yet), and those it cannot go by, each with a word why.
    """

    late: int = 0
    knobs: int = -1
    unable: Mapping[str, str] = field(default_factory=dict)

    @property
    def values(self) -> tuple[int, int, Mapping[str, str]]:
        """All of it."""
        return self.late, self.knobs, self.unable


@dataclass(slots=True)
class Members:
    """Who is counted in. `changes` counts what is worth a row."""

    candidates: dict[str, Candidate] = field(default_factory=dict)
    topics: dict[str, frozenset[str]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    said: dict[str, Said] = field(default_factory=dict)
    changes: int = 0

    def put(self, candidate: Candidate, topics: frozenset[str], version: str | None = None) -> None:
        """Add a member, or change it; without `version` that stays."""
        name = candidate.client_id
        self.candidates[name], self.topics[name] = candidate, topics
        if version is not None:
            self.versions[name] = version
        self.changes += 1

    def forget(self, names: Iterable[str]) -> None:
        """Take members out."""
        for name in names:
            self.candidates.pop(name, None)
            self.topics.pop(name, None)
            self.versions.pop(name, None)
            self.said.pop(name, None)
            self.changes += 1


def begin(
    group: str, found: Mapping[str, GroupPolicies], kept: Kept, epoch: int | None, told: int = 0
) -> Start:
    """Where to go on, in `epoch`, or in the one after all that brokers know.

    Raises `EpochBehindError` when they know a later one.
    """
    after, state, plan = recovered(group, found)
    if epoch is not None and epoch < after - 1:
        raise EpochBehindError(
            f"brokers have group {group} under a leader of epoch {after - 1}, this one would be {epoch}",
            epoch=after - 1,
        )
    used = after if epoch is None else epoch
    policies = [one for table in found.values() for one in table.policies]
    last = max(policies, key=lambda one: one.age, default=GroupPolicy(group))
    return Start(
        used,
        State(state.queues, tuple(sorted({*state.members, *kept.members}))),
        plan_of(group, kept, plan.queues, max(plan.generation, kept.group.generation)),
        kept,
        last.maximum,
        tuple(last.pauses),
        max((one.revision for one in policies if one.epoch == used), default=0),
        told,
    )


def members_of(start: Start) -> Members:
    """Everybody who is counted in at the start: those that are kept, and owners only brokers know of."""
    found = Members()
    for name in start.state.members:
        row = start.kept.members.get(name)
        if row is None:
            topics = frozenset(one.queue.topic for one in start.plan.queues if one.owner == name)
            found.put(Candidate(name), topics)
        else:
            found.put(Candidate(name, row.address, row.seniority), frozenset(row.topics), row.version)
    return found
