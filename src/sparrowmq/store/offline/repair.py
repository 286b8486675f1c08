"""`sparrow store repair`: rebuilds queues and index of a directory from its log.

The log does not change, except that bytes after its end are overwritten with zeros, as a broker does whenever
it starts. Replaced files are kept in `repair-<time>` in the directory. The store's own recovery rebuilds the
queues.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import StoreLockedError
from sparrowmq.files import disk
from sparrowmq.store.base.store_lock import StoreLock
from sparrowmq.store.index.index import DIRECTORY as INDEX
from sparrowmq.store.message_store import INDEX_RECORDS, MessageStore
from sparrowmq.store.offline.backup import index_sizes
from sparrowmq.store.offline.copying import copy_bytes
from sparrowmq.store.offline.directory import Progress, StoreDirectory, silent
from sparrowmq.store.offline.queue_files import first_nonzero
from sparrowmq.store.offline.settle import STORE_HOST, FileSizes
from sparrowmq.store.offline.verify import VerifyReport, verify
from sparrowmq.store.queues.queue_table import DIRECTORY as QUEUES
from sparrowmq.store.recovery.safe_point import FILE_NAME as SAFE_POINT
from sparrowmq.store.recovery.safe_point import SafePoint

SMALL: Final = (SAFE_POINT, "checkpoint")
"""Files that the store writes again when it is opened."""


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What a repair would do: the queues to rebuild, whether to rebuild the index, and where bytes after the
    end of the log begin.

    `lost` are ranges of the log without valid records, which cannot be repaired.
    """

    queues: tuple[tuple[str, int], ...]
    index: bool
    stray_at: int | None
    lost: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing needs a repair."""
        return not self.queues and not self.index and self.stray_at is None

    def to_json(self) -> dict[str, Any]:
        """The plan as a JSON object."""
        return {
            "queues": [{"topic": topic, "queue": queue_id} for topic, queue_id in self.queues],
            "index": self.index,
            "stray_bytes_at": self.stray_at,
            "lost": list(self.lost),
        }


def plan(directory: StoreDirectory, report: VerifyReport) -> RepairPlan:
    """The repair that a directory needs, from the report of its check. Raises OSError."""
    stray = None
    for segment in directory.log:
        if stray is None and segment.end > report.log_end and directory.is_settled:
            found = first_nonzero(segment, max(0, report.log_end - segment.base), segment.size)
            stray = None if found is None else segment.base + found
    lost = tuple(
        example
        for kind in report.findings.kinds
        if kind.is_damage and (kind.part, kind.what) == ("log", "damaged bytes")
        for example in kind.examples
    )
    return RepairPlan(tuple(sorted(report.damaged_queues)), report.is_index_damaged, stray, lost)


def repair(
    directory: StoreDirectory, report: VerifyReport, clock: Clock, *, progress: Progress = silent
) -> tuple[Path, VerifyReport]:
    """Repair as planned and check the directory again; returns where the old files are, and the new report.

    The directory is closed afterwards. Raises `StoreLockedError` when a broker has it open, and other
    `StoreError`s.
    """
    root, todo = directory.root, plan(directory, report)
    slots, entries = index_sizes(directory)
    sizes = FileSizes(
        log_file_bytes=directory.log.file_bytes,
        queue_file_bytes=directory.queue_file_bytes,
        index_slots=slots,
        index_entries=entries,
    )
    if directory.in_use:
        text = f"the store {root} is in use by a running broker; stop it, then repair"
        raise StoreLockedError(text, what="broker", value=root)
    try:
        lock = StoreLock.take(root)
        try:
            aside = _put_aside(directory, report, todo, clock)
        finally:
            lock.release()
    except OSError as error:
        raise disk.store_error("cannot repair", Path(error.filename or root), error) from error
    directory.close()
    store = MessageStore.open(sizes.settings(root, directory.log.directory), clock, store_host=STORE_HOST)
    try:
        total = max(1, store.position - store.min_position)
        while left := store.follow_index(INDEX_RECORDS):
            progress("index", total - left, total)
    finally:
        store.close()
    again = StoreDirectory.open(root, commit_log=directory.log.directory)
    try:
        return aside, verify(again, progress=progress)
    finally:
        again.close()


def _put_aside(directory: StoreDirectory, report: VerifyReport, todo: RepairPlan, clock: Clock) -> Path:
    """Move the files to rebuild away, so that opening the store rebuilds them from the whole log."""
    root, point = directory.root, directory.safe_point
    aside = root / time.strftime("repair-%Y%m%d%H%M%S", time.localtime(clock.now_ms() / 1000))
    disk.make_directory(aside)
    for name in SMALL:
        if disk.exists(root / name):
            found = disk.stat(root / name)
            copy_bytes(root / name, aside / name, size=found.st_size, used=found.st_size, mode=0o644)
    if todo.stray_at is not None:
        segment = directory.log.at(todo.stray_at)
        assert segment is not None, todo
        path = aside / segment.path.name
        copy_bytes(segment.path, path, size=segment.size, used=segment.size, mode=0o644)
    for topic, queue_id in todo.queues:
        _move(root / QUEUES / topic / str(queue_id), aside / QUEUES / topic / str(queue_id))
    if todo.index:
        _move(root / INDEX, aside / INDEX)
    # Recovery reads the whole log if a queue lacks a message that the safe point says it has.
    lost: dict[str, dict[int, int]] = {}
    for topic, queue_id in todo.queues:
        lost.setdefault(topic, {})[queue_id] = 1
    deleted = {**dict.fromkeys(report.gone_topics, report.log_end), **point.deleted}
    SafePoint(queues=lost, deleted=deleted, producers=point.producers).save(root)
    disk.sync_directory(aside)
    return aside


def _move(path: Path, to: Path) -> None:
    if disk.exists(path):
        disk.make_directory(to.parent)
        disk.rename(path, to)
        disk.sync_directory(path.parent)
