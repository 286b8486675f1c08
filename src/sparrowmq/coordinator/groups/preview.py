"""A preview of a managed group's next plan, made from the saved data as its leader would make it.

It changes nothing and sends no requests; callers may try other rules, or more or fewer members.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from sparrowmq.coordinator.groups.group_metadata import KeptGroup, client_of
from sparrowmq.coordinator.groups.plan import (
    AdmissionRules,
    Candidate,
    GroupPlan,
    PlannedQueue,
    Why,
    explain,
    make_plan,
)
from sparrowmq.core.errors import RefusedError

JOIN_MAX: Final = 1000
"""Maximum number of hypothetical additional members."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Hypothetical changes. None keeps a rule as it is; `without` has ids of members or clients."""

    maximum: int | None = None
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None
    join: int = 0
    without: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        maximum: int | None,
        allow: Iterable[str] | None,
        deny: Iterable[str] | None,
        join: int,
        without: Iterable[str] | None,
    ) -> WhatIf:
        """The same, from options and requests."""
        lists = [None if given is None else tuple(given) for given in (allow, deny)]
        return cls(maximum, lists[0], lists[1], join, tuple(without or ()))

    def rules(self, now: AdmissionRules) -> AdmissionRules:
        """The hypothetical rules. Raises `SettingsError` for invalid ones."""
        found = AdmissionRules.parse(allow=self.allow or (), deny=self.deny or (), maximum=self.maximum or 0)
        return AdmissionRules(
            now.allow if self.allow is None else found.allow,
            now.deny if self.deny is None else found.deny,
            now.maximum if self.maximum is None else found.maximum,
        )

    def members(self, group: str, now: Iterable[Candidate]) -> list[Candidate]:
        """The hypothetical members. Raises `RefusedError` when a member to remove does not exist."""
        there = list(now)
        known = {one.client_id for one in there} | {client_of(one.client_id) for one in there}
        unknown = sorted(set(self.without) - known)
        if unknown:
            text = f"{unknown[0][:255]!r} is not a member of {group}"
            raise RefusedError(text, status=422, what="member", value=unknown[0])
        staying = [one for one in there if not {one.client_id, client_of(one.client_id)} & set(self.without)]
        last = max((one.joined for one in there), default=0)
        return staying + [
            Candidate(f"new-{number}", joined=last + number) for number in range(1, self.join + 1)
        ]


def preview(group: str, kept: KeptGroup, rules: AdmissionRules, what_if: WhatIf) -> GroupPlan:
    """The plan that would follow the one in force.

    Raises `SettingsError` for invalid rules, `RefusedError` for unknown members.
    """
    members = [Candidate(name, row.address, row.seniority) for name, row in kept.members.items()]
    owners = ((queue, row.target or None, row.generation) for queue, row in sorted(kept.queues.items()))
    before = GroupPlan(
        group,
        kept.group.generation,
        queues=tuple(PlannedQueue(queue, owner, number, owner, Why.KEPT) for queue, owner, number in owners),
    )
    would_be = what_if.members(group, members)
    return make_plan(group, kept.queues, would_be, rules=what_if.rules(rules), before=before)


def plan_values(plan: GroupPlan) -> dict[str, Any]:
    """A plan that is not in force as people and programs read it.

    `moves`: queues that a member would have to release; `given`: unassigned queues that would get an owner.
    """
    reasons = explain(plan)
    return {
        "group": plan.group,
        "moves": len(plan.moved),
        "given": sum(one.previous is None and one.owner is not None for one in plan.queues),
        "members": [
            {"client": one.client_id, "standing": one.standing.value, "reason": one.reason}
            for one in plan.members
        ],
        "queues": [
            {
                "topic": one.queue.topic,
                "broker": one.queue.broker_name,
                "queue": one.queue.queue_id,
                "owner": one.owner,
                "before": one.previous,
                "moves": one.previous is not None and one.previous != one.owner,
                "reason": reasons[one.queue],
            }
            for one in plan.queues
        ],
    }
