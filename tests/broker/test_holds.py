"""Held pulls: kept by queue, bounded, given back once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sparrowmq.broker.filters import EVERYTHING
from sparrowmq.broker.holds import HeldPull, HoldTable


class Queue(SimpleNamespace):
    """A queue by identity, as the store's."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def held(queue: Any, *, deadline: float = 10.0, connection: Any = None) -> HeldPull:
    frame: Any = SimpleNamespace(opaque=1)
    return HeldPull(connection or object(), frame, queue, EVERYTHING, deadline)


def test_taking_a_queue_gives_its_pulls_once_and_leaves_the_others() -> None:
    table, first, second = HoldTable(), Queue(topic="A"), Queue(topic="B")
    mine, other = held(first), held(second)
    assert table.park(mine) and table.park(other)
    assert table.take(first) == [mine]
    assert table.take(first) == []
    assert table.count == 1
    assert table.take(second) == [other]


def test_a_full_table_refuses_and_keeps_what_it_has() -> None:
    table, queue = HoldTable(limit=1), Queue(topic="A")
    kept = held(queue)
    assert table.park(kept)
    assert not table.park(held(queue))
    assert table.take(queue) == [kept]
    assert table.count == 0


def test_expired_pulls_leave_and_later_ones_stay() -> None:
    table, queue = HoldTable(), Queue(topic="A")
    early, late = held(queue, deadline=1.0), held(queue, deadline=2.0)
    table.park(early)
    table.park(late)
    assert table.take_expired(1.0) == [early]
    assert table.take_expired(1.5) == []
    assert table.take_expired(2.0) == [late]
    assert table.count == 0


def test_a_lost_connection_takes_its_pulls_along() -> None:
    table, queue, gone = HoldTable(), Queue(topic="A"), object()
    staying = held(queue)
    table.park(held(queue, connection=gone))
    table.park(staying)
    table.drop_connection(gone)
    assert table.count == 1
    assert table.take(queue) == [staying]


def test_deleting_a_topic_gives_back_the_pulls_of_all_its_queues() -> None:
    table = HoldTable()
    first, second, other = Queue(topic="A"), Queue(topic="A"), Queue(topic="B")
    pulls = [held(first), held(second)]
    for pull in [*pulls, held(other)]:
        table.park(pull)
    assert table.drop_topic("A") == pulls
    assert table.count == 1
