"""Queues of subscribed topics."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.coordinator.groups.made_up import FakeCluster, lead, step
from tests.support import about

from sparrowmq.core.errors import BodyError, CoordinatorError
from sparrowmq.core.route import TopicRoute
from sparrowmq.protocol.managed import POLICY_BYTES_MAX, QUEUES_MAX, GroupPolicy, QueueGrant


def test_routes_are_queried_periodically() -> None:
    cluster = FakeCluster()
    leader = lead(cluster)
    leader.join("p", "", ["T"], 1)
    for _ in range(3):
        step(leader)
    assert cluster.asked == 1
    cluster.now = 5.0
    step(leader)
    assert cluster.asked == 2


def test_group_has_as_many_queues_as_fit_into_one_policy() -> None:
    class Wide(FakeCluster):
        many = QUEUES_MAX // 2

        async def topic_route(self, topic: str) -> TopicRoute:
            found = await super().topic_route(topic)
            return replace(
                found, queues=tuple(replace(one, read_queue_nums=self.many) for one in found.queues)
            )

    cluster = Wide()
    leader = lead(cluster)
    member = leader.join("p", "", ["T"], 1)
    step(leader)
    assert len(cluster.grants("a")) == QUEUES_MAX
    cluster.many, cluster.now = QUEUES_MAX, 5.0
    with pytest.raises(CoordinatorError, check=about(value=2 * QUEUES_MAX, limit=QUEUES_MAX)):
        step(leader)
    assert len(cluster.grants("a")) == QUEUES_MAX, "what it has stays"
    assert leader.members == [member]


def test_broker_reads_the_longest_possible_policy() -> None:
    grant = QueueGrant("T" * 127, "broker-" + "a" * 50, 9999, 2**40, "client" * 16 + "#1.1795396117747.1000")
    policy = GroupPolicy("g" * 120, 7, 8, members=[], queues=[grant] * QUEUES_MAX)
    data = policy.encode()
    assert len(data) < POLICY_BYTES_MAX
    assert GroupPolicy.decode_request(data) == policy
    with pytest.raises(BodyError, check=about(what="GroupPolicy", limit=POLICY_BYTES_MAX)):
        GroupPolicy.decode_request(data + b" " * POLICY_BYTES_MAX)
