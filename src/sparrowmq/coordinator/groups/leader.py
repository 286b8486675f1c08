"""Managed groups under one leader: members report, plans are made, brokers fence, queues are granted.

What is granted is what brokers have on disk: a queue is granted only after its broker enforces the new
generation (pmq:3.4), so whoever leads next reads the policies, takes the owners it finds for members, gives
each a whole lease, and goes on. It sets the policies anew at once, with its own epoch, so that brokers refuse
what an older leader still sends. A ledger remembers what brokers do not know. A plan is in the ledger before
anybody is told of it: who cannot write there, because the database is gone or somebody else leads, makes no
plans, and its groups stay as they are.

It owns who is counted in and the plan; `HandOver` owns where queues are, `Fencing` what brokers were told,
`Keeping` what the ledger has, `Subscribed` which queues there are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from sparrowmq.coordinator.groups.fencing import Fencing
from sparrowmq.coordinator.groups.handover import HandOver
from sparrowmq.coordinator.groups.keeping import Keeping
from sparrowmq.coordinator.groups.ledger import GroupRow, Kept, Ledger, SeenMember
from sparrowmq.coordinator.groups.moves import Cluster, Moves
from sparrowmq.coordinator.groups.plan import MEMBERS_MAX, Candidate, Rules, make_plan, renumbered
from sparrowmq.coordinator.groups.subscribed import Subscribed
from sparrowmq.coordinator.groups.takeover import Said, Start, Terms, begin, members_of
from sparrowmq.core.errors import InvalidStateError, LeaseLostError, SparrowError
from sparrowmq.core.grants import Orders, Report
from sparrowmq.protocol.managed import GroupPolicy, QueueGrant
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.coordinator")

STEP_SECONDS: Final = 0.25
IDLE_SECONDS: Final = 60.0
"""A group without members for so long is forgotten here; its brokers keep the fence."""
PLANS_REMEMBERED: Final = 64
"""Of so many of the last plans it is known whether a member has heard of them."""


class GroupLeader:
    """One group. Made by `take_over`; `run` until it says that it is not needed, or that another leads."""

    def __init__(
        self,
        group: str,
        cluster: Cluster,
        terms: Terms,
        monotonic: Callable[[], float],
        start: Start,
        ledger: Ledger | None = None,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self.group = group
        self.terms = terms
        self.pauses = list(start.pauses)
        """What brokers rest while nobody says otherwise."""
        self.plan = start.plan
        self.epoch = start.epoch
        self.plans = 0
        """Plans it has made."""
        self.paused = False
        """Whether plans wait until somebody resumes them."""
        self.late = 0
        """Results of members that brokers refused, because the queue had gone on."""
        self.news = False
        """Whether members said since this was unset that they go by other live knobs."""
        self.problem = ""
        """What stands in the way of the plan; empty when nothing does."""
        self.moves = Moves(group)
        """Offsets that are to be set."""
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
        self._keeping = Keeping(group, ledger, start, terms.rules)
        is_new = ledger is not None and start.plan.generation == 0
        self._fencing = Fencing(
            group,
            cluster,
            self._hand,
            self.moves,
            leads,
            monotonic,
            revision=start.revision,
            # Members that an earlier leader knew may be at work until then, whatever brokers say.
            others_until=0.0 if is_new else monotonic() + self._hand.longest_lease(monotonic()),
        )
        self._fencing.claim(one.queue.broker_name for one in start.plan.queues)
        self._wake = asyncio.Event()
        self._anew = False
        self._told: list[tuple[int, int]] = [(self._hand.revision, start.plan.generation)]
        self._idle_since = monotonic()
        self._occasional = OccasionalLog(log)

    def __repr__(self) -> str:
        return f"<GroupLeader {self.group} epoch={self.epoch} {self._hand!r}>"

    @classmethod
    async def take_over(
        cls,
        group: str,
        cluster: Cluster,
        terms: Terms,
        monotonic: Callable[[], float],
        *,
        epoch: int | None = None,
        told: int = 0,
        ledger: Ledger | None = None,
        leads: Callable[[], bool] = lambda: True,
    ) -> GroupLeader:
        """Lead from where brokers say that the group is, in an epoch, or in one after all there were.

        Raises `SparrowError` when they do not say, `EpochBehindError` when they know a later epoch.
        """
        found = await cluster.group_policies(group)
        kept = Kept() if ledger is None else await ledger.load(group)
        start = begin(group, found, kept, epoch, told)
        if ledger is None and not terms.rules.maximum:
            terms = replace(terms, rules=replace(terms.rules, maximum=start.maximum))
        log.info("leading group %s from generation %d, epoch %d", group, start.plan.generation, start.epoch)
        return cls(group, cluster, terms, monotonic, start, ledger, leads)

    @property
    def deposed(self) -> bool:
        """Whether brokers, or the ledger, said that another leads."""
        return self._fencing.is_outdated or self._keeping.is_lost

    @property
    def lease_only(self) -> set[str]:
        """Brokers that enforce nothing, because they are not SparrowMQ's."""
        return self._fencing.lease_only

    @property
    def rules(self) -> Rules:
        """Who may have queues."""
        return self.terms.rules

    @property
    def told(self) -> int:
        """The number of the last orders."""
        return self._hand.revision

    @property
    def members(self) -> list[str]:
        """Members that are counted in, sorted."""
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
        """Take over what people set; in force with the next step."""
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

    def plan_anew(self) -> None:
        """Look at the queues again and plan with the next step, paused or not."""
        self._subscribed.forget()
        self._anew = True
        self._wake.set()

    # Members

    def join(
        self, client_id: str, address: str, topics: Iterable[str], now_ms: int, version: str = ""
    ) -> str:
        """Count a client in as a new member; who it is. It gets queues with the next step.

        Raises `InvalidStateError` at the limit of members.
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

    def report(
        self, member: str, address: str, report: Report, topics: Iterable[str], said: Said
    ) -> Orders | None:
        """Take in what a member says, and what it is to do; None for one that must join again."""
        if self.deposed or not self._hand.report(member, report, self._monotonic()):
            return None
        wanted, members = frozenset(topics), self._members
        known = members.candidates.get(member)
        if known is None or known.address != address or members.topics.get(member) != wanted:
            members.put(replace(known or Candidate(member), address=address), wanted)
        before = members.said.get(member, Said())
        self.late += max(0, said.late - before.late)
        self.news |= (said.knobs, said.unable) != (before.knobs, before.unable)
        members.said[member] = said
        if not self._hand.settled:
            self._wake.set()
        return self._hand.orders(member)

    def leave(self, member: str) -> None:
        """A member is done with everything."""
        self._hand.leave(member)
        self._forget([member])
        self._wake.set()

    def seen(self) -> dict[str, SeenMember]:
        """What members said last."""
        now, found = self._monotonic(), {}
        for name in self._members.candidates:
            session = self._hand.session(name)
            if session is not None:
                knows = max((number for told, number in self._told if told <= session.revision), default=0)
                found[name] = SeenMember(
                    round((now - session.heard) * 1000),
                    round((session.ends - now) * 1000),
                    knows,
                    *self._members.said.get(name, Said()).values,
                )
        return found

    def _forget(self, members: Iterable[str]) -> None:
        self._members.forget(members)
        self._idle_since = self._monotonic()

    # Steps

    async def run(self) -> None:
        """Step again and again, sooner when something happened, until unused or deposed."""
        while not (self.deposed or self.unused):
            try:
                await self.step()
            except SparrowError as error:
                self.problem = str(error)
                text = f"group {self.group} stays as it is for now: {error}"
                self._occasional.write(logging.WARNING, "step", text)
            try:
                async with asyncio.timeout(STEP_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    async def step(self) -> None:
        """Let go of what was waited for, plan, have brokers fence, grant. What was planned before goes on
        when no plan can be made now. Raises `SparrowError`.
        """
        gone = self._hand.tick(self._monotonic())
        if gone:
            log.warning("members of group %s were not heard of in time: %s", self.group, ", ".join(gone))
            self._forget(gone)
        stands_in_the_way: SparrowError | None = None
        if self._anew or not self.paused:
            try:
                await self._plan()
            except LeaseLostError:
                raise
            except SparrowError as error:
                stands_in_the_way = error
        self._hand.tick(self._monotonic())
        self.problem = ""
        await self._fencing.turn(self._policy)
        self.problem = self._fencing.problem
        if stands_in_the_way is not None:
            raise stands_in_the_way
        wrong = await self._keeping.note(self._hand, self.plan, self._members, self._numbers())
        self.problem = wrong or self.problem

    async def _plan(self) -> None:
        """Make the next plan, if there is one to make, and begin to bring it about once it is kept."""
        rules, members = self.rules, self._members
        queues = await self._subscribed.queues(members.topics.values())
        before = self.plan
        plan = make_plan(self.group, queues, members.candidates.values(), rules=rules, before=before)
        plan = renumbered(plan, before, self.moves.chosen(queues))
        if plan.generation != before.generation:
            await self._keeping.plan(plan, rules, members, self._numbers())
            self.plans += 1
            log.info("group %s: generation %d, %d queues move", self.group, plan.generation, len(plan.moved))
        self.plan, self._anew = plan, False
        self._hand.plan(plan, self._monotonic())
        self.moves.begin(queues, plan.generation)
        if plan.generation != before.generation:
            self._told = [*self._told[1 - PLANS_REMEMBERED :], (self._hand.revision, plan.generation)]

    def _numbers(self) -> GroupRow:
        return self._keeping.numbers(self._hand, self.plan, self.late, self.terms, self._monotonic())

    def _policy(self, broker: str, revision: int, grants: list[QueueGrant]) -> GroupPolicy:
        pauses = self.pauses if self.terms.settings is None else self.terms.pauses_at(broker)
        age, maximum = (self.epoch, revision), self.rules.maximum
        return GroupPolicy(self.group, *age, members=[], maximum=maximum, queues=grants, pauses=pauses)
