"""Rows at a rate: all of them, in order, none before it is due."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.spark.write.throttle import throttled


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds <= 1.0
        self.time += seconds


def batches(*sizes: int) -> list[pa.RecordBatch]:
    numbers = iter(range(sum(sizes)))
    return [pa.record_batch({"n": [next(numbers) for _ in range(size)]}) for size in sizes]


@given(
    st.lists(st.integers(0, 70), max_size=5),
    st.integers(1, 200),
    st.lists(st.floats(0, 2), min_size=350, max_size=350),
)
def test_rows_come_in_order_and_never_faster(sizes: list[int], rate: int, delays: list[float]) -> None:
    clock, found, began = Clock(), list[int](), 100.0
    parts = throttled(iter(batches(*sizes)), rate, now=clock.now, sleep=clock.sleep)
    for part, delay in zip(parts, delays, strict=False):
        # What came before this part took as long as it may.
        assert clock.time - began >= len(found) / rate - 1e-6
        found += part["n"].to_pylist()
        clock.time += delay  # what the sends take
    assert found == list(range(sum(sizes)))


def test_steps_are_small_and_lost_time_is_not_made_up_for() -> None:
    clock = Clock()
    parts = throttled(iter(batches(10, 10)), 40, now=clock.now, sleep=clock.sleep)
    assert [next(parts).num_rows for _ in range(2)] == [2, 2]
    assert clock.time == pytest.approx(100.05)
    clock.time += 30
    for _ in range(3):
        next(parts)
    assert clock.time == pytest.approx(130.15, abs=0.06)
