"""The store as the broker sees it: open, append, read, flush, close."""

from __future__ import annotations

import logging
import threading
import warnings
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import StoreError
from sparrowmq.store import disk, disk_space, producer_state, store_lock, time_search
from sparrowmq.store.checkpoint import Checkpoint
from sparrowmq.store.commit_log import CommitLog, Progress, store_timestamp
from sparrowmq.store.consume_queue import ConsumeQueue
from sparrowmq.store.index import KEY, IndexPlace, MessageIndex
from sparrowmq.store.producer_recovery import read_producers
from sparrowmq.store.producer_state import ProducerTable
from sparrowmq.store.queue_table import QueueTable
from sparrowmq.store.reads import GetResult, Match, get_messages, has_match
from sparrowmq.store.recovery import RecoveryReport, recover
from sparrowmq.store.retention import LogFile
from sparrowmq.store.safe_point import SafePoint
from sparrowmq.store.segments import MapPool, Segment
from sparrowmq.store.settings import StoreSettings
from sparrowmq.store.stats import QUICK_SECONDS, StoreStats
from sparrowmq.store.writer import ChunkWriter

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.protocol.record import StoredRecord

log = logging.getLogger("sparrowmq.store")
SAFE_POINT_SECONDS: Final = 10.0
"""How often the safe point is written: a crash costs at most the scan of what came since."""

INDEX_RECORDS: Final = 4096
INDEX_CLOSE_SECONDS: Final = 10.0
"""How long a clean stop may take to file the last keys; what is left is filed after the next start."""

QUERY_BYTES_MAX: Final = 8 * 1024 * 1024
"""The most that one query by key gives, after a first record of any size."""


