"""`sparrow restore`: makes a store from a backup, as it was at the backup or at an earlier time.

The files are copied to a directory beside the wanted one, which is renamed last. So an interrupted restore
leaves nothing that looks like a store. Every file is compared with its checksum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import NoStoreError, StoreCorruptError
from sparrowmq.files import disk
from sparrowmq.store.base.segments import MapPool, Segment
from sparrowmq.store.base.settings import ENTRY_BYTES
from sparrowmq.store.log.commit_log import store_timestamp
from sparrowmq.store.log.scan import EVERYTHING, valid_record
from sparrowmq.store.offline.backup import backups
from sparrowmq.store.offline.copying import copy_bytes
from sparrowmq.store.offline.directory import Progress, silent
from sparrowmq.store.offline.handed_out import HandedOut, Place
from sparrowmq.store.offline.image import COMMIT_LOG, entries_before
from sparrowmq.store.offline.manifest import BackupFile, Manifest
from sparrowmq.store.offline.settle import FileSizes, settle
from sparrowmq.store.offline.verify import VerifyReport
from sparrowmq.store.queues.queue_table import DIRECTORY as QUEUES

REDELIVER_MS: Final = 60_000
"""Default: delayed messages that became due within this time before the last restored record are delivered
again.
"""


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored: the number of the backup, the end of the log, the store time of the newest message,
    and the report of the check.
    """

    number: int
    end: int
    newest_ms: int
    report: VerifyReport


def choose(target: Path, *, number: int | None = None, until_ms: int | None = None) -> Manifest:
    """The backup to restore: the one with `number`, else the first made after `until_ms`, else the newest.

    Raises `NoStoreError` when there is none, `StoreCorruptError` when its list of files is damaged.
    """
    found = list(backups(target))
    if number is not None:
        found = [one for one in found if one.number == number]
    if not found:
        what = "no complete backup" if number is None else f"no backup {number}"
        text = f"{target} has {what}; to complete an interrupted one, run sparrow backup again"
        raise NoStoreError(text, what="backup", value=number)
    if until_ms is not None:
        found = [one for one in found if one.created_ms >= until_ms][:1] or found[-1:]
    return found[-1]


def restore(
    target: Path,
    root: Path,
    clock: Clock,
    *,
    number: int | None = None,
    until_ms: int | None = None,
    redeliver_ms: int = REDELIVER_MS,
    progress: Progress = silent,
) -> Restored:
    """Restore a backup to a directory that is empty or does not exist, and check it.

    With `until_ms` (epoch ms), the log ends before the first record stored later. Raises `StoreError` and its
    subclasses.
    """
    manifest = choose(target, number=number, until_ms=until_ms)
    work = root.with_name(f"{root.name}.restoring")
    try:
        if disk.exists(root) and disk.entries(root):
            text = f"{root} is not empty; restore to a directory that does not exist yet"
            raise NoStoreError(text, value=root)
        if disk.exists(work):
            text = f"{work} is left from an interrupted restore; remove it, then try again"
            raise NoStoreError(text, value=work)
        disk.make_directory(work)
        end, newest = _put_together(target, work, manifest, until_ms, progress)
        is_cut = end < manifest.end
        handed_out = _handed_out(target, manifest, end) if is_cut else {}
        sizes = FileSizes(
            log_file_bytes=manifest.log_file_bytes,
            queue_file_bytes=manifest.queue_file_bytes,
            index_slots=manifest.index_slots,
            index_entries=manifest.index_entries,
        )
        deleted = {topic: position for topic, position in manifest.deleted.items() if position <= end}
        report = settle(
            work,
            sizes,
            clock,
            deleted=deleted,
            redeliver_ms=redeliver_ms if is_cut else None,
            handed_out=handed_out,
            progress=progress,
        )
        if disk.exists(root):
            disk.remove_directory(root)
        disk.rename(work, root)
    except OSError as error:
        raise disk.store_error("cannot restore to", Path(error.filename or root), error) from error
    report.moved_to(root)
    return Restored(manifest.number, end, newest, report)


