"""Divides a batch into tasks: the same spans and layout always give the same plan (spark:S-51).

A stream stores the layout of a batch in the offset that ends it. So a batch that runs again is read by the
same tasks, even if cores, options or the release have changed: row ids depend on the task.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from sparrowmq.spark.offsets.offsets import Span, TaskLayout
from sparrowmq.spark.options.table import ReadOptions

MESSAGES_PER_TASK: Final = 10_000
"""A further task costs about 4 ms of Python plus Spark's scheduling; this many messages cost more than twice
that. Smaller tasks are combined."""
TASKS_MAX: Final = 256
"""Default maximum of tasks, one for each queue: planning more would cost the driver more than it saves."""
MESSAGES_PER_TASK_MOST: Final = 1_000_000
"""A task takes seconds for this many messages."""

Plan = list[tuple[Span, ...]]


def settle(spans: Sequence[Span], options: ReadOptions) -> TaskLayout:
    """The layout of tasks for `spans`; the driver's cores are ignored, because executors may differ.

    There are at most `maxPartitions` tasks. By default there is one for each queue, fewer where they would
    have less than `MESSAGES_PER_TASK` messages each, and up to `TASKS_MAX` of them, more only to keep them
    under `MESSAGES_PER_TASK_MOST`.
    """
    return _layout(spans, options, TASKS_MAX)


def settle_by_cores(spans: Sequence[Span], options: ReadOptions) -> TaskLayout:
    """The layout of releases that did not store one: up to one task for each core of the driver."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return _layout(spans, options, cores)


def _layout(spans: Sequence[Span], options: ReadOptions, usual_most: int) -> TaskLayout:
    total = sum(len(span) for span in spans)
    most = options.max_partitions or max(
        min(usual_most, -(-total // MESSAGES_PER_TASK)), -(-total // MESSAGES_PER_TASK_MOST)
    )
    return TaskLayout(options.min_partitions or 1, max(1, most), options.max_records_per_partition or 0)


def plan(spans: Sequence[Span], layout: TaskLayout) -> Plan:
    """Tasks, each a tuple of spans in order; every span is read once.

    A queue is split over tasks only when the layout has a least number of tasks or a bound, so a task sees
    each queue's messages in order. The bound takes precedence over everything else.
    """
    total = sum(len(span) for span in spans)
    if not total:
        return []
    bound = layout.bound or None
    pieces = [piece for span in sorted(spans) for piece in _cut(span, -(-len(span) // bound) if bound else 1)]
    least = min(layout.least, total)
    if len(pieces) < least:
        pieces = _split(pieces, least)
    return _pack(pieces, max(least, min(layout.most, len(pieces))), bound)


def _cut(span: Span, parts: int) -> list[Span]:
    """Divide into `parts` consecutive pieces whose lengths differ by at most one; none is empty."""
    parts = max(1, min(parts, len(span)))
    length = len(span)
    bounds = [span.start + length * part // parts for part in range(parts + 1)]
    return [Span(span.queue, low, high) for low, high in pairwise(bounds) if high > low]


def _split(pieces: list[Span], count: int) -> list[Span]:
    """Divide into `count` pieces by cutting the longest ones; there must be at least that many messages."""
    heap = [(-float(len(piece)), index, 1) for index, piece in enumerate(pieces)]
    heapq.heapify(heap)
    parts = [1] * len(pieces)
    for _ in range(count - len(pieces)):
        _, index, now = heap[0]
        parts[index] = now + 1
        heapq.heapreplace(heap, (-len(pieces[index]) / (now + 1), index, now + 1))
    return [piece for whole, number in zip(pieces, parts, strict=True) for piece in _cut(whole, number)]


def _pack(pieces: list[Span], count: int, bound: int | None) -> Plan:
    """Distribute the pieces over `count` tasks of similar size, or more if `bound` messages per task require
    it.
    """
    if len(pieces) <= count:
        return [(piece,) for piece in pieces]
    tasks: list[list[Span]] = [[] for _ in range(count)]
    heap = [(0, index) for index in range(count)]
    for piece in sorted(pieces, key=lambda piece: (-len(piece), piece)):
        load, index = heap[0]
        if bound is not None and load and load + len(piece) > bound:
            heapq.heappush(heap, (len(piece), len(tasks)))
            tasks.append([piece])
        else:
            tasks[index].append(piece)
            heapq.heapreplace(heap, (load + len(piece), index))
    return sorted(tuple(sorted(task)) for task in tasks if task)