class MessageStore:
    """One store directory, held until `close`.

    All calls belong to one event loop, except `flush` and `flush_queues`, which any thread may make. Messages
    are appended one by one and become stored, all or none, with `commit_chunk`.
    """

    def __init__(
        self,
        settings: StoreSettings,
        clock: Clock,
        lock: store_lock.StoreLock,
        commit_log: CommitLog,
        queues: QueueTable,
        pool: MapPool,
        *,
        index: MessageIndex,
        checkpoint: Checkpoint,
        safe_point: SafePoint,
        recovery: RecoveryReport,
        producers: ProducerTable,
        store_host: bytes,
    ) -> None:
        self.settings = settings
        self.producers = producers
        self.recovery = recovery
        self.full: str | None = None
        self.index = index
        self._clock = clock
        self._lock = lock
        self._log = commit_log
        self._queues = queues
        self._pool = pool
        self._checkpoint = checkpoint
        self._safe_point = safe_point
        self._safe_point_due = clock.monotonic() + SAFE_POINT_SECONDS
        self._flushing_queues = threading.Lock()
        self._queues_failed = False
        self._producers_saved = 0
        self._open = False
        self.stats = StoreStats()
        self._writer = ChunkWriter(settings, commit_log, store_host, self.stats)
        self.append = self._writer.append  # the hot path goes there directly
        self.append_batch = self._writer.append_batch
        self.append_alike = self._writer.append_alike
        self.reserve = self._writer.reserve
        self.drop_chunk = self._writer.drop

    @classmethod
    def open(cls, settings: StoreSettings, clock: Clock, *, store_host: bytes) -> MessageStore:
        """Lock, load and recover the directory; it is made if it does not exist.

        `store_host` is the broker's packed address (8 or 20 bytes) that records hold. Raises
        `StoreLockedError`, `StoreCorruptError`, `StoreFullError` or `StoreError`, and holds nothing then.
        """
        root = settings.root
        try:
            root.mkdir(parents=True, exist_ok=True)
            settings.commit_log.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk.store_error("cannot make the store", root, error) from error
        lock = store_lock.StoreLock.take(root)
        pool = MapPool(disk.maps_limit())
        commit_log = CommitLog(settings, pool)
        queues = QueueTable(root, settings.consume_queue_file_bytes, commit_log, pool)
        try:
            _refuse_foreign(root)
            clean = not store_lock.abort_exists(root)
            commit_log.files.load()
            queues.load(thorough=not clean)
            checkpoint = Checkpoint.load(root / "checkpoint")
            safe_point = SafePoint.load(root)
            recovery = recover(commit_log, queues, checkpoint, safe_point, clean=clean)
            index = MessageIndex(settings, commit_log, clock)
            index.load(safe_point.index, clean=clean, trusted_until=checkpoint.index)
            store = cls(
                settings,
                clock,
                lock,
                commit_log,
                queues,
                pool,
                index=index,
                checkpoint=checkpoint,
                safe_point=safe_point,
                recovery=recovery,
                producers=read_producers(settings, commit_log, safe_point, recovery, clock.now_ms()),
                store_host=store_host,
            )
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
        """Say that the store is open, and keep what recovery did."""
        root = self.settings.root
        try:
            store_lock.write_abort(root)
        except OSError as error:
            raise disk.store_error("cannot write", root / "abort", error) from error
        if self.recovery.added or self.recovery.dropped or self.recovery.lost_queues:
            self.flush_queues(safe_point=True)
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

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue; made in memory when it is new, its files come with the first message.

        Raises `StoreError` for names that cannot be a directory.
        """
        return self._queues.get(topic, queue_id)

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None when nobody has asked for it or written to it."""
        return self._queues.find(topic, queue_id)

    def queues(self, topic: str) -> list[ConsumeQueue]:
        """The topic's queues by id."""
        return self._queues.of_topic(topic)

    def topics(self) -> list[str]:
        """Topics that have queues, sorted."""
        return self._queues.topics()

    def delete_topic(self, topic: str) -> None:
        """Delete the topic's queues with their files; the records stay in the log until it is cleaned.

        Messages of the current chunk are committed before. A crash in between does not bring the topic back.
        Raises `StoreError`.
        """
        self.commit_chunk()
        if not self._queues.of_topic(topic):
            return
        with self._flushing_queues:
            self.producers.drop_topic(topic)
            self._safe_point.queues.pop(topic, None)
            self._safe_point.deleted[topic] = self.position
            self._save_safe_point()
            self._queues.delete(topic)

    # Writing

    def commit_chunk(self) -> None:
        """Store everything appended since the last call: one write to the log, then the queue entries.

        Raises `StoreFullError` when the disk is full, `StoreError` on other faults; then nothing of the chunk
        is stored and the queues' offsets are what they were.
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
        self._pool.trim()

    @property
    def position(self) -> int:
        """The end of the log: the physical offset of the next record at the earliest."""
        return self._log.position

    @property
    def timestamp(self) -> int:
        """Store time of the newest record, epoch ms; the next one gets this or a later one."""
        return self._log.progress.timestamp

    @property
    def min_position(self) -> int:
        """The start of the oldest kept log file."""
        return self._log.min_position

    @property
    def flushed_position(self) -> int:
        """Up to where the log is on disk."""
        return self._log.flushed_position

    @property
    def failed(self) -> StoreError | None:
        """Why nothing can be written any more until the store is opened again, or None."""
        return self._log.failed

    def used_percent(self) -> int:
        """How full the fullest disk of the store is; 0 when nobody can tell."""
        try:
            return disk_space.fullest([self.settings.root, self.settings.commit_log])[1]
        except OSError:
            return 0

    def check_disk(self) -> None:
        """Look how full the disks are, and set or clear `full`: the reason no message should be taken."""
        root, limit = self.settings.root, self.settings.disk_space_warning_level_ratio
        try:
            path, percent = disk_space.fullest([root, self.settings.commit_log])
        except OSError as error:
            log.warning("cannot tell how full the disk of %s is: %s", root, error)
            return
        was_full = self.full is not None
        self.full = disk_space.full_text(path, percent, limit, was_full)
        if self.full is not None and not was_full:
            log.error("%s; no messages are taken", self.full)
        elif self.full is None and was_full:
            log.warning("the disk of %s has space again, messages are taken", path)

    # Flushing

    def flush(self) -> int:
        """Force the log to disk; the new `flushed_position`. Any thread.

        With `SYNC_FLUSH` the messages up to there become visible. Raises `StoreError` when the disk fails;
        then nothing more is written until the store is opened again.
        """
        return self._log.flush()

    def flush_queues(self, *, safe_point: bool = False) -> None:
        """Force new queue entries to disk, then write down how far log and queues are. Any thread.

        The safe point is written when it is due or asked for. Raises `StoreError`.
        """
        now = self._clock.monotonic()
        with self._flushing_queues:
            due = safe_point or now >= self._safe_point_due
            progress, filed = self._log.dispatched, self.index.place
            queues = self._queues.all()
            offsets = [(queue, queue.committed) for queue in queues]
            behind = self.producers.behind  # looked at after `progress`, before the rows
            changes, rows = self.producers.changes, self.producers.snapshot() if due else []
            if due:
                self._log.flush()
            self._sync_queues(queues)
            if due:
                self._sync_index(filed)
                complete = progress.position if behind is None else min(behind, progress.position)
                self._save_producers(changes, rows, complete)
            self._save_checkpoint(progress)
            if due and not self._queues_failed:
                self._safe_point_due = now + SAFE_POINT_SECONDS
                point = self._safe_point
                point.index = filed
                point.record, point.position = progress.last_record, progress.position
                point.queues = {}
                for queue, offset in offsets:
                    if offset and not queue.deleted:
                        point.queues.setdefault(queue.topic, {})[queue.queue_id] = offset
                self._save_safe_point()

    def _save_checkpoint(self, progress: Progress) -> None:
        """Write down what is on disk for sure; `progress` was taken before the queues were synced."""
        checkpoint, path = self._checkpoint, self.settings.root / "checkpoint"
        checkpoint.physic = max(checkpoint.physic, self._log.flushed_timestamp)
        if not self._queues_failed and progress.last_record >= 0:
            checkpoint.logics = max(checkpoint.logics, progress.timestamp)
            checkpoint.logics_physical = progress.last_record
        try:
            checkpoint.save(path)
        except OSError as error:
            raise disk.store_error("cannot write", path, error) from error

    def _sync_queues(self, queues: list[ConsumeQueue]) -> None:
        directories: set[Path] = set()
        try:
            for queue in queues:
                queue.sync(directories)
            for directory in directories:
                if directory.exists():
                    disk.sync_directory(directory)
        except OSError as error:
            # What could not be written may be gone, and a later fsync would not say so: from here on the
            # checkpoint stays where it is, and the next start rebuilds the queues from there.
            self._queues_failed |= not disk.is_busy(error)
            raise disk.store_error("cannot flush the queues in", self._queues.directory, error) from error

    def _sync_index(self, filed: IndexPlace) -> None:
        try:
            self.index.sync(filed)
        except OSError as error:
            raise disk.store_error("cannot flush the index in", self.index.directory, error) from error
        self._checkpoint.index = max(self._checkpoint.index, filed.end_timestamp)

    def _save_producers(
        self, changes: int, rows: list[tuple[producer_state.Key, producer_state.ProducerQueue]], position: int
    ) -> None:
        """Write the idempotent producers if they changed; `rows` were taken after `position`, and all they
        name is on disk: what the file calls stored must not be lost with the power.
        """
        if changes != self._producers_saved:
            try:
                producer_state.save(self.settings.root, position, rows)
            except OSError as error:
                path = self.settings.root / producer_state.FILE_NAME
                raise disk.store_error("cannot write", path, error) from error
            self._producers_saved = changes
        if changes or rows or self._safe_point.producers is not None:
            self._safe_point.producers = position

    def _save_safe_point(self) -> None:
        point = self._safe_point
        oldest = self.min_position
        point.deleted = {topic: end for topic, end in point.deleted.items() if end > oldest}
        try:
            point.save(self.settings.root)
        except OSError as error:
            raise disk.store_error("cannot write the safe point in", self.settings.root, error) from error

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
    ) -> GetResult:
        """Up to `max_count` messages and `max_bytes` from queue offset `offset` on (broker:5.1, 5.2).

        The first message comes whatever its size; `codes` are the tag codes wanted, None for all; `match`
        says of a record whether it is wanted.
        """
        self._let_go()
        result = get_messages(
            self._log,
            queue,
            offset,
            max_count=max_count,
            max_bytes=max_bytes,
            codes=codes,
            match=match,
            scan_bytes=self.settings.max_filter_message_size,
        )
        stats = self.stats
        if result.count:
            stats.found += 1
            stats.transferred += result.count
        else:
            stats.missed += 1
        return result

    def has_match(self, queue: ConsumeQueue, offset: int, codes: frozenset[int]) -> bool:
        """Whether a read from `offset` with these tag codes would find something or get ahead."""
        return has_match(queue, offset, codes, scan_bytes=self.settings.max_filter_message_size)

    def read_record(self, physical_offset: int) -> bytes | None:
        """The stored record that starts at a physical offset, or None when no valid one does."""
        self._let_go()
        return self._log.record(physical_offset)

    def decoded_record(self, physical_offset: int) -> StoredRecord | None:
        """The same, decoded."""
        self._let_go()
        return self._log.decoded(physical_offset)

    def earliest_time(self) -> int:
        """Store time, epoch ms, of the oldest record in the log; -1 without any."""
        self._let_go()
        record = self._log.record(self.min_position)
        return -1 if record is None else store_timestamp(memoryview(record), 0)

    def store_time(self, queue: ConsumeQueue, offset: int) -> int | None:
        """Store time, epoch ms, of the message at a queue offset; None when there is none."""
        self._let_go()
        return time_search.store_time(self._log, queue, offset)

    def offset_by_time(self, queue: ConsumeQueue, timestamp: int, boundary: str = time_search.LOWER) -> int:
        """`LOWER`: the first offset stored at or after `timestamp` (epoch ms), else the maximum offset.

        `UPPER`: the last offset stored at or before it, else the minimum offset.
        """
        self._let_go()
        return time_search.offset_by_time(self._log, queue, timestamp, boundary)

    # Index

    def follow_index(self, records: int) -> int:
        """File the keys of up to so many records; how many bytes of the log are left. Raises `StoreError`."""
        left = self.index.follow(records)
        self._let_go()
        return left

    def query(
        self, topic: str, key: str, count: int, begin: int, end: int, *, kind: str = KEY
    ) -> list[bytes]:
        """Stored records of up to `count` messages with a key, unique key or tag, oldest first (broker:4.3).

        `begin` and `end` are store times in epoch ms. Finds what the index has filed; records of other keys
        with the same hash are among them. Raises `StoreError`.
        """
        found: list[bytes] = []
        room = QUERY_BYTES_MAX
        for offset in self.index.query(topic, key, count, begin, end, kind):
            record = self.read_record(offset)
            if record is not None and (not found or len(record) <= room):
                found.append(record)
                room -= len(record)
        return found

    # Retention

    def log_files(self) -> list[LogFile]:
        """The files of the commit log, oldest first, up to the one that is being written. Raises OSError."""
        flushed = self.flushed_position
        return [
            LogFile(segment.base, segment.path.stat().st_mtime_ns // 1_000_000)
            for segment in self._log.files
            if segment.end <= flushed or segment.base <= flushed
        ]

    def forget_log_file(self) -> Segment:
        """Take the oldest file out of the log, for its owner to delete; what was read of it stays valid."""
        return self._log.files.detach_first()

    def keep_log_file(self, segment: Segment) -> None:
        """Take back a file that could not be deleted."""
        self._log.files.attach_first(segment)

    def trim(self, queue: ConsumeQueue) -> list[Path]:
        """Set a queue's minimum offset after log files went; its files that are to be deleted."""
        gone = queue.trim()
        self._let_go()
        return gone

    def trim_index(self) -> list[Path]:
        """Forget index files of records that went; they are to be deleted."""
        return self.index.drop_before(self.min_position)

    def is_expired(self, queue: ConsumeQueue) -> bool:
        """Whether the queue had messages, and the records of all of them are gone."""
        last = queue.last_entry()
        self._let_go()
        return last is not None and last.end <= self.min_position

    def delete_queue(self, queue: ConsumeQueue) -> None:
        """Delete one queue with its files; its next message gets offset 0. Raises `StoreError`."""
        self.commit_chunk()
        with self._flushing_queues:
            self.producers.drop_topic(queue.topic, queue.queue_id)
            self._safe_point.queues.get(queue.topic, {}).pop(queue.queue_id, None)
            self._save_safe_point()
            self._queues.delete_one(queue)

    def _let_go(self) -> None:
        """Unmap what is above the limit, unless a chunk under way has mapped it to be written."""
        if self._pool.is_over and self._writer.is_empty:
            self._pool.trim()

    # Closing

    def close(self) -> None:
        """Commit, flush, note that the stop was clean, and let go of the directory. Idempotent.

        After a failure of the disk the directory is let go as after a crash, so that the next start recovers.
        Raises the `StoreError` that kept it from closing cleanly.
        """
        if not self._open:
            return
        root = self.settings.root
        try:
            self.commit_chunk()
            self._finish_index()
            self.flush()
            self.flush_queues(safe_point=True)
            try:
                self._checkpoint.save(root / "checkpoint", sync=True)
                store_lock.remove_abort(root)
            except OSError as error:
                raise disk.store_error("cannot close", root, error) from error
        except StoreError as error:
            raise type(error)(f"the store is not closed cleanly, its next start recovers: {error}") from error
        finally:
            self.abandon()

    def _finish_index(self) -> None:
        """File what is left: another broker that takes the directory files only what it stores itself."""
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
        """Let go of everything as a crash would: nothing is flushed, `abort` stays. Idempotent."""
        if self._open:
            self._open = False
            self._log.failed = StoreError(f"the store {self.settings.root} is closed")
            self.index.close()
            self._queues.close()
            self._log.close()
            self._lock.release()


def _refuse_foreign(root: Path) -> None:
    """Raise `StoreError` for directories of RocketMQ's other storage engines (broker:17.50)."""
    for path in root.glob("dledger-*"):
        raise StoreError(
            f"{path} is the log of a DLedger broker, which is laid out differently; use another store"
        )
