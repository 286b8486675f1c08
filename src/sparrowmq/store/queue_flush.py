"""The flush of queues, index and producer states, and the record of it: checkpoint and safe point."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sparrowmq.files import disk
from sparrowmq.store.tables import producer_state

if TYPE_CHECKING:
    from pathlib import Path

    from sparrowmq.core.clock import Clock
    from sparrowmq.core.errors import StoreError
    from sparrowmq.store.index.index import IndexPlace
    from sparrowmq.store.log.commit_log import CommitLog, LogEnd
    from sparrowmq.store.queue_deletion import Departures
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.store.queues.queue_table import QueueTable
    from sparrowmq.store.recovery.recovery import RecoveredStore

SAFE_POINT_SECONDS: Final = 10.0
"""How often the safe point is written, with the index: after a crash, the log is scanned from there."""

SAFE_POINT_BYTES: Final = 32 * 1024 * 1024
"""Bytes of the log after which it is written earlier, without the index, so that the scan stays short."""


class QueueFlush:
    """Forces queue entries to disk in intervals; from time to time index and producer states too. Any thread.

    The safe point moves only to what is on disk. After a failed fsync neither it nor the checkpoint moves.
    """

    def __init__(
        self,
        root: Path,
        clock: Clock,
        commit_log: CommitLog,
        queues: QueueTable,
        found: RecoveredStore,
        departures: Departures,
    ) -> None:
        self._root = root
        self._clock = clock
        self._log = commit_log
        self._queues = queues
        self._index = found.index
        self._producers = found.producers
        self._checkpoint = found.checkpoint
        self._departures = departures
        self._running = threading.Lock()
        """Held during disk operations: never acquire it on the loop."""
        self._due = clock.monotonic() + SAFE_POINT_SECONDS
        self._position = commit_log.position
        """Position of the last safe point, or of the log when the store was opened."""
        self._filed = found.safe_point.index
        """The end of the index that is on disk."""
        self._saved_position = found.safe_point.producers
        self._saved_changes = 0
        self._lost: StoreError | None = None
        """A failed fsync of queues or index: data may be lost."""

    def run(self, *, safe_point: bool = False) -> None:
        """Force new queue entries to disk, then record the flushed positions of log and queues.

        The safe point is written when it is due, when the log has grown by much, or when requested. Raises
        `StoreError`.
        """
        now = self._clock.monotonic()
        with self._running:
            due = safe_point or now >= self._due
            progress, filed = self._log.dispatched, self._index.place
            moves = due or progress.position - self._position >= SAFE_POINT_BYTES
            saves = due or (moves and self._saved_position is None)
            queues = self._queues.all()
            offsets = [(queue, queue.committed) for queue in queues]
            behind = self._producers.behind  # read after `progress`, before the rows
            changes, rows = (
                self._producers.changes,
                self._producers.snapshot() if saves else producer_state.NOTHING,
            )
            if moves:
                self._log.flush()
            self._sync_queues(queues)
            if due:
                self._sync_index(filed)
                self._filed = filed
            if saves:
                complete = progress.position if behind is None else min(behind, progress.position)
                self._save_producers(changes, rows, complete)
            self._save_checkpoint(progress)
            if moves and self._lost is None:
                if due:
                    self._due = now + SAFE_POINT_SECONDS
                self._departures.move(self._filed, progress, offsets, self._saved_position)
                self._position = progress.position

    def _save_checkpoint(self, progress: LogEnd) -> None:
        """Record the data known to be on disk; `progress` was read before the queues were synced."""
        checkpoint, path = self._checkpoint, self._root / "checkpoint"
        if self._log.flushed_timestamp:  # it may be smaller than before: the clock was set back
            checkpoint.physic = self._log.flushed_timestamp
        if self._lost is None and progress.last_record >= 0:
            checkpoint.logics = progress.timestamp
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
                with suppress(FileNotFoundError):  # the queue was deleted meanwhile
                    disk.sync_directory(directory)
        except OSError as error:
            raise self._not_flushed("queues", self._queues.directory, error) from error

    def _not_flushed(self, what: str, directory: Path, error: OSError) -> StoreError:
        """Unwritten data may be lost, and a later fsync would not report it.

        Therefore the checkpoint and the safe point no longer advance, the stop is not clean, and the next
        start writes the data after them again.
        """
        failure = disk.store_error(f"cannot flush the {what} in", directory, error)
        if self._lost is None and not disk.is_busy(error):
            self._lost = failure
        return failure

    def _sync_index(self, filed: IndexPlace) -> None:
        try:
            self._index.sync(filed)
        except OSError as error:
            raise self._not_flushed("index", self._index.directory, error) from error
        if self._lost is None:
            self._checkpoint.index = filed.end_timestamp or self._checkpoint.index

    def _save_producers(self, changes: int, rows: producer_state.ProducerSnapshot, position: int) -> None:
        """Write the idempotent producers if they changed; `rows` were taken after `position`.

        All messages they refer to are on disk: a power failure must not lose messages recorded as stored.
        """
        if changes != self._saved_changes:
            try:
                producer_state.save(self._root, position, rows)
            except OSError as error:
                path = self._root / producer_state.FILE_NAME
                raise disk.store_error("cannot write", path, error) from error
            self._saved_changes = changes
        if changes or any(rows) or self._saved_position is not None:
            self._saved_position = position

    def finish(self) -> None:
        """The last flush of a clean stop. Raises `StoreError`, also when an earlier flush failed."""
        self.run(safe_point=True)
        if self._lost is not None:
            raise self._lost
        try:
            self._checkpoint.save(self._root / "checkpoint", sync=True)
        except OSError as error:
            raise disk.store_error("cannot close", self._root, error) from error
