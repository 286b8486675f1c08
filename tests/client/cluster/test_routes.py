from __future__ import annotations

import random

import pytest

from sparrowmq.client.cluster.routes import RouteTable
from sparrowmq.core.route import BrokerData, QueueData, TopicRoute


def route(*brokers: BrokerData, queues: int = 4) -> TopicRoute:
    return TopicRoute(tuple(QueueData(b.broker_name, queues, queues, 6) for b in brokers), brokers)


A = BrokerData("c", "a", {0: "a:1", 1: "a:2"})
B = BrokerData("c", "b", {1: "b:2", 3: "b:4"})


@pytest.mark.proves("client:A-44")
def test_equal_route_in_any_order_is_not_new() -> None:
    table = RouteTable()
    assert table.store("T", route(A, B))
    assert not table.store("T", route(B, A))
    assert table.store("T", route(A, B, queues=8))
    assert table.store("T", route(A))
    assert table.get("T") == route(A)
    table.forget("T")
    assert table.get("T") is None


@pytest.mark.proves("client:D-22", "client:A-52", "client:A-53")
def test_address_of_a_broker_is_selected() -> None:
    table = RouteTable()
    table.store("T", route(A, B))
    assert table.master("a") == "a:1"
    assert table.master("b") is None
    assert table.master("zzz") is None
    assert table.readable("a") == "a:1"
    assert table.readable("a", 1) == "a:2"
    assert table.readable("b", 2) == "b:4", "a missing slave gives the next id"
    assert table.readable("b") == "b:2", "without master any will do"
    assert table.readable("zzz") is None
    assert table.is_slave("a", "a:2")
    assert not table.is_slave("a", "a:1")
    assert table.masters() == ["a:1"]
    assert set(table.all_addresses()) == {"a:1", "a:2", "b:2", "b:4"}


def test_masters_are_preferred_to_slaves() -> None:
    table = RouteTable()
    table.store("T", route(A, B))
    rng = random.Random(1)
    assert {table.any_broker("T", rng) for _ in range(50)} == {"a:1", "b:2"}
    assert table.any_broker("unknown", rng) is None
    table.store("E", TopicRoute((), ()))
    assert table.any_broker("E", rng) is None


@pytest.mark.proves("client:A-51")
def test_addresses_without_a_route_are_dropped() -> None:
    table = RouteTable()
    table.store("T", route(A, B))
    table.store("U", route(A))
    table.store("T", route(A))
    assert sorted(table.drop_offline()) == ["b:2", "b:4"]
    assert table.readable("b") is None
    assert table.drop_offline() == []
    moved = BrokerData("c", "a", {0: "a:9"})
    table.store("T", route(moved))
    assert table.master("a") == "a:9"
    assert "brokers=['a']" in repr(table)
