"""What brokers are told: those that are down, that know half of it, that fence nothing."""

from __future__ import annotations

import pytest
from tests.coordinator.groups.made_up import TIMES, A, B, FakeCluster, WithApache, lead, step

from sparrowmq.coordinator.groups.takeover import Said
from sparrowmq.core.grants import Report
from sparrowmq.core.message import MessageQueue


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
    cluster.is_apache = False
    step(leader)
    assert leader.lease_only == set()
    assert cluster.grants("b")[B][1] == 1
