"""Offsets by store time, by the rules of RocketMQ 5 (broker:3.7)."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sparrowmq.store.log.commit_log import CommitLog
    from sparrowmq.store.queues.consume_queue import ConsumeQueue

LOWER: Final = "LOWER"
UPPER: Final = "UPPER"


def store_time(log: CommitLog, queue: ConsumeQueue, offset: int) -> int | None:
    """Store time, epoch ms, of the readable message at `offset`; None when there is none."""
    if not queue.min_offset <= offset < queue.max_offset:
        return None
    entry = queue.entry(offset)
    if entry is None or entry.is_hole or entry.physical_offset < log.min_position:
        return None
    return log.store_time(entry.physical_offset, entry.size, offset)


def searching(
    log: CommitLog, queue: ConsumeQueue, timestamp: int, boundary: str
) -> Generator[None, None, int]:
    """Search for an offset in steps; each step examines one file or one damaged message.

    `LOWER`: the first offset stored at or after `timestamp`, the maximum offset if all messages are older.

    `UPPER`: the last offset stored at or before it, the minimum offset if all messages are newer. A damaged
    message is assigned the store time of the next undamaged one.

    Where the clock was set back, store times decrease, and the answer is one of the places where the queue
    crosses `timestamp`. As in the reference, the newest message decides first, then each file by its newest
    message, beginning with the oldest file. So messages stored while the clock was ahead affect the result at
    most within their file.
    """
    after = timestamp if boundary == LOWER else timestamp + 1
    low, high = queue.min_offset, queue.max_offset
    if low < high and (yield from _is_before(log, queue, high - 1, high, after)):
        return high if boundary == LOWER else high - 1
    start, end = yield from _file_with(log, queue, low, high, after)
    first = start
    while first < end:  # halves the range in each round
        middle = (first + end) // 2
        probe, stored = middle, store_time(log, queue, middle)
        while stored is None and probe + 1 < end:
            yield
            probe += 1
            stored = store_time(log, queue, probe)
        if stored is not None and stored < after:
            first = probe + 1
        else:
            end = middle
    return first if boundary == LOWER else max(low, first - 1)


def _file_with(
    log: CommitLog, queue: ConsumeQueue, low: int, high: int, after: int
) -> Generator[None, None, tuple[int, int]]:
    """The offsets of the queue's first file whose last message is not older than a time; else the last
    file's."""
    per_file = queue.entries_per_file
    start = low
    while (end := start - start % per_file + per_file) < high:
        yield
        if not (yield from _is_before(log, queue, end - 1, high, after)):
            return start, end
        start = end
    return start, high


def _is_before(
    log: CommitLog, queue: ConsumeQueue, offset: int, high: int, after: int
) -> Generator[None, None, bool]:
    """Whether the message at an offset, or the next undamaged one, was stored before a time."""
    while offset < high:
        stored = store_time(log, queue, offset)
        if stored is not None:
            return stored < after
        yield
        offset += 1
    return False
