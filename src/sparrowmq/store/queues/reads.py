"""Reading messages from a queue (broker:5.1, 5.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from sparrowmq.protocol.record import RECORD_FIXED_BYTES, RECORD_MAGIC_V1, RECORD_MAGIC_V2
from sparrowmq.store.base.settings import ENTRY_BYTES
from sparrowmq.store.log.commit_log import NOT_TOLD, CommitLog
from sparrowmq.store.queues.consume_queue import CORRUPT_CODE, ENTRY, TAG_CODE_MIN

if TYPE_CHECKING:
    from sparrowmq.store.queues.consume_queue import ConsumeQueue

_unpack_place = Struct(">ii4xi4xqq").unpack_from
"""Size, magic, queue id, queue offset and physical offset at the start of a record."""
_MAGIC_V1, _MAGIC_V2 = (magic - (1 << 32) for magic in (RECORD_MAGIC_V1, RECORD_MAGIC_V2))
"""As signed numbers: they have fewer than 30 bits, which Python compares faster."""

Match = Callable[[memoryview, int], bool]
"""Whether the record that starts at a byte of a file's view is requested."""

STEPS_MAX: Final = 50_000
"""Work limit of one read, in steps of about a tenth of a microsecond: five milliseconds. The read then
returns what it has found, and the next read continues where it ended."""
ENTRIES_MAX: Final = 100_000
"""Number of entries that one read without a filter examines."""


class MatchCost(NamedTuple):
    """Steps that a `Match` takes for one record: `fixed`, and `per_kilobyte` for up to 32 KB of the record,
    the maximum length of properties.
    """

    fixed: int = 20
    per_kilobyte: int = 0


PLAIN_MATCH: Final = MatchCost()
_PROPERTIES_MAX: Final = 32 * 1024


_NO_BYTES: Final = memoryview(b"")
_NOWHERE: Final = -(1 << 64)
"""Before the end of any record that an entry may state."""
PASSED_MAX = 16
"""Number of skipped messages that a read reports."""


