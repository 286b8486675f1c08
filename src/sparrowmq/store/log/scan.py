"""The scan of the commit log, which checks each record (broker:2.10).

When a check fails, the scan searches for the next valid record: correct magic, its own physical offset,
correct lengths and CRC, not older than the last valid one. If there is one, the bytes in between are damage
and are reported; if there is none, the log ends there.

`on_disk` is the position up to which the log is known to be flushed: its end after a clean stop, otherwise
the safe point. Before it nothing can be torn or left over from an earlier use of the file, so zeros were
really written, and times may decrease.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from sparrowmq.core.errors import RecordError
from sparrowmq.files import disk
from sparrowmq.protocol.record import HEAD, RECORD_MAGIC_V1, RECORD_MAGIC_V2, check_record, decode_record
from sparrowmq.protocol.sysflag import HOST_V6_MASK
from sparrowmq.store.base.segments import Segment, SegmentSequence
from sparrowmq.store.log.commit_log import PLACE, LogEnd, store_timestamp
from sparrowmq.store.log.proof import SECTOR_BYTES, is_proven

Visit = Callable[[memoryview, int, int, int], None]
"""Called with the file's bytes, where the record starts in them, its physical offset and its size."""

EVERYTHING: Final = 2**63 - 1
"""Value of `on_disk` when the whole log is known to be on disk."""

_SECTOR: Final = bytes(SECTOR_BYTES)
_MAGICS: Final = tuple(struct.pack(">I", magic) for magic in (RECORD_MAGIC_V1, RECORD_MAGIC_V2))
_MAGIC_AT: Final = 4


@dataclass(slots=True)
class Scanned:
    """Result of a scan: where the log ends, how many records it has, and its damaged ranges."""

    progress: LogEnd
    records: int = 0
    damaged: list[tuple[int, int]] = field(default_factory=list)


def valid_record(view: memoryview, at: int, position: int, on_disk: int = 0) -> int:
    """Size of the valid record at byte `at` whose physical offset is `position`; 0 for a blank or none."""
    return max(0, _examine(view, at, position, on_disk))


def end_behind(files: SegmentSequence, record: int, end: int) -> LogEnd | None:
    """The log's end, if there is a valid record at `record` and `end` follows it; otherwise None.

    At the end of a file, `end` may follow the blank behind the record. Both are known to be on disk.
    """
    segment = files.at(record) if record >= 0 else None
    if segment is None:
        return None
    view, at = segment.view(), record - segment.base
    size = valid_record(view, at, record, EVERYTHING)
    if size == 0:
        return None
    if record + size != end and (end != segment.end or _examine(view, at + size, record + size, EVERYTHING)):
        return None
    return LogEnd(end, record, store_timestamp(view, at))


def _examine(view: memoryview, at: int, position: int, on_disk: int) -> int:
    """Size of the valid record at byte `at`, 0 for the blank at the end of a file, -1 for anything else."""
    try:
        size = check_record(view, at, len(view))
    except RecordError:
        return -1
    if size and PLACE.unpack_from(view, at)[3] != position:
        return -1
    if size and position + size > on_disk and _is_torn(view, at, size):
        return -1
    return size


def _is_torn(view: memoryview, at: int, size: int) -> bool:
    """Whether a power failure left zeros in the part that the body's CRC does not cover.

    A topic contains no zero byte. In a property string, a lost sector is zero from its first byte to its
    last, or to the end of the record; an interrupted write leaves zeros at the end. A record that legally
    contains such zeros has a checksum of the whole record, see `proof`.
    """
    head = HEAD.unpack_from(view, at)
    is_wide = head[7] & HOST_V6_MASK
    end = at + size
    if view[end - 1] and not is_wide and size - head[14] < SECTOR_BYTES:
        return False
    record = decode_record(view, at)
    if "\0" in record.topic:
        return True
    start = end - len(record.properties)
    sectors = range(start + -start % SECTOR_BYTES, end, SECTOR_BYTES)
    lost = record.properties.endswith(b"\0") or any(
        bytes(view[sector : min(end, sector + SECTOR_BYTES)]) == _SECTOR[: end - sector] for sector in sectors
    )
    return lost and not is_proven(view[at:end])


def scan(files: SegmentSequence, start: LogEnd, visit: Visit, on_disk: int = 0) -> Scanned:
    """Visit every valid record from `start.position`, where a record may begin, to the end of the log."""
    found = Scanned(start)
    position = start.position
    while (segment := files.at(position)) is not None:
        view, base = segment.view(), segment.base
        while position < segment.end:
            at = position - base
            size = _examine(view, at, position, on_disk)
            if size == 0:
                position = segment.end
                found.progress = replace(found.progress, position=position)
            elif size > 0:
                visit(view, at, position, size)
                found.records += 1
                found.progress = LogEnd(position + size, position, store_timestamp(view, at))
                position += size
            else:
                following = next_record(files, segment, position, found.progress.timestamp, on_disk)
                if following is None:
                    return found
                found.damaged.append((position, following))
                position = following
    return found


def next_record(
    files: SegmentSequence, segment: Segment, position: int, oldest: int, on_disk: int = 0
) -> int | None:
    """Where the next record after damage at `position` starts, or None when there is none.

    A record stored before `oldest` (epoch ms) may be left over from an earlier use of the file; it counts
    only where the log is known to have been on disk.
    """
    fd = disk.open_to_read(segment.path)
    try:
        extents = disk.data_extents(fd, position + 1 - segment.base, segment.size)
    finally:
        disk.close(fd)
    for low, high in extents:
        at = _search(segment, low, high, oldest, on_disk)
        if at is not None:
            return segment.base + at
    following = files.at(segment.end)
    while following is not None:
        if _follows(following, 0, oldest, on_disk):
            return following.base
        following = files.at(following.end)
    return None


def _follows(segment: Segment, at: int, oldest: int, on_disk: int) -> bool:
    """Whether a record that continues the log starts at byte `at` of the file."""
    view, position = segment.view(), segment.base + at
    size = valid_record(view, at, position, on_disk)
    return size > 0 and (position + size <= on_disk or store_timestamp(view, at) >= oldest)


def _search(segment: Segment, low: int, high: int, oldest: int, on_disk: int) -> int | None:
    """Where the first valid record that continues the log starts in the file, from `low` to `high`."""
    data = segment.map()
    finds = {magic: data.find(magic, low + _MAGIC_AT, high) for magic in _MAGICS}
    while any(at >= 0 for at in finds.values()):
        magic, at = min(((magic, at) for magic, at in finds.items() if at >= 0), key=lambda pair: pair[1])
        start = at - _MAGIC_AT
        if _follows(segment, start, oldest, on_disk):
            return start
        finds[magic] = data.find(magic, at + 1, high)
    return None
