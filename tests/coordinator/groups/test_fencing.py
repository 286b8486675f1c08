"""Policies for brokers that are down, that have received part of them, or that do not support fencing."""

from __future__ import annotations

import pytest
from tests.coordinator.groups.made_up import TIMES, A, B, FakeCluster, WithApache, lead, step

from sparrowmq.coordinator.groups.initial_state import ReportedState
from sparrowmq.core.grants import Report
from sparrowmq.core.message import MessageQueue


def test_broker_that_is_down_delays_only_its_own_queues() -> None:
    cluster = FakeCluster()
    cluster.down = {"b"}
    leader = lead(cluster)
    p = leader.join("p", "", ["T"], 1)
    step(leader)
    orders = leader.report(p, "", Report(1, 0), ["T"], ReportedState(0))
    assert orders is not None
    assert orders.granted == {A: 1}
    cluster.down = set()
    cluster.now = 0.25
    step(leader)
    orders = leader.report(p, "", Report(2, 0), ["T"], ReportedState(0))
    assert orders is not None
    assert orders.granted == {A: 1, B: 1}


def test_broker_that_is_down_is_tried_less_and_less_often() -> None:
    cluster = FakeCluster()
    cluster.down = {"b"}
    leader = lead(cluster)
    p = leader.join("p", "", ["T"], 1)
    for quarter in range(40):
        cluster.now = quarter / 4
        leader.report(p, "", Report(quarter + 1, 0), ["T"], ReportedState(0))
        step(leader)
        assert "b wait" in leader.problem, "it is named while it is not asked"
    asked = [when for broker, when in cluster.sent if broker == "b"]
    assert asked == [0.0, 0.25, 0.75, 1.75, 3.75, 5.75, 7.75, 9.75]
    cluster.down = set()
    cluster.now = 11.75
    step(leader)
    orders = leader.report(p, "", Report(99, 0), ["T"], ReportedState(0))
    assert orders is not None and orders.granted == {A: 1, B: 1}
    assert not leader.problem


@pytest.mark.proves("MUST-72")
def test_next_leader_accepts_a_handover_known_only_to_a_foreign_broker() -> None:
    """A leader dies when one of two brokers has the generation for both: the other broker's own state of
    its queue counts, whatever the first broker was sent."""
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
        leader.report(q, "", Report(second, 0), ["T"], ReportedState(0))
        step(leader)
    assert (leader.epoch, leader.deposed) == (2, False), "one leader was enough"
    assert (cluster.grants("a")[A], cluster.grants("b")[B]) == ((q, 2), (q, 3)), "p, who left, is missed"


def test_groups_on_brokers_without_fencing_wait_for_leases_of_earlier_leaders() -> None:
    cluster = WithApache()
    leader = lead(cluster)
    p = leader.join("p", "10.0.0.1", ["T"], 1)

    def granted(number: int) -> set[MessageQueue]:
        orders = leader.report(p, "10.0.0.1", Report(number, 0), ["T"], ReportedState(0))
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
    orders = leader.report(p, "10.0.0.1", Report(4, 0), ["T"], ReportedState(0))
    assert orders is not None and orders.revoked == {B: 1}
    leader.report(p, "10.0.0.1", Report(5, orders.revision, {B: 1}), ["T"], ReportedState(0))
    step(leader)
    got = leader.report(q, "10.0.0.2", Report(1, 0), ["T"], ReportedState(0))
    assert got is not None and got.granted == {B: 2}, "from then on at once"
    leader.leave(p)
    step(leader)
    assert leader.settled


def test_broker_replaced_by_sparrowmq_enforces_fencing_from_then_on() -> None:
    cluster = WithApache()
    leader = lead(cluster)
    leader.join("p", "10.0.0.1", ["T"], 1)
    step(leader)
    assert leader.lease_only == {"b"}
    cluster.is_apache = False
    step(leader)
    assert leader.lease_only == set()
    assert cluster.grants("b")[B][1] == 1
