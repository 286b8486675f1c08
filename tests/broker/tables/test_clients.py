"""The table of connected clients: members and subscriptions of each group."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import steps

from sparrowmq.broker.tables import clients
from sparrowmq.broker.tables.clients import ClientTable, ConnectedMember, ConsumerGroup
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies import ConsumeFromWhere, ConsumeType, MessageModel


def member(client_id: str, last_seen: float = 0.0) -> ConnectedMember:
    return ConnectedMember(client_id, "JAVA", 513, last_seen)


def group(name: str, *subscriptions: SubscriptionData) -> ConsumerGroup:
    return ConsumerGroup(
        name,
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        {data.topic: data for data in subscriptions},
    )


def left(table: ClientTable, connection: Any) -> list[ConsumerGroup]:
    """Remove a connection from every group; returns the consumer groups it was in."""
    return [one for one in table.leaving(connection) if one is not None]


def test_first_member_creates_the_group_and_counts_as_a_change() -> None:
    table, connection = ClientTable(), _connection()
    assert table.add_consumer(group("g", SubscriptionData("A")), connection, member("c1"))
    assert table.consumers["g"].client_ids == ["c1"]
    assert set(table.consumers["g"].subscriptions) == {"A"}


def test_closed_connection_costs_only_its_own_groups() -> None:
    def leaving(others: int) -> int:
        table, gone = ClientTable(), _connection()
        for number in range(others):
            connection = _connection()
            table.add_producer(f"p{number}", connection, member(f"c{number}"))
            table.add_consumer(group(f"g{number}"), connection, member(f"c{number}"))
        table.add_producer("p0", gone, member("gone"))
        table.add_consumer(group("g0"), gone, member("gone"))
        spent = steps(lambda: left(table, gone))
        assert (len(table.producers), len(table.consumers)) == (others, others)
        assert left(table, gone) == []
        return spent

    assert leaving(others=2000) == leaving(others=20)


def test_repeated_heartbeat_changes_nothing() -> None:
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


def test_order_of_arrival_decides_between_members_not_their_clocks() -> None:
    table, ahead, right = ClientTable(), _connection(), _connection()
    hour = SubscriptionData("A", "x", version=3_600_000)
    table.add_consumer(group("g", hour), ahead, member("c1"))
    table.add_consumer(group("g", SubscriptionData("A", "y", version=5)), right, member("c2"))
    table.add_consumer(group("g", hour), ahead, member("c1"))  # says nothing new
    online = table.consumers["g"]
    assert online.subscriptions["A"].expression == "y"
    assert online.was_told(ahead, 3_600_000) and not online.was_told(ahead, 3_600_001)
    assert online.was_told(right, 5) and not online.was_told(right, 6)
    assert online.was_told(_connection(), 3_600_000) and not online.was_told(_connection(), 3_600_001)
    left(table, ahead)
    table.add_consumer(group("g", hour), ahead, member("c1"))
    assert online.subscriptions["A"].expression == "x"


def test_topic_no_longer_listed_is_removed_and_counts_as_a_change() -> None:
    table, connection = ClientTable(), _connection()
    table.add_consumer(group("g", SubscriptionData("A"), SubscriptionData("B")), connection, member("c1"))
    assert table.add_consumer(group("g", SubscriptionData("A")), connection, member("c1"))
    assert set(table.consumers["g"].subscriptions) == {"A"}
    assert table.groups_of_topic("B") == []


def test_heartbeat_without_subscriptions_keeps_them() -> None:
    table, connection = ClientTable(), _connection()
    table.add_consumer(group("g", SubscriptionData("A")), connection, member("c1"))
    assert not table.add_consumer(group("g"), connection, member("c1"), keep_subscriptions=True)
    assert table.groups_of_topic("A") == ["g"]


def test_reconnected_client_is_listed_once_until_the_old_connection_closes() -> None:
    table, old, new = ClientTable(), _connection(), _connection()
    table.add_consumer(group("g", SubscriptionData("A")), old, member("c1"))
    table.add_consumer(group("g", SubscriptionData("A")), new, member("c1"))
    assert table.consumers["g"].client_ids == ["c1"]
    assert [one.name for one in left(table, old)] == ["g"]
    assert table.consumers["g"].client_ids == ["c1"]


def test_group_is_removed_with_its_last_member() -> None:
    table, connection = ClientTable(), _connection()
    table.add_consumer(group("g", SubscriptionData("A")), connection, member("c1"))
    table.add_producer("p", connection, member("c1"))
    gone = table.remove(connection, producer_group="p", consumer_group="g")
    assert gone is not None and gone.members == {}
    assert table.consumers == {} and table.producers == {}
    assert table.remove(connection, producer_group="p", consumer_group="g") is None


def test_silent_members_are_found_by_connection() -> None:
    table, silent, lively = ClientTable(), _connection(), _connection()
    table.add_producer("p", silent, member("c1", last_seen=1.0))
    table.add_consumer(group("g"), silent, member("c1", last_seen=1.0))
    table.add_consumer(group("g"), lively, member("c2", last_seen=9.0))
    assert [one for one in table.looked_at(5.0) if one is not None] == [silent]


def _connection() -> Any:
    return object()


def test_number_of_members_of_all_groups_is_limited() -> None:
    """Any client chooses the names: a connection cannot be in an unlimited number of groups."""
    table, greedy, other = ClientTable(members_max=3), _connection(), _connection()
    for name in ("P1", "P2", "P3"):
        assert table.problem(greedy, "c", [name], {}) == ""
        table.add_producer(name, greedy, member("c"))
    assert table.problem(greedy, "c", ["P1", "P2"], {}) == ""
    assert "the limit is 3" in table.problem(other, "c", ["P1"], {})
    assert "the limit is 3" in table.problem(greedy, "c", [], {"P1": ()})
    left(table, greedy)
    assert (table.count, table.problem(other, "c", ["P1"], {})) == (0, "")
    assert "at most 255 characters" in table.problem(other, "c", ["x" * 256], {})


def test_one_connection_cannot_use_all_member_places() -> None:
    table, greedy, other = ClientTable(members_max=1000), _connection(), _connection()
    names = [f"P{number}" for number in range(251)]
    assert "the limit for one is 250" in table.problem(greedy, "c", names, {})
    for name in names[:250]:
        table.add_producer(name, greedy, member("c"))
    assert table.problem(greedy, "c", names[:250], {}) == ""
    assert "is in 250 groups" in table.problem(greedy, "c", names, {})
    assert table.problem(other, "c", names[:187], {}) == ""


def test_subscriptions_of_all_groups_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "SUBSCRIBED_MAX", 2000)
    table, one, other = ClientTable(), _connection(), _connection()
    member = ConnectedMember("c", "JAVA", 1, 0.0)
    small, large = [SubscriptionData("T", "A || B", frozenset("AB"), 1)], [SubscriptionData("T", "x" * 1999)]

    def group(wanted: list[SubscriptionData]) -> ConsumerGroup:
        kinds = ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING
        return ConsumerGroup(
            "g", *kinds, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, {data.topic: data for data in wanted}
        )

    assert table.problem(one, "c", [], {"g": small}) == ""
    table.add_consumer(group(small), one, member)
    assert table.subscribed == clients.subscribed_bytes(small)
    assert "the limit is 2000" in table.problem(other, "c", [], {"h": large})
    table.add_consumer(group([SubscriptionData("T", "A || B || C", frozenset("ABC"), 2)]), one, member)
    assert table.subscribed > clients.subscribed_bytes(small)
    assert table.problem(one, "c", [], {"g": small}) == ""
    assert not table.renew(table.consumers["g"], SubscriptionData("T", "x" * 1999, version=3))
    assert table.renew(table.consumers["g"], SubscriptionData("T", version=3))
    assert table.subscribed == clients.subscribed_bytes([SubscriptionData("T")])
    left(table, one)
    assert table.subscribed == 0
    assert "client id" in table.problem(one, "c" * 256, [], {})
