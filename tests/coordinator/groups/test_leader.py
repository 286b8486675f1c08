"""Leaders of managed groups: taking over from brokers' policies, and steps."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest
from tests.coordinator.groups.made_up import TIMES, A, B, FakeCluster, lead, step
from tests.support import run

from sparrowmq.coordinator.groups import leader as module
from sparrowmq.coordinator.groups.handover import Phase
from sparrowmq.coordinator.groups.initial_state import ReportedState, Terms, recovered
from sparrowmq.coordinator.groups.leader import GroupLeader
from sparrowmq.coordinator.groups.plan import GroupPlan, make_plan
from sparrowmq.core.grants import Report
from sparrowmq.core.route import TopicRoute
from sparrowmq.protocol.managed import GroupPolicies, GroupPolicy, QueueGrant


def test_newly_managed_group_begins_above_its_old_generations() -> None:
    epoch, state, plan = recovered("g", {"a": GroupPolicies([], {"g": 7}), "b": GroupPolicies([], {"g": 4})})
    assert (epoch, state.queues, state.members, plan.generation) == (1, (), (), 7)


@pytest.mark.proves("MUST-72")
def test_next_leader_continues_from_the_enforced_policies() -> None:
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
def test_members_join_report_and_leave_and_only_moved_queues_get_a_new_generation() -> None:
    cluster = FakeCluster()
    leader = lead(cluster)
    p = leader.join("p", "10.0.0.1", ["T", "%RETRY%g"], 1)
    step(leader)
    orders = leader.report(p, "10.0.0.1", Report(1, 0), ["T"], ReportedState(0))
    assert orders is not None
    assert orders.granted == {A: 1, B: 1}
    assert cluster.grants("a") == {A: (p, 1), B: (p, 1)}
    q = leader.join("q", "10.0.0.2", ["T"], 2)
    step(leader)
    orders = leader.report(p, "10.0.0.1", Report(2, 0), ["T"], ReportedState(3))
    assert orders is not None
    assert (orders.granted, orders.revoked) == ({A: 1}, {B: 1})
    leader.report(p, "10.0.0.1", Report(3, orders.revision, {B: 1}), ["T"], ReportedState(3))
    assert leader.late == 3
    step(leader)
    got = leader.report(q, "10.0.0.2", Report(1, 0), ["T"], ReportedState(0))
    assert got is not None
    assert got.granted == {B: 2}
    assert cluster.grants("b") == {A: (p, 1), B: (q, 2)}
    assert cluster.grants("a") == {A: (p, 1), B: (p, 1)}, "it guards only its own queue, which did not move"
    leader.leave(p)
    step(leader)
    assert cluster.grants("a")[A] == (q, 3)
    assert not leader.news, "no dynamic settings were reported"
    going = ReportedState(3, 77, {"batch": "single"})
    for news in (True, False):
        leader.report(q, "10.0.0.2", Report(2, 0), ["T"], going)
        assert leader.news == news
        assert leader.take_news() == news
    assert (leader.seen()[q].applied_revision, leader.seen()[q].unable) == (77, {"batch": "single"})
    assert leader.report("stranger", "", Report(1, 0), ["T"], ReportedState(0)) is None


def test_silent_members_lose_their_queues_and_a_new_leader_updates_brokers_at_once() -> None:
    cluster = FakeCluster()
    first = lead(cluster)
    p = first.join("p", "", ["T"], 1)
    step(first)
    second = lead(cluster)
    step(second)
    assert second.epoch == first.epoch + 1
    assert second.report(p, "", Report(5, 0), ["T"], ReportedState(0)) is not None, (
        "it goes on under the next leader"
    )
    cluster.now = 10.5
    step(first)
    assert first.deposed, "what it thinks of members that report elsewhere means nothing"
    assert first.report(p, "", Report(6, 0), ["T"], ReportedState(0)) is None
    assert cluster.grants("a")[A] == (p, 1)
    step(second)
    step(second)
    assert cluster.grants("a")[A] == ("", 2)


def test_plan_is_made_again_only_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan for 65,536 queues and a thousand members takes seconds, and there are four steps per second."""
    made: list[int] = []

    def counted(*args: Any, **options: Any) -> GroupPlan:
        made.append(threading.get_ident())
        return make_plan(*args, **options)

    monkeypatch.setattr(module, "make_plan", counted)
    leader = lead(FakeCluster())
    leader.join("p", "10.0.0.1", ["T"], 1)
    for _ in range(5):
        step(leader)
    assert len(made) == 2 and leader.plan.generation == 1
    leader.join("q", "10.0.0.2", ["T"], 2)
    for _ in range(5):
        step(leader)
    assert len(made) == 4 and leader.plan.generation == 2
    assert {one.owner for one in leader.plan.queues} == {*leader.seen()}
    assert set(made) == {threading.get_ident()}
    monkeypatch.setattr(module, "LARGE", 1)
    leader.leave(next(iter(leader.seen())))
    step(leader)
    assert len(made) == 5 and made[-1] != threading.get_ident(), "a large one is made beside the loop"
    assert leader.plan.generation == 3


def test_member_whose_lease_ends_during_planning_is_removed() -> None:
    """Otherwise plans would always include it, and nobody would read its queues."""

    class Slow(FakeCluster):
        takes = 0.0

        async def topic_route(self, topic: str) -> TopicRoute:
            self.now += self.takes
            return await super().topic_route(topic)

    cluster = Slow()
    leader = lead(cluster)
    leader.join("p", "", ["T"], 1)
    step(leader)
    q = leader.join("q", "", ["T"], 2)
    cluster.takes = TIMES.lease + 1
    leader.plan_anew()
    step(leader)
    assert leader.members == []
    cluster.takes = 0.0
    assert leader.report(q, "", Report(1, 0), ["T"], ReportedState(0)) is None
    r = leader.join("r", "", ["T"], 3)
    step(leader)
    assert {one.owner for one in leader.plan.queues} == {r}, "all queues are for who is there"


def test_large_group_is_planned_fenced_and_granted_without_blocking_others() -> None:
    """For 10,000 queues all of this takes a quarter of a second: other requests are answered meanwhile."""

    class Wide(FakeCluster):
        async def topic_route(self, topic: str) -> TopicRoute:
            found = await super().topic_route(topic)
            return replace(found, queues=tuple(replace(one, read_queue_nums=2500) for one in found.queues))

    async def main() -> tuple[list[int], int]:
        leader = await GroupLeader.take_over("g", cluster, Terms(TIMES), lambda: cluster.now)
        member, granted, number = leader.join("p", "", ["T"], 1), [0], 0
        stepping = asyncio.create_task(leader.step())
        while not stepping.done():
            await asyncio.sleep(0)
            number += 1
            orders = leader.report(member, "", Report(number, 0), ["T"], ReportedState(0))
            assert orders is not None
            granted.append(len(orders.granted))
        orders = leader.report(member, "", Report(number + 1, 0), ["T"], ReportedState(0))
        assert orders is not None
        return granted, len(orders.granted)

    cluster = Wide()
    granted, whole = run(main())
    assert whole == 5000
    assert granted == sorted(granted)
    assert any(0 < count < 5000 for count in granted), "it was served between two steps"
