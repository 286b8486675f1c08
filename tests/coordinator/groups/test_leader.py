"""Leaders of managed groups: taking over from brokers' policies, and steps."""

from __future__ import annotations

import pytest
from tests.coordinator.groups.made_up import A, B, FakeCluster, lead, step

from sparrowmq.coordinator.groups.handover import Phase
from sparrowmq.coordinator.groups.takeover import Said, recovered
from sparrowmq.core.grants import Report
from sparrowmq.protocol.managed import GroupPolicies, GroupPolicy, QueueGrant


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