def _put_together(
    target: Path, work: Path, manifest: Manifest, until_ms: int | None, progress: Progress
) -> tuple[int, int]:
    """Copy the files; returns the end of the log and the newest record's store time."""
    end, newest = manifest.end, manifest.newest_ms
    if until_ms is not None and until_ms < manifest.newest_ms:
        end, newest = _find_end(target, manifest, until_ms)
    total, done = sum(file.used for file in manifest.files), 0
    directories: set[Path] = set()
    for file in manifest.files:
        used = file.used
        if file.path.startswith(f"{COMMIT_LOG}/"):
            used = min(used, end - int(PurePosixPath(file.path).name))
        if used > 0 or file.size == 0:
            path = work / file.path
            disk.make_directory(path.parent, durable=False)
            directories.update(path.parents)
            _lay(target / file.stored, path, file, used)
            if end < manifest.end and file.path.startswith(f"{QUEUES}/"):
                _cut_queue(path, file.size, end)
        done += file.used
        progress("restore", done, total)
    for directory in sorted(directories):
        if directory.is_relative_to(work):
            disk.sync_directory(directory)
    return end, newest


def _lay(source: Path, path: Path, file: BackupFile, used: int) -> None:
    """Copy one file and compare its checksum."""
    try:
        crc = copy_bytes(source, path, size=file.size, used=file.used, mode=file.mode)
    except FileNotFoundError as error:
        raise StoreCorruptError(
            f"{source}: this file of the backup is missing; restore another backup with --number"
        ) from error
    if crc != file.crc:
        raise StoreCorruptError(
            f"{source} is damaged: its checksum is wrong; restore another backup with --number"
        )
    if used < file.used:
        disk.clear_data(path, used, file.used)


def _cut_queue(path: Path, size: int, end: int) -> None:
    """Remove the entries of records that are not restored, and the file if it is empty then."""
    segment = Segment(path, int(path.name), size, MapPool(1), writable=False)
    used = entries_before(segment, end) * ENTRY_BYTES
    segment.close()
    if used:
        disk.clear_data(path, used, size)
    else:
        disk.unlink(path)


def _find_end(target: Path, manifest: Manifest, until_ms: int) -> tuple[int, int]:
    """The position of the first record that was stored after `until_ms`, and the store time of the record
    before it.
    """
    newest = 0
    for view, at, position, _ in _records(target, manifest, manifest.start):
        stored = store_timestamp(view, at)
        if stored > until_ms:
            if not newest:
                raise NoStoreError(
                    f"backup {manifest.number} has no message that old: its first one was stored at "
                    f"{stored} (epoch ms)",
                    what="message",
                    value=until_ms,
                    limit=stored,
                )
            return position, newest
        newest = stored
    return manifest.end, newest


def _handed_out(target: Path, manifest: Manifest, end: int) -> dict[Place, int]:
    """Where the first hand-out of POP behind the restored part of the log began, by place."""
    found = HandedOut()
    for view, at, _, size in _records(target, manifest, end):
        found.visit(view, at, size)
    found.finish()
    return found.begins


def _records(target: Path, manifest: Manifest, start: int) -> Iterator[tuple[memoryview, int, int, int]]:
    """The records of a backup's log from a position on, where one begins: the file's bytes, the place in
    them, position and size."""
    for file in manifest.files:
        base = int(PurePosixPath(file.path).name) if file.path.startswith(f"{COMMIT_LOG}/") else 0
        stop = base + file.used
        if not file.path.startswith(f"{COMMIT_LOG}/") or stop <= start:
            continue
        segment = Segment(target / file.stored, base, file.size, MapPool(1), writable=False)
        position, view = max(start, base), segment.view()
        while position < stop and (size := valid_record(view, position - base, position, EVERYTHING)):
            yield view, position - base, position, size
            position += size
        segment.close()
