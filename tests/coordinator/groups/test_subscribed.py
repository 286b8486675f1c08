"""Queues of subscribed topics."""

from __future__ import annotations

from tests.coordinator.groups.made_up import FakeCluster, lead, step


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
