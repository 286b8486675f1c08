"""Writes changes of one group to the ledger; if an answer was lost, it reads the ledger again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from sparrowmq.coordinator.groups.group_metadata import (
    GroupMetadata,
    GroupRow,
    KeptGroup,
    MemberRow,
    PlanRow,
    counted,
    granted_rows,
    member_rows,
    plan_row,
    queue_rows,
    reasons_after,
)
from sparrowmq.coordinator.groups.handover import HandOver
from sparrowmq.coordinator.groups.initial_state import Members, Start, Terms
from sparrowmq.coordinator.groups.plan import AdmissionRules, GroupPlan, KeptPlan
from sparrowmq.core.errors import DatabaseError, LeaseLostError
from sparrowmq.core.message import MessageQueue
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.coordinator")
T = TypeVar("T")
LARGE: Final = 2000
"""Number of queues and members above which the computation runs in another thread."""


class MetadataWriter:
    """The writer for one group under one leader; without `ledger` nothing is stored."""

    def __init__(self, group: str, ledger: GroupMetadata | None, start: Start, rules: AdmissionRules) -> None:
        self.is_lost = False
        """Whether the ledger reported that another coordinator leads."""
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

    def numbers(self, hand: HandOver, plan: GroupPlan, late: int, terms: Terms, now: float) -> GroupRow:
        """The group's current numbers."""
        return replace(
            counted(self._base, hand.counts, late),
            epoch=self._epoch,
            generation=plan.generation,
            settled=hand.settled,
            lease_ms=self._lease_ms(hand.longest_lease(now), terms.times.lease),
        )

    def _lease_ms(self, longest: float, usual: float) -> int:
        """The longest lease that may still run; a lease replaced by a shorter one counts until its end."""
        return round((usual if longest <= usual else max(longest, self._kept.group.lease_ms / 1000)) * 1000)

    async def plan(
        self, plan: GroupPlan, rules: AdmissionRules, members: Members, numbers: GroupRow
    ) -> KeptPlan:
        """Save a new plan in the ledger. Raises `DatabaseError`, `LeaseLostError`."""
        before, reasons = self._planned, self._reasons
        if plan.generation == before[0].generation:
            return KeptPlan(plan)
        if self._ledger is not None:
            rows = _rows(members, plan)

            def told() -> tuple[PlanRow, dict[MessageQueue, str]]:
                return plan_row(plan, before[0], rules != before[1]), reasons_after(plan, reasons)

            made, self._reasons = await _made(told, len(plan.queues))
            group = replace(numbers, generation=plan.generation, settled=False)
            await self._write(self._ledger, KeptGroup(group, rows, self._kept.queues), made)
        self._planned = plan, rules
        return KeptPlan(plan)

    async def note(self, hand: HandOver, plan: GroupPlan, members: Members, numbers: GroupRow) -> str:
        """Save the current state of queues and members if it has changed. An unavailable database delays
        nothing, because brokers are authoritative for grants. Returns the error, or an empty text.

        Raises `LeaseLostError`.
        """
        mark = (hand.revision, plan.members, members.changes, numbers)
        if self._ledger is None or mark == self._noted:
            return ""
        rows, handed, reasons = _rows(members, plan), hand.state().queues, self._reasons
        queues = await _made(lambda: queue_rows(handed, reasons), len(handed))
        try:
            await self._write(self._ledger, KeptGroup(numbers, rows, queues))
        except DatabaseError as error:
            text = f"the state of group {self._group} is not saved for now: {error}"
            self._occasional.write(logging.WARNING, "note", text)
            return str(error)
        self._noted = mark
        return ""

    async def _write(self, ledger: GroupMetadata, after: KeptGroup, made: PlanRow | None = None) -> None:
        try:
            if self._is_kept_known:
                before = self._kept
            else:  # the last write may have been committed although its answer was lost
                before = await ledger.load(self._group)
            self._is_kept_known = False
            await ledger.save(self._group, before, after, made)
        except LeaseLostError:
            self.is_lost = True
            raise
        self._kept, self._is_kept_known = after, True


async def _made(make: Callable[[], T], queues: int) -> T:
    """Compute a result for this many queues, in another thread if there are many, so that members are still
    served.
    """
    return make() if queues < LARGE else await asyncio.to_thread(make)


def _rows(members: Members, plan: GroupPlan) -> Mapping[str, MemberRow]:
    return member_rows(members.candidates, members.topics, members.versions, members.proofs, plan)
