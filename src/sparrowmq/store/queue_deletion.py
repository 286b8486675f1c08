"""Queues that are being deleted, and the safe point of an open store, which records it.

A deletion has three steps: queues are marked as leaving, this is saved on disk, and they are dropped with
their files. Only the second step waits for the disk, and any thread may do it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparrowmq.core.errors import StoreError
from sparrowmq.files import disk
from sparrowmq.store.recovery.safe_point import SafePoint

if TYPE_CHECKING:
    from sparrowmq.store.index.index import IndexPlace
    from sparrowmq.store.log.commit_log import CommitLog, LogEnd
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.store.queues.queue_table import QueueTable
    from sparrowmq.store.tables.producer_state import ProducerStates


@dataclass(frozen=True, slots=True)
class Leaving:
    """Some or all queues of a topic that are being deleted, with their ends and the log's end at that
    time."""

    topic: str
    queues: tuple[ConsumeQueue, ...]
    ends: tuple[int, ...]
    position: int
    whole: bool


class Departures:
    """Deletes queues and keeps the safe point correct."""

    def __init__(
        self, root: Path, point: SafePoint, log: CommitLog, queues: QueueTable, producers: ProducerStates
    ) -> None:
        self._root = root
        self._point = point
        self._log = log
        self._queues = queues
        self._producers = producers
        self._saving = threading.Lock()
        """Lock of the safe point and its file, held during disk operations: never acquire it on a loop."""

    def leave(self, topic: str, queues: list[ConsumeQueue], *, whole: bool) -> Leaving:
        """Begin to delete queues of a topic; if the whole topic is deleted, it accepts no more messages."""
        for queue in queues:
            queue.leave()
        ends = tuple(queue.committed for queue in queues)
        return Leaving(topic, tuple(queues), ends, self._log.position, whole)

    def note(self, leaving: Leaving) -> None:
        """Record the queues being deleted, so that no crash restores them. Any thread.

        Raises `StoreError`; then the queues stay.
        """
        topic, numbers = leaving.topic, {queue.queue_id for queue in leaving.queues}
        with self._saving:
            point = self._point.without(topic, None if leaving.whole else numbers)
            if leaving.whole:
                point = replace(point, deleted={**point.deleted, topic: leaving.position})
            try:
                self._save(point)
            except StoreError:
                for queue in leaving.queues:
                    queue.stay()
                raise

    def drop(self, leaving: Leaving) -> Iterator[None]:
        """Delete the recorded queues with their files, one per step. Raises `StoreError`.

        A single queue of a remaining topic is not deleted if it received messages meanwhile.
        """
        if leaving.whole:
            self._producers.drop_topic(leaving.topic)
        for queue, end in zip(leaving.queues, leaving.ends, strict=True):
            if leaving.whole or queue.next_offset == queue.committed == end:
                if not leaving.whole:
                    self._producers.drop_topic(leaving.topic, queue.queue_id)
                self._queues.delete_one(queue)
            else:
                queue.stay()
            yield

    def move(
        self,
        filed: IndexPlace | None,
        progress: LogEnd,
        offsets: list[tuple[ConsumeQueue, int]],
        producers: int | None,
    ) -> None:
        """Record that all of this is on disk; queues being deleted are excluded. Any thread.

        `producers` is the position of the file of producers, None if there is none. Raises `StoreError`.
        """
        ends: dict[str, dict[int, int]] = {}
        with self._saving:
            for queue, offset in offsets:
                if offset and not queue.deleted and not queue.leaving:
                    ends.setdefault(queue.topic, {})[queue.queue_id] = offset
            self._save(
                SafePoint(
                    progress.last_record, progress.position, ends, self._point.deleted, filed, producers
                )
            )

    def _save(self, point: SafePoint) -> None:
        """Replace the safe point, without deletions whose records are all removed; raises `StoreError`."""
        oldest = self._log.min_position
        point = replace(point, deleted={name: end for name, end in point.deleted.items() if end > oldest})
        try:
            point.save(self._root)
        except OSError as error:
            raise disk.store_error("cannot write the safe point in", self._root, error) from error
        self._point = point
        self._queues.note_deleted(point.deleted)
