"""The initial state of a group's leader: the brokers' policies, the saved data, the settings. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.coordinator.groups.group_metadata import KeptGroup, plan_of
from sparrowmq.coordinator.groups.handover import HandOverState, Phase, QueueHandOver, Times
from sparrowmq.coordinator.groups.plan import AdmissionRules, Candidate, GroupPlan, PlannedQueue, Why
from sparrowmq.core.dynamic_settings import SettingPlace, SettingValue
from sparrowmq.core.errors import EpochBehindError
from sparrowmq.protocol.managed import DynamicSettingsBody, GroupPolicies, GroupPolicy, PauseRule


def recovered(group: str, found: Mapping[str, GroupPolicies]) -> tuple[int, HandOverState, GroupPlan]:
    """Contents of the brokers' policies: the epoch for the next leader, the owners of queues, and the plan in
    force.
    """
    policies = [(name, one) for name, table in found.items() for one in table.policies]
    epoch = max((one.epoch for _, one in policies), default=0) + 1
    grants = sorted(
        (grant for name, one in policies for grant in one.queues if grant.broker_name == name),
        key=lambda grant: grant.queue,
    )
    retired = max((table.retired.get(group, 0) for table in found.values()), default=0)
    generation = max([retired, *(grant.generation for _, one in policies for grant in one.queues)])
    queues = tuple(
        QueueHandOver(
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
    return epoch, HandOverState(queues, members), GroupPlan(group, generation, queues=planned)


EVERYWHERE: Final = SettingPlace()
MEMBER_SHARE: Final = 0.8
"""Share of a lease that the member counts: the difference between clock rates must be smaller than the
rest.
"""
_USUAL: Final = Times()
_TIMES: Final = (("lease", _USUAL.lease), ("drain", _USUAL.drain))


@dataclass(frozen=True, slots=True)
class Terms:
    """The settings of a group. `settings` are all its dynamic settings; None: pauses of brokers stay."""

    times: Times = field(default_factory=Times)
    rules: AdmissionRules = field(default_factory=AdmissionRules)
    settings: tuple[SettingValue, ...] | None = None
    for_members: DynamicSettingsBody | None = None
    """The part of them that is sent to members."""

    @classmethod
    def of(cls, settings: Iterable[SettingValue]) -> Terms:
        """The terms from dynamic settings."""
        found = tuple(settings)
        whole = {one.name: one.value for one in found if one.place == EVERYWHERE}
        lease, drain = (float(whole.get(name, default)) for name, default in _TIMES)  # type: ignore[arg-type]
        rules = AdmissionRules.parse(
            allow=whole.get("allow", ()),  # type: ignore[arg-type]
            deny=whole.get("deny", ()),  # type: ignore[arg-type]
            maximum=whole.get("maximum", 0),  # type: ignore[arg-type]
        )
        return cls(Times(lease * MEMBER_SHARE, lease, drain), rules, found, DynamicSettingsBody.of(found))

    def pauses_at(self, broker: str) -> list[PauseRule]:
        """What a broker is to pause."""
        return [
            PauseRule(one.place.topic, one.place.queue_id, one.until, one.reason)
            for one in self.settings or ()
            if one.name == "pause" and one.place.broker in ("", broker)
        ]


@dataclass(frozen=True, slots=True)
class Start:
    """Where a leader continues: what brokers enforce, including `maximum` and `pauses`, and the stored data.

    `revision` is the last one that brokers have of this epoch, `told` its last orders.
    """

    epoch: int
    state: HandOverState
    plan: GroupPlan
    kept: KeptGroup
    maximum: int = 0
    pauses: tuple[PauseRule, ...] = ()
    revision: int = 0
    told: int = 0


@dataclass(frozen=True, slots=True)
class ReportedState:
    """A member's report about itself: the number of its results that brokers refused, the revision of the
    dynamic settings it applies (-1: not reported yet), and those it cannot apply, each with a reason code.
    """

    late: int = 0
    applied_revision: int = -1
    unable: Mapping[str, str] = field(default_factory=dict)

    @property
    def values(self) -> tuple[int, int, Mapping[str, str]]:
        """All of it."""
        return self.late, self.applied_revision, self.unable


@dataclass(slots=True)
class Members:
    """The members of a group. `changes` counts changes that have to be saved."""

    candidates: dict[str, Candidate] = field(default_factory=dict)
    topics: dict[str, frozenset[str]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    proofs: dict[str, str] = field(default_factory=dict)
    """Digests of the members' proofs of identity."""
    said: dict[str, ReportedState] = field(default_factory=dict)
    changes: int = 0

    def vouch(self, member: str, digest: str) -> None:
        """Store the digest of a member's proof of identity."""
        self.proofs[member] = digest
        self.changes += 1

    def put(self, candidate: Candidate, topics: frozenset[str], version: str | None = None) -> None:
        """Add a member, or change it; without `version` its version stays."""
        name = candidate.client_id
        self.candidates[name], self.topics[name] = candidate, topics
        if version is not None:
            self.versions[name] = version
        self.changes += 1

    def forget(self, names: Iterable[str]) -> None:
        """Remove members."""
        for name in names:
            self.candidates.pop(name, None)
            self.topics.pop(name, None)
            self.versions.pop(name, None)
            self.proofs.pop(name, None)
            self.said.pop(name, None)
            self.changes += 1


def begin(
    group: str, found: Mapping[str, GroupPolicies], kept: KeptGroup, epoch: int | None, told: int = 0
) -> Start:
    """The state from which to continue, in `epoch`, or in the epoch after the highest that brokers know.

    Raises `EpochBehindError` when they know a later one.
    """
    after, state, plan = recovered(group, found)
    if epoch is not None and epoch < after - 1:
        raise EpochBehindError(
            f"brokers know a leader of group {group} with epoch {after - 1}, but this one has only {epoch}",
            epoch=after - 1,
        )
    used = after if epoch is None else epoch
    policies = [one for table in found.values() for one in table.policies]
    last = max(policies, key=lambda one: one.age, default=GroupPolicy(group))
    return Start(
        used,
        HandOverState(state.queues, tuple(sorted({*state.members, *kept.members}))),
        plan_of(group, kept, plan.queues, max(plan.generation, kept.group.generation)),
        kept,
        last.maximum,
        tuple(last.pauses),
        max((one.revision for one in policies if one.epoch == used), default=0),
        told,
    )


def members_of(start: Start) -> Members:
    """All members at the start: the stored ones, and owners known only to brokers."""
    found = Members()
    for name in start.state.members:
        row = start.kept.members.get(name)
        if row is None:
            topics = frozenset(one.queue.topic for one in start.plan.queues if one.owner == name)
            found.put(Candidate(name), topics)
        else:
            found.put(Candidate(name, row.address, row.seniority), frozenset(row.topics), row.version)
            found.proofs[name] = row.proof
    return found
