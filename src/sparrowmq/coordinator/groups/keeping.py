"""What the ledger has of one group: what changed is written; when an answer was lost it is read again."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from sparrowmq.coordinator.groups.handover import HandOver
from sparrowmq.coordinator.groups.ledger import (
    GroupRow,
    Kept,
    Ledger,
    MemberRow,
    PlanRow,
    counted,
    granted_rows,
    member_rows,
    plan_row,
    queue_rows,
    reasons_after,
)
from sparrowmq.coordinator.groups.plan import Plan, Rules
from sparrowmq.coordinator.groups.takeover import Members, Start, Terms
from sparrowmq.core.errors import DatabaseError, LeaseLostError
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.coordinator")


class Keeping:
    """One group's, under one leader; without `ledger` nothing is kept."""

    def __init__(self, group: str, ledger: Ledger | None, start: Start, rules: Rules) -> None:
        self.is_lost = False
        """Whether the ledger said that another leads."""
        self._group = group
        self._ledger = ledger
        self._epoch = start.epoch
        self._kept = start.kept
        self._is_kept_known = True
        self._base = start.kept.group
        self._reasons = granted_rows(start.kept.queues)
        self._planned = start.plan, rules
        self._noted: object = None
        self._occasional = OccasionalLog(log)

    def numbers(self, hand: HandOver, plan: Plan, late: int, terms: Terms, now: float) -> GroupRow:
        """The group's numbers as they are now."""
        return replace(
            counted(self._base, hand.counts, late),
            epoch=self._epoch,
            generation=plan.generation,
            settled=hand.settled,
            lease_ms=self._lease_ms(hand.longest_lease(now), terms.times.lease),
        )

    def _lease_ms(self, longest: float, usual: float) -> int:
        """The longest lease that may still run; one that a shorter one replaced counts to its end."""
        return round((usual if longest <= usual else max(longest, self._kept.group.lease_ms / 1000)) * 1000)

    async def plan(self, plan: Plan, rules: Rules, members: Members, numbers: GroupRow) -> None:
        """Have a plan in the ledger before anybody is told. Raises `DatabaseError`, `LeaseLostError`."""
        if self._ledger is not None:
            made = plan_row(plan, self._planned[0], rules != self._planned[1])
            self._reasons = reasons_after(plan, self._reasons)
            group = replace(numbers, generation=plan.generation, settled=False)
            await self._write(self._ledger, Kept(group, _rows(members, plan), self._kept.queues), made)
        self._planned = plan, rules

    async def note(self, hand: HandOver, plan: Plan, members: Members, numbers: GroupRow) -> str:
        """Keep where queues and members are by now, when that has changed. A database that is gone delays
        nothing: what is granted is what brokers say. Gives what is wrong with it; empty when nothing is.

        Raises `LeaseLostError`.
        """
        mark = (hand.revision, plan.members, members.changes, numbers)
        if self._ledger is None or mark == self._noted:
            return ""
        queues = queue_rows(hand.state().queues, self._reasons)
        try:
            await self._write(self._ledger, Kept(numbers, _rows(members, plan), queues))
        except DatabaseError as error:
            text = f"what happens in group {self._group} is not kept for now: {error}"
            self._occasional.write(logging.WARNING, "note", text)
            return str(error)
        self._noted = mark
        return ""

    async def _write(self, ledger: Ledger, after: Kept, made: PlanRow | None = None) -> None:
        try:
            if self._is_kept_known:
                before = self._kept
            else:  # the last write may have been kept though its answer was lost
                before = await ledger.load(self._group)
            self._is_kept_known = False
            await ledger.save(self._group, before, after, made)
        except LeaseLostError:
            self.is_lost = True
            raise
        self._kept, self._is_kept_known = after, True


def _rows(members: Members, plan: Plan) -> Mapping[str, MemberRow]:
    return member_rows(members.candidates, members.topics, members.versions, plan)
