from __future__ import annotations

from sparrowmq.client.admin.calls import masters_of
from sparrowmq.core.route import BrokerData, QueueData, TopicRoute


def test_masters_are_those_of_the_route() -> None:
    brokers = (
        BrokerData("c", "broker-a", {0: "1.1.1.1:1", 1: "1.1.1.2:1"}),
        BrokerData("c", "broker-b", {1: "2.2.2.2:1"}),
        BrokerData("c", "broker-c", {0: "3.3.3.3:1"}),
    )
    route = TopicRoute((QueueData("broker-a", 1, 1, 6),), brokers)
    assert masters_of(route) == {"broker-a": "1.1.1.1:1", "broker-c": "3.3.3.3:1"}
    assert masters_of(TopicRoute((), ())) == {}
