"""Managed groups under one leader: members report, plans are made, brokers fence, queues are granted.

What is granted is what brokers have on disk: a queue is granted only after its broker enforces the new
generation (pmq:3.4), so whoever leads next reads the policies, takes the owners it finds for members, gives
each a whole lease, and goes on. It sets the policies anew at once, with its own epoch, so that brokers refuse
what an older leader still sends. A ledger remembers what brokers do not know. A plan is in the ledger before
anybody is told of it: who cannot write there, because the database is gone or somebody else leads, makes no
plans, and its groups stay as they are.

Brokers that are not SparrowMQ's keep no policies: there only leases keep members apart ("lease only"). Their
queues are granted without a fence; and since nobody says who has them, a leader that takes over waits until
the leases that were given before it are over.

Each group has a leader object and a task of its own: what fails for one delays no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from sparrowmq.coordinator.groups.handover import Fenced, HandOver, Times
from sparrowmq.coordinator.groups.ledger import (
    GroupRow,
    Kept,
    Ledger,
    PlanRow,
    SeenMember,
    counted,
    granted_rows,
    member_rows,
    plan_row,
    queue_rows,
    reasons_after,
)
from sparrowmq.coordinator.groups.moves import Cluster, Moves
from sparrowmq.coordinator.groups.plan import MEMBERS_MAX, Candidate, Plan, Rules, make_plan, renumbered
from sparrowmq.coordinator.groups.takeover import Said, Start, Terms, begin, members_of
from sparrowmq.core.errors import (
    BrokerError,
    CoordinatorError,
    DatabaseError,
    EpochBehindError,
    InvalidStateError,
    LeaseLostError,
    NoFencesError,
    NoRouteError,
    SparrowError,
)
from sparrowmq.core.grants import Orders, Report
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import RETRY_PREFIX
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.managed import GroupPolicy, QueueGrant
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.coordinator")

STEP_SECONDS: Final = 0.25
ROUTE_SECONDS: Final = 2.0
"""How old the queues of a topic may be that a plan is made of."""
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
        self.deposed = False
        """Whether brokers, or the ledger, said that another leads."""
        self.late = 0
        """Results of members that brokers refused, because the queue had gone on."""
        self.news = False
        """Whether members said since this was unset that they go by other live knobs."""
        self.lease_only: set[str] = set()
        """Brokers that enforce nothing, because they are not SparrowMQ's."""
        self.problem = ""
        """What stands in the way of the plan; empty when nothing does."""
        self.moves = Moves(group)
        """Offsets that are to be set."""
        self._cluster = cluster
        self._ledger = ledger
        self._leads = leads
        self._monotonic = monotonic
        self._hand = HandOver(
            terms.times,
            start.epoch,
            state=start.state,
            now=monotonic(),
            revision=start.told,
            lease=start.kept.group.lease_ms / 1000,
        )
        self._revision = start.revision
        self._joined = 0
        self._members = members_of(start)
        self._routes: dict[str, tuple[float, list[MessageQueue]]] = {}
        self._wake = asyncio.Event()
        self._anew = False
        self._planned = start.plan, terms.rules
        self._told: list[tuple[int, int]] = [(self._hand.revision, start.plan.generation)]
        self._kept = start.kept
        self._is_kept_known = True
        self._base = start.kept.group
        self._reasons = granted_rows(start.kept.queues)
        self._noted: object = None
        self._unclaimed = {one.queue.broker_name for one in start.plan.queues}
        is_new = ledger is not None and start.plan.generation == 0
        self._others_until = 0.0 if is_new else monotonic() + self._hand.longest_lease(monotonic())
        """Until when members that an earlier leader knew may be at work, whatever brokers say."""
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
            self._unclaimed |= brokers
        self._unclaimed |= {name for name in brokers if terms.pauses_at(name) != before.pauses_at(name)}
        self._wake.set()

    def plan_anew(self) -> None:
        """Look at the queues again and plan with the next step, paused or not."""
        self._routes.clear()
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
        """Let go of what was waited for, plan, have brokers fence, grant. Raises `SparrowError`."""
        gone = self._hand.tick(self._monotonic())
        if gone:
            log.warning("members of group %s were not heard of in time: %s", self.group, ", ".join(gone))
            self._forget(gone)
        if self._anew or not self.paused:
            await self._plan()
        self._hand.tick(self._monotonic())
        self.problem = ""
        await self._fence()
        await self._note()

    async def _plan(self) -> None:
        """Make the next plan, if there is one to make, and begin to bring it about once it is kept."""
        queues, rules, members = await self._queues(), self.rules, self._members
        before = self.plan
        plan = make_plan(self.group, queues, members.candidates.values(), rules=rules, before=before)
        plan = renumbered(plan, before, self.moves.chosen(queues))
        if plan.generation != before.generation:
            await self._keep(plan, plan_row(plan, self._planned[0], rules != self._planned[1]))
            self._planned = plan, rules
            self.plans += 1
            log.info("group %s: generation %d, %d queues move", self.group, plan.generation, len(plan.moved))
        self.plan, self._anew = plan, False
        self._hand.plan(plan, self._monotonic())
        self.moves.begin(queues, plan.generation)
        if plan.generation != before.generation:
            self._told = [*self._told[1 - PLANS_REMEMBERED :], (self._hand.revision, plan.generation)]

    # What is kept

    async def _keep(self, plan: Plan, made: PlanRow) -> None:
        """Have a plan in the ledger before anybody is told. Raises `DatabaseError`, `LeaseLostError`."""
        if self._ledger is None:
            return
        self._reasons = reasons_after(plan, self._reasons)
        members = self._members
        rows = member_rows(members.candidates, members.topics, members.versions, plan)
        group = replace(self._numbers(), generation=plan.generation, settled=False)
        await self._write(Kept(group, rows, self._kept.queues), made)

    async def _note(self) -> None:
        """Keep where queues and members are by now, when that has changed. A database that is gone delays
        nothing: what is granted is what brokers say.
        """
        members = self._members
        mark = (self._hand.revision, self.plan.members, members.changes, self._numbers())
        if self._ledger is None or mark == self._noted:
            return
        rows = member_rows(members.candidates, members.topics, members.versions, self.plan)
        queues = queue_rows(self._hand.state().queues, self._reasons)
        try:
            await self._write(Kept(self._numbers(), rows, queues))
        except DatabaseError as error:
            self.problem = str(error)
            text = f"what happens in group {self.group} is not kept for now: {error}"
            self._occasional.write(logging.WARNING, "note", text)
        else:
            self._noted = mark

    def _numbers(self) -> GroupRow:
        return replace(
            counted(self._base, self._hand.counts, self.late),
            epoch=self.epoch,
            generation=self.plan.generation,
            settled=self._hand.settled,
            lease_ms=self._lease_ms(),
        )

    def _lease_ms(self) -> int:
        """The longest lease that may still run; one that a shorter one replaced counts to its end."""
        longest = self._hand.longest_lease(self._monotonic())
        usual = self.terms.times.lease
        return round((usual if longest <= usual else max(longest, self._kept.group.lease_ms / 1000)) * 1000)

    async def _write(self, after: Kept, made: PlanRow | None = None) -> None:
        assert self._ledger is not None, "whoever keeps no ledger does not come here"
        try:
            if self._is_kept_known:
                before = self._kept
            else:  # the last write may have been kept though its answer was lost
                before = await self._ledger.load(self.group)
            self._is_kept_known = False
            await self._ledger.save(self.group, before, after, made)
        except LeaseLostError:
            self.deposed = True
            raise
        self._kept, self._is_kept_known = after, True

    async def _queues(self) -> list[MessageQueue]:
        """Queues of all subscribed topics. A topic nobody serves (yet) has none."""
        found: list[MessageQueue] = []
        for topic in sorted(frozenset().union(*self._members.topics.values())):
            asked, queues = self._routes.get(topic, (-ROUTE_SECONDS, []))
            if self._monotonic() - asked >= ROUTE_SECONDS:
                try:
                    queues = (await self._cluster.topic_route(topic)).subscribe_queues(topic)
                except NoRouteError:
                    level = logging.DEBUG if topic.startswith(RETRY_PREFIX) else logging.WARNING
                    text = f"no broker serves topic {topic}, which group {self.group} subscribes to"
                    self._occasional.write(level, f"route {topic}", text)
                    queues = []
                self._routes[topic] = self._monotonic(), queues
            found += queues
        return found

    async def _fence(self) -> None:
        """Tell brokers whose queues wait for it, or that know an older leader; again with the next step if
        that fails.
        """
        by_broker: dict[str, list[Fenced]] = {name: [] for name in self._unclaimed}
        for fence in self._hand.fences():
            by_broker.setdefault(fence.queue.broker_name, []).append(fence)
        if not by_broker:
            return
        self._revision += 1
        self._unclaimed = set()
        grants = self._hand.grants()
        await asyncio.gather(
            *(self._tell(name, self._policy(name, grants), wanted) for name, wanted in by_broker.items())
        )

    def _policy(self, broker: str, grants: list[QueueGrant]) -> GroupPolicy:
        pauses = self.pauses if self.terms.settings is None else self.terms.pauses_at(broker)
        age, maximum = (self.epoch, self._revision), self.rules.maximum
        return GroupPolicy(self.group, *age, members=[], maximum=maximum, queues=grants, pauses=pauses)

    async def _tell(self, broker: str, policy: GroupPolicy, wanted: list[Fenced]) -> None:
        if not self._leads():
            return
        try:
            await self._cluster.set_group_policy(policy, broker=broker)
            for fence in wanted:
                await self.moves.set(self._cluster, fence)
        except BrokerError as error:
            if error.code == ResponseCode.POLICY_OUTDATED:
                self.deposed = True
                log.warning("group %s has another leader: %s", self.group, error)
            else:
                self._complain(broker, error)
        except NoFencesError:
            self._grant_unfenced(broker, wanted)
        except SparrowError as error:
            self._complain(broker, error)
        else:
            self.lease_only.discard(broker)
            self._hand.fenced(wanted)

    def _grant_unfenced(self, broker: str, wanted: list[Fenced]) -> None:
        """Let members have queues of a broker that enforces nothing, once no others may have them."""
        if broker not in self.lease_only:
            self.lease_only.add(broker)
            log.warning(
                "group %s: broker %s is not SparrowMQ's and fences nothing; there only leases keep members "
                "apart, pauses are not enforced, and late results count",
                self.group,
                broker,
            )
        if self._monotonic() >= self._others_until:
            self._hand.fenced(wanted)

    def _complain(self, broker: str, error: SparrowError) -> None:
        text = f"queues of group {self.group} at {broker} wait until it enforces their generation: {error}"
        self.problem = text
        self._unclaimed.add(broker)
        self._occasional.write(logging.WARNING, f"fence {broker}", text)


