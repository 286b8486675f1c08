"""Cut the end off a closed store's log, where it differs from its master's or is damaged; what is cut is kept
aside.

The next start runs recovery from the cut on: queues and index lose what pointed behind it.
"""

from __future__ import annotations

import logging
import struct
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import StoreCorruptError, StoreError, StoreFullError
from sparrowmq.files import disk
from sparrowmq.protocol.record import BLANK_MAGIC, RECORD_MAGIC_V1, RECORD_MAGIC_V2
from sparrowmq.store.base import store_lock
from sparrowmq.store.base.segments import MapPool
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.recovery.safe_point import SafePoint
from sparrowmq.store.tables.epochs import EpochFile
from sparrowmq.store.tables.producer_state import FILE_NAME as PRODUCERS

if TYPE_CHECKING:
    from sparrowmq.store.base.settings import StoreSettings

log = logging.getLogger("sparrowmq.store")
DIRECTORY: Final = "cut"
PIECE_BYTES: Final = 1024 * 1024
SPARE_BYTES: Final = 16 * 1024 * 1024
"""What must be left on the disk when the copy is made."""

_PREFIX: Final = struct.Struct(">iI")
_MAGICS: Final = (RECORD_MAGIC_V1, RECORD_MAGIC_V2)


def cut_log(settings: StoreSettings, position: int, end: int, now_ms: int) -> Path:
    """Cut the log of a closed store from `position` on, where a record begins; returns the file with what was
    cut, which ended at `end`.

    It holds the bytes as they were in the log, and its name is `now_ms` and the position. Raises
    `StoreLockedError`, `StoreFullError` when there is no room to keep them, or `StoreError`; a cut that was
    interrupted is repeated without harm.
    """
    root = settings.root
    lock = store_lock.StoreLock.take(root)
    commit_log = CommitLog(settings, MapPool(disk.maps_limit()))
    try:
        commit_log.files.load()
        record = _record_before(commit_log, position)
        kept = _keep(commit_log, root, position, end, now_ms)
        store_lock.write_abort(root)
        _take_back_progress(root, record, position)
        files = commit_log.files
        files.remove_from(position + 1 if position == files.start else position)
        segment = files.at(position)
        if segment is not None:
            files.clear(position, segment.end)
            disk.sync_file(segment.path)
        disk.sync_directory(settings.commit_log)
    except OSError as error:
        raise disk.store_error("cannot cut the log in", settings.commit_log, error) from error
    finally:
        commit_log.close()
        lock.release()
    epochs = EpochFile(root)
    epochs.save(epochs.load().cut(position))
    log.warning(
        "%s: the log is cut from %d to %d: what follows is damaged, or is not what the master has; the %d "
        "bytes are kept in %s",
        settings.commit_log,
        end,
        position,
        end - position,
        kept,
    )
    return kept


def _record_before(commit_log: CommitLog, position: int) -> int:
    """Where the last record before `position` begins, in the same file; -1 if that file begins there.

    Raises `StoreCorruptError` when no record ends at `position`.
    """
    segment = commit_log.files.at(position)
    if segment is None or segment.base == position:
        return -1
    view, at, record = segment.view(), 0, -1
    limit = position - segment.base
    while at < limit:
        size, magic = _PREFIX.unpack_from(view, at)
        if size <= 0 or (magic not in _MAGICS and magic != BLANK_MAGIC):
            break
        record, at = segment.base + at, at + size
    if at != limit:
        raise StoreCorruptError(
            f"{segment.path}: the log cannot be cut at {position}, because no record begins there; empty "
            f"this broker's store, so that it copies its master's log again",
            what="record",
            value=position,
        )
    return record


def _keep(commit_log: CommitLog, root: Path, position: int, end: int, now_ms: int) -> Path:
    """Copy the bytes from `position` to `end` into a file, durably."""
    directory = root / DIRECTORY
    disk.make_directory(directory)
    _, free = disk.room(directory)
    if end - position + SPARE_BYTES > free:
        raise StoreFullError(
            f"{directory}: {end - position} bytes of the log are to be kept before they are cut, but only "
            f"{free} bytes are free; make room, and the broker tries again",
            value=end - position,
            limit=free,
        )
    path = directory / f"{now_ms}-{position:020d}"
    fd = disk.open_file(path, make=True)
    try:
        at = position
        while at < end:
            segment = commit_log.files.at(at)
            if segment is None:
                raise StoreError(f"{directory}: the log file with {at} is missing, its end is {end}")
            stop = min(end, segment.end, at + PIECE_BYTES)
            disk.write_at(fd, bytes(segment.view()[at - segment.base : stop - segment.base]), at - position)
            at = stop
        disk.sync(fd)
    finally:
        disk.close(fd)
    disk.sync_directory(directory)
    return path


def _take_back_progress(root: Path, record: int, position: int) -> None:
    """The safe point and the state of idempotent producers no longer know what is cut."""
    point = SafePoint.load(root)
    if point.producers is not None or disk.exists(root / PRODUCERS):
        point = replace(point, producers=0)
    disk.unlink(root / PRODUCERS, missing_ok=True)
    deleted = {topic: min(at, position) for topic, at in point.deleted.items()}
    replace(point, record=record, position=position, queues={}, deleted=deleted, index=None).save(root)
