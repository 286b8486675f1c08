"""Offsets by store time, by the rules of RocketMQ 5 (broker:3.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sparrowmq.store.commit_log import CommitLog
    from sparrowmq.store.consume_queue import ConsumeQueue

LOWER: Final = "LOWER"
UPPER: Final = "UPPER"


def store_time(log: CommitLog, queue: ConsumeQueue, offset: int) -> int | None:
    """Store time, epoch ms, of a readable message; None when there is none at `offset`."""
    if not queue.min_offset <= offset < queue.max_offset:
        return None
    entry = queue.entry(offset)
    if entry is None or entry.is_hole or entry.physical_offset < log.min_position:
        return None
    return log.store_time(entry.physical_offset, entry.size, offset)


def offset_by_time(log: CommitLog, queue: ConsumeQueue, timestamp: int, boundary: str) -> int:
    """`LOWER`: the first offset stored at or after `timestamp`, the maximum offset if all are older.

    `UPPER`: the last offset stored at or before it, the minimum offset if all are newer. Messages whose
    record is damaged count as stored with the next one that is not.
    """
    after = timestamp if boundary == LOWER else timestamp + 1
    low, high = queue.min_offset, queue.max_offset
    first = low
    while first < high:  # halves each round
        middle = (first + high) // 2
        probe, stored = middle, store_time(log, queue, middle)
        while stored is None and probe + 1 < high:
            probe += 1
            stored = store_time(log, queue, probe)
        if stored is not None and stored < after:
            first = probe + 1
        else:
            high = middle
    return first if boundary == LOWER else max(low, first - 1)
