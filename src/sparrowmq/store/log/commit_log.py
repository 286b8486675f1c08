"""The commit log: all records one after the other, written by position, read through mappings, flushed.

Writing belongs to the store's loop. `flush` may run in any thread.
"""

from __future__ import annotations

import logging
import struct
import threading
from contextlib import suppress
from typing import Final

import msgspec

from sparrowmq.core.errors import RecordError, StoreBrokenError, StoreBusyError, StoreError
from sparrowmq.files import disk
from sparrowmq.protocol.record import (
    RECORD_MAGIC_V1,
    RECORD_MAGIC_V2,
    StoredRecord,
    check_record,
    decode_record,
)
from sparrowmq.store.base.segments import MapPool, SegmentSequence
from sparrowmq.store.base.settings import StoreSettings

log = logging.getLogger("sparrowmq.store")
PLACE: Final = struct.Struct(">iI12xqq")
"""Size, magic, queue offset and physical offset at the start of a record."""

STORE_TIME_AT: Final = 56
BORN_HOST_V6_AT: Final = 39
BORN_HOST_V6_BIT: Final = 0x10
HOST_V6_EXTRA: Final = 12
_MAGICS: Final = (RECORD_MAGIC_V1, RECORD_MAGIC_V2)
NOT_TOLD: Final = -1
"""The confirmed position of a log whose copies are not known yet."""
_LONG: Final = struct.Struct(">q")


class LogEnd(msgspec.Struct, frozen=True, gc=False):
    """How far the log is written: its end, and the start and store time (epoch ms) of its last record."""

    position: int
    last_record: int
    timestamp: int


def is_place(place: tuple[int, ...], size: int, queue_offset: int, position: int) -> bool:
    """Whether the start of a record (see `PLACE`) matches the record that a queue entry points to."""
    return place[0] == size and place[1] in _MAGICS and place[2:] == (queue_offset, position)


def store_timestamp(view: bytes | memoryview, at: int) -> int:
    """The store time of the record at byte `at`, epoch ms; an IPv6 born host shifts the field by 12 bytes."""
    if view[at + BORN_HOST_V6_AT] & BORN_HOST_V6_BIT:
        at += HOST_V6_EXTRA
    return int(_LONG.unpack_from(view, at + STORE_TIME_AT)[0])


class CommitLog:
    """The log's files and their write and flush positions.

    `position` is the end of the last complete record; bytes beyond it are never read. `dispatched` is the
    progress up to which all records have queue entries; it lags behind while a chunk is being committed, and
    other threads may see that. `failed` is set when a flush failed, so that the disk may have lost data, or
    when an invariant is violated; no more data is written after that. `confirmed` is the position up to which
    all copies have the log that may take its place; None if there are no such copies.
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
        self.progress = self.dispatched = LogEnd(0, 0, 0)
        self.position = 0
        self.flushed_position = 0
        self.flushed_timestamp = 0
        self.confirmed: int | None = None
        self.failed: StoreError | None = None
        self._directory_changed = False
        self._leftovers: list[tuple[int, int]] = []
        self._flushing = threading.Lock()

    @property
    def min_position(self) -> int:
        """Where the oldest remaining file starts."""
        return self.files.start

    def begin_at(self, progress: LogEnd) -> None:
        """Set the progress that recovery found; all of it counts as flushed."""
        self.progress = self.dispatched = progress
        self.position = self.flushed_position = progress.position
        self.flushed_timestamp = progress.timestamp

    def confirm(self, position: int | None) -> None:
        """All copies have the log up to this position, see `confirmed`."""
        self.confirmed = position

    def write(self, spans: list[tuple[int, list[bytes]]], progress: LogEnd) -> None:
        """Write the parts of each span at its position, each within one file; then move the end.

        If a write fails, the written bytes are overwritten with zeros, so that recovery never mistakes them
        for records, and the log keeps its state; an OSError becomes `StoreFullError` or `StoreError`. If
        writing the zeros fails too, it is retried before the next write.
        """
        if self._leftovers:
            self._clear_leftovers()
        files, expected = self.files, self.position
        end = expected
        try:
            for start, parts in spans:
                segment = files.at(start)
                if segment is None:
                    if self._directory_changed:  # else a power failure may keep only the later entry
                        disk.sync_directory(files.directory)
                    segment = files.make(start)
                    self._directory_changed = True
                data = b"".join(parts)
                end = start + len(data)
                if start != expected or end > segment.end:
                    raise self.broken(f"bytes for {start} to {end} do not continue the log from {expected}")
                disk.write_at(segment.open(), data, start - segment.base)
                expected = segment.end
            if end != progress.position:
                raise self.broken(f"a chunk ends at {end}, {progress.position} is claimed")
        except BaseException as error:
            self._leftovers = [(start, start + sum(map(len, parts))) for start, parts in spans]
            with suppress(StoreError):
                self._clear_leftovers()
            if not isinstance(error, OSError):
                raise
            raise disk.store_error("cannot write to the commit log in", files.directory, error) from error
        self.progress = progress
        self.position = progress.position

    def stop(self, why: StoreError) -> None:
        """Stop writing; later attempts raise `why`."""
        self.failed = why

    def broken(self, what: str) -> StoreBrokenError:
        """Stop writing because an invariant is violated; returns the error to raise."""
        error = StoreBrokenError(
            f"{what}: an internal error; nothing more is stored; restart the broker and report it"
        )
        if self.failed is None:
            self.failed = error
            log.critical("%s: %s", self.files.directory, error)
        return error

    def _clear_leftovers(self) -> None:
        while self._leftovers:
            self.files.clear(*self._leftovers[-1])
            self._leftovers.pop()

    def flush(self) -> int:
        """Force everything written so far to disk; returns the new `flushed_position`.

        Thread safe. Raises `StoreBusyError` when a file could not be opened; the next call may succeed. After
        a failed fsync the system may have dropped the data, so the log stays failed: this and every later
        write and flush raise `StoreError` until the store is opened again.
        """
        with self._flushing:
            if self.failed is not None:
                raise self.failed
            progress, directory_changed = self.progress, self._directory_changed
            if progress.position < self.flushed_position:
                raise self.broken(f"the log ends at {progress.position}, {self.flushed_position} are on disk")
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
            if segment is None:
                raise self.broken(f"the file that holds {start} is not there, the log ends at {end}")
            disk.datasync(segment.open())
            if segment.end <= end:  # the file is no longer written
                segment.close_descriptor()
            start = segment.end

    def slice(self, start: int, end: int) -> memoryview | None:
        """The bytes from `start` to `end` within one file; None when they are not (or no longer) there."""
        segment = self.files.at(start)
        if segment is None or end > self.position or end > segment.end:
            return None
        return segment.view()[start - segment.base : end - segment.base]

    def record(self, position: int) -> bytes | None:
        """The record that starts at `position`, or None when there is no valid record."""
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
        """Like `record`, but decoded in the same pass that validates it."""
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
        """Store time, epoch ms, of the record a queue entry points to; None if the record does not match."""
        view = self.slice(position, position + size) if size >= PLACE.size + STORE_TIME_AT else None
        if view is None or not is_place(PLACE.unpack_from(view, 0), size, queue_offset, position):
            return None
        return store_timestamp(view, 0)

    def close(self) -> None:
        """Close the files; unflushed data stays with the operating system."""
        with self._flushing:
            self.files.close()
