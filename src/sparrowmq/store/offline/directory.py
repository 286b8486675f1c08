"""A store directory, opened for reading: finds out the sizes of its files and changes nothing.

Directories of SparrowMQ and Apache RocketMQ have the same layout. At most `MAPS_MAX` files are mapped at a
time; the mapped bytes belong to the operating system's cache.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from sparrowmq.core.errors import NoStoreError
from sparrowmq.files import disk
from sparrowmq.store.base import store_lock
from sparrowmq.store.base.segments import MapPool, SegmentSequence
from sparrowmq.store.base.settings import COMMIT_LOG_FILE_BYTES_MIN, ENTRY_BYTES, GIB
from sparrowmq.store.log.commit_log import LogEnd
from sparrowmq.store.log.scan import EVERYTHING, Visit, scan
from sparrowmq.store.offline.queue_files import QueueFiles
from sparrowmq.store.queues.queue_table import DIRECTORY as QUEUES
from sparrowmq.store.recovery.safe_point import SafePoint

MAPS_MAX: Final = 64
TRIM_RECORDS: Final = 64
TELL_RECORDS: Final = 4096
"""Progress is reported once for so many records."""

DEFAULT_QUEUE_FILE_BYTES: Final = 6_000_000
FILTER_BITS: Final = "consumequeue_ext"
NOT_READ: Final = {
    "batchconsumequeue": "queues of batches",
    "compaction/compactionLog": "topics with compaction",
    FILTER_BITS: "bit maps of filters",
    "rocksdbstore": "data in RocksDB",
    "consumequeue_r": "queues in RocksDB",
}
"""Directories of RocketMQ that these tools do not read, and what they contain."""

Progress = Callable[[str, int, int], None]
"""Called with the name of the current step, the bytes done, and the bytes in all."""


def silent(what: str, done: int, total: int) -> None:
    """Report no progress."""


class StoreDirectory:
    """One directory. `is_clean`: the last process closed it cleanly. `in_use`: a process has it open now."""

    def __init__(
        self, root: Path, pool: MapPool, log: SegmentSequence, queue_file_bytes: int, problems: list[str]
    ) -> None:
        self.root = root
        self.pool = pool
        self.log = log
        self.queue_file_bytes = queue_file_bytes
        self.problems = problems
        self.in_use = store_lock.in_use(root)
        self.is_clean = not store_lock.abort_exists(root)
        self.safe_point = SafePoint.load(root)
        self.has_filter_bits = disk.exists(root / FILTER_BITS)
        """Whether tags codes may be addresses of filter bit maps (`consumequeue_ext`)."""
        self.queues: dict[tuple[str, int], QueueFiles] = {}

    @classmethod
    def open(cls, root: Path, *, commit_log: Path | None = None) -> StoreDirectory:
        """Open the directory `root`; `commit_log` is needed if the log is not in `root/commitlog`.

        Raises `NoStoreError` when there is no log, `StoreError` when the disk fails.
        """
        directory = root / "commitlog" if commit_log is None else commit_log
        try:
            for entry in disk.entries(root):
                if entry.name.startswith("dledger-"):
                    raise NoStoreError(f"{entry.path} is the log of a DLedger broker, which is not read")
            sizes = _sizes(directory)
            if not sizes:
                raise NoStoreError(f"{directory} has no files of a commit log; {_HINT}")
            pool, file_bytes = MapPool(MAPS_MAX), _usual(sizes, GIB)
            if file_bytes < COMMIT_LOG_FILE_BYTES_MIN:
                raise NoStoreError(
                    f"the files of {directory} have {file_bytes} bytes, and a commit log has at least "
                    f"{COMMIT_LOG_FILE_BYTES_MIN}; {_HINT}"
                )
            log = SegmentSequence(
                directory, file_bytes, pool, setting="mappedFileSizeCommitLog", writable=False
            )
            problems = log.load_unchanged()
            found = cls(root, pool, log, _queue_file_bytes(root), problems)
            found._load_queues()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NoStoreError(f"{error.filename} is not there; {_HINT}") from error
        except OSError as error:
            raise disk.store_error("cannot read", Path(error.filename or root), error) from error
        return found

    def _load_queues(self) -> None:
        for topic, queue_id, path in queue_directories(self.root):
            queue = QueueFiles(topic, queue_id, path, self.queue_file_bytes, self.pool)
            self.queues[topic, queue_id] = queue
            self.pool.trim()

    @property
    def is_settled(self) -> bool:
        """Whether the directory is complete: it was closed cleanly, and no process has it open."""
        return self.is_clean and not self.in_use

    @property
    def on_disk(self) -> int:
        """The position up to which the log is known to be on disk, see `scan`."""
        return EVERYTHING if self.is_settled else self.safe_point.position

    def not_read(self) -> list[str]:
        """What the directory contains that these tools do not read, with its path."""
        found = []
        for name, what in NOT_READ.items():
            path = self.root / name
            if disk.exists(path) and disk.entries(path):
                found.append(f"{path}: {what}")
        return found

    def runs(self) -> list[tuple[int, int]]:
        """The spans of the log without a missing file, as pairs of start and end."""
        spans: list[tuple[int, int]] = []
        for segment in self.log:
            if spans and spans[-1][1] == segment.base:
                spans[-1] = spans[-1][0], segment.end
            else:
                spans.append((segment.base, segment.end))
        return spans

    def read_log(self, visit: Visit, progress: Progress = silent) -> LogScan:
        """Visit all valid records in order, with bounded memory. Raises `StoreError`."""
        runs = self.runs()
        total = sum(end - start for start, end in runs)
        found, before, count = LogScan(self.log.start), 0, 0
        pool = self.pool

        def visited(view: memoryview, at: int, position: int, size: int) -> None:
            nonlocal count
            count += 1
            if not count % TRIM_RECORDS:
                pool.trim()
                if not count % TELL_RECORDS:
                    progress("log", before + position - start, total)
            visit(view, at, position, size)

        for start, end in runs:
            begun = LogEnd(start, -1, found.last.timestamp)
            scanned = scan(self.log, begun, visited, self.on_disk)
            found.records += scanned.records
            found.damaged += scanned.damaged
            found.last = scanned.progress
            if end != runs[-1][1] and scanned.progress.position < end:
                found.damaged.append((scanned.progress.position, end))
            before += end - start
        progress("log", total, total)
        return found

    def close(self) -> None:
        """Release the files."""
        for queue in self.queues.values():
            queue.close()
        self.log.close()


class LogScan:
    """The result of a scan: `last` is the end of the log, `damaged` the ranges before it without valid
    records.
    """

    __slots__ = ("damaged", "last", "records", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.last = LogEnd(start, -1, 0)
        self.records = 0
        self.damaged: list[tuple[int, int]] = []

    @property
    def end(self) -> int:
        """The position after the last record."""
        return self.last.position


_HINT: Final = "give the broker's storePathRootDir, the directory that contains commitlog"


def _sizes(directory: Path) -> list[int]:
    return [disk.stat(entry.path).st_size for entry in disk.entries(directory) if entry.is_file]


def _usual(sizes: list[int], otherwise: int) -> int:
    """The most frequent size. Empty files do not count, because a crash can leave them."""
    return Counter(size for size in sizes if size).most_common(1)[0][0] if any(sizes) else otherwise


def queue_directories(root: Path) -> Iterator[tuple[str, int, Path]]:
    """Topic, number and directory of each consume queue. Raises OSError."""
    directory = root / QUEUES
    if not disk.exists(directory):
        return
    for topic in disk.entries(directory):
        for entry in disk.entries(topic.path) if topic.is_directory else ():
            if entry.is_directory and entry.name.isascii() and entry.name.isdigit():
                yield topic.name, int(entry.name), entry.path


def _queue_file_bytes(root: Path) -> int:
    sizes: list[int] = []
    for _, _, path in queue_directories(root):
        sizes += _sizes(path)
    usual = _usual(sizes, DEFAULT_QUEUE_FILE_BYTES)
    return usual if usual % ENTRY_BYTES == 0 else DEFAULT_QUEUE_FILE_BYTES


def files_below(root: Path, prefix: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Every file below a directory: its path from there, and its metadata. Raises OSError."""
    for entry in disk.entries(root):
        name = f"{prefix}{entry.name}"
        if entry.is_directory:
            yield from files_below(entry.path, f"{name}/")
            continue
        found = disk.stat(entry.path)
        if stat.S_ISREG(found.st_mode):
            yield name, found
