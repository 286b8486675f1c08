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
from sparrowmq.protocol.record import RECORD_MAGIC_V1, RECORD_MAGIC_V2, check_record
from sparrowmq.store import disk
from sparrowmq.store.commit_log import PLACE, Progress, store_timestamp
from sparrowmq.store.segments import Segment, SegmentSequence

Visit = Callable[[memoryview, int, int, int], None]
"""Called with the file's bytes, where the record starts in them, its physical offset and its size."""

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
    try:
        size = check_record(view, at, len(view))
    except RecordError:
        return 0
    return size if size and PLACE.unpack_from(view, at)[2] == position else 0


def scan(files: SegmentSequence, start: Progress, visit: Visit) -> Scanned:
    """Visit every valid record from `start.position`, where a record may begin, to the end of the log."""
    found = Scanned(start)
    position = start.position
    while (segment := files.at(position)) is not None:
        view, base = segment.view(), segment.base
        while position < segment.end:
            try:
                size = check_record(view, position - base, segment.size)
                is_blank = size == 0
                if not is_blank and PLACE.unpack_from(view, position - base)[2] != position:
                    raise RecordError("it belongs elsewhere")
            except RecordError:
                following = _next_record(files, segment, position, found.progress.timestamp)
                if following is None:
                    return found
                found.damaged.append((position, following))
                position = following
                if position >= segment.end:
                    break
                continue
            if is_blank:
                position = segment.end
                found.progress = found.progress._replace(position=position)
                break
            at = position - base
            visit(view, at, position, size)
            found.records += 1
            found.progress = Progress(position + size, position, store_timestamp(view, at))
            position += size
    return found


def _next_record(files: SegmentSequence, segment: Segment, position: int, oldest: int) -> int | None:
    """Where the next record after damage at `position` starts, or None when there is none."""
    fd = segment.open()
    try:
        extents = disk.data_extents(fd, position + 1 - segment.base, segment.size)
    finally:
        segment.close_descriptor()
    view = segment.view()
    for low, high in extents:
        at = _search(segment, low, min(high + _MAGIC_AT, segment.size), oldest)
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
