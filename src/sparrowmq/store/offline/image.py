"""A consistent image of a store directory, even while a broker writes to it.

The order of reading makes it consistent. Progress (offsets, delays, timers) is read first, so it is never
ahead of the messages. Then the end of the log is noted, and log and queues are read up to there. The tables
of topics and groups are read last, so they have every topic that the queues have. The key index, the timer
wheel and the checkpoint are not part of an image, because they can be rebuilt from it.
"""

from __future__ import annotations

import stat
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sparrowmq.files import disk
from sparrowmq.store.base.segments import MapPool, Segment
from sparrowmq.store.base.settings import ENTRY_BYTES
from sparrowmq.store.log.commit_log import LogEnd
from sparrowmq.store.log.scan import end_behind, scan
from sparrowmq.store.offline.directory import StoreDirectory, queue_directories
from sparrowmq.store.offline.timer_check import CHECK as TIMER_CHECK
from sparrowmq.store.offline.timer_check import LOG as TIMER_LOG
from sparrowmq.store.queues.consume_queue import DUMMY_SIZE, ENTRY, count_entries
from sparrowmq.store.queues.queue_table import DIRECTORY as QUEUES
from sparrowmq.store.recovery.safe_point import SafePoint
from sparrowmq.store.tables.producer_state import FILE_NAME as PRODUCERS
from sparrowmq.store.timers.timer_check import TimerCheck

COMMIT_LOG: Final = "commitlog"
CONFIG: Final = "config"
PROGRESS: Final = frozenset(
    {"consumerOffset.json", "consumerOrderInfo.json", "delayOffset.json", "timercheck", "timermetrics"}
)
"""Files of `config/` with progress, which are read before the messages."""


@dataclass(frozen=True, slots=True)
class ImageFile:
    """One file of an image: of its `size` bytes, the first `used` have content; the others are zeros."""

    path: str
    source: Path
    size: int
    used: int
    mode: int


class StoreImage:
    """An image of a directory. `files` yields the files in order; read each before you take the next.
    Afterwards `last` is the end of the log, with the store time of its last record.
    """

    def __init__(self, directory: StoreDirectory) -> None:
        self._directory = directory
        self._root = directory.root
        self.start = directory.log.start
        self.last = LogEnd(self.start, -1, 0)
        self.deleted: dict[str, int] = {}

    def files(self) -> Iterator[ImageFile]:
        """Every file of the image. Raises `StoreError` and OSError."""
        yield from self._config(progress=True)
        yield from self._one(PRODUCERS)
        planned = TimerCheck.load(self._root / CONFIG / TIMER_CHECK).flush_position
        self.last = end_of_log(self._directory)
        yield from self._log()
        yield from self._queues()
        yield from self._timers(planned)
        yield from self._config(progress=False)
        self.deleted = dict(SafePoint.load(self._root).deleted)

    @property
    def end(self) -> int:
        """The end of the log in the image."""
        return self.last.position

    def _config(self, *, progress: bool) -> Iterator[ImageFile]:
        if not disk.exists(self._root / CONFIG):
            return
        for entry in disk.entries(self._root / CONFIG):
            if not entry.is_file or entry.name.endswith((".bak", ".tmp")):
                continue
            if (entry.name in PROGRESS) is progress:
                yield from self._one(f"{CONFIG}/{entry.name}")

    def _one(self, path: str) -> Iterator[ImageFile]:
        """A small file as it is; none if it is missing."""
        try:
            found = disk.stat(self._root / path)
        except FileNotFoundError:
            return
        yield ImageFile(path, self._root / path, found.st_size, found.st_size, stat.S_IMODE(found.st_mode))

    def _log(self) -> Iterator[ImageFile]:
        for segment in self._directory.log:
            if segment.base < self.end:
                mode = stat.S_IMODE(disk.stat(segment.path).st_mode)
                used = min(segment.size, self.end - segment.base)
                yield ImageFile(f"{COMMIT_LOG}/{segment.path.name}", segment.path, segment.size, used, mode)

    def _queues(self) -> Iterator[ImageFile]:
        for topic, queue_id, path in queue_directories(self._root):
            pool = MapPool(1)
            try:
                entries = [entry for entry in disk.entries(path) if entry.is_file]
            except FileNotFoundError:  # the topic was deleted meanwhile
                continue
            for entry in entries:
                found = self._queue_file(f"{QUEUES}/{topic}/{queue_id}/{entry.name}", entry.path, pool)
                if found is not None:
                    yield found

    def _queue_file(self, name: str, path: Path, pool: MapPool) -> ImageFile | None:
        try:
            found = disk.stat(path)
            if found.st_size != self._directory.queue_file_bytes or not path.name.isdigit():
                return None
            segment = Segment(path, int(path.name), found.st_size, pool, writable=False)
            used = entries_before(segment, self.end) * ENTRY_BYTES
            segment.close()
        except FileNotFoundError:
            return None
        return ImageFile(name, path, found.st_size, used, stat.S_IMODE(found.st_mode)) if used else None

    def _timers(self, planned: int) -> Iterator[ImageFile]:
        """The timer log up to a position whose messages are all in the image."""
        for entry in disk.entries(self._root / TIMER_LOG) if disk.exists(self._root / TIMER_LOG) else ():
            for file in self._one(f"{TIMER_LOG}/{entry.name}"):
                base = int(entry.name) if entry.name.isdigit() else planned
                used = max(0, min(file.size, planned - base))
                if used:
                    yield replace(file, used=used)


def entries_before(segment: Segment, position: int) -> int:
    """How many entries of a queue file lead to records that end at or before a log position."""
    count, data = count_entries(segment), segment.map()

    def is_behind(number: int) -> bool:
        place, size, _ = ENTRY.unpack_from(data, number * ENTRY_BYTES)
        return bool(size != DUMMY_SIZE and place + size > position)

    return bisect_left(range(count), True, key=is_behind)


def end_of_log(directory: StoreDirectory) -> LogEnd:
    """The end of the log as it is now: searched from the safe point, else from the last file in use.

    Raises `StoreError`.
    """
    log, point = directory.log, SafePoint.load(directory.root)
    begun = end_behind(log, point.record, point.position)
    if begun is not None:
        return scan(log, begun, _pass, max(point.position, directory.on_disk)).progress
    for segment in reversed(list(log)):
        directory.pool.trim()
        if any(segment.view()[:8]):
            found = scan(log, LogEnd(segment.base, -1, 0), _pass, directory.on_disk).progress
            if found.last_record >= 0:
                return found
    return LogEnd(log.start, -1, 0)


def _pass(view: memoryview, at: int, position: int, size: int) -> None:
    """Nothing is done with the records."""
