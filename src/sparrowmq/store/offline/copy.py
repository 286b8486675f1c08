"""`sparrow store copy`: copies a directory, or some of its topics, to a new directory and checks it.

A copy of everything keeps every position. A copy of some topics is a new log with only their messages: queue
offsets, times and hosts stay the same, physical offsets change.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import NoStoreError
from sparrowmq.files import disk
from sparrowmq.protocol import java_json
from sparrowmq.protocol.record import BLANK_BYTES_MIN, BLANK_MAGIC, decode_record
from sparrowmq.store.base.segments import MapPool
from sparrowmq.store.log.commit_log import CommitLog, LogEnd
from sparrowmq.store.log.proof import is_proven, seal
from sparrowmq.store.offline.backup import index_sizes
from sparrowmq.store.offline.copying import copy_bytes
from sparrowmq.store.offline.directory import MAPS_MAX, Progress, StoreDirectory, silent
from sparrowmq.store.offline.image import CONFIG, StoreImage
from sparrowmq.store.offline.settle import FileSizes, settle
from sparrowmq.store.offline.table_check import OFFSETS, TOPICS, read_table
from sparrowmq.store.offline.verify import VerifyReport
from sparrowmq.store.queues.consume_queue import ENTRY, TAG_CODE_MIN, ConsumeQueue
from sparrowmq.store.queues.queue_table import QueueTable
from sparrowmq.store.recovery.dispatch import TRIM_RECORDS, tags_code_of
from sparrowmq.store.tables.config_file import ConfigFile

CHUNK_BYTES: Final = 4 * 1024 * 1024
GROUPS: Final = "subscriptionGroup.json"
_PHYSICAL_AT: Final = 28
_LONG: Final = struct.Struct(">q")
_BLANK: Final = struct.Struct(">iI")


def copy(
    directory: StoreDirectory,
    root: Path,
    clock: Clock,
    *,
    topics: Collection[str] = (),
    progress: Progress = silent,
) -> VerifyReport:
    """Copy a directory to `root`, which must be empty or not exist; with `topics`, only their messages.

    Raises `NoStoreError` for a topic without queues, and `StoreError` and its subclasses.
    """
    work = root.with_name(f"{root.name}.copying")
    known = {topic for topic, _ in directory.queues}
    if missing := sorted(set(topics) - known):
        text = f"{directory.root} has no messages of topic {missing[0]}"
        raise NoStoreError(text, what="topic", value=missing[0])
    slots, entries = index_sizes(directory)
    sizes = FileSizes(
        log_file_bytes=directory.log.file_bytes,
        queue_file_bytes=directory.queue_file_bytes,
        index_slots=slots,
        index_entries=entries,
    )
    try:
        if disk.exists(root) and disk.entries(root):
            text = f"{root} is not empty; copy to a directory that does not exist yet"
            raise NoStoreError(text, value=root)
        if disk.exists(work):
            raise NoStoreError(f"{work} is left from an interrupted copy; remove it, then try again")
        disk.make_directory(work)
        deleted: dict[str, int] = {}
        if topics:
            TopicCopy(directory, work, sizes, frozenset(topics)).run(progress)
        else:
            deleted = _copy_whole(directory, work, progress)
        report = settle(work, sizes, clock, deleted=deleted, progress=progress)
        if disk.exists(root):
            disk.remove_directory(root)
        disk.rename(work, root)
    except OSError as error:
        raise disk.store_error("cannot copy to", Path(error.filename or root), error) from error
    report.moved_to(root)
    return report


def _copy_whole(directory: StoreDirectory, work: Path, progress: Progress) -> dict[str, int]:
    image, done = StoreImage(directory), 0
    total = len(directory.log) * directory.log.file_bytes
    directories: set[Path] = set()
    for file in image.files():
        path = work / file.path
        disk.make_directory(path.parent, durable=False)
        directories.update(one for one in path.parents if one.is_relative_to(work))
        copy_bytes(file.source, path, size=file.size, used=file.used, mode=file.mode)
        done += file.used
        progress("copy", done, total)
    for path in sorted(directories):
        disk.sync_directory(path)
    return image.deleted


def _begins_late(source: StoreDirectory, topic: str, queue_id: int) -> bool:
    """Whether the first messages of a queue have been deleted."""
    queue = source.queues[topic, queue_id]
    first = queue.entry(queue.first)
    return queue.first > 0 or (first is not None and first.physical_offset < source.log.start)


class TopicCopy:
    """Writes the messages of some topics to a new log with new queues."""

    def __init__(self, source: StoreDirectory, work: Path, sizes: FileSizes, topics: frozenset[str]) -> None:
        settings, pool = sizes.settings(work), MapPool(MAPS_MAX)
        self._source = source
        self._work = work
        self._topics = topics
        self._log = CommitLog(settings, pool)
        self._queues = QueueTable(work, settings.consume_queue_file_bytes, self._log, pool)
        self._file_bytes = settings.mapped_file_size_commit_log
        # A log that begins at 0 has the first message of every queue, so one without begins later.
        begins_late = any(_begins_late(source, topic, number) for topic, number in source.queues)
        self._end = LogEnd(self._file_bytes if begins_late else 0, -1, 0)
        self._log.begin_at(self._end)
        self._spans: list[tuple[int, list[bytes]]] = []
        self._entries: list[tuple[ConsumeQueue, int, bytes]] = []
        self._bytes = self._count = 0

    def run(self, progress: Progress) -> None:
        """Copy the messages, then the rows of the tables that name them. Raises the `StoreError` family."""
        try:
            self._source.read_log(self._visit, progress)
            self._write()
            self._log.flush()
            directories: set[Path] = set()
            for queue in self._queues.all():
                queue.sync(directories)
            for path in sorted(directories):
                disk.sync_directory(path)
        finally:
            self._queues.close()
            self._log.close()
        self._copy_tables()

    def _visit(self, view: memoryview, at: int, position: int, size: int) -> None:
        record = decode_record(view, at)
        if record.topic not in self._topics:
            return
        queue = self._source.queues.get((record.topic, record.queue_id))
        entry = None if queue is None else queue.entry(record.queue_offset)
        if entry is None or entry[:2] != (position, size) or entry.is_hole:
            return  # a prepared message, or one of a deleted topic of that name
        code = entry.tags_code if entry.tags_code >= TAG_CODE_MIN else tags_code_of(record)
        place = self._place(size)
        data = bytes(view[at : at + size])
        moved = data[:_PHYSICAL_AT] + _LONG.pack(place) + data[_PHYSICAL_AT + _LONG.size :]
        self._spans[-1][1].append(seal(moved) if is_proven(data) else moved)
        target = self._queues.get(record.topic, record.queue_id)
        self._entries.append((target, record.queue_offset, ENTRY.pack(place, size, code)))
        self._end = LogEnd(place + size, place, record.store_timestamp)
        self._bytes += size
        if self._bytes >= CHUNK_BYTES:
            self._write()

    def _place(self, size: int) -> int:
        """Position of the next record, which is in the next file if it does not fit into this one."""
        position = self._end.position
        rest = self._file_bytes - position % self._file_bytes
        if size + BLANK_BYTES_MIN > rest:
            if not self._spans:
                self._spans.append((position, []))
            self._spans[-1][1].append(_BLANK.pack(rest, BLANK_MAGIC))
            position += rest
            self._spans.append((position, []))
        elif not self._spans:
            self._spans.append((position, []))
        return position

    def _write(self) -> None:
        """Write the collected records, then their queue entries."""
        if self._spans:
            self._log.write(self._spans, self._end)
        for queue, offset, entry in self._entries:
            queue.restore(offset, entry)
            self._count += 1
            if not self._count % TRIM_RECORDS:
                self._queues.trim()
        self._spans, self._entries, self._bytes = [], [], 0

    def _copy_tables(self) -> None:
        """Copy the rows of these topics, their offsets, and all groups."""
        source = self._source.root / CONFIG
        for name in (TOPICS, OFFSETS, GROUPS):
            table = read_table(source / name)
            if table is None:
                continue
            self._keep(table, "topicConfigTable", "")
            self._keep(table, "offsetTable", "@")
            ConfigFile(self._work / CONFIG / name).write(java_json.dumps_pretty(table))

    def _keep(self, table: dict[str, Any], member: str, separator: str) -> None:
        rows = table.get(member)
        if isinstance(rows, dict):
            kept = {
                k: v for k, v in rows.items() if (k.split(separator)[0] if separator else k) in self._topics
            }
            table[member] = kept
