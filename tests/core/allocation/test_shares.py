"""Even allocation in two orders, and the configured list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.core.allocation import AllocateStrategy, Averagely, AveragelyByCircle, ByConfig
from sparrowmq.core.message import MessageQueue


def shares(strategy: AllocateStrategy, count: int, members: int) -> list[list[int]]:
    """The queue ids each member gets."""
    ids = [f"c{index:02}" for index in range(members)]
    queues = [MessageQueue("T", "b", index) for index in range(count)]
    return [[q.queue_id for q in strategy.allocate("g", client, queues, ids)] for client in ids]


@pytest.mark.proves("client:C.5.1")
@pytest.mark.parametrize(
    ("count", "members", "expected"),
    [
        (4, 1, [[0, 1, 2, 3]]),
        (4, 2, [[0, 1], [2, 3]]),
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (7, 3, [[0, 1, 2], [3, 4], [5, 6]]),
        (3, 3, [[0], [1], [2]]),
        (2, 3, [[0], [1], []]),
        (3, 5, [[0], [1], [2], [], []]),
        (1, 4, [[0], [], [], []]),
        (10, 4, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
    ],
)
def test_average_allocation_equals_rocketmqs(count: int, members: int, expected: list[list[int]]) -> None:
    assert shares(Averagely(), count, members) == expected


@pytest.mark.proves("client:C.5.2")
@pytest.mark.parametrize(
    ("count", "members", "expected"),
    [
        (8, 3, [[0, 3, 6], [1, 4, 7], [2, 5]]),
        (10, 4, [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]),
        (3, 5, [[0], [1], [2], [], []]),
    ],
)
def test_circular_allocation_equals_rocketmqs(count: int, members: int, expected: list[list[int]]) -> None:
    assert shares(AveragelyByCircle(), count, members) == expected


@pytest.mark.proves("client:C.5.3")
def test_configured_queues_are_allocated_even_if_they_do_not_exist() -> None:
    odd = MessageQueue("T", "b", 7)
    assert ByConfig([odd]).allocate("g", "a", [MessageQueue("T", "b", 0)], ["a"]) == [odd]
    assert ByConfig([]).allocate("g", "a", [MessageQueue("T", "b", 0)], ["a"]) == []


@given(st.sampled_from([Averagely(), AveragelyByCircle()]), st.integers(1, 60), st.integers(1, 20))
def test_every_queue_has_one_reader_and_shares_differ_by_one_at_most(
    strategy: AllocateStrategy, count: int, members: int
) -> None:
    found = shares(strategy, count, members)
    assert sorted(queue_id for share in found for queue_id in share) == list(range(count))
    assert max(map(len, found)) - min(map(len, found)) <= 1
    assert sorted(map(len, found), reverse=True) == list(map(len, found))
