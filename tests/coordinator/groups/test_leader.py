"""Leaders of managed groups: taking over from brokers' policies, steps, brokers that do not answer."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace
from tests.support import run, until

from sparrowmq.broker.fence import judge
from sparrowmq.coordinator.groups.handover import Phase, Times
from sparrowmq.coordinator.groups.leader import GroupLeader, Groups
from sparrowmq.coordinator.groups.takeover import Said, Terms, recovered
from sparrowmq.core.errors import (
    BrokerError,
    ConnectError,
    CoordinatorError,
    InvalidStateError,
    NoFencesError,
    NoRouteError,
)
from sparrowmq.core.grants import Report
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.route import BrokerData, QueueData, TopicRoute
from sparrowmq.protocol.managed import GroupPolicies, GroupPolicy, QueueGrant

TIMES = Times(member_lease=8.0, lease=10.0, drain=30.0)
A, B = MessageQueue("T", "a", 0), MessageQueue("T", "b", 0)


class FakeCluster:
    """Topic `T` with a queue at each of two brokers; `down` brokers take no policies."""

    def __init__(self) -> None:
        self.policies: dict[str, GroupPolicies] = {"a": GroupPolicies(), "b": GroupPolicies()}
        self.down: set[str] = set()
        self.now = 0.0
        self.asked = 0

    async def topic_route(self, topic: str) -> TopicRoute:
        self.asked += 1
        if topic != "T":
            raise NoRouteError(f"no broker serves {topic}")
        queues = [QueueData(name, 1, 1, 6) for name in ("a", "b")]
        return TopicRoute(
            tuple(queues), tuple(BrokerData("c", name, {0: f"{name}:1"}) for name in ("a", "b"))
        )

    async def group_policies(self, group: str | None = None) -> dict[str, GroupPolicies]:
        if "all" in self.down:
            raise ConnectError("nobody is there")
        return dict(self.policies)

    async def set_group_policy(
        self, policy: GroupPolicy, *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        assert broker is not None
        if broker in self.down:
            raise ConnectError("it is down")
        known = self.policies[broker]
        wrong = judge(policy, next(iter(known.policies), None), known.retired.get("g", 0), broker)
        if wrong is not None:
            raise BrokerError(wrong.code, wrong.text)
        self.policies[broker] = GroupPolicies([policy])

    def grants(self, broker: str) -> dict[MessageQueue, tuple[str, int]]:
        found = self.policies[broker].policies[0].queues
        return {one.queue: (one.owner, one.generation) for one in found}


def lead(cluster: FakeCluster) -> GroupLeader:
    return run(GroupLeader.take_over("g", cluster, Terms(TIMES), lambda: cluster.now))


def step(leader: GroupLeader) -> None:
    run(leader.step())


def test_a_group_nobody_managed_begins_above_generations_it_had() -> None:
    epoch, state, plan = recovered("g", {"a": GroupPolicies([], {"g": 7}), "b": GroupPolicies([], {"g": 4})})
    assert (epoch, state.queues, state.members, plan.generation) == (1, (), (), 7)


@pytest.mark.proves("MUST-72")
def test_what_brokers_enforce_is_where_the_next_leader_goes_on() -> None:
    grants = [QueueGrant("T", "a", 0, 5, "p"), QueueGrant("T", "b", 0, 9, "")]
    stale = QueueGrant("T", "b", 0, 2, "q")
    found = {
        "a": GroupPolicies([GroupPolicy("g", 3, 8, queues=[grants[0], stale])]),
        "b": GroupPolicies([GroupPolicy("g", 2, 4, queues=grants)]),
    }
    epoch, state, plan = recovered("g", found)
    assert (epoch, plan.generation, state.members) == (4, 9, ("p",))
    assert [(one.queue, one.phase, one.holder, one.generation) for one in state.queues] == [
        (A, Phase.GRANTED, "p", 5),
        (B, Phase.FREE, None, 9),
    ]


@pytest.mark.proves("MUST-72", "MUST-73")
def test_members_join_report_and_leave_and_only_what_moves_is_fenced_anew() -> None:
    cluster = FakeCluster()
    leader = lead(cluster)
    p = leader.join("p", "10.0.0.1", ["T", "%RETRY%g"], 1)
    step(leader)
    orders = leader.report(p, "10.0.0.1", Report(1, 0), ["T"], Said(0))
    assert orders is not None
    assert orders.granted == {A: 1, B: 1}
    assert cluster.grants("a") == {A: (p, 1), B: (p, 1)}
    q = leader.join("q", "10.0.0.2", ["T"], 2)
    step(leader)
    orders = leader.report(p, "10.0.0.1", Report(2, 0), ["T"], Said(3))
    assert orders is not None
    assert (orders.granted, orders.revoked) == ({A: 1}, {B: 1})
    leader.report(p, "10.0.0.1", Report(3, orders.revision, {B: 1}), ["T"], Said(3))
    assert leader.late == 3
    step(leader)
    got = leader.report(q, "10.0.0.2", Report(1, 0), ["T"], Said(0))
    assert got is not None
    assert got.granted == {B: 2}
    assert cluster.grants("b") == {A: (p, 1), B: (q, 2)}
    assert cluster.grants("a") == {A: (p, 1), B: (p, 1)}, "it guards only its own queue, which did not move"
    leader.leave(p)
    step(leader)
    assert cluster.grants("a")[A] == (q, 3)
    assert not leader.news, "nothing of live knobs was said"
    going = Said(3, 77, {"batch": "single"})
    for news in (True, False):
        leader.report(q, "10.0.0.2", Report(2, 0), ["T"], going)
        assert leader.news == news
        leader.news = False
    assert (leader.seen()[q].knobs, leader.seen()[q].unable) == (77, {"batch": "single"})
    assert leader.report("stranger", "", Report(1, 0), ["T"], Said(0)) is None


def test_a_broker_that_is_down_delays_its_queues_and_no_others() -> None:
    cluster = FakeCluster()
    cluster.down = {"b"}
    leader = lead(cluster)
    p = leader.join("p", "", ["T"], 1)
    step(leader)
    orders = leader.report(p, "", Report(1, 0), ["T"], Said(0))
    assert orders is not None
    assert orders.granted == {A: 1}
    cluster.down = set()
    step(leader)
    orders = leader.report(p, "", Report(2, 0), ["T"], Said(0))
    assert orders is not None
    assert orders.granted == {A: 1, B: 1}


def test_silent_members_lose_their_queues_and_a_new_leader_tells_brokers_at_once() -> None:
    cluster = FakeCluster()
    first = lead(cluster)
    p = first.join("p", "", ["T"], 1)
    step(first)
    second = lead(cluster)
    step(second)
    assert second.epoch == first.epoch + 1
    assert second.report(p, "", Report(5, 0), ["T"], Said(0)) is not None, "it goes on under the next leader"
    cluster.now = 10.5
    step(first)
    assert first.deposed, "what it thinks of members that report elsewhere means nothing"
    assert first.report(p, "", Report(6, 0), ["T"], Said(0)) is None
    assert cluster.grants("a")[A] == (p, 1)
    step(second)
    step(second)
    assert cluster.grants("a")[A] == ("", 2)


@pytest.mark.proves("MUST-72")
def test_a_broker_that_heard_of_a_hand_over_its_queue_s_own_broker_never_did_takes_the_next_leader() -> None:
    """A leader dies when one of two brokers has the generation for both: the other one's queue is where its
    own broker has it, whatever the first was told.
    """
    cluster = FakeCluster()
    leader = lead(cluster)
    p = leader.join("p", "", ["T"], 1)
    step(leader)
    q = leader.join("q", "", ["T"], 2)
    leader.leave(p)
    cluster.down = {"b"}
    step(leader)
    assert cluster.grants("a") == {A: (q, 2), B: (q, 2)}
    assert cluster.grants("b") == {A: (p, 1), B: (p, 1)}
    cluster.down = set()
    for second in range(20):
        cluster.now = float(second)
        if leader.deposed or not second:
            leader = lead(cluster)
        leader.report(q, "", Report(second, 0), ["T"], Said(0))
        step(leader)
    assert (leader.epoch, leader.deposed) == (2, False), "one leader was enough"
    assert (cluster.grants("a")[A], cluster.grants("b")[B]) == ((q, 2), (q, 3)), "p, who left, is missed"


@pytest.mark.proves("MUST-72")
def test_a_leader_that_begins_anew_in_its_epoch_numbers_orders_above_those_it_gave() -> None:
    """A member heeds no orders older than what it knows, and what it knows of is taken for obeyed."""
    cluster = FakeCluster()

    async def main() -> None:
        groups = Groups(cluster, times=TIMES, monotonic=lambda: cluster.now, epoch=3)
        first = await groups.lead("g")
        p = first.join("p", "", ["T"], 1)
        await first.step()
        orders = first.report(p, "", Report(1, 0), ["T"], Said(0))
        assert orders is not None and orders.granted == {A: 1, B: 1}
        (known,) = cluster.policies["a"].policies
        cluster.policies["a"] = GroupPolicies([replace(known, revision=known.revision + 9)])  # was on its way
        first.leave(p)
        await first.step()
        assert first.deposed
        second = await groups.lead("g")
        again = second.report(p, "", Report(2, orders.revision), ["T"], Said(0))
        assert again is not None and second.epoch == first.epoch
        assert again.revision >= first.told > orders.revision
        await groups.close()

    run(main())


def test_routes_are_asked_for_now_and_then() -> None:
    cluster = FakeCluster()
    leader = lead(cluster)
    leader.join("p", "", ["T"], 1)
    for _ in range(3):
        step(leader)
    assert cluster.asked == 1
    cluster.now = 5.0
    step(leader)
    assert cluster.asked == 2


@pytest.mark.proves("MUST-73")
def test_a_group_that_fails_delays_no_other() -> None:
    class Failing(FakeCluster):
        async def topic_route(self, topic: str) -> TopicRoute:
            if topic == "Broken":
                raise ConnectError("the name server is gone")
            return await super().topic_route(topic)

    async def main() -> None:
        cluster = Failing()
        groups = Groups(cluster, times=TIMES, monotonic=lambda: cluster.now)
        broken, fine = await groups.lead("broken"), await groups.lead("g")
        broken.join("p", "", ["Broken"], 1)
        member = fine.join("p", "", ["T"], 1)
        await until(lambda: fine.settled and fine.plan.generation == 1)
        orders = fine.report(member, "", Report(1, 0), ["T"], Said(0))
        assert orders is not None
        assert orders.granted == {A: 1, B: 1}
        assert groups.find("broken") is broken
        await groups.close()

    run(main())


def test_a_coordinator_that_ends_takes_nothing_over_any_more() -> None:
    """A report that comes while it ends must not begin another epoch."""

    async def main() -> None:
        cluster = FakeCluster()
        groups = Groups(cluster, times=TIMES, monotonic=lambda: cluster.now)
        await groups.lead("g")
        await groups.close()
        assert groups.leaders == []
        with pytest.raises(CoordinatorError, match="does not lead any more; ask the name server"):
            await groups.lead("g")

    run(main())


def test_groups_are_taken_over_once_forgotten_when_empty_and_limited() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        groups = Groups(cluster, times=TIMES, monotonic=lambda: cluster.now, groups_max=1)
        cluster.down = {"all"}
        with pytest.raises(ConnectError):
            await groups.lead("g")
        cluster.down = set()
        one, two = await asyncio.gather(groups.lead("g"), groups.lead("g"))
        assert one is two
        with pytest.raises(InvalidStateError, match="leads 1 groups, which is the limit"):
            await groups.lead("other")
        cluster.now = 61.0
        await until(lambda: groups.find("g") is None)
        await groups.lead("other")
        await groups.close()

    run(main())


class WithApache(FakeCluster):
    """Broker `b` is not SparrowMQ's."""

    async def group_policies(self, group: str | None = None) -> dict[str, GroupPolicies]:
        found = await super().group_policies(group)
        return {name: one for name, one in found.items() if name != "b"}

    async def set_group_policy(
        self, policy: GroupPolicy, *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        if broker == "b":
            raise NoFencesError("it is not SparrowMQ's")
        await super().set_group_policy(policy, cluster=cluster, broker=broker)


def test_brokers_that_fence_nothing_are_lease_only_and_wait_for_leases_of_earlier_leaders() -> None:
    cluster = WithApache()
    leader = lead(cluster)
    p = leader.join("p", "10.0.0.1", ["T"], 1)

    def granted(number: int) -> set[MessageQueue]:
        orders = leader.report(p, "10.0.0.1", Report(number, 0), ["T"], Said(0))
        assert orders is not None
        return set(orders.granted)

    step(leader)
    assert (granted(1), leader.lease_only) == ({A}, {"b"}), "others may have B for a lease"
    cluster.now = TIMES.lease - 0.1
    step(leader)
    assert granted(2) == {A}
    cluster.now = TIMES.lease
    step(leader)
    assert granted(3) == {A, B}
    q = leader.join("q", "10.0.0.2", ["T"], 2)
    step(leader)
    orders = leader.report(p, "10.0.0.1", Report(4, 0), ["T"], Said(0))
    assert orders is not None and orders.revoked == {B: 1}
    leader.report(p, "10.0.0.1", Report(5, orders.revision, {B: 1}), ["T"], Said(0))
    step(leader)
    got = leader.report(q, "10.0.0.2", Report(1, 0), ["T"], Said(0))
    assert got is not None and got.granted == {B: 2}, "from then on at once"
    leader.leave(p)
    step(leader)
    assert leader.settled


def test_a_broker_that_becomes_one_of_sparrowmq_s_fences_from_then_on() -> None:
    cluster = WithApache()
    leader = lead(cluster)
    leader.join("p", "10.0.0.1", ["T"], 1)
    step(leader)
    assert leader.lease_only == {"b"}
    leader._cluster = later = FakeCluster()
    step(leader)
    assert leader.lease_only == set()
    assert later.grants("b")[B][1] == 1
