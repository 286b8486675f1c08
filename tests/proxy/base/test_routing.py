"""Routes, assignments, and the queue of a message group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from sparrowmq.core.route import BrokerData, QueueData, TopicRoute
from sparrowmq.proxy.base.routing import (
    assignments,
    consistent_hash,
    endpoints_of,
    queue_of_group,
    readable_brokers,
    route_queues,
)
from sparrowmq.proxy.definition.messages import AddressScheme, MessageType, Permission, v2

TOPIC = v2.Resource(name="t")


def route(perm: int, read: int, write: int, *, master: bool = True) -> TopicRoute:
    addresses = {0: "a:1"} if master else {1: "a:2"}
    return TopicRoute((QueueData("b", read, write, perm),), (BrokerData("c", "b", addresses),))


def permissions(perm: int, read: int, write: int) -> list[tuple[int, int]]:
    found = list(route_queues(TOPIC, route(perm, read, write), v2.Endpoints(), "NORMAL"))
    return [(queue.id, queue.permission) for queue in found]


@pytest.mark.parametrize(
    ("perm", "read", "write", "expected"),
    [
        (6, 3, 2, [Permission.READ, Permission.READ_WRITE, Permission.READ_WRITE]),
        (6, 1, 2, [Permission.WRITE, Permission.READ_WRITE]),
        (4, 2, 2, [Permission.READ] * 2),
        (2, 2, 1, [Permission.WRITE]),
        (0, 0, 0, [Permission.NONE]),
    ],
)
def test_queue_permissions_are_converted(perm: int, read: int, write: int, expected: list[int]) -> None:
    assert permissions(perm, read, write) == list(enumerate(expected))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("FIFO", [MessageType.FIFO]), ("MIXED", [1, 2, 3, 4]), ("UNSPECIFIED", [0])],
)
def test_route_lists_the_message_types_a_topic_accepts(kind: str, expected: list[int]) -> None:
    (queue,) = route_queues(TOPIC, route(6, 1, 1), v2.Endpoints(), kind)
    assert list(queue.accept_message_types) == expected


def test_route_shows_the_proxy_address_that_the_client_used() -> None:
    asked = v2.Endpoints(scheme=AddressScheme.DOMAIN_NAME)
    asked.addresses.add(host="mq.example.com", port=443)
    assert endpoints_of(asked, "10.0.0.1:8081") == asked
    own = endpoints_of(v2.Endpoints(), "10.0.0.1:8081")
    assert [(each.host, each.port) for each in own.addresses] == [("10.0.0.1", 8081)]
    assert own.scheme == AddressScheme.IPv4


def ids(found: Iterable[Any]) -> list[int]:
    return [each.message_queue.id for each in found]


def test_assignments_list_brokers_and_for_ordered_groups_queues() -> None:
    assert ids(assignments(TOPIC, route(6, 3, 2), v2.Endpoints(), ordered=False)) == [-1]
    assert ids(assignments(TOPIC, route(6, 3, 2), v2.Endpoints(), ordered=True)) == [0, 1, 2]
    for nothing in (route(2, 3, 3), route(6, 0, 2), route(6, 2, 2, master=False)):
        assert list(assignments(TOPIC, nothing, v2.Endpoints(), ordered=False)) == []
        assert readable_brokers(nothing) == []


@pytest.mark.parametrize(
    ("name", "buckets", "bucket"),
    [
        *(("a", 1, 0), ("a", 4, 0), ("a", 1000, 346), ("order-1", 8, 3), ("order-2", 8, 2)),
        *(("group-77", 4, 3), ("group-77", 8, 5), ("ü", 1000, 535), ("x" * 60, 1000, 674)),
    ],
)
def test_message_group_maps_to_the_same_queue_as_at_apaches_proxy(
    name: str,
    buckets: int,
    bucket: int,
) -> None:
    """The values are those of `Hashing.consistentHash` of Guava 32, with Java's hash of the name."""
    assert queue_of_group(range(buckets), name) == bucket


def test_adding_a_bucket_moves_keys_only_to_that_bucket() -> None:
    moved = [value for value in range(2000) if consistent_hash(value, 9) != consistent_hash(value, 10)]
    assert all(consistent_hash(value, 10) == 9 for value in moved)
    assert 120 < len(moved) < 280
