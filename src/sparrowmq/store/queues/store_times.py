"""Store times of many messages, for another thread than the store's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrowmq.files import disk
from sparrowmq.store.base.settings import ENTRY_BYTES
from sparrowmq.store.log.commit_log import HOST_V6_EXTRA, PLACE, STORE_TIME_AT, is_place, store_timestamp
from sparrowmq.store.queues.consume_queue import ENTRY, QueueEntry

if TYPE_CHECKING:
    from sparrowmq.store.base.segments import Segment
    from sparrowmq.store.log.commit_log import CommitLog
    from sparrowmq.store.queues.consume_queue import ConsumeQueue

HEAD_BYTES: Final = STORE_TIME_AT + HOST_V6_EXTRA + 8
"""A record up to the end of its store time, wherever that is."""


class StoreTimes:
    """Reads the store times of messages for one pass; `close` when done.

    Only the loop maps files. A file that is not mapped is read, so that a slow disk stops this thread alone.
    """

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._opened: Segment | None = None
        self._fd = -1

    def __repr__(self) -> str:
        return f"<StoreTimes of {self._log.files.directory}>"

    def of(self, queue: ConsumeQueue, offset: int) -> int | None:
        """Store time, epoch ms, of the message at `offset`; None when there is none, or when it is being
        deleted or replaced.
        """
        try:
            data = self._entry(queue, offset)
            if len(data) < ENTRY_BYTES:
                return None
            entry = QueueEntry._make(ENTRY.unpack(data))
            return None if entry.is_hole else self._of_record(entry, offset)
        except OSError:
            return None

    def _entry(self, queue: ConsumeQueue, offset: int) -> bytes:
        segment = queue.file_of(offset) if queue.min_offset <= offset < queue.committed else None
        if segment is None:
            return b""
        at = offset * ENTRY_BYTES - segment.base
        if (data := segment.mapped) is not None:
            return data[at : at + ENTRY_BYTES]
        fd = disk.open_to_read(segment.path)
        try:
            return disk.read_at(fd, ENTRY_BYTES, at)
        finally:
            disk.close(fd)

    def _of_record(self, entry: QueueEntry, offset: int) -> int | None:
        position = entry.physical_offset
        segment = self._log.files.at(position)
        if segment is None or entry.size < HEAD_BYTES:
            return None
        head = self._head(segment, position - segment.base)
        if len(head) < HEAD_BYTES or not is_place(PLACE.unpack_from(head), entry.size, offset, position):
            return None
        return store_timestamp(head, 0)

    def _head(self, segment: Segment, at: int) -> bytes:
        if (data := segment.mapped) is not None:
            return data[at : at + HEAD_BYTES]
        if segment is not self._opened:  # most records are in the same file
            self.close()
            self._fd = disk.open_to_read(segment.path)
            self._opened = segment
        return disk.read_at(self._fd, HEAD_BYTES, at)

    def close(self) -> None:
        """Close the file that is open."""
        fd, self._fd, self._opened = self._fd, -1, None
        if fd >= 0:
            disk.close(fd)
