"""Routes and the queues that follow from them."""

from __future__ import annotations

import pytest

from sparrowmq.core.message import MessageQueue
from sparrowmq.core.route import BrokerData, QueueData, TopicRoute

A = BrokerData("c", "a", {0: "h:1", 1: "h:2"})
B = BrokerData("c", "b", {1: "h:3"})


def queues(*pairs: tuple[str, int]) -> list[MessageQueue]:
    """Queues of topic T by broker and number."""
    return [MessageQueue("T", name, number) for name, number in pairs]


def test_master_has_id_zero() -> None:
    assert A.master == "h:1"
    assert B.master is None


def test_brokers_are_found_by_name() -> None:
    route = TopicRoute((), (A, B))
    assert route.broker("b") is B
    assert route.broker("x") is None


@pytest.mark.proves("client:A-47")
def test_publish_queues_are_writable_queues_of_brokers_with_a_master() -> None:
    route = TopicRoute((QueueData("b", 2, 2, 6), QueueData("a", 8, 2, 6), QueueData("x", 1, 1, 6)), (A, B))
    assert route.publish_queues("T") == queues(("a", 0), ("a", 1))


@pytest.mark.proves("client:A-47", "client:A-50")
@pytest.mark.parametrize(
    ("perm", "write", "read"), [(6, 1, 1), (4, 0, 1), (2, 1, 0), (0, 0, 0), (7, 1, 1), (1, 0, 0)]
)
def test_permissions_decide_about_publishing_and_reading(perm: int, write: int, read: int) -> None:
    route = TopicRoute((QueueData("a", 1, 1, perm),), (A,))
    assert len(route.publish_queues("T")) == write
    assert len(route.subscribe_queues("T")) == read


@pytest.mark.proves("client:A-50")
def test_subscribe_queues_need_no_master_and_are_sorted() -> None:
    route = TopicRoute((QueueData("b", 1, 0, 4), QueueData("a", 2, 0, 4)), (A, B))
    assert route.subscribe_queues("T") == queues(("a", 0), ("a", 1), ("b", 0))


def test_publish_queues_are_ordered_by_broker() -> None:
    other = BrokerData("c", "b", {0: "h:3"})
    route = TopicRoute((QueueData("b", 1, 1, 6), QueueData("a", 1, 1, 6)), (A, other))
    assert route.publish_queues("T") == queues(("a", 0), ("b", 0))


@pytest.mark.proves("client:A-48")
def test_order_configuration_overrides_permissions() -> None:
    route = TopicRoute((QueueData("a", 8, 8, 0),), (A,), "b:1;a:2;")
    assert route.publish_queues("T") == queues(("b", 0), ("a", 0), ("a", 1))
