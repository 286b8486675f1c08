"""`sparrow store stat`: sizes, counts and times of a directory, from its queues, without reading the whole
log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from sparrowmq.files import disk
from sparrowmq.protocol.record import BLANK_MAGIC
from sparrowmq.store.log.commit_log import PLACE, is_place, store_timestamp
from sparrowmq.store.offline.directory import Progress, StoreDirectory, files_below, silent
from sparrowmq.store.offline.dump import first_time
from sparrowmq.store.offline.queue_files import QueueFiles
from sparrowmq.store.queues.consume_queue import DUMMY_SIZE, QueueEntry

BLOCK_BYTES: Final = 512
"""The unit of a file's blocks in its metadata."""


@dataclass(slots=True)
class PartSize:
    """Files of one kind: their number, their total length, and the space they use on disk, without holes."""

    files: int = 0
    bytes: int = 0
    on_disk: int = 0


@dataclass(slots=True)
class TopicStat:
    """One topic: the messages whose records are in the log, the size of these records, and their
    store times.
    """

    topic: str
    queues: int = 0
    messages: int = 0
    bytes: int = 0
    deleted: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None


@dataclass(slots=True)
class StoreStat:
    """The figures of a directory. Positions and sizes are in bytes, times are store times in epoch ms."""

    root: str
    in_use: bool
    is_clean: bool
    log_start: int
    log_end: int
    log_file_bytes: int
    queue_file_bytes: int
    oldest_ms: int | None
    newest_ms: int | None
    parts: dict[str, PartSize] = field(default_factory=dict)
    topics: list[TopicStat] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The figures as a JSON object."""
        return asdict(self)


def stat(directory: StoreDirectory, progress: Progress = silent) -> StoreStat:
    """The figures of a directory. Raises `StoreError`."""
    try:
        topics: dict[str, TopicStat] = {}
        total = sum(queue.end - queue.first for queue in directory.queues.values())
        done, end, newest = 0, directory.log.start, None
        for queue in directory.queues.values():
            found = topics.setdefault(queue.topic, TopicStat(queue.topic))
            last = _add_queue(directory, queue, found)
            if last is not None and last.end > end:
                end, newest = last.end, _stored(directory, queue, queue.end - 1, last)
            done += queue.end - queue.first
            progress("queues", done, total)
            directory.pool.trim()
        segments = list(directory.log)
        return StoreStat(
            root=str(directory.root),
            in_use=directory.in_use,
            is_clean=directory.is_clean,
            log_start=directory.log.start,
            log_end=_after(directory, end),
            log_file_bytes=directory.log.file_bytes,
            queue_file_bytes=directory.queue_file_bytes,
            oldest_ms=first_time(directory, segments[0]) if segments else None,
            newest_ms=newest,
            parts=_parts(directory),
            topics=sorted(topics.values(), key=lambda one: (-one.bytes, one.topic)),
            not_read=directory.not_read(),
        )
    except OSError as error:
        raise disk.store_error("cannot read", directory.root, error) from error


def _after(directory: StoreDirectory, position: int) -> int:
    """The end of the log. Records without a queue entry may follow the last one with an entry."""
    while (segment := directory.log.at(position)) is not None:
        at = position - segment.base
        if at + PLACE.size > segment.size:
            position = segment.end
            continue
        size, magic, _, physical = PLACE.unpack_from(segment.view(), at)
        if magic == BLANK_MAGIC:
            position = segment.end
        elif physical == position and size > PLACE.size and position + size <= segment.end:
            position += size
        else:
            break
    return position


def _add_queue(directory: StoreDirectory, queue: QueueFiles, found: TopicStat) -> QueueEntry | None:
    """Add a queue to its topic; returns its last entry."""
    found.queues += 1
    start, last = directory.log.start, None
    first: tuple[int, QueueEntry] | None = None
    newest: tuple[int, QueueEntry] | None = None
    for offset, entry in queue.entries(queue.first, queue.end):
        if entry.size == DUMMY_SIZE:
            continue
        last = entry
        if entry.physical_offset < start:
            found.deleted += 1
            continue
        found.messages += 1
        found.bytes += entry.size
        newest = offset, entry
        first = first or newest
    for place in (first, newest):
        stored = None if place is None else _stored(directory, queue, *place)
        if stored is not None:
            found.oldest_ms = stored if found.oldest_ms is None else min(found.oldest_ms, stored)
            found.newest_ms = stored if found.newest_ms is None else max(found.newest_ms, stored)
    return last


def _stored(directory: StoreDirectory, queue: QueueFiles, offset: int, entry: QueueEntry) -> int | None:
    segment = directory.log.at(entry.physical_offset)
    if segment is None or entry.end > segment.end:
        return None
    view, at = segment.view(), entry.physical_offset - segment.base
    if not is_place(PLACE.unpack_from(view, at), entry.size, offset, entry.physical_offset):
        return None
    return store_timestamp(view, at)


def _parts(directory: StoreDirectory) -> dict[str, PartSize]:
    """The files by the first part of their path; files in the directory itself count as `other`."""
    parts: dict[str, PartSize] = {}
    for name, found in _files(directory):
        part = parts.setdefault(name, PartSize())
        part.files += 1
        part.bytes += found[0]
        part.on_disk += found[1]
    return parts


def _files(directory: StoreDirectory) -> Iterator[tuple[str, tuple[int, int]]]:
    is_inside = directory.log.directory == directory.root / "commitlog"
    for name, found in files_below(directory.root):
        yield (
            name.partition("/")[0] if "/" in name else "other",
            (found.st_size, found.st_blocks * BLOCK_BYTES),
        )
    if not is_inside:
        for _, found in files_below(directory.log.directory):
            yield "commitlog", (found.st_size, found.st_blocks * BLOCK_BYTES)
