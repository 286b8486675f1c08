"""The commit log: all records one after the other, written by position, read through mappings, flushed.

Writing belongs to the store's loop. `flush` may run in any thread.
"""

from __future__ import annotations

import struct
import threading
from contextlib import suppress
from typing import Final, NamedTuple

from sparrowmq.core.errors import RecordError, StoreBusyError, StoreError
from sparrowmq.protocol.record import (
    RECORD_MAGIC_V1,
    RECORD_MAGIC_V2,
    StoredRecord,
    check_record,
    decode_record,
)
from sparrowmq.store import disk
from sparrowmq.store.segments import MapPool, SegmentSequence
from sparrowmq.store.settings import StoreSettings

PLACE: Final = struct.Struct(">iI12xqq")
"""Size, magic, queue offset and physical offset at the start of a record."""

STORE_TIME_AT: Final = 56
BORN_HOST_V6_AT: Final = 39
BORN_HOST_V6_BIT: Final = 0x10
HOST_V6_EXTRA: Final = 12
_MAGICS: Final = (RECORD_MAGIC_V1, RECORD_MAGIC_V2)
_LONG: Final = struct.Struct(">q")


class Progress(NamedTuple):
    """How far the log is written: its end, where the last record starts, its store time in epoch ms."""

    position: int
    last_record: int
    timestamp: int


def is_place(place: tuple[int, ...], size: int, queue_offset: int, position: int) -> bool:
    """Whether the start of a record (see `PLACE`) is that of the record a queue entry means."""
    return place[0] == size and place[1] in _MAGICS and place[2:] == (queue_offset, position)


def store_timestamp(view: memoryview, at: int) -> int:
    """The store time of the record at byte `at`, epoch ms; an IPv6 born host moves it by 12 bytes."""
    if view[at + BORN_HOST_V6_AT] & BORN_HOST_V6_BIT:
        at += HOST_V6_EXTRA
    return int(_LONG.unpack_from(view, at + STORE_TIME_AT)[0])


class CommitLog:
    """The log's files and how far they are written and flushed.

    `position` is the end of the last whole record; what lies beyond is never read. `dispatched` is the
    progress whose records all have their queue entries: it lags behind while a chunk is committed, which
    another thread may see. `failed` is set when a flush failed, so that the disk may have lost data; from
    then on nothing more is written.
    """

    def __init__(self, settings: StoreSettings, pool: MapPool) -> None:
        self.files = SegmentSequence(
            settings.commit_log,
            settings.mapped_file_size_commit_log,
            pool,
            setting="mappedFileSizeCommitLog",
            writable=False,
        )
        self.delay_levels = settings.delay_levels
        self.progress = self.dispatched = Progress(0, 0, 0)
        self.position = 0
        self.flushed_position = 0
        self.flushed_timestamp = 0
        self.failed: StoreError | None = None
        self._directory_changed = False
        self._leftovers: list[tuple[int, int]] = []
        self._flushing = threading.Lock()

    @property
    def min_position(self) -> int:
        """Where the oldest kept file starts."""
        return self.files.start

    def begin_at(self, progress: Progress) -> None:
        """Take over what recovery found; all of it counts as flushed."""
        self.progress = self.dispatched = progress
        self.position = self.flushed_position = progress.position
        self.flushed_timestamp = progress.timestamp

    def write(self, spans: list[tuple[int, list[bytes]]], progress: Progress) -> None:
        """Write the parts of each span at its position, each within one file; then move the end.

        On an OSError what was written is overwritten with zeros, so that recovery never takes it for records,
        and `StoreFullError` or `StoreError` is raised with the log as it was. A disk that refuses even the
        zeros is asked again before the next write.
        """
        self._clear_leftovers()
        files = self.files
        try:
            for start, parts in spans:
                segment = files.at(start)
                if segment is None:
                    segment = files.make(start)
                    self._directory_changed = True
                disk.write_at(segment.open(), b"".join(parts), start - segment.base)
        except OSError as error:
            self._leftovers = [(start, start + sum(map(len, parts))) for start, parts in spans]
            with suppress(StoreError):
                self._clear_leftovers()
            raise disk.store_error("cannot write to the commit log in", files.directory, error) from error
        self.progress = progress
        self.position = progress.position

    def _clear_leftovers(self) -> None:
        while self._leftovers:
            self.files.clear(*self._leftovers[-1])
            self._leftovers.pop()

    def flush(self) -> int:
        """Force everything written so far to disk; the new `flushed_position`.

        Thread safe. Raises `StoreBusyError` when no file could be opened for it; the next call may succeed.
        After a failed fsync the system may have dropped the data, so the log stays failed: this and every
        later write and flush raise `StoreError` until the store is opened again.
        """
        with self._flushing:
            if self.failed is not None:
                raise self.failed
            progress, directory_changed = self.progress, self._directory_changed
            try:
                if directory_changed:
                    self._directory_changed = False
                    disk.sync_directory(self.files.directory)
                self._flush_files(self.flushed_position, progress.position)
            except OSError as error:
                failure = disk.store_error("cannot flush the commit log in", self.files.directory, error)
                if isinstance(failure, StoreBusyError):
                    self._directory_changed |= directory_changed
                else:
                    self.failed = failure
                raise failure from error
            self.flushed_timestamp = progress.timestamp
            self.flushed_position = progress.position
            return progress.position

    def _flush_files(self, start: int, end: int) -> None:
        while start < end:
            segment = self.files.at(start)
            assert segment is not None, start
            disk.datasync(segment.open())
            if segment.end <= end:  # nobody writes to it any more
                segment.close_descriptor()
            start = segment.end

    def slice(self, start: int, end: int) -> memoryview | None:
        """The bytes from `start` to `end`, all of one file; None when they are not (or no longer) there."""
        segment = self.files.at(start)
        if segment is None or end > self.position or end > segment.end:
            return None
        return segment.view()[start - segment.base : end - segment.base]

    def record(self, position: int) -> bytes | None:
        """The record that starts at `position`, or None when no valid one does."""
        segment = self.files.at(position) if 0 <= position < self.position else None
        if segment is None:
            return None
        view, at = segment.view(), position - segment.base
        limit = min(segment.size, self.position - segment.base)
        try:
            size = check_record(view, at, limit)
        except RecordError:
            return None
        if size == 0 or PLACE.unpack_from(view, at)[3] != position:
            return None
        return bytes(view[at : at + size])

    def decoded(self, position: int) -> StoredRecord | None:
        """The same, decoded in the one pass that examines it."""
        segment = self.files.at(position) if 0 <= position < self.position else None
        if segment is None:
            return None
        at, limit = position - segment.base, min(segment.end, self.position) - segment.base
        try:
            record = decode_record(segment.view()[at:limit], check_crc=True)
        except RecordError:
            return None
        return record if record.physical_offset == position else None

    def store_time(self, position: int, size: int, queue_offset: int) -> int | None:
        """Store time, epoch ms, of the record a queue entry points to; None when it is not that record."""
        view = self.slice(position, position + size) if size >= PLACE.size + STORE_TIME_AT else None
        if view is None or not is_place(PLACE.unpack_from(view, 0), size, queue_offset, position):
            return None
        return store_timestamp(view, 0)

    def close(self) -> None:
        """Close the files; what is not flushed stays with the system."""
        with self._flushing:
            self.files.close()
