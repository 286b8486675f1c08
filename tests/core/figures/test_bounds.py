"""Bounds in runtime information and in figures."""

from __future__ import annotations

import pytest

from sparrowmq.core.figures.bounds import KEY, TOLD_MAX, Bound, add_bounds, bounds_table, told_bounds
from sparrowmq.core.figures.exposition import Exposition

BOUNDS = [Bound("connections", 12, 10_000), Bound("topics", 0, 50_000)]


def test_bounds_are_read_as_they_were_told() -> None:
    table = bounds_table(BOUNDS)
    assert table == {"bound.connections": "12 10000", "bound.topics": "0 50000"}
    assert told_bounds({"brokerVersionDesc": "V5_3_1", **table}) == BOUNDS


@pytest.mark.parametrize("value", ["", "12", "12 x", "-1 5", "1 2 3", "12  10", "1" * 19 + " 5", "\u0661 5"])
def test_what_is_not_a_bound_is_left_out(value: str) -> None:
    assert told_bounds({f"{KEY}topics": value, f"{KEY}queues": "1 2"}) == [Bound("queues", 1, 2)]


def test_number_of_bounds_that_are_read_is_limited() -> None:
    assert len(told_bounds({f"{KEY}{number}": "1 2" for number in range(1000)})) == TOLD_MAX


def test_bounds_are_figures() -> None:
    into = Exposition(10)
    add_bounds(into, 'node_id="b"', BOUNDS)
    text = b"".join(into.rendering()).decode()
    assert 'sparrow_bound_used{node_id="b",bound="connections"} 12' in text
    assert 'sparrow_bound_max{node_id="b",bound="topics"} 50000' in text
