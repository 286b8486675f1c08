"""Held pulls: kept by queue, bounded, returned once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.doubles import FakeConnection
from tests.support import steps

from sparrowmq.broker.members.filters import EVERYTHING
from sparrowmq.broker.pull import held_pulls
from sparrowmq.broker.pull.held_pulls import HeldPull, HoldRoom, HoldTable


class Queue(SimpleNamespace):
    """A queue compared by identity, as in the store."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def held(queue: Any, *, deadline: float = 10.0, connection: Any = None) -> HeldPull:
    fields = SimpleNamespace(subscription=None, topic="TopicTest", consumer_group="G")
    frame: Any = SimpleNamespace(opaque=1, fields=fields)
    return HeldPull(connection or FakeConnection(), frame, queue, EVERYTHING, deadline)


def test_taking_a_queue_returns_its_pulls_once_and_leaves_the_others() -> None:
    table, first, second = HoldTable(HoldRoom()), Queue(topic="A"), Queue(topic="B")
    mine, other = held(first), held(second)
    assert table.park(mine) and table.park(other)
    assert table.take(first) == [mine]
    assert table.take(first) == []
    assert table.count == 1
    assert table.take(second) == [other]


def test_full_table_refuses_new_pulls_and_keeps_the_old_ones() -> None:
    table, queue = HoldTable(HoldRoom(limit=1)), Queue(topic="A")
    kept = held(queue)
    assert table.park(kept)
    assert not table.park(held(queue))
    assert table.take(queue) == [kept]
    assert table.count == 0


def test_tables_of_one_broker_share_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_pulls, "HELD_PULLS_OF_ONE_MAX", 2)
    room, queue, greedy = HoldRoom(limit=3), Queue(topic="A"), FakeConnection()
    waiting, resting = HoldTable(room), HoldTable(room)
    mine = held(queue, connection=greedy)
    assert waiting.park(mine) and resting.park(held(queue, connection=greedy))
    assert not resting.park(held(queue, connection=greedy))
    assert resting.park(held(queue))
    assert not waiting.park(held(queue))
    assert (room.count, waiting.count, resting.count) == (3, 1, 2)
    assert waiting.take(queue) == [mine]
    assert resting.park(mine)
    list(resting.drop_connection(greedy))  # type: ignore[arg-type]
    assert (room.count, resting.count, greedy.charged) == (1, 1, 0)


def test_expired_pulls_are_removed_and_later_ones_stay() -> None:
    table, queue = HoldTable(HoldRoom()), Queue(topic="A")
    early, late = held(queue, deadline=1.0), held(queue, deadline=2.0)
    table.park(early)
    table.park(late)
    assert table.take_expired(1.0) == [early]
    assert table.take_expired(1.5) == []
    assert table.take_expired(2.0) == [late]
    assert table.count == 0


def test_closed_connection_removes_its_pulls() -> None:
    table, queue, gone = HoldTable(HoldRoom()), Queue(topic="A"), FakeConnection()
    staying = held(queue)
    table.park(held(queue, connection=gone))
    table.park(staying)
    assert len(list(table.drop_connection(gone))) == 1
    assert table.count == 1
    assert table.take(queue) == [staying]


def test_deleting_a_topic_returns_the_pulls_of_all_its_queues() -> None:
    table = HoldTable(HoldRoom())
    first, second, other = Queue(topic="A"), Queue(topic="A"), Queue(topic="B")
    pulls = [held(first), held(second)]
    for pull in [*pulls, held(other)]:
        table.park(pull)
    assert table.drop_topic("A") == pulls
    assert table.count == 1


def test_pulls_of_a_closed_connection_are_removed_in_steps() -> None:
    """Others may be answered between two of them."""
    table, queues, gone = HoldTable(HoldRoom()), [Queue(topic="A"), Queue(topic="B")], FakeConnection()
    for number in range(4 * held_pulls.DROPPED_AT_ONCE):
        table.park(held(queues[number % 2], connection=gone))
    steps = table.drop_connection(gone)  # type: ignore[arg-type]
    next(steps)
    assert table.has(gone)  # type: ignore[arg-type]
    assert table.count == 3 * held_pulls.DROPPED_AT_ONCE
    assert sum(len(table.take(queue)) for queue in queues) == 3 * held_pulls.DROPPED_AT_ONCE
    assert list(steps) == []
    assert (table.has(gone), table.count, gone.charged) == (False, 0, 0)  # type: ignore[arg-type]


def test_closed_connection_costs_only_its_own_pulls() -> None:
    def dropping(others: int) -> int:
        table, gone, queues = HoldTable(HoldRoom()), FakeConnection(), [Queue(topic="A") for _ in range(10)]
        for number in range(others):
            table.park(held(queues[number % 10]))
        for queue in queues[:3]:
            table.park(held(queue, connection=gone))
        spent = steps(lambda: list(table.drop_connection(gone)))
        assert table.count == others
        return spent

    assert dropping(others=2000) == dropping(others=20)


def test_number_of_held_pulls_per_connection_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_pulls, "HELD_PULLS_OF_ONE_MAX", 3)
    table, queue, greedy = HoldTable(HoldRoom()), Queue(topic="A"), FakeConnection()
    kept = [held(queue, connection=greedy) for _ in range(3)]
    assert all(map(table.park, kept))
    assert not table.park(held(queue, connection=greedy))
    assert table.park(held(queue))
    assert greedy.charged == sum(one.size for one in kept)
    list(table.drop_connection(greedy))  # type: ignore[arg-type]
    assert (greedy.charged, table.count) == (0, 1)


def test_size_of_held_pulls_is_counted_until_they_leave() -> None:
    table, queue, connection = HoldTable(HoldRoom()), Queue(topic="A"), FakeConnection()
    for leave in (table.take, lambda _: table.take_expired(11.0), lambda _: table.drop_topic("A")):
        table.park(held(queue, connection=connection))
        assert connection.charged > held_pulls.HELD_PULL_BYTES
        assert len(leave(queue)) == 1
        assert connection.charged == 0


def test_no_pull_is_held_when_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    table, queue, connection = HoldTable(HoldRoom()), Queue(topic="A"), FakeConnection()
    monkeypatch.setattr(connection, "charge", lambda size: False)
    assert not table.park(held(queue, connection=connection))
    assert table.take(queue) == []
