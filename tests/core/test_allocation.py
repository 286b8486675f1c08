"""Allocation: the shares of the reference, and what must hold for any of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.core.allocation import allocate_averagely, queue_key, utf16_key
from sparrowmq.core.message import MessageQueue


def queues(count: int) -> list[MessageQueue]:
    """`count` queues of one topic."""
    return [MessageQueue("T", "b", index) for index in range(count)]


def shares(count: int, members: int) -> list[list[int]]:
    """The queue ids each member gets."""
    ids = [f"c{index:02}" for index in range(members)]
    return [[q.queue_id for q in allocate_averagely(client, queues(count), ids)] for client in ids]


@pytest.mark.parametrize(
    ("count", "members", "expected"),
    [
        (4, 1, [[0, 1, 2, 3]]),
        (4, 2, [[0, 1], [2, 3]]),
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (7, 3, [[0, 1, 2], [3, 4], [5, 6]]),
        (3, 3, [[0], [1], [2]]),
        (2, 3, [[0], [1], []]),
        (1, 4, [[0], [], [], []]),
        (10, 4, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
    ],
)
def test_shares_are_those_of_the_reference(count: int, members: int, expected: list[list[int]]) -> None:
    assert shares(count, members) == expected


@given(st.integers(1, 60), st.integers(1, 20))
def test_every_queue_has_one_reader_and_shares_differ_by_one_at_most(count: int, members: int) -> None:
    found = shares(count, members)
    assert [queue_id for share in found for queue_id in share] == list(range(count))
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_a_member_that_is_not_listed_gets_nothing() -> None:
    assert allocate_averagely("x", queues(4), ["a", "b"]) == []


@pytest.mark.parametrize(
    ("client", "found", "clients"), [("", queues(1), ["a"]), ("a", [], ["a"]), ("a", queues(1), [])]
)
def test_empty_arguments_are_refused(client: str, found: list[MessageQueue], clients: list[str]) -> None:
    with pytest.raises(ValueError, match="allocation needs"):
        allocate_averagely(client, found, clients)


def test_text_is_ordered_by_utf16_unit_as_in_java() -> None:
    """U+1F600 takes two units from D83D on, so Java puts it before U+FF5E, Python behind."""
    texts = ["\uff5e", "\U0001f600", "a"]
    assert sorted(texts) == ["a", "\uff5e", "\U0001f600"]
    assert sorted(texts, key=utf16_key) == ["a", "\U0001f600", "\uff5e"]


def test_queues_are_ordered_by_topic_broker_and_number() -> None:
    ordered = [
        MessageQueue("A", "a", 9),
        MessageQueue("A", "a", 10),
        MessageQueue("A", "b", 0),
        MessageQueue("B", "\U0001f600", 0),
        MessageQueue("B", "\uff5e", 0),
    ]
    backwards = ordered[::-1]
    assert sorted(backwards, key=queue_key) == ordered
