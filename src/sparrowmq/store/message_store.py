"""The store's interface for the broker: open, append, read, flush, close."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import StoreError
from sparrowmq.files import disk
from sparrowmq.protocol.record import decode_record
from sparrowmq.store.base import disk_space, store_lock
from sparrowmq.store.base.progress import OpeningProgress
from sparrowmq.store.base.segments import MapPool, Segment
from sparrowmq.store.base.settings import StoreSettings
from sparrowmq.store.base.stats import QUICK_SECONDS, StoreStats
from sparrowmq.store.index.index import KEY, MessageIndex, is_filed
from sparrowmq.store.log.commit_log import CommitLog, store_timestamp
from sparrowmq.store.log.raw_log import RawLog
from sparrowmq.store.log.retention import LogFile
from sparrowmq.store.log_copy import LogCopy
from sparrowmq.store.queue_deletion import Departures, Leaving
from sparrowmq.store.queue_flush import QueueFlush
from sparrowmq.store.queues import time_search
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.queues.queue_table import QueueTable
from sparrowmq.store.queues.reads import (
    PLAIN_MATCH,
    GetResult,
    Match,
    MatchCost,
    ReadRequest,
    get_messages,
    has_match,
)
from sparrowmq.store.queues.store_times import StoreTimes
from sparrowmq.store.recovery.checkpoint import Checkpoint
from sparrowmq.store.recovery.producer_recovery import read_producers
from sparrowmq.store.recovery.recovery import RecoveredStore, recover
from sparrowmq.store.recovery.repair import EntryRepairer
from sparrowmq.store.recovery.safe_point import SafePoint
from sparrowmq.store.writer import ChunkWriter, ReadOnlyWriter

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.protocol.record import StoredRecord

log = logging.getLogger("sparrowmq.store")
INDEX_RECORDS: Final = 4096
INDEX_CLOSE_SECONDS: Final = 10.0
"""Time limit for indexing the last keys in a clean stop; the others are indexed after the next start."""
DISKS_SECONDS: Final = 60.0
"""For how long the last answer of a disk is told."""
QUERY_BYTES_MAX: Final = 8 * 1024 * 1024
"""Maximum size of the result of one query by key; the first record may be larger."""


class MessageStore:
    """One store directory, locked until `close`.

    It may be opened in any thread. Then all methods must be called on one event loop, except `flush`,
    `flush_queues` and `note`, which are thread safe. Messages are appended one by one; `commit_chunk` stores
    all of them or none.
    """

    def __init__(
        self,
        settings: StoreSettings,
        clock: Clock,
        lock: store_lock.StoreLock,
        commit_log: CommitLog,
        queues: QueueTable,
        pool: MapPool,
        found: RecoveredStore,
        *,
        store_host: bytes,
    ) -> None:
        safe_point, producers = found.safe_point, found.producers
        self.settings = settings
        self.producers = producers
        self.recovery = found.report
        self.full: str | None = None
        self._disks: Mapping[Path, disk_space.DiskUsage] | None = None
        self._disks_at = clock.monotonic()
        self.index = found.index
        self._clock = clock
        self._lock = lock
        self._log = commit_log
        self._queues = queues
        self._pool = pool
        self._departures = Departures(settings.root, safe_point, commit_log, queues, producers)
        self.note, self.drop = self._departures.note, self._departures.drop
        self._queue_flush = QueueFlush(settings.root, clock, commit_log, queues, found, self._departures)
        self._mender = EntryRepairer(commit_log)
        self._open = False
        self.stats = StoreStats()
        self.store_host = store_host
        """The packed address of the broker, which records hold."""
        self._writer = ChunkWriter(settings, commit_log, store_host, self.stats)
        writer = ReadOnlyWriter(settings.root) if settings.is_copy else self._writer
        self.append = writer.append  # the hot path bypasses this object
        self.append_batch = writer.append_batch
        self.append_alike = writer.append_alike
        self.raw_log = RawLog(commit_log)
        self.copy = LogCopy(
            settings, commit_log, queues, self._writer, producers, self.commit_chunk, found.report.commits
        )
        self.reserve = self._writer.reserve
        self.drop_chunk = self._writer.drop

    @classmethod
    def open(
        cls,
        settings: StoreSettings,
        clock: Clock,
        *,
        store_host: bytes,
        commits: tuple[int, ...] = (),
        progress: OpeningProgress | None = None,
    ) -> MessageStore:
        """Lock, load and recover the directory; it is created if it does not exist.

        `store_host` is the broker's packed address (8 or 20 bytes) that records hold. `commits` are the
        physical offsets of half messages whose commits this process copied last, see `RecoveryReport`. With
        `progress`, another thread can see how far this is, and stop it. Raises `StoreLockedError`,
        `StoreCorruptError`, `StoreFullError` or `StoreError`, and then holds no lock or file.
        """
        root, progress = settings.root, progress or OpeningProgress()
        try:
            disk.make_directory(root)
            disk.make_directory(settings.commit_log)
        except OSError as error:
            raise disk.store_error("cannot make the store", root, error) from error
        lock = store_lock.StoreLock.take(root)
        pool = MapPool(disk.maps_limit())
        commit_log = CommitLog(settings, pool)
        queues = QueueTable(root, settings.consume_queue_file_bytes, commit_log, pool)
        try:
            store_lock.refuse_foreign(root)
            clean = not store_lock.abort_exists(root)
            commit_log.files.load()
            safe_point = SafePoint.load(root)
            queues.load(thorough=not clean, deleted=safe_point.deleted, progress=progress)
            checkpoint = Checkpoint.load(root / "checkpoint")
            recovery = recover(commit_log, queues, checkpoint, safe_point, progress, clean=clean)
            if not clean:
                for queue in queues.all():
                    queue.note_recovery()
            if not recovery.commits:
                recovery = replace(recovery, commits=commits)
            index = MessageIndex(settings, commit_log, clock)
            index.load(safe_point.index, clean=clean, trusted_until=checkpoint.index)
            now = clock.now_ms()
            producers = read_producers(settings, commit_log, safe_point, recovery, progress, now)
            progress.check()
            found = RecoveredStore(index, checkpoint, safe_point, recovery, producers)
            store = cls(settings, clock, lock, commit_log, queues, pool, found, store_host=store_host)
            store._begin()
        except BaseException as error:
            queues.close()
            commit_log.close()
            lock.release()
            if isinstance(error, OSError):
                raise disk.store_error("cannot open", Path(error.filename or root), error) from error
            raise
        return store

    def _begin(self) -> None:
        """Mark the store as open, and persist the result of recovery. After damage the safe point stays: a
        start after a crash of this one must find the damage as well (transactions, POP)."""
        root = self.settings.root
        try:
            store_lock.write_abort(root)
        except OSError as error:
            raise disk.store_error("cannot write", root / "abort", error) from error
        if self.recovery.added or self.recovery.dropped or self.recovery.lost_queues:
            self.flush_queues(safe_point=not self.recovery.damaged)
        self._pool.trim()
        self.check_disk()
        self._open = True

    def __repr__(self) -> str:
        state = f"{self.min_position}..{self.position}" if self._open else "closed"
        return f"<MessageStore {self.settings.root} {state}>"

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            warnings.warn(f"{self!r} was never closed", ResourceWarning, source=self, stacklevel=2)

    # Queues

    def all_queues(self) -> list[ConsumeQueue]:
        """Every queue of every topic."""
        return self._queues.all()

    def each_topic(self) -> Iterator[list[ConsumeQueue]]:
        """The queues of one topic after the other; in any thread."""
        return self._queues.each_topic()

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue. A new one exists only in memory until its first message creates files.

        Raises `StoreError` for names that cannot be directory names.
        """
        return self._queues.get(topic, queue_id)

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None if it was never requested or written to."""
        return self._queues.find(topic, queue_id)

    def queues(self, topic: str) -> list[ConsumeQueue]:
        """The topic's queues by id; in any thread."""
        return self._queues.of_topic(topic)

    def topics(self) -> list[str]:
        """Topics that have queues, sorted."""
        return self._queues.topics()

    def delete_topic(self, topic: str) -> None:
        """Delete the topic's queues with their files; the records stay in the log until retention deletes
        them.

        The current chunk is committed first. A crash during the deletion does not restore the topic. Blocks
        on the disk: on a shared loop, call its steps `leave`, `note` and `drop` instead. Raises `StoreError`.
        """
        self._delete(self.leave(topic, self._queues.of_topic(topic), whole=True))

    def leave(self, topic: str, queues: list[ConsumeQueue], *, whole: bool) -> Leaving:
        """Commit the current chunk and begin to delete queues of a topic. Raises `StoreError`."""
        self.commit_chunk()
        return self._departures.leave(topic, queues, whole=whole)

    def _delete(self, leaving: Leaving) -> None:
        if leaving.queues:
            self.note(leaving)
            for _ in self.drop(leaving):
                pass

    # Writing

    def commit_chunk(self) -> None:
        """Store everything appended since the last call: one write to the log, then the queue entries.

        Raises `StoreFullError` when the disk is full, `StoreError` on other faults; then no message of the
        chunk is stored and the queues' offsets are unchanged.
        """
        stats, started = self.stats, perf_counter()
        try:
            self._writer.commit()
        except StoreError:
            stats.put_failures += 1
            raise
        took = perf_counter() - started
        if took < QUICK_SECONDS:
            stats.quick += 1
        else:
            stats.put_took(took)
        if self._pool.is_over:
            self._pool.trim()
        for told in self.raw_log.watchers:
            told()

    @property
    def position(self) -> int:
        """The end of the log: the next record starts at this physical offset or later."""
        return self._log.position

    @property
    def timestamp(self) -> int:
        """Store time of the newest record, epoch ms."""
        return self._log.progress.timestamp

    @property
    def min_position(self) -> int:
        """The start of the oldest remaining log file."""
        return self._log.min_position

    @property
    def flushed_position(self) -> int:
        """Position up to which the log is on disk."""
        return self._log.flushed_position

    @property
    def failed(self) -> StoreError | None:
        """Why the store cannot be written until it is opened again, or None."""
        return self._log.failed

    @property
    def disks(self) -> Mapping[Path, disk_space.DiskUsage]:
        """The disks of its two directories, as `check_disk` found them; none when they cannot be asked, or
        have not answered for a minute.
        """
        is_old = self._clock.monotonic() - self._disks_at > DISKS_SECONDS
        return {} if is_old or self._disks is None else self._disks

    def used_percent(self) -> int:
        """Usage of the fullest disk in percent, as `check_disk` found it; 0 when it is unknown."""
        return disk_space.fullest(self._disks)[1] if self._disks else 0

    def check_disk(self) -> None:
        """Look at the disks, and set or clear `full`, the reason to refuse messages.

        Any thread, and not the loop of a running broker: a disk that hangs does not answer.
        """
        root, limit = self.settings.root, self.settings.disk_space_warning_level_ratio
        try:
            found = {path: disk_space.usage(path) for path in (root, self.settings.commit_log)}
        except OSError as error:
            if self._disks != {}:
                log.warning("cannot tell how full the disk of %s is: %s", root, error)
            self._disks = {}
            return
        self._disks, self._disks_at = found, self._clock.monotonic()
        path, percent = disk_space.fullest(found)
        was_full = self.full is not None
        self.full = disk_space.full_text(path, percent, limit, was_full)
        if self.full is not None and not was_full:
            log.error("%s; the broker accepts no messages", self.full)
        elif self.full is None and was_full:
            log.warning("the disk of %s has space again; the broker accepts messages", path)

    # Flushing

    def flush(self) -> int:
        """Force the log to disk; returns the new `flushed_position`. Any thread.

        With `SYNC_FLUSH`, messages up to this position become visible. Raises `StoreError` when the disk
        fails; then no more data is written until the store is opened again.
        """
        return self._log.flush()

    def flush_queues(self, *, safe_point: bool = False) -> None:
        """Force new queue entries to disk, see `QueueFlush`. Any thread. Raises `StoreError`."""
        self._queue_flush.run(safe_point=safe_point)

    # Reading

    def get_messages(
        self,
        queue: ConsumeQueue | None,
        offset: int,
        *,
        max_count: int,
        max_bytes: int,
        codes: frozenset[int] | None = None,
        match: Match | None = None,
        cost: MatchCost = PLAIN_MATCH,
        is_consumer: bool = False,
    ) -> GetResult:
        """Up to `max_count` messages and `max_bytes` from queue offset `offset` on (broker:5.1, 5.2).

        The first message is returned regardless of size. `codes` are the requested tag codes, None for all;
        `match` decides whether a record is requested, at the given `cost`. The work of one read is limited:
        it may return fewer messages than available, or none; continue at `next_offset`. A consumer
        (`is_consumer`) gets only confirmed messages, the broker itself all.
        """
        self._let_go()
        scan_bytes = self.settings.max_filter_message_size
        wanted = ReadRequest(max_count, max_bytes, codes, match, cost, scan_bytes, is_consumer)
        result = get_messages(self._log, queue, offset, wanted)
        if result.passed and queue is not None:
            again = partial(get_messages, self._log, queue, offset, wanted)
            result = self._mender.read_again(queue, result, again)
        stats = self.stats
        if result.count:
            stats.found += 1
            stats.transferred += result.count
        else:
            stats.missed += 1
        return result

    def has_match(self, queue: ConsumeQueue, offset: int, codes: frozenset[int]) -> bool:
        """Whether a read from `offset` with these tag codes would return messages or advance."""
        return has_match(queue, offset, codes, scan_bytes=self.settings.max_filter_message_size)

    def read_record(self, physical_offset: int) -> bytes | None:
        """The message record that starts at a physical offset; None when there is none."""
        self._let_go()
        record = self._log.record(physical_offset)
        return record if record and self._mender.stands(self._queues, decode_record(record)) else None

    def decoded_record(self, physical_offset: int) -> StoredRecord | None:
        """Like `read_record`, but decoded."""
        self._let_go()
        record = self._log.decoded(physical_offset)
        return record if record and self._mender.stands(self._queues, record) else None

    def earliest_time(self) -> int:
        """Store time, epoch ms, of the oldest record in the log; -1 if the log is empty."""
        self._let_go()
        record = self._log.record(self.min_position)
        return -1 if record is None else store_timestamp(memoryview(record), 0)

    def store_time(self, queue: ConsumeQueue, offset: int) -> int | None:
        """Store time, epoch ms, of the message at a queue offset; None when there is no message."""
        self._let_go()
        return time_search.store_time(self._log, queue, offset)

    def store_times(self) -> StoreTimes:
        """Reads many store times in another thread."""
        return StoreTimes(self._log)

    def searching(
        self, queue: ConsumeQueue, timestamp: int, boundary: str = time_search.LOWER
    ) -> Generator[None, None, int]:
        """Find an offset by store time, epoch ms, in steps; see `time_search.searching`."""
        self._let_go()
        return time_search.searching(self._log, queue, timestamp, boundary)

    # Index

    def follow_index(self, records: int) -> int:
        """Index the keys of up to `records` records; returns the remaining bytes of the log. Raises
        `StoreError`."""
        left = self.index.follow(records)
        self._let_go()
        return left

    def query(
        self, topic: str, key: str, count: int, begin: int, end: int, *, kind: str = KEY
    ) -> Generator[None, None, tuple[list[bytes], bool]]:
        """Stored records of up to `count` messages with a key, unique key or tag, oldest first (broker:4.3).

        `begin` and `end` are store times in epoch ms. Finds only indexed records; other keys with the same
        hash are excluded. Works in steps; the flag is False when it ended before examining all matches.
        Raises `StoreError`.
        """

        def accept(offset: int) -> bool:
            record = self.decoded_record(offset)
            return record is not None and is_filed(record, topic, key, kind)

        records: list[bytes] = []
        room = QUERY_BYTES_MAX
        found = yield from self.index.query(topic, key, count, begin, end, kind, accept=accept)
        for offset in found.offsets:
            record = self.read_record(offset)
            if record is not None and (not records or len(record) <= room):
                records.append(record)
                room -= len(record)
            yield
        return records, found.whole

    # Retention

    def log_files(self) -> list[LogFile]:
        """The files of the commit log, oldest first, up to the one being written. Raises OSError."""
        flushed = self.flushed_position
        return [
            LogFile(segment.base, disk.stat(segment.path).st_mtime_ns // 1_000_000)
            for segment in self._log.files
            if segment.end <= flushed or segment.base <= flushed
        ]

    def forget_log_file(self) -> Segment:
        """Remove the oldest file from the log, for its owner to delete; slices that were read stay valid."""
        return self._log.files.detach_first()

    def keep_log_file(self, segment: Segment) -> None:
        """Add a file that could not be deleted to the log again."""
        self._log.files.attach_first(segment)

    def trim(self, queue: ConsumeQueue) -> list[Path]:
        """Set a queue's minimum offset after log files were deleted; returns the queue files to delete."""
        gone = queue.trim()
        self._let_go()
        return gone

    def trim_index(self) -> list[Path]:
        """Drop index files of deleted records; returns the files to delete."""
        return self.index.drop_before(self.min_position)

    def is_expired(self, queue: ConsumeQueue) -> bool:
        """Whether the queue had messages and all their records are deleted."""
        last = queue.last_entry()
        self._let_go()
        return last is not None and last.end <= self.min_position

    def _let_go(self) -> None:
        """Unmap segments above the limit, unless the current chunk has mapped them for writing."""
        if self._pool.is_over and self._writer.is_empty:
            self._pool.trim()

    # Closing

    def close(self) -> None:
        """Commit, flush, mark the stop as clean, and release the directory. Idempotent.

        After a disk failure the directory is released as after a crash, so that the next start recovers.
        Raises the `StoreError` that prevented a clean close.
        """
        if not self._open:
            return
        root = self.settings.root
        try:
            self.commit_chunk()
            self._finish_index()
            self.flush()
            self._queue_flush.finish()
            try:
                store_lock.remove_abort(root)
            except OSError as error:
                raise disk.store_error("cannot close", root, error) from error
        except StoreError as error:
            raise type(error)(
                f"the store was not closed cleanly; the next start runs recovery: {error}",
                what="close",
            ) from error
        finally:
            self.abandon()

    def _finish_index(self) -> None:
        """Index the remaining records: another broker would index only the records it stores itself."""
        deadline = self._clock.monotonic() + INDEX_CLOSE_SECONDS
        try:
            while (left := self.follow_index(INDEX_RECORDS)) and self._clock.monotonic() < deadline:
                pass
        except StoreError as error:
            log.warning("the last keys are not in the index yet: %s", error)
            return
        if left:
            log.warning("the keys in the last %d bytes of the log are not in the index yet", left)

    def abandon(self) -> None:
        """Release everything as a crash would: nothing is flushed, `abort` stays. Idempotent."""
        if self._open:
            self._open = False
            root = self.settings.root
            self._log.stop(StoreError(f"the store {root} is closed", what="closed", value=root))
            self.index.close()
            self._queues.close()
            self._log.close()
            self._lock.release()
