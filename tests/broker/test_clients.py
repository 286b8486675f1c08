"""The table of connected clients: who is in which group and what the group subscribes."""

from __future__ import annotations

from typing import Any

import pytest

from sparrowmq.broker.clients import ClientTable, ConsumerGroup, Member
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies import ConsumeFromWhere, ConsumeType, MessageModel


def member(client_id: str, last_seen: float = 0.0) -> Member:
    return Member(client_id, "JAVA", 513, last_seen)


def group(name: str, *subscriptions: SubscriptionData) -> ConsumerGroup:
    return ConsumerGroup(
        name,
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        {data.topic: data for data in subscriptions},
    )


def test_a_first_member_makes_the_group_and_counts_as_a_change() -> None:
    table, connection = ClientTable(), _connection()
    assert table.add_consumer(group("g", SubscriptionData("A")), connection, member("c1"))
    assert table.consumers["g"].client_ids == ["c1"]
    assert set(table.consumers["g"].subscriptions) == {"A"}


def test_the_same_heartbeat_again_changes_nothing() -> None:
    table, connection = ClientTable(), _connection()
    table.add_consumer(group("g", SubscriptionData("A", version=1)), connection, member("c1"))
    assert not table.add_consumer(group("g", SubscriptionData("A", version=1)), connection, member("c1"))


@pytest.mark.proves("client:D-10")
def test_only_a_newer_version_replaces_a_subscription() -> None:
    table, connection = ClientTable(), _connection()
    old, new = SubscriptionData("A", "x", version=2), SubscriptionData("A", "y", version=1)
    table.add_consumer(group("g", old), connection, member("c1"))
    table.add_consumer(group("g", new), connection, member("c1"))
    assert table.consumers["g"].subscriptions["A"].expression == "x"
    newer = SubscriptionData("A", "z", version=3)
    table.add_consumer(group("g", newer), connection, member("c1"))
    assert table.consumers["g"].subscriptions["A"].expression == "z"


def test_a_topic_no_longer_listed_is_dropped_and_counts_as_a_change() -> None:
    table, connection = ClientTable(), _connection()
    table.add_consumer(group("g", SubscriptionData("A"), SubscriptionData("B")), connection, member("c1"))
    assert table.add_consumer(group("g", SubscriptionData("A")), connection, member("c1"))
    assert set(table.consumers["g"].subscriptions) == {"A"}
    assert table.groups_of_topic("B") == []


def test_a_heartbeat_without_subscriptions_keeps_them() -> None:
    table, connection = ClientTable(), _connection()
    table.add_consumer(group("g", SubscriptionData("A")), connection, member("c1"))
    assert not table.add_consumer(group("g"), connection, member("c1"), keep_subscriptions=True)
    assert table.groups_of_topic("A") == ["g"]


def test_a_client_that_reconnects_is_listed_once_until_the_old_connection_closes() -> None:
    table, old, new = ClientTable(), _connection(), _connection()
    table.add_consumer(group("g", SubscriptionData("A")), old, member("c1"))
    table.add_consumer(group("g", SubscriptionData("A")), new, member("c1"))
    assert table.consumers["g"].client_ids == ["c1"]
    assert [left.name for left in table.remove_connection(old)] == ["g"]
    assert table.consumers["g"].client_ids == ["c1"]


def test_the_last_member_takes_the_group_along() -> None:
    table, connection = ClientTable(), _connection()
    table.add_consumer(group("g", SubscriptionData("A")), connection, member("c1"))
    table.add_producer("p", connection, member("c1"))
    left = table.remove(connection, producer_group="p", consumer_group="g")
    assert left is not None and left.members == {}
    assert table.consumers == {} and table.producers == {}
    assert table.remove(connection, producer_group="p", consumer_group="g") is None


def test_silent_members_are_found_by_connection() -> None:
    table, silent, lively = ClientTable(), _connection(), _connection()
    table.add_producer("p", silent, member("c1", last_seen=1.0))
    table.add_consumer(group("g"), silent, member("c1", last_seen=1.0))
    table.add_consumer(group("g"), lively, member("c2", last_seen=9.0))
    assert list(table.silent_since(5.0)) == [silent]


def _connection() -> Any:
    return object()
