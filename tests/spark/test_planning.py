from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets import Span
from sparrowmq.spark.options import ReadOptions
from sparrowmq.spark.planning import MESSAGES_PER_TASK, MESSAGES_PER_TASK_MOST, cores, plan

OPTIONS = ReadOptions()


def _spans(lengths: list[int]) -> list[Span]:
    return [Span(MessageQueue("t", "b", index), 5, 5 + length) for index, length in enumerate(lengths)]


COUNTS = st.none() | st.integers(1, 12)


@given(
    st.lists(st.integers(1, 50_000), max_size=10),
    COUNTS,
    COUNTS,
    st.none() | st.integers(1_000, 60_000),
    st.integers(1, 8),
)
def test_every_message_is_read_once_within_the_bounds(
    lengths: list[int], least: int | None, most: int | None, bound: int | None, parallel: int
) -> None:
    options = replace(OPTIONS, min_partitions=least, max_partitions=most, max_records_per_partition=bound)
    spans = _spans(lengths)
    tasks = plan(spans, options, parallel)
    assert plan(list(reversed(spans)), options, parallel) == tasks
    read = sorted(piece for task in tasks for piece in task)
    assert all(len(piece) for piece in read)
    for span in spans:
        pieces = [piece for piece in read if piece.queue == span.queue]
        assert [piece.start for piece in pieces] == [span.start, *(piece.end for piece in pieces[:-1])]
        assert pieces[-1].end == span.end
        if bound is None and least is None:
            assert len(pieces) == 1
    sizes = [sum(len(piece) for piece in task) for task in tasks]
    if bound is not None:
        assert max(sizes, default=0) <= bound
    if least is not None:
        assert len(tasks) >= min(least, sum(lengths))
    if most is not None and bound is None and (least or 0) <= most:
        assert len(tasks) <= most


def test_small_spans_share_a_task() -> None:
    assert len(plan(_spans([100] * 8), OPTIONS, 4)) == 1
    assert len(plan(_spans([MESSAGES_PER_TASK] * 3), OPTIONS, 4)) == 3
    assert plan([], OPTIONS, 4) == []


def test_large_spans_share_as_many_tasks_as_there_are_cores() -> None:
    assert len(plan(_spans([MESSAGES_PER_TASK] * 8), OPTIONS, 2)) == 2
    assert len(plan(_spans([MESSAGES_PER_TASK] * 8), replace(OPTIONS, max_partitions=5), 2)) == 5
    assert len(plan(_spans([MESSAGES_PER_TASK_MOST] * 8), OPTIONS, 2)) == 8
    assert len(plan(_spans([MESSAGES_PER_TASK_MOST * 9]), OPTIONS, 2)) == 1
    assert cores() >= 1


def test_large_queues_are_split_first() -> None:
    tasks = plan(_spans([90_000, 10_000]), replace(OPTIONS, min_partitions=4), 2)
    assert sorted(sum(len(piece) for piece in task) for task in tasks) == [10_000, 30_000, 30_000, 30_000]


def test_tasks_are_balanced() -> None:
    tasks = plan(
        _spans([50_000, 40_000, 30_000, 20_000, 10_000, 10_000]), replace(OPTIONS, max_partitions=2), 8
    )
    assert [sum(len(piece) for piece in task) for task in tasks] == [80_000, 80_000]
