"""Walking through the commit log record by record, checking each one (broker:2.10).

Where a check fails, the walk looks for the next record that proves itself: right magic, its own physical
offset, right lengths and CRC, not older than the last good one. If there is one, what lies between is damage
in the middle and is reported; if there is none, the log ends there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.core.errors import RecordError
from sparrowmq.protocol.record import HEAD, RECORD_MAGIC_V1, RECORD_MAGIC_V2, check_record, decode_record
from sparrowmq.protocol.sysflag import HOST_V6_MASK
from sparrowmq.store import disk
from sparrowmq.store.commit_log import PLACE, Progress, store_timestamp
from sparrowmq.store.segments import Segment, SegmentSequence

Visit = Callable[[memoryview, int, int, int], None]
"""Called with the file's bytes, where the record starts in them, its physical offset and its size."""

SECTOR_BYTES: Final = 512
_MAGICS: Final = tuple(struct.pack(">I", magic) for magic in (RECORD_MAGIC_V1, RECORD_MAGIC_V2))
_MAGIC_AT: Final = 4


@dataclass(slots=True)
class Scanned:
    """What a walk found: where the log ends, how many records, which ranges in its middle are damaged."""

    progress: Progress
    records: int = 0
    damaged: list[tuple[int, int]] = field(default_factory=list)


def valid_record(view: memoryview, at: int, position: int) -> int:
    """Size of the valid record at byte `at` whose physical offset is `position`; 0 for a blank or none."""
    return max(0, _examine(view, at, position))


def _examine(view: memoryview, at: int, position: int) -> int:
    """Size of the valid record at byte `at`, 0 for the blank that ends a file, -1 for anything else."""
    try:
        size = check_record(view, at, len(view))
    except RecordError:
        return -1
    if size and (PLACE.unpack_from(view, at)[3] != position or _is_torn(view, at, size)):
        return -1
    return size


def _is_torn(view: memoryview, at: int, size: int) -> bool:
    """Whether a power cut left zeros in what the CRC does not cover.

    A topic has no zero byte. A property string does not end in one; and within it nobody writes as many as
    the smallest part of a disk that is lost as a whole.
    """
    head = HEAD.unpack_from(view, at)
    is_wide = head[7] & HOST_V6_MASK
    if view[at + size - 1] and not is_wide and size - head[14] < SECTOR_BYTES:
        return False
    record = decode_record(view, at)
    return (
        "\0" in record.topic or record.properties.endswith(b"\0") or bytes(SECTOR_BYTES) in record.properties
    )


def scan(files: SegmentSequence, start: Progress, visit: Visit) -> Scanned:
    """Visit every valid record from `start.position`, where a record may begin, to the end of the log."""
    found = Scanned(start)
    position = start.position
    while (segment := files.at(position)) is not None:
        view, base = segment.view(), segment.base
        while position < segment.end:
            at = position - base
            size = _examine(view, at, position)
            if size == 0:
                position = segment.end
                found.progress = found.progress._replace(position=position)
            elif size > 0:
                visit(view, at, position, size)
                found.records += 1
                found.progress = Progress(position + size, position, store_timestamp(view, at))
                position += size
            else:
                following = next_record(files, segment, position, found.progress.timestamp)
                if following is None:
                    return found
                found.damaged.append((position, following))
                position = following
    return found


def next_record(files: SegmentSequence, segment: Segment, position: int, oldest: int) -> int | None:
    """Where the next record after damage at `position` starts, or None when there is none."""
    fd = segment.open()
    try:
        extents = disk.data_extents(fd, position + 1 - segment.base, segment.size)
    finally:
        segment.close_descriptor()
    view = segment.view()
    for low, high in extents:
        at = _search(segment, low, high, oldest)
        if at is not None:
            return segment.base + at
    following = files.at(segment.end)
    while following is not None:
        view = following.view()
        if valid_record(view, 0, following.base) and store_timestamp(view, 0) >= oldest:
            return following.base
        following = files.at(following.end)
    return None


def _search(segment: Segment, low: int, high: int, oldest: int) -> int | None:
    """Where in the file, from `low` to `high`, the first record starts that proves itself."""
    data, view, base = segment.map(), segment.view(), segment.base
    finds = {magic: data.find(magic, low + _MAGIC_AT, high) for magic in _MAGICS}
    while any(at >= 0 for at in finds.values()):
        magic, at = min(((magic, at) for magic, at in finds.items() if at >= 0), key=lambda pair: pair[1])
        start = at - _MAGIC_AT
        if valid_record(view, start, base + start) and store_timestamp(view, start) >= oldest:
            return start
        finds[magic] = data.find(magic, at + 1, high)
    return None
