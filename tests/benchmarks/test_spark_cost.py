"""The three numbers of a stream's cost, from streams that were timed."""

from __future__ import annotations

import pytest
from benchmarks.spark_cost import Cost, Timed, fit, without_broker


def _timed(cost: Cost, *shapes: tuple[int, int]) -> list[Timed]:
    return [Timed(rows, batches, cost.seconds(rows, batches)) for rows, batches in shapes]


def test_the_parts_are_found_again() -> None:
    cost = Cost(2.2, 0.2, 0.94e-6)
    found = fit(_timed(cost, (1_000_000, 1), (1_000_000, 4), (4_000_000, 4), (10_000_000, 10)))
    assert found == pytest.approx(cost)


def test_streams_of_one_shape_do_not_tell_the_parts_apart() -> None:
    shapes = [(1_000_000, 1), (4_000_000, 4), (10_000_000, 10)]
    with pytest.raises(ValueError, match="do not tell query, micro-batch and row apart"):
        fit(_timed(Cost(1.0, 0.1, 1e-6), *shapes))


def test_the_brokers_processor_is_counted_apart() -> None:
    assert without_broker(1000, 10.0, 4.0, 2) == 1000 / 8.0
    assert without_broker(1000, 10.0, 0.0, 2) == 100.0
    assert without_broker(1000, 10.0, 50.0, 2) == 200.0, "it cannot have had more than there was"