class GetStatus(Enum):
    """How a read ended. The names are RocketMQ's and are sent as remarks."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"

    __hash__ = object.__hash__  # the hash of enums is a Python function, and each read needs one


class GetResult(msgspec.Struct, gc=False):
    """Result of a read: whole records in `buffers`, `count` of them with `size` bytes; queue offsets.

    `passed` has the queue offsets of the first `PASSED_MAX` records that were skipped because they are
    missing or do not match their entries. The buffers are views of the mapped log; they stay valid as long as
    they are referenced.
    """

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    buffers: list[memoryview]
    count: int = 0
    size: int = 0
    passed: tuple[int, ...] = ()


Row = tuple[int, int, int]
"""An entry of a queue: physical offset, size and tag code of a record."""


class ReadRequest(msgspec.Struct, gc=False):
    """Parameters of a read: up to `max_count` messages and `max_bytes`.

    `codes` are the requested tag codes, None for every message; `match` decides whether a record is
    requested, at the given `cost`. About `scan_bytes` of entries are examined. `is_consumer`: read only what
    is confirmed.
    """

    max_count: int
    max_bytes: int
    codes: frozenset[int] | None
    match: Match | None
    cost: MatchCost
    scan_bytes: int
    is_consumer: bool = False


def get_messages(log_: CommitLog, queue: ConsumeQueue | None, offset: int, wanted: ReadRequest) -> GetResult:
    """The requested messages (at least one, of any size) from `offset` on, from one queue file.

    At most `scan_bytes` of entries, or as many as `max_count` needs, are examined, within a budget of
    `STEPS_MAX` steps where `match` has a `cost`. Records that are deleted, damaged or from another queue are
    skipped. For a consumer, messages that are not confirmed do not exist yet; with `NOT_TOLD`, it finds
    `OFFSET_OVERFLOW_ONE` at an offset below `max_offset`.
    """
    if queue is None:
        return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, [])
    low, end = queue.min_offset, queue.max_offset
    if end == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, end, [])
    is_limited = wanted.is_consumer and log_.confirmed is not None
    high = queue.confirmed_offset if is_limited else end
    if offset < low:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high, [])
    if offset >= high or (is_limited and log_.confirmed == NOT_TOLD):
        if offset > end:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, _past_end(queue, low, high), low, high, [])
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high, [])
    most = ENTRIES_MAX if wanted.codes is None and wanted.match is None else STEPS_MAX
    scan_count = min(max(wanted.scan_bytes // ENTRY_BYTES, wanted.max_count, 1), most)
    entries = queue.entries(offset, min(high, offset + scan_count))
    if entries is None:
        per_file = queue.entries_per_file
        following = offset - offset % per_file + per_file
        return GetResult(GetStatus.OFFSET_FOUND_NULL, following, low, high, [])
    rows: Iterable[Row] = ENTRY.iter_unpack(entries)
    if wanted.match is not None:
        rows = _affordable(rows, wanted.cost)
    return _collect(log_, queue, rows, offset, high, wanted)


def _past_end(queue: ConsumeQueue, low: int, high: int) -> int:
    """Where a reader continues whose offset is past the end, without missing a message.

    A crash may have cut the queue: what is behind its end at that start is new. Otherwise a queue that begins
    at 0 is another one, of a topic that was made again or of a broker on an empty disk: all of it is new.
    """
    if queue.recovered:
        return max(low, min(queue.recovered, high))
    return high if low else 0


def _affordable(rows: Iterable[Row], cost: MatchCost) -> Iterator[Row]:
    """The entries, at least one, whose records can be examined within `STEPS_MAX`."""
    fixed, per_kilobyte = cost
    left = STEPS_MAX
    for row in rows:
        yield row
        left -= fixed + (per_kilobyte * min(row[1], _PROPERTIES_MAX) >> 10)
        if left <= 0:
            return


def _collect(
    log_: CommitLog, queue: ConsumeQueue, rows: Iterable[Row], start: int, high: int, wanted: ReadRequest
) -> GetResult:
    """Collect the requested records, at least one; adjacent records become one buffer.

    `rows` begin at `start`; the queue ends at `high`. The start of a record must match its entry. Otherwise
    damage could reach a client as bytes that cannot be decoded, or as a message of another or deleted queue.
    """
    max_count, max_bytes = max(1, wanted.max_count), wanted.max_bytes
    codes, match, queue_id, unpack_place = wanted.codes or None, wanted.match, queue.queue_id, _unpack_place
    status = GetStatus.NO_MATCHED_MESSAGE
    buffers: list[memoryview] = []
    passed: tuple[int, ...] = ()
    view, base, low, limit = _NO_BYTES, 0, 0, 0  # `view` has records between low and limit
    count, size, run_start, run_end = 0, 0, -1, -1
    for offset, (physical, length, code) in enumerate(rows, start):
        if count == max_count:
            break
        if codes is not None and code not in codes and code >= TAG_CODE_MIN:
            continue
        at = physical - base
        end = at + length
        if at < low or end > limit:
            if run_start >= 0:
                buffers.append(view[run_start:run_end])
                run_start = run_end = -1
            view, base, low, limit = _window(log_, queue.born, physical)
            at, end = physical - base, physical - base + length
            if at < low or end > limit:
                status, passed = GetStatus.MESSAGE_WAS_REMOVING, _noted(passed, offset, code)
                continue
        if length < RECORD_FIXED_BYTES or code == CORRUPT_CODE:
            status, passed = GetStatus.MESSAGE_WAS_REMOVING, _noted(passed, offset, code)
            continue
        record_length, magic, record_queue_id, queue_offset, place = unpack_place(view, at)
        if (
            record_length != length
            or place != physical
            or queue_offset != offset
            or record_queue_id != queue_id
            or (magic != _MAGIC_V1 and magic != _MAGIC_V2)
        ):
            status, passed = GetStatus.MESSAGE_WAS_REMOVING, _noted(passed, offset, code)
        elif match is None or match(view, at):
            if count and size + length > max_bytes:
                break
            size += length
            if at != run_end:
                if run_start >= 0:
                    buffers.append(view[run_start:run_end])
                run_start = at
            run_end = end
            count += 1
    else:
        offset += 1
    if run_start >= 0:
        buffers.append(view[run_start:run_end])
    status = GetStatus.FOUND if count else status
    return GetResult(status, offset, queue.min_offset, high, buffers, count, size, passed)


def _window(log_: CommitLog, oldest: int, physical: int) -> tuple[memoryview, int, int, int]:
    """The bytes of the file that contains a position, its base, and the limits of its records in these bytes.

    No record lies within the limits if the file is deleted or its content is older than `oldest`.
    """
    segment = log_.files.at(physical) if physical >= oldest else None
    if segment is None:
        return _NO_BYTES, 0, 0, _NOWHERE
    base = segment.base
    return segment.view(), base, max(oldest - base, 0), min(segment.size, log_.position - base)


def _noted(passed: tuple[int, ...], offset: int, code: int) -> tuple[int, ...]:
    """`passed` plus an entry that does not match its record; entries marked as damaged are not added."""
    return passed if code == CORRUPT_CODE or len(passed) >= PASSED_MAX else (*passed, offset)


def has_match(queue: ConsumeQueue, offset: int, codes: frozenset[int], *, scan_bytes: int) -> bool:
    """Whether a message at or after `offset` that consumers may read has one of the tag codes.

    Also true after `scan_bytes` of entries without a match: the following read advances the consumer.
    """
    position, high = offset, queue.confirmed_offset
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
