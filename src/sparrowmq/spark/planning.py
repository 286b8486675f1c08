"""Which task reads what: the same spans, options and cores always give the same plan (spark:S-51)."""

from __future__ import annotations

import heapq
import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from sparrowmq.spark.offsets import Span
from sparrowmq.spark.options import ReadOptions

MESSAGES_PER_TASK: Final = 10_000
"""A task costs 15 to 20 ms, as much as so many messages (spark:S-42): smaller ones are packed together."""
MESSAGES_PER_TASK_MOST: Final = 1_000_000
"""A task takes seconds for so many: beyond it there are more tasks than cores."""

Plan = list[tuple[Span, ...]]


def cores() -> int:
    """Cores this process may use: Spark's in local mode, elsewhere the best guess there is on a driver."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def plan(spans: Sequence[Span], options: ReadOptions, parallel: int) -> Plan:
    """Tasks, each a tuple of spans in order; every span is read once.

    A queue is split over tasks only when `minPartitions` or `maxRecordsPerPartition` asks for it, so a task
    sees each queue's messages in order. Spans share tasks: there are at most `maxPartitions`, by default so
    many that each has `MESSAGES_PER_TASK` messages, up to `parallel` tasks, more only to keep them under
    `MESSAGES_PER_TASK_MOST`. `maxRecordsPerPartition` goes before all of that.
    """
    total = sum(len(span) for span in spans)
    if not total:
        return []
    bound = options.max_records_per_partition
    pieces = [piece for span in sorted(spans) for piece in _cut(span, -(-len(span) // bound) if bound else 1)]
    least = min(options.min_partitions or 1, total)
    if len(pieces) < least:
        pieces = _split(pieces, least)
    most = options.max_partitions or max(
        min(parallel, -(-total // MESSAGES_PER_TASK)), -(-total // MESSAGES_PER_TASK_MOST)
    )
    return _pack(pieces, max(least, min(most, len(pieces))), bound)


def _cut(span: Span, parts: int) -> list[Span]:
    """`parts` consecutive pieces whose lengths differ by at most one; no empty ones."""
    parts = max(1, min(parts, len(span)))
    length = len(span)
    bounds = [span.start + length * part // parts for part in range(parts + 1)]
    return [Span(span.queue, low, high) for low, high in pairwise(bounds) if high > low]


def _split(pieces: list[Span], count: int) -> list[Span]:
    """`count` pieces by cutting the longest ones; there must be so many messages."""
    heap = [(-float(len(piece)), index, 1) for index, piece in enumerate(pieces)]
    heapq.heapify(heap)
    parts = [1] * len(pieces)
    for _ in range(count - len(pieces)):
        _, index, now = heap[0]
        parts[index] = now + 1
        heapq.heapreplace(heap, (-len(pieces[index]) / (now + 1), index, now + 1))
    return [piece for whole, number in zip(pieces, parts, strict=True) for piece in _cut(whole, number)]


def _pack(pieces: list[Span], count: int, bound: int | None) -> Plan:
    """The pieces in `count` tasks of similar size, more when `bound` messages a task ask for it."""
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
