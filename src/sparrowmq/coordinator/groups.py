"""Managed groups under one leader: members report, plans are made, brokers fence, queues are granted.

A leader keeps nothing of its own that has to survive it. What is granted is what brokers have on disk: a
queue is granted only after its broker enforces the new generation (pmq:3.4), so whoever leads next reads the
policies, takes the owners it finds for members, gives each a whole lease, and goes on. It sets the policies
anew at once, with the next epoch, so that brokers refuse what an older leader still sends.

Each group has a leader object and a task of its own: what fails for one delays no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from sparrowmq.coordinator.handover import Fenced, Handing, HandOver, Phase, State, Times
from sparrowmq.coordinator.plan import Candidate, Plan, PlannedQueue, Rules, Why, make_plan
from sparrowmq.core.errors import BrokerError, InvalidStateError, NoRouteError, SparrowError
from sparrowmq.core.grants import Orders, Report
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import RETRY_PREFIX
from sparrowmq.core.route import TopicRoute
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.managed import GroupPolicies, GroupPolicy, PauseRule, QueueGrant
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.coordinator")

STEP_SECONDS: Final = 0.25
ROUTE_SECONDS: Final = 2.0
"""How old the queues of a topic may be that a plan is made of."""
IDLE_SECONDS: Final = 60.0
"""A group without members for so long is forgotten here; its brokers keep the fence."""


class Cluster(Protocol):
    """What a leader needs of a cluster: the admin client's calls."""

    async def topic_route(self, topic: str) -> TopicRoute:
        """Queues and brokers of a topic. Raises `NoRouteError` for one that nobody serves."""

    async def group_policies(self, group: str | None = None) -> dict[str, GroupPolicies]:
        """Policies by broker name."""

    async def set_group_policy(
        self, policy: GroupPolicy, *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        """Have a broker enforce a policy, durably."""


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


class GroupLeader:
    """One group. Made by `take_over`; `run` until it says that it is not needed, or that another leads."""

    def __init__(
        self,
        group: str,
        cluster: Cluster,
        times: Times,
        rules: Rules,
        monotonic: Callable[[], float],
        epoch: int,
        state: State,
        plan: Plan,
        pauses: Iterable[PauseRule] = (),
    ) -> None:
        self.group = group
        self.rules = rules
        self.pauses = list(pauses)
        self.plan = plan
        self.epoch = epoch
        self.deposed = False
        """Whether brokers said that another leads."""
        self.late = 0
        """Results of members that brokers refused, because the queue had gone on."""
        self._cluster = cluster
        self._monotonic = monotonic
        self._hand = HandOver(times, epoch, state=state, now=monotonic())
        self._revision = 0
        self._joined = 0
        self._late_of: dict[str, int] = {}
        self._candidates = {name: Candidate(name) for name in state.members}
        self._topics = {name: self._topics_in(plan, name) for name in state.members}
        self._routes: dict[str, tuple[float, list[MessageQueue]]] = {}
        self._wake = asyncio.Event()
        self._unclaimed = {one.queue.broker_name for one in plan.queues}
        self._idle_since = monotonic()
        self._occasional = OccasionalLog(log)

    def __repr__(self) -> str:
        return f"<GroupLeader {self.group} epoch={self.epoch} {self._hand!r}>"

    @staticmethod
    def _topics_in(plan: Plan, member: str) -> frozenset[str]:
        return frozenset(one.queue.topic for one in plan.queues if one.owner == member)

    @classmethod
    async def take_over(
        cls, group: str, cluster: Cluster, times: Times, rules: Rules, monotonic: Callable[[], float]
    ) -> GroupLeader:
        """Lead from where brokers say that the group is. Raises `SparrowError` when they do not say."""
        found = await cluster.group_policies(group)
        epoch, state, plan = recovered(group, found)
        log.info("leading group %s from generation %d, epoch %d", group, plan.generation, epoch)
        policies = [one for table in found.values() for one in table.policies]
        last = max(policies, key=lambda one: one.age, default=GroupPolicy(group))
        if not rules.maximum:
            rules = replace(rules, maximum=last.maximum)
        return cls(group, cluster, times, rules, monotonic, epoch, state, plan, last.pauses)

    @property
    def settled(self) -> bool:
        """Whether the plan is in force."""
        return self._hand.settled

    @property
    def unused(self) -> bool:
        """Whether the group has had no members for a while."""
        return not self._candidates and self._monotonic() - self._idle_since > IDLE_SECONDS

    def steer(self, maximum: int | None, pauses: list[PauseRule] | None) -> None:
        """Change how many members have queues, and what rests; in force with the next step.

        Kept by the brokers, as all of a policy. Raises `SettingsError` for a maximum out of range.
        """
        if maximum is not None:
            self.rules = replace(self.rules, maximum=Rules.parse(maximum=maximum).maximum)
        if pauses is not None:
            self.pauses = pauses
        self._unclaimed |= {one.queue.broker_name for one in self.plan.queues}
        self._wake.set()

    # Members

    def join(self, client_id: str, address: str, topics: Iterable[str], now_ms: int) -> str:
        """Count a client in as a new member; who it is. It gets queues with the next step."""
        self._joined += 1
        member = f"{client_id}#{self.epoch}.{now_ms}.{self._joined}"
        self._hand.join(member, self._monotonic())
        self._candidates[member] = Candidate(member, address, now_ms * 1000 + self._joined)
        self._topics[member] = frozenset(topics)
        self._wake.set()
        return member

    def report(
        self, member: str, address: str, report: Report, topics: Iterable[str], late: int
    ) -> Orders | None:
        """Take in what a member says, and what it is to do; None for one that must join again."""
        if self.deposed or not self._hand.report(member, report, self._monotonic()):
            return None
        wanted = frozenset(topics)
        known = self._candidates.get(member)
        if known is None or known.address != address or self._topics.get(member) != wanted:
            self._candidates[member] = replace(known or Candidate(member), address=address)
            self._topics[member] = wanted
        self.late += max(0, late - self._late_of.get(member, 0))
        self._late_of[member] = late
        if not self._hand.settled:
            self._wake.set()
        return self._hand.orders(member)

    def leave(self, member: str) -> None:
        """A member is done with everything."""
        self._hand.leave(member)
        self._forget([member])
        self._wake.set()

    def _forget(self, members: Iterable[str]) -> None:
        for member in members:
            self._candidates.pop(member, None)
            self._topics.pop(member, None)
            self._late_of.pop(member, None)
        self._idle_since = self._monotonic()

    # Steps

    async def run(self) -> None:
        """Step again and again, sooner when something happened, until unused or deposed."""
        while not (self.deposed or self.unused):
            try:
                await self.step()
            except SparrowError as error:
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
        queues = await self._queues()
        plan = make_plan(self.group, queues, self._candidates.values(), rules=self.rules, before=self.plan)
        if plan.generation != self.plan.generation:
            log.info("group %s: generation %d, %d queues move", self.group, plan.generation, len(plan.moved))
        self.plan = plan
        self._hand.plan(plan, self._monotonic())
        self._hand.tick(self._monotonic())
        await self._fence()

    async def _queues(self) -> list[MessageQueue]:
        """Queues of all subscribed topics. A topic nobody serves (yet) has none."""
        found: list[MessageQueue] = []
        for topic in sorted(frozenset().union(*self._topics.values())):
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
        policy = GroupPolicy(
            self.group,
            self.epoch,
            self._revision,
            members=[],
            maximum=self.rules.maximum,
            queues=self._grants(),
            pauses=self.pauses,
        )
        await asyncio.gather(*(self._tell(name, policy, wanted) for name, wanted in by_broker.items()))

    async def _tell(self, broker: str, policy: GroupPolicy, wanted: list[Fenced]) -> None:
        try:
            await self._cluster.set_group_policy(policy, broker=broker)
        except BrokerError as error:
            if error.code == ResponseCode.POLICY_OUTDATED:
                self.deposed = True
                log.warning("group %s has another leader: %s", self.group, error)
            else:
                self._complain(broker, error)
        except SparrowError as error:
            self._complain(broker, error)
        else:
            self._unclaimed.discard(broker)
            self._hand.fenced(wanted)

    def _complain(self, broker: str, error: SparrowError) -> None:
        text = f"queues of group {self.group} at {broker} wait until it enforces their generation: {error}"
        self._occasional.write(logging.WARNING, f"fence {broker}", text)

    def _grants(self) -> list[QueueGrant]:
        found = []
        for one in self._hand.state().queues:
            owner, generation = one.holder, one.generation
            if one.phase is Phase.FENCING:
                owner, generation = one.target, one.target_generation
            if generation:
                queue = one.queue
                found.append(
                    QueueGrant(queue.topic, queue.broker_name, queue.queue_id, generation, owner or "")
                )
        return found


class Groups:
    """The groups of one coordinator, each led from its first member on. `rules` are those of named groups."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        times: Times | None = None,
        rules: Mapping[str, Rules] | None = None,
        monotonic: Callable[[], float],
        groups_max: int = 1000,
    ) -> None:
        self._cluster = cluster
        self._times = times or Times()
        self._rules = dict(rules or {})
        self._monotonic = monotonic
        self._groups_max = groups_max
        self._leaders: dict[str, GroupLeader] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._taking: dict[str, asyncio.Task[GroupLeader]] = {}

    def find(self, group: str) -> GroupLeader | None:
        """The leader of a group that has members here."""
        return self._leaders.get(group)

    async def lead(self, group: str) -> GroupLeader:
        """The leader of a group, taken over if that is not done yet; many may ask at once.

        Raises `InvalidStateError` at the limit of groups, `SparrowError` when brokers do not answer.
        """
        found = self._leaders.get(group)
        if found is not None and not found.deposed:
            return found
        if group not in self._taking:
            if len(self._leaders) >= self._groups_max:
                raise InvalidStateError(
                    f"this coordinator leads {self._groups_max} groups, which is the limit"
                )
            rules = self._rules.get(group, Rules())
            work = GroupLeader.take_over(group, self._cluster, self._times, rules, self._monotonic)
            self._taking[group] = asyncio.get_running_loop().create_task(work)
        task = self._taking[group]
        try:
            leader = await asyncio.shield(task)
        finally:
            if task.done():
                self._taking.pop(group, None)
        if self._leaders.get(group) is not leader:
            self._leaders[group] = leader
            self._tasks[group] = asyncio.get_running_loop().create_task(self._run(leader))
        return leader

    async def _run(self, leader: GroupLeader) -> None:
        try:
            await leader.run()
        except Exception:
            log.exception("group %s is not led any more; its next member begins anew", leader.group)
        finally:
            if self._leaders.get(leader.group) is leader:
                del self._leaders[leader.group]
                del self._tasks[leader.group]

    async def close(self) -> None:
        """Lead no more; groups stay as they are until their members' leases end."""
        tasks = [*self._tasks.values(), *self._taking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