class Groups:
    """The groups of one coordinator, each led from its first member on.

    `epoch` is that of all its leaders; without it each group has one after those that brokers know. `leads`
    says whether it still may; asked before anything that is told outside.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        times: Times | None = None,
        rules: Mapping[str, Rules] | None = None,
        monotonic: Callable[[], float],
        groups_max: int = 1000,
        epoch: int | None = None,
        ledger: Ledger | None = None,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self._cluster = cluster
        self._usual = Terms(times or Times())
        self._terms = {group: replace(self._usual, rules=one) for group, one in (rules or {}).items()}
        self._monotonic = monotonic
        self._groups_max = groups_max
        self._epoch = epoch
        self._ledger = ledger
        self.leads = leads
        self._paused = self._closed = False
        self._leaders: dict[str, GroupLeader] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._taking: dict[str, asyncio.Task[GroupLeader]] = {}
        self._told: dict[str, int] = {}
        self.epoch_behind = 0
        """A later epoch that brokers know: whoever leads has to begin above it."""
        self.ahead_ms = 0
        """How far the clock by which knobs end, the database's, is ahead of this process's."""

    def find(self, group: str) -> GroupLeader | None:
        """The leader of a group that has members here."""
        return self._leaders.get(group)

    @property
    def leaders(self) -> list[GroupLeader]:
        """The leaders of all groups that have members here, by name."""
        return [self._leaders[name] for name in sorted(self._leaders)]

    def adopt(self, terms: Mapping[str, Terms], usual: Terms | None = None) -> None:
        """Take over what people set of groups, all of it; `usual` counts for groups that are not named."""
        self._usual = usual or self._usual
        self._terms = dict(terms)
        for group, leader in self._leaders.items():
            leader.adopt(self._terms.get(group, self._usual))

    def pause(self, paused: bool) -> None:
        """Let plans wait, or let them be made again. Members keep what they have meanwhile."""
        self._paused = paused
        for leader in self._leaders.values():
            leader.paused = paused

    def plan_anew(self) -> None:
        """Plan all groups again, paused or not."""
        for leader in self._leaders.values():
            leader.plan_anew()

    async def lead(self, group: str) -> GroupLeader:
        """The leader of a group, taken over if that is not done yet; many may ask at once.

        Raises `InvalidStateError` at the limit of groups, `SparrowError` when brokers do not answer.
        """
        if self._closed or not self.leads():
            raise CoordinatorError("this coordinator does not lead any more; ask the name server for another")
        found = self._leaders.get(group)
        if found is not None and not found.deposed:
            return found
        if group not in self._taking:
            if len(self._leaders) >= self._groups_max:
                raise InvalidStateError(
                    f"this coordinator leads {self._groups_max} groups, which is the limit"
                )
            self._taking[group] = asyncio.get_running_loop().create_task(self._take_over(group))
        task = self._taking[group]
        try:
            leader = await asyncio.shield(task)
        except EpochBehindError as error:
            self.epoch_behind = max(self.epoch_behind, error.epoch)
            raise
        finally:
            if task.done():
                self._taking.pop(group, None)
        if self._leaders.get(group) is not leader:
            self._leaders[group] = leader
            self._tasks[group] = asyncio.get_running_loop().create_task(self._run(leader))
        return leader

    def _remember_told(self, leader: GroupLeader) -> None:
        """Members know orders up to there, and heed none below; after a while without any it is forgotten."""
        if leader.unused:
            self._told.pop(leader.group, None)
        else:
            self._told[leader.group] = max(leader.told, self._told.get(leader.group, 0))

    async def _take_over(self, group: str) -> GroupLeader:
        before = self._leaders.get(group)
        if before is not None:
            self._remember_told(before)
        terms = self._terms.get(group, self._usual)
        leader = await GroupLeader.take_over(
            group,
            self._cluster,
            terms,
            self._monotonic,
            epoch=self._epoch,
            told=self._told.get(group, 0),
            ledger=self._ledger,
            leads=self.leads,
        )
        if self._terms.get(group, self._usual) != terms:
            leader.adopt(self._terms.get(group, self._usual))
        leader.paused = self._paused
        return leader

    async def _run(self, leader: GroupLeader) -> None:
        try:
            await leader.run()
        except Exception:
            log.exception("group %s is not led any more; its next member begins anew", leader.group)
        finally:
            self._remember_told(leader)
            if self._leaders.get(leader.group) is leader:
                del self._leaders[leader.group]
                del self._tasks[leader.group]

    async def close(self) -> None:
        """Lead no more; groups stay as they are until their members' leases end."""
        self._closed = True
        tasks = [*self._tasks.values(), *self._taking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._leaders.clear()
        self._tasks.clear()
