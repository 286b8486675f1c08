"""Lag of groups, known and unknown."""

from __future__ import annotations

import pytest

from sparrowmq.core.figures.lag import LagSum, QueueLag, age_ms, queue_lag


@pytest.mark.parametrize(
    ("committed", "first", "end", "expected"),
    [
        (3, 0, 10, QueueLag(7, 3)),
        (10, 0, 10, QueueLag(0, 10)),
        (0, 4, 10, QueueLag(6, 4)),  # what was deleted waits no longer
        (12, 0, 10, QueueLag(0, 10)),
        (2, 5, 5, QueueLag(0, 5)),
        (None, 0, 10, None),
        (-1, 0, 10, None),
    ],
)
def test_lag_of_a_queue_is_computed_from_its_offsets(
    committed: int | None, first: int, end: int, expected: QueueLag | None
) -> None:
    assert queue_lag(committed, first, end) == expected


def test_age_is_unknown_without_a_time() -> None:
    assert age_ms(None, 100) is age_ms(0, 100) is None
    assert age_ms(40, 100) == 60
    assert age_ms(140, 100) == 0, "clocks differ"


def test_sum_counts_queues_with_unknown_lag() -> None:
    alone = LagSum(queues=1)
    alone.add(None, None)
    assert not alone.is_known
    whole = LagSum(queues=4)
    whole.add(None, None)
    assert whole.is_known
    whole.add(QueueLag(5, 1), 30)
    whole.add(QueueLag(0, 9), None)  # nothing waits there, so it needs no age
    whole.add(QueueLag(2, 1), 70)
    assert (whole.messages, whole.age_ms, whole.unknown, whole.queues) == (7, 70, 1, 4)
    whole.add(QueueLag(1, 0), None)
    whole.add(QueueLag(1, 0), 10)
    assert (whole.messages, whole.age_ms) == (9, None), "one of the oldest may be the oldest of all"
