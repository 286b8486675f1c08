from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.offsets.planning import (
    MESSAGES_PER_TASK,
    MESSAGES_PER_TASK_MOST,
    TASKS_MAX,
    Plan,
    plan,
    settle,
    settle_by_cores,
)
from sparrowmq.spark.options.table import ReadOptions

OPTIONS = ReadOptions()


def _spans(lengths: list[int]) -> list[Span]:
    return [Span(MessageQueue("t", "b", index), 5, 5 + length) for index, length in enumerate(lengths)]


def planned(spans: list[Span], options: ReadOptions = OPTIONS) -> Plan:
    return plan(spans, settle(spans, options))


COUNTS = st.none() | st.integers(1, 12)


@given(
    st.lists(st.integers(1, 50_000), max_size=10),
    COUNTS,
    COUNTS,
    st.none() | st.integers(1_000, 60_000),
)
def test_every_message_is_read_once_within_the_bounds(
    lengths: list[int], least: int | None, most: int | None, bound: int | None
) -> None:
    options = replace(OPTIONS, min_partitions=least, max_partitions=most, max_records_per_partition=bound)
    spans = _spans(lengths)
    tasks = planned(spans, options)
    assert planned(list(reversed(spans)), options) == tasks
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
    assert len(planned(_spans([100] * 8))) == 1
    assert len(planned(_spans([MESSAGES_PER_TASK // 4] * 8))) == 2
    assert len(planned(_spans([MESSAGES_PER_TASK] * 3))) == 3
    assert planned([]) == []


def test_every_large_queue_has_a_task_of_its_own_up_to_a_bound() -> None:
    assert len(planned(_spans([MESSAGES_PER_TASK] * 64))) == 64
    assert len(planned(_spans([MESSAGES_PER_TASK] * 2 * TASKS_MAX))) == TASKS_MAX
    assert len(planned(_spans([MESSAGES_PER_TASK] * 8), replace(OPTIONS, max_partitions=5))) == 5
    assert len(planned(_spans([MESSAGES_PER_TASK_MOST] * 2 * TASKS_MAX))) == 2 * TASKS_MAX
    assert len(planned(_spans([MESSAGES_PER_TASK_MOST * 9]))) == 1, "a queue is not split unasked"


def test_batches_of_earlier_releases_are_laid_out_by_cores_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for cores in (1, 3):
        monkeypatch.setattr("os.sched_getaffinity", lambda pid, count=cores: set(range(count)))
        spans = _spans([MESSAGES_PER_TASK] * 8)
        assert len(plan(spans, settle_by_cores(spans, OPTIONS))) == cores
        assert len(planned(spans)) == 8


def test_large_queues_are_split_first() -> None:
    tasks = planned(_spans([90_000, 10_000]), replace(OPTIONS, min_partitions=4))
    assert sorted(sum(len(piece) for piece in task) for task in tasks) == [10_000, 30_000, 30_000, 30_000]


def test_tasks_are_balanced() -> None:
    tasks = planned(
        _spans([50_000, 40_000, 30_000, 20_000, 10_000, 10_000]), replace(OPTIONS, max_partitions=2)
    )
    assert [sum(len(piece) for piece in task) for task in tasks] == [80_000, 80_000]
