"""`sparrow backup`: copies an image of a store directory, file by file, and only what changed.

What a log file gained since the last backup is appended to its copy. Any other file is copied again if its
content differs, beside the old copy, so that an interrupted backup does not change the earlier ones. A backup
records what it has copied; after an interruption, the next run continues from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import NoStoreError, StoreCorruptError, StoreError
from sparrowmq.files import disk
from sparrowmq.store.base.store_lock import StoreLock
from sparrowmq.store.index.index import DIRECTORY as INDEX
from sparrowmq.store.offline import manifest as manifests
from sparrowmq.store.offline.copying import checksum, copy_bytes, is_continued
from sparrowmq.store.offline.directory import Progress, StoreDirectory, files_below, silent
from sparrowmq.store.offline.dump import first_time
from sparrowmq.store.offline.image import COMMIT_LOG, ImageFile, StoreImage
from sparrowmq.store.offline.index_check import open_index
from sparrowmq.store.offline.manifest import FILES, UNFINISHED, BackupFile, Manifest
from sparrowmq.store.tables.config_file import ConfigFile
from sparrowmq.store.tables.epochs import ROLE_FILE

KEPT: Final = 7
"""Backups kept in a target by default."""

NOTED_BYTES: Final = 256 * 1024 * 1024
NOTED_FILES: Final = 100
"""How much may be copied before it is recorded; after an interruption, at most this much is copied again."""


class Backup:
    """One run. `copied` is the number of bytes written, `reused` the number that earlier copies
    already had.
    """

    def __init__(self, directory: StoreDirectory, target: Path, clock: Clock) -> None:
        self._directory = directory
        self._target = target
        self._clock = clock
        self._known: dict[str, BackupFile] = {}
        self._changed: set[Path] = set()
        self._number = 1
        self._is_same_store = True
        self._end = 0
        self.copied = self.reused = 0

    def run(self, *, keep: int = KEPT, progress: Progress = silent) -> Manifest:
        """Make a backup, then delete all but the newest `keep`. Raises `StoreError` and its subclasses."""
        try:
            self._prepare()
            lock = StoreLock.take(self._target)
            try:
                return self._run(keep, progress)
            finally:
                lock.release()
        except OSError as error:
            raise disk.store_error(
                "cannot back up to", Path(error.filename or self._target), error
            ) from error

    def _prepare(self) -> None:
        target, root = self._target, self._directory.root
        if _is_below(target, root) or _is_below(root, target):
            raise NoStoreError(f"{target} and the store {root} contain each other; give another directory")
        if disk.exists(target):
            known = {"lock", FILES, UNFINISHED, f"{UNFINISHED}.tmp"}
            strange = [
                entry.name
                for entry in disk.entries(target)
                if entry.name not in known and not entry.name.startswith("manifest-")
            ]
            if strange:
                raise NoStoreError(f"{target} is no backup: it has {strange[0]}; give an empty directory")
        disk.make_directory(target / FILES)

    def _run(self, keep: int, progress: Progress) -> Manifest:
        earlier = manifests.numbers(self._target)
        if earlier:
            self._number = earlier[-1] + 1
            newest = manifests.load(self._target, earlier[-1])
            self._known = self._earlier_logs(earlier[:-1]) | {file.path: file for file in newest.files}
            self._is_same_store = newest.store == store_text(self._directory.root)
            self._end = newest.end
        self._known |= manifests.load_unfinished(self._target)
        image = StoreImage(self._directory)
        total = len(self._directory.log) * self._directory.log.file_bytes
        done: list[BackupFile] = []
        noted_bytes, noted_files, seen = 0, 0, 0
        for file in image.files():
            if file.path.startswith(COMMIT_LOG):
                self._check_end(image)
            found = self._copy(file)
            if found is None:
                continue
            done.append(found)
            seen += file.size if file.path.startswith(COMMIT_LOG) else 0
            progress("copy", seen, total)
            if self.copied - noted_bytes > NOTED_BYTES or len(done) - noted_files >= NOTED_FILES:
                self._note(done)
                noted_bytes, noted_files = self.copied, len(done)
        self._check_end(image)  # of a log without files, too
        self._sync_directories()
        manifest = self._manifest(image, tuple(done))
        manifests.save(self._target, manifest)
        disk.unlink(self._target / UNFINISHED, missing_ok=True)
        self._drop(keep)
        return manifest

    def _earlier_logs(self, numbers: Sequence[int]) -> dict[str, BackupFile]:
        """The log files of earlier backups: no other log may be written over them."""
        found: dict[str, BackupFile] = {}
        for number in numbers:
            try:
                files = manifests.load(self._target, number).files
            except StoreCorruptError:
                continue  # that backup cannot be restored; the next ones are made all the same
            found |= {file.path: file for file in files if file.path.startswith(f"{COMMIT_LOG}/")}
        return found

    def _check_end(self, image: StoreImage) -> None:
        """Raise `StoreError` for a log that ends before the newest backup: backups of an empty store that
        took the place of a lost one would push out those of the lost one.
        """
        if image.end < self._end:
            raise StoreError(
                f"the log of {self._directory.root} ends at {image.end}, but that of the newest backup in "
                f"{self._target} ends at {self._end}: another store was backed up there, or the end of the "
                "log was cut; give another target",
                what="end",
                value=image.end,
                limit=self._end,
            )

    def _manifest(self, image: StoreImage, files: tuple[BackupFile, ...]) -> Manifest:
        directory = self._directory
        logs = [file for file in files if file.path.startswith(f"{COMMIT_LOG}/")]
        start = int(PurePosixPath(logs[0].path).name) if logs else image.start
        segment = directory.log.at(start)
        oldest = first_time(directory, segment) if segment is not None and logs else None
        slots, entries = index_sizes(directory)
        return Manifest(
            number=self._number,
            created_ms=self._clock.now_ms(),
            source=str(directory.root),
            start=start,
            end=image.end,
            last_record=image.last.last_record,
            oldest_ms=oldest or 0,
            newest_ms=image.last.timestamp,
            log_file_bytes=directory.log.file_bytes,
            queue_file_bytes=directory.queue_file_bytes,
            index_slots=slots,
            index_entries=entries,
            deleted=image.deleted,
            store=store_text(directory.root),
            files=files,
        )

    def _note(self, done: list[BackupFile]) -> None:
        """Record the copied files, once they and their directory entries are on disk."""
        self._sync_directories()
        manifests.save_unfinished(self._target, done)

    def _sync_directories(self) -> None:
        for path in sorted(self._changed):
            disk.sync_directory(path)
        self._changed.clear()

    def _copy(self, file: ImageFile) -> BackupFile | None:
        """Copy one file unless the target has it; None if retention has deleted it meanwhile."""
        try:
            if file.path.startswith(f"{COMMIT_LOG}/"):
                return self._copy_log(file)
            return self._copy_other(file)
        except FileNotFoundError as error:
            if error.filename is None or Path(error.filename) != file.source:
                raise
            return None

    def _copy_log(self, file: ImageFile) -> BackupFile:
        stored = f"{FILES}/{file.path}"
        path, known = self._target / stored, self._known.get(file.path)
        start = crc = 0
        if known is not None:
            if known.used > file.used or not self._continues(file, path, known):
                raise StoreError(
                    f"{file.source} does not continue its copy {path}: another store was backed up there, or "
                    "the end of the log was cut; give another target",
                    what="copy",
                    value=path,
                )
            start, crc = known.used, known.crc
        if start < file.used or known is None:
            self._make_directory(path.parent)
            crc = copy_bytes(
                file.source, path, size=file.size, used=file.used, mode=file.mode, start=start, crc=crc
            )
        self.copied += file.used - start
        self.reused += start
        return BackupFile(file.path, stored, file.size, file.used, crc, file.mode)

    def _continues(self, file: ImageFile, path: Path, known: BackupFile) -> bool:
        """Whether a log file begins with its copy. Records tell logs apart by their ends; but the store may
        be another one with the same end, such as a slave whose damaged log was copied again.
        """
        if self._is_same_store:
            return is_continued(file.source, path, known.used)
        return checksum(file.source, known.used) == known.crc

    def _copy_other(self, file: ImageFile) -> BackupFile:
        known = self._known.get(file.path)
        if (
            known is not None
            and (known.size, known.used, known.mode) == (file.size, file.used, file.mode)
            and checksum(file.source, file.used) == known.crc
        ):
            self.reused += file.used
            return known
        stored = f"{FILES}/{self._number:08d}/{file.path}"
        if known is not None and known.stored.startswith(stored):
            stored = f"{known.stored}.again"  # keep the copy that an interrupted run recorded
        path = self._target / stored
        self._make_directory(path.parent)
        crc = copy_bytes(file.source, path, size=file.size, used=file.used, mode=file.mode)
        self.copied += file.used
        return BackupFile(file.path, stored, file.size, file.used, crc, file.mode)

    def _make_directory(self, path: Path) -> None:
        disk.make_directory(path)
        self._changed.add(path)

    def _drop(self, keep: int) -> None:
        """Delete old manifests, then the files that no manifest lists."""
        kept = manifests.numbers(self._target)[-keep:]
        for number in manifests.numbers(self._target):
            if number not in kept:
                disk.unlink(self._target / f"manifest-{number:08d}.json")
        disk.sync_directory(self._target)
        wanted = {file.stored for number in kept for file in manifests.load(self._target, number).files}
        for name, _ in list(files_below(self._target / FILES, f"{FILES}/")):
            if name not in wanted:
                disk.unlink(self._target / name)


def store_text(root: Path) -> str:
    """The text that identifies a store; empty if it has none, or if it cannot be read."""
    try:
        return str(ConfigFile(root / "config" / ROLE_FILE).load().get("store", ""))
    except StoreError:
        return ""


def _is_below(path: Path, other: Path) -> bool:
    return path.absolute().is_relative_to(other.absolute())


def index_sizes(directory: StoreDirectory) -> tuple[int, int]:
    """Slots and entries of an index file; zeros if no index file can be read."""
    path = directory.root / INDEX
    for entry in disk.entries(path) if disk.exists(path) else ():
        if entry.is_file and entry.name.isdigit() and disk.stat(entry.path).st_size:
            found = open_index(entry.path)
            if found is not None and found.header.count > 1:
                return found.slots, found.room
    return 0, 0


def backups(target: Path) -> Iterator[Manifest]:
    """The backups in a directory, oldest first. Raises `StoreError` and its subclasses."""
    try:
        for number in manifests.numbers(target):
            yield manifests.load(target, number)
    except OSError as error:
        raise NoStoreError(
            f"{target} cannot be read: {error.strerror}; give the directory that `sparrow backup` wrote to",
            value=target,
        ) from error
