"""`sparrow store dump`: the records of a directory, selected by topic, queue, offset, time and key.

Records of one queue are found through its entries; for all other selections the log is read.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sparrowmq.core.errors import RecordError
from sparrowmq.protocol import properties as property_string
from sparrowmq.protocol.compression import decompress
from sparrowmq.protocol.record import BLANK_MAGIC, StoredRecord, decode_record, host_text
from sparrowmq.protocol.sysflag import COMPRESSED
from sparrowmq.store.base.segments import Segment
from sparrowmq.store.log.commit_log import PLACE, store_timestamp
from sparrowmq.store.log.scan import next_record, valid_record
from sparrowmq.store.offline.directory import TRIM_RECORDS, StoreDirectory

CLOCK_MARGIN_MS: Final = 60_000
"""A file is skipped only if its times differ from the wanted ones by more than this, because clocks can be
set back.
"""

Damaged = Callable[[str], None]
"""Called with a description of damage between the records."""


class BodyForm(StrEnum):
    """How bodies are shown: `auto` is text if the body is UTF-8, else base64."""

    AUTO = "auto"
    TEXT = "text"
    BASE64 = "base64"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpSelection:
    """Which records to print: offsets in the queue, `end_offset` excluded; store times in epoch ms, `until`
    excluded; `key` is a key or the unique key. None selects all.
    """

    topic: str | None = None
    queue_id: int | None = None
    offset: int | None = None
    end_offset: int | None = None
    since: int | None = None
    until: int | None = None
    key: str | None = None

    def has(self, record: StoredRecord) -> bool:
        """Whether the selection has a record."""
        if self.topic is not None and record.topic != self.topic:
            return False
        if self.queue_id is not None and record.queue_id != self.queue_id:
            return False
        low, high = self.offset or 0, self.end_offset
        if record.queue_offset < low or (high is not None and record.queue_offset >= high):
            return False
        if self.since is not None and record.store_timestamp < self.since:
            return False
        if self.until is not None and record.store_timestamp >= self.until:
            return False
        return self.key is None or _has_key(record, self.key)


def _has_key(record: StoredRecord, key: str) -> bool:
    unique = property_string.find(record.properties, b"UNIQ_KEY") or b""
    keys = property_string.find(record.properties, b"KEYS") or b""
    return key in (unique.decode("utf-8", "replace"), *keys.decode("utf-8", "replace").split(" "))


def dump(directory: StoreDirectory, wanted: DumpSelection, damaged: Damaged) -> Iterator[StoredRecord]:
    """The wanted records, in the order of their queue if one is selected, else in that of the log.

    `damaged` is called for records that are not valid. Raises `StoreError`.
    """
    if wanted.topic is not None and wanted.queue_id is not None:
        found = _of_queue(directory, wanted.topic, wanted.queue_id, wanted, damaged)
    else:
        found = _of_log(directory, wanted, damaged)
    for record in found:
        if wanted.has(record):
            yield record


def _of_queue(
    directory: StoreDirectory, topic: str, queue_id: int, wanted: DumpSelection, damaged: Damaged
) -> Iterator[StoredRecord]:
    queue = directory.queues.get((topic, queue_id))
    if queue is None:
        return
    start = max(queue.first, wanted.offset or 0)
    end = queue.end if wanted.end_offset is None else min(queue.end, wanted.end_offset)
    for offset, entry in queue.entries(start, end):
        directory.pool.trim()
        if entry.physical_offset < directory.log.start:
            continue
        record = _record_at(directory, entry.physical_offset)
        if record is None or (record.topic, record.queue_id, record.queue_offset) != (
            topic,
            queue_id,
            offset,
        ):
            damaged(f"{queue.name} offset {offset}: there is no record of it at {entry.physical_offset}")
        else:
            yield record


def _record_at(directory: StoreDirectory, position: int) -> StoredRecord | None:
    segment = directory.log.at(position)
    if segment is None or not valid_record(
        segment.view(), position - segment.base, position, directory.on_disk
    ):
        return None
    return decode_record(segment.view(), position - segment.base)


def _of_log(directory: StoreDirectory, wanted: DumpSelection, damaged: Damaged) -> Iterator[StoredRecord]:
    used = [segment.base for segment in directory.log if any(segment.view()[:8])]  # others: preallocated
    for segment in _in_time(directory, wanted):
        yield from _of_file(directory, segment, damaged, is_last=segment.base >= max(used, default=0))
        directory.pool.trim()


def _in_time(directory: StoreDirectory, wanted: DumpSelection) -> list[Segment]:
    """The files that may have records of the wanted time."""
    segments = list(directory.log)
    if wanted.since is None and wanted.until is None:
        return segments
    begins = [first_time(directory, segment) for segment in segments]
    found = []
    for number, segment in enumerate(segments):
        begin = begins[number]
        following = begins[number + 1] if number + 1 < len(begins) else None
        is_late = wanted.until is not None and begin is not None and begin >= wanted.until + CLOCK_MARGIN_MS
        is_early = (
            wanted.since is not None and following is not None and following < wanted.since - CLOCK_MARGIN_MS
        )
        if not is_late and not is_early:
            found.append(segment)
    return found


def first_time(directory: StoreDirectory, segment: Segment) -> int | None:
    """Store time (epoch ms) of the first record of a log file; None if the file does not begin with a valid
    one.
    """
    directory.pool.trim()
    view = segment.view()
    if not valid_record(view, 0, segment.base, directory.on_disk):
        return None
    return store_timestamp(view, 0)


def _of_file(
    directory: StoreDirectory, segment: Segment, damaged: Damaged, *, is_last: bool
) -> Iterator[StoredRecord]:
    view, position, count = segment.view(), segment.base, 0
    newest = 0
    while position < segment.end:
        at = position - segment.base
        size = valid_record(view, at, position, directory.on_disk)
        if size:
            record = decode_record(view, at)
            newest, position, count = record.store_timestamp, position + size, count + 1
            if not count % TRIM_RECORDS:
                directory.pool.trim()
            yield record
            continue
        if segment.size - at >= PLACE.size and PLACE.unpack_from(view, at)[1] == BLANK_MAGIC:
            return
        following = next_record(directory.log, segment, position, newest, directory.on_disk)
        if following is None:
            if not is_last:
                damaged(f"{segment.path}: no valid record from {position} to {segment.end}")
            return
        damaged(f"{segment.path}: {following - position} bytes at {position} are not a valid record")
        position = following


def to_json(
    record: StoredRecord, form: BodyForm = BodyForm.AUTO, *, as_stored: bool = False
) -> dict[str, Any]:
    """A record as a JSON object. A compressed body is decompressed unless `as_stored`.

    `body_form` is `text`, `base64`, or `compressed`: the body could not be decompressed and is base64 of the
    stored bytes.
    """
    values: dict[str, Any] = {
        "topic": record.topic,
        "queue": record.queue_id,
        "offset": record.queue_offset,
        "physical_offset": record.physical_offset,
        "size": record.size,
        "stored_ms": record.store_timestamp,
        "born_ms": record.born_timestamp,
        "born_host": host_text(record.born_host),
        "store_host": host_text(record.store_host),
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "reconsume_times": record.reconsume_times,
        "prepared_offset": record.prepared_offset,
        "properties": property_string.decode(record.properties),
    }
    if form is BodyForm.NONE:
        return {**values, "body_bytes": len(record.body)}
    body = record.body
    if record.sys_flag & COMPRESSED and not as_stored:
        try:
            body = decompress(body, record.sys_flag)
        except RecordError:
            return {**values, "body_form": "compressed", "body": base64.b64encode(body).decode()}
    if form is not BodyForm.BASE64:
        try:
            return {**values, "body_form": "text", "body": body.decode()}
        except UnicodeDecodeError:
            if form is BodyForm.TEXT:
                return {**values, "body_form": "text", "body": body.decode(errors="replace")}
    return {**values, "body_form": "base64", "body": base64.b64encode(body).decode()}
