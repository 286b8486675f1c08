"""Reading messages from a queue (broker:5.1, 5.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from sparrowmq.protocol.record import RECORD_FIXED_BYTES, RECORD_MAGIC_V1, RECORD_MAGIC_V2
from sparrowmq.store.commit_log import PLACE, CommitLog
from sparrowmq.store.consume_queue import CORRUPT_CODE, ENTRY, TAG_CODE_MIN
from sparrowmq.store.settings import ENTRY_BYTES

if TYPE_CHECKING:
    from sparrowmq.store.consume_queue import ConsumeQueue

_unpack_place = PLACE.unpack_from

Match = Callable[[memoryview, int], bool]
"""Whether the record that starts at a byte of a file's view is wanted."""


class GetStatus(Enum):
    """How a read ended; names are RocketMQ's and go on the wire as remarks."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


@dataclass(slots=True)
class GetResult:
    """What a read found: whole records in `buffers`, `count` of them with `size` bytes; queue offsets.

    `damaged` is the queue offset of the first record that was passed over because it is not what its entry
    says, -1 without any.
    The buffers are views of the mapped log; they stay valid as long as somebody holds them.
    """

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    buffers: list[memoryview]
    count: int = 0
    size: int = 0
    damaged: int = -1


def get_messages(
    log_: CommitLog,
    queue: ConsumeQueue | None,
    offset: int,
    *,
    max_count: int,
    max_bytes: int,
    codes: frozenset[int] | None,
    match: Match | None = None,
    scan_bytes: int,
) -> GetResult:
    """Up to `max_count` messages and `max_bytes` from `offset` on, of one queue file; the first of any size.

    `codes` are the tag codes wanted, None for every message; `match` says of a record whether it is wanted.
    At most `scan_bytes` of entries, or as many as `max_count` takes, are looked at. Records that are gone,
    damaged or not the queue's are passed over.
    """
    if queue is None:
        return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, [])
    low, high = queue.min_offset, queue.max_offset
    if high == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high, [])
    if offset < low:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high, [])
    if offset >= high:
        badly = offset > high
        status = GetStatus.OFFSET_OVERFLOW_BADLY if badly else GetStatus.OFFSET_OVERFLOW_ONE
        return GetResult(status, high if badly else offset, low, high, [])
    scan_count = max(scan_bytes // ENTRY_BYTES, max_count)
    entries = queue.entries(offset, min(high, offset + scan_count))
    if entries is None:
        per_file = queue.entries_per_file
        following = offset - offset % per_file + per_file
        return GetResult(GetStatus.OFFSET_FOUND_NULL, following, low, high, [])
    result = GetResult(GetStatus.NO_MATCHED_MESSAGE, offset, low, high, [])
    _collect(log_, queue, entries, result, max_count, max_bytes, codes or None, match)
    return result


def _collect(
    log_: CommitLog,
    queue: ConsumeQueue,
    entries: memoryview,
    result: GetResult,
    max_count: int,
    max_bytes: int,
    codes: frozenset[int] | None,
    match: Match | None,
) -> None:
    """Go through the entries and put what is wanted into `result`; records that touch become one buffer.

    A record's start must say that it is the one the entry means, so that damage never reaches a client as a
    buffer that cannot be taken apart.
    """
    buffers = result.buffers
    files, oldest, newest = log_.files, log_.min_position, log_.position
    view, base, limit = memoryview(b""), 0, 0  # records of the mapped file lie between base and limit
    run_start = run_end = -1
    count = size = 0
    offset = result.next_offset
    for physical, length, code in ENTRY.iter_unpack(entries):
        if count >= max_count and count:
            break
        if codes is not None and code not in codes and code >= TAG_CODE_MIN:
            offset += 1
            continue
        if not base <= physical < limit:
            segment = files.at(physical) if physical >= oldest else None
            if segment is None:
                result.status = GetStatus.MESSAGE_WAS_REMOVING
                offset += 1
                continue
            if run_start >= 0:
                buffers.append(view[run_start:run_end])
                run_start = run_end = -1
            view, base, limit = segment.view(), segment.base, min(segment.end, newest)
        at = physical - base
        if (
            length < RECORD_FIXED_BYTES
            or code == CORRUPT_CODE
            or physical + length > limit
            or (
                (place := _unpack_place(view, at)) != (length, RECORD_MAGIC_V1, offset, physical)
                and place != (length, RECORD_MAGIC_V2, offset, physical)
            )
        ):
            _pass_over(result, offset, length, code)
        elif match is None or match(view, at):
            if size + length > max_bytes and count:
                break
            if at != run_end:
                if run_start >= 0:
                    buffers.append(view[run_start:run_end])
                run_start = at
            run_end = at + length
            count += 1
            size += length
        offset += 1
    if run_start >= 0:
        buffers.append(view[run_start:run_end])
    result.next_offset, result.count, result.size = offset, count, size
    if count:
        result.status = GetStatus.FOUND


def _pass_over(result: GetResult, offset: int, length: int, code: int) -> None:
    """Note an entry whose record is not the one it means; one that was known to be corrupt is no news."""
    result.status = GetStatus.MESSAGE_WAS_REMOVING
    if code != CORRUPT_CODE and length >= RECORD_FIXED_BYTES and result.damaged < 0:
        result.damaged = offset


def has_match(queue: ConsumeQueue, offset: int, codes: frozenset[int], *, scan_bytes: int) -> bool:
    """Whether a message at or after `offset` has one of the tag codes.

    True as well after `scan_bytes` of entries without one: the read that follows moves the consumer on.
    """
    position, high = offset, queue.max_offset
    if position < queue.min_offset or high - position > scan_bytes // ENTRY_BYTES:
        return True
    while position < high:
        entries = queue.entries(position, high)
        if entries is None:
            return True
        for _, _, code in ENTRY.iter_unpack(entries):
            if code in codes or code < TAG_CODE_MIN:
                return True
        position += len(entries) // ENTRY_BYTES
    return False
