"""Managed groups under one leader: members report, plans are made, brokers fence, queues are granted.

Grants are always saved at the brokers: a queue is granted only after its broker enforces the new generation
(pmq:3.4). So the next leader reads the policies, treats their owners as members, gives each a full lease, and
continues. It immediately sets the policies again with its own epoch, so that brokers refuse requests of an
older leader. A ledger keeps what brokers do not know. A plan is saved in the ledger before it is sent: a
process that cannot write there, because the database is unavailable or another process leads, makes no plans,
and its groups stay unchanged.

It owns the membership and the plan; `HandOver` owns the state of queues, `Fencing` the brokers' policies,
`MetadataWriter` the ledger, `Subscribed` the list of queues.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from sparrowmq.coordinator.groups.fencing import Fencing
from sparrowmq.coordinator.groups.group_metadata import GroupMetadata, GroupRow, KeptGroup, SeenMember
from sparrowmq.coordinator.groups.handover import HandOver
from sparrowmq.coordinator.groups.initial_state import ReportedState, Start, Terms, begin, members_of
from sparrowmq.coordinator.groups.metadata_writer import LARGE, MetadataWriter
from sparrowmq.coordinator.groups.moves import ManagedCluster, Moves
from sparrowmq.coordinator.groups.plan import (
    MEMBERS_MAX,
    AdmissionRules,
    Candidate,
    GroupPlan,
    make_plan,
    renumbered,
)
from sparrowmq.coordinator.groups.subscribed import Subscribed
from sparrowmq.core.errors import InvalidStateError, LeaseLostError, SparrowError
from sparrowmq.core.grants import Orders, Report
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.managed import GroupPolicy, QueueGrant
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.slices import shared

log = logging.getLogger("sparrowmq.coordinator")

STEP_SECONDS: Final = 0.25
NAMED: Final = 20
"""Maximum number of removed members listed by name; the others are counted."""
IDLE_SECONDS: Final = 60.0
"""A group without members for this long is forgotten here; its brokers keep the fence."""
PLANS_REMEMBERED: Final = 64
"""Number of recent plans for which it is tracked whether members know them."""


class GroupLeader:
    """One group. Created by `take_over`; call `run` until it reports that it is unused, or that another
    leads.
    """

    def __init__(
        self,
        group: str,
        cluster: ManagedCluster,
        terms: Terms,
        monotonic: Callable[[], float],
        start: Start,
        ledger: GroupMetadata | None = None,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self.group = group
        self.terms = terms
        self.pauses = list(start.pauses)
        """Default pauses of brokers."""
        self.plan = start.plan
        self.epoch = start.epoch
        self.plans = 0
        """Number of plans made."""
        self.paused = False
        """Whether planning is paused."""
        self.late = 0
        """Number of members' results that brokers refused, because the queue had a newer generation."""
        self.news = False
        """Whether members reported that they apply other dynamic settings, since this was last unset."""
        self.problem = ""
        """The problem that blocks the plan; empty if there is none."""
        self.moves = Moves(group)
        """Requested offset resets."""
        self._monotonic = monotonic
        self._hand = HandOver(
            terms.times,
            start.epoch,
            state=start.state,
            now=monotonic(),
            revision=start.told,
            lease=start.kept.group.lease_ms / 1000,
        )
        self._joined = 0
        self._members = members_of(start)
        self._subscribed = Subscribed(group, cluster, monotonic)
        self._keeping = MetadataWriter(group, ledger, start, terms.rules)
        is_new = ledger is not None and start.plan.generation == 0
        self._fencing = self._fences(cluster, leads, start, is_new=is_new)
        self._wake = asyncio.Event()
        self._anew = False
        self._unchanged: tuple[tuple[list[MessageQueue], int, AdmissionRules] | None, GroupPlan | None] = (
            None,
            None,
        )
        """The input of the last planning that changed nothing, and its plan."""
        self._planning: GroupPlan | None = None
        """The plan that is being applied."""
        self._told: list[tuple[int, int]] = [(self._hand.revision, start.plan.generation)]
        self._idle_since = monotonic()
        self._occasional = OccasionalLog(log)

    def _fences(
        self, cluster: ManagedCluster, leads: Callable[[], bool], start: Start, *, is_new: bool
    ) -> Fencing:
        """Sends policies to brokers; members of an earlier leader may be working until their leases end,
        whatever brokers report.
        """
        now = self._monotonic()
        fencing = Fencing(
            self.group,
            cluster,
            self._hand,
            self.moves,
            leads,
            self._monotonic,
            revision=start.revision,
            others_until=0.0 if is_new else now + self._hand.longest_lease(now),
        )
        fencing.claim(one.queue.broker_name for one in start.plan.queues)
        return fencing

    def __repr__(self) -> str:
        return f"<GroupLeader {self.group} epoch={self.epoch} {self._hand!r}>"

    @classmethod
    async def take_over(
        cls,
        group: str,
        cluster: ManagedCluster,
        terms: Terms,
        monotonic: Callable[[], float],
        *,
        epoch: int | None = None,
        told: int = 0,
        ledger: GroupMetadata | None = None,
        leads: Callable[[], bool] = lambda: True,
    ) -> GroupLeader:
        """Take over the group in the state that brokers report, in the given epoch, or in the next one.

        Raises `SparrowError` if they do not answer, `EpochBehindError` if they know a later epoch.
        """
        found = await cluster.group_policies(group)
        kept = KeptGroup() if ledger is None else await ledger.load(group)
        start = begin(group, found, kept, epoch, told)
        if ledger is None and not terms.rules.maximum:
            terms = replace(terms, rules=replace(terms.rules, maximum=start.maximum))
        log.info("leading group %s from generation %d, epoch %d", group, start.plan.generation, start.epoch)
        return cls(group, cluster, terms, monotonic, start, ledger, leads)

    @property
    def deposed(self) -> bool:
        """Whether brokers, or the ledger, reported that another coordinator leads."""
        return self._fencing.is_outdated or self._keeping.is_lost

    @property
    def lease_only(self) -> set[str]:
        """Brokers that do not fence, because they are not SparrowMQ's."""
        return self._fencing.lease_only

    @property
    def rules(self) -> AdmissionRules:
        """The rules that select members for queues."""
        return self.terms.rules

    @property
    def told(self) -> int:
        """The number of the latest orders."""
        return self._hand.revision

    @property
    def members(self) -> list[str]:
        """All members, sorted."""
        return sorted(self._members.candidates)

    @property
    def settled(self) -> bool:
        """Whether the plan is in force."""
        return self._hand.settled

    @property
    def unused(self) -> bool:
        """Whether the group has had no members for a while."""
        return not self._members.candidates and self._monotonic() - self._idle_since > IDLE_SECONDS

    def adopt(self, terms: Terms) -> None:
        """Replace the settings; the next step applies them."""
        if terms == self.terms:
            return
        before, self.terms = self.terms, terms
        if terms.times != before.times:
            self._hand.retime(terms.times, self._monotonic())
        brokers = {one.queue.broker_name for one in self.plan.queues}
        if terms.rules.maximum != before.rules.maximum:
            self._fencing.claim(brokers)
        self._fencing.claim(name for name in brokers if terms.pauses_at(name) != before.pauses_at(name))
        self._wake.set()

    def pause(self, paused: bool) -> None:
        """Pause or resume planning."""
        self.paused = paused

    def take_news(self) -> bool:
        """Whether members reported since the last call that they apply other dynamic settings."""
        news, self.news = self.news, False
        return news

    def plan_anew(self) -> None:
        """Read the queues again and plan in the next step, even if planning is paused."""
        self._subscribed.forget()
        self._anew = True
        self._wake.set()

    # Members

    def join(
        self, client_id: str, address: str, topics: Iterable[str], now_ms: int, version: str = ""
    ) -> str:
        """Add a client as a new member; returns its id.

        It gets queues with the next step. Raises `InvalidStateError` at the limit of members.
        """
        if len(self._members.candidates) >= MEMBERS_MAX:
            raise InvalidStateError(f"group {self.group} has {MEMBERS_MAX} members, which is the limit")
        self._joined += 1
        member = f"{client_id}#{self.epoch}.{now_ms}.{self._joined}"
        self._hand.join(member, self._monotonic())
        candidate = Candidate(member, address, now_ms * 1000 + self._joined)
        self._members.put(candidate, frozenset(topics), version)
        self._wake.set()
        return member

    def vouch(self, member: str, digest: str) -> None:
        """Store the digest of a member's proof of identity."""
        self._members.vouch(member, digest)

    def digest(self, member: str) -> str:
        """That digest; empty for an unknown member."""
        return self._members.proofs.get(member, "")

    def report(
        self, member: str, address: str, report: Report, topics: Iterable[str], said: ReportedState
    ) -> Orders | None:
        """Process a member's report and return its orders; None for a member that must join again."""
        if self.deposed or not self._hand.report(member, report, self._monotonic()):
            return None
        wanted, members = frozenset(topics), self._members
        known = members.candidates.get(member)
        if known is None or known.address != address or members.topics.get(member) != wanted:
            members.put(replace(known or Candidate(member), address=address), wanted)
        before = members.said.get(member, ReportedState())
        self.late += max(0, said.late - before.late)
        self.news |= (said.applied_revision, said.unable) != (before.applied_revision, before.unable)
        members.said[member] = said
        if not self._hand.settled:
            self._wake.set()
        return self._hand.orders(member)

    def leave(self, member: str) -> None:
        """A member has released everything."""
        self._hand.leave(member)
        self._forget([member])
        self._wake.set()

    def seen(self) -> dict[str, SeenMember]:
        """The members' last reports."""
        now, found = self._monotonic(), {}
        for name in self._members.candidates:
            session = self._hand.session(name)
            if session is not None:
                knows = max((number for told, number in self._told if told <= session.revision), default=0)
                found[name] = SeenMember(
                    round((now - session.heard) * 1000),
                    round((session.ends - now) * 1000),
                    knows,
                    *self._members.said.get(name, ReportedState()).values,
                )
        return found

    def _forget(self, members: Iterable[str]) -> None:
        self._members.forget(members)
        self._idle_since = self._monotonic()

    # Steps

    async def run(self) -> None:
        """Run steps until unused or deposed, immediately when something happened."""
        while not (self.deposed or self.unused):
            try:
                await self.step()
            except SparrowError as error:
                self.problem = str(error)
                text = f"group {self.group} keeps its current plan for now: {error}"
                self._occasional.write(logging.WARNING, "step", text)
            try:
                async with asyncio.timeout(STEP_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    async def step(self) -> None:
        """Release queues, plan, make brokers fence, grant. If no plan can be made now, the previous plan is
        still applied. Raises `SparrowError`.
        """
        await self._tick()
        stands_in_the_way: SparrowError | None = None
        if self._anew or not self.paused:
            anew, self._anew = self._anew, False
            try:
                await self._plan()
            except LeaseLostError:
                raise
            except SparrowError as error:
                stands_in_the_way, self._anew = error, self._anew or anew
        await self._tick()
        self.problem = ""
        await self._fencing.turn(self._policy)
        self.problem = self._fencing.problem
        if stands_in_the_way is not None:
            raise stands_in_the_way
        wrong = await self._keeping.note(self._hand, self.plan, self._members, self.numbers)
        self.problem = wrong or self.problem

    async def _tick(self) -> None:
        """Release queues whose wait has timed out, and forget members whose leases have expired."""
        gone = await shared().result(self._hand.ticking(self._monotonic()))
        if gone:
            named = ", ".join(gone[:NAMED]) + (f" and {len(gone) - NAMED} more" if len(gone) > NAMED else "")
            log.warning("members of group %s did not report in time: %s", self.group, named)
            self._forget(gone)

    async def _plan(self) -> None:
        """Make the next plan, if necessary, save it, and start to apply it."""
        rules, members = self.rules, self._members
        queues = await self._subscribed.queues(members.topics.values())
        before = self.plan
        made = await self._planned(queues, rules, before)
        plan = await self._keeping.plan(made, rules, members, self.numbers)
        if plan.generation != before.generation:
            self.plans += 1
            log.info("group %s: generation %d, %d queues move", self.group, plan.generation, len(plan.moved))
        self.plan = plan
        if plan is not self._planning:
            await shared().result(self._hand.planning(plan, self._monotonic()))
            self._planning = plan
        self.moves.begin(queues, plan.generation)
        if plan.generation != before.generation:
            self._told = [*self._told[1 - PLANS_REMEMBERED :], (self._hand.revision, plan.generation)]

    async def _planned(
        self, queues: list[MessageQueue], rules: AdmissionRules, before: GroupPlan
    ) -> GroupPlan:
        """The plan for these queues and the current members; nothing is computed if the input has not
        changed.

        A large one takes a second or more, while the members of all groups are served by this loop.
        """
        asking, chosen = [*self._members.candidates.values()], self.moves.chosen(queues)
        wanted = (queues, self._members.changes, rules)
        if not chosen and before is self._unchanged[1] and wanted == self._unchanged[0]:
            return before

        def made() -> GroupPlan:
            plan = make_plan(self.group, queues, asking, rules=rules, before=before)
            return renumbered(plan, before, chosen)

        plan = made() if len(queues) + len(asking) < LARGE else await asyncio.to_thread(made)
        if plan.generation == before.generation:
            self._unchanged = wanted, plan
        return plan

    @property
    def numbers(self) -> GroupRow:
        """The group's numbers, counted over all leaders."""
        return self._keeping.numbers(self._hand, self.plan, self.late, self.terms, self._monotonic())

    def _policy(self, broker: str, revision: int, grants: list[QueueGrant]) -> GroupPolicy:
        pauses = self.pauses if self.terms.settings is None else self.terms.pauses_at(broker)
        age, maximum = (self.epoch, revision), self.rules.maximum
        return GroupPolicy(self.group, *age, members=[], maximum=maximum, queues=grants, pauses=pauses)
