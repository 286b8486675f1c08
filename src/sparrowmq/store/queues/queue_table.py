"""All consume queues of one store, by topic and queue id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import StoreError
from sparrowmq.files import disk
from sparrowmq.store.base.progress import OpeningProgress
from sparrowmq.store.base.segments import MapPool
from sparrowmq.store.queues.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from sparrowmq.store.log.commit_log import CommitLog

DIRECTORY: Final = "consumequeue"
QUEUE_ID_MAX: Final = 2**31 - 1
_id = attrgetter("queue_id")


class QueueTable:
    """Queues created on demand; the first message creates their files."""

    def __init__(self, root: Path, file_bytes: int, log: CommitLog, pool: MapPool) -> None:
        self.directory = root / DIRECTORY
        self._file_bytes = file_bytes
        self._log = log
        self._pool = pool
        self._topics: dict[str, dict[int, ConsumeQueue]] = {}
        self._deleted: Mapping[str, int] = {}

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, created in memory if it is unknown.

        Raises `StoreError` for a topic that cannot name a directory and for a negative queue id.
        """
        queue = self.find(topic, queue_id)
        if queue is None:
            if topic in ("", ".", "..") or "/" in topic or "\0" in topic or not 0 <= queue_id <= QUEUE_ID_MAX:
                text = f"topic {topic[:80]!r} with queue {queue_id} cannot name a directory"
                raise StoreError(text, what="queue", value=(topic, queue_id))
            born = max(self._log.position, self._deleted.get(topic, 0))
            queue = ConsumeQueue(
                topic, queue_id, self.directory, self._file_bytes, self._log, self._pool, born=born
            )
            self._topics.setdefault(topic, {})[queue_id] = queue
        return queue

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None if it is unknown."""
        queues = self._topics.get(topic)
        return None if queues is None else queues.get(queue_id)

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        """The topic's known queues by id; in any thread."""
        return sorted(self._topics.get(topic, {}).values(), key=_id)

    def each_topic(self) -> Iterator[list[ConsumeQueue]]:
        """The known queues of one topic after the other, unordered.

        In any thread: each list is copied in one step of Python, while the loop adds and deletes queues.
        """
        for queues in list(self._topics.values()):
            yield list(queues.values())

    def topics(self) -> list[str]:
        """Topics with at least one known queue, sorted."""
        return sorted(self._topics)

    def all(self) -> list[ConsumeQueue]:
        """Every known queue."""
        return [queue for queues in self.each_topic() for queue in queues]

    def each(self) -> Iterator[ConsumeQueue]:
        """Iterates over all known queues; limits how many mappings the caller causes."""
        for queue in self.all():
            yield queue
            self._pool.trim()

    def trim(self) -> None:
        """Release mappings above the limit; called when no entry is being accessed."""
        self._pool.trim()

    def load(
        self,
        *,
        thorough: bool,
        deleted: Mapping[str, int] = MappingProxyType({}),
        progress: OpeningProgress | None = None,
    ) -> int:
        """Open the queues on disk; returns how many bytes of stale entries were zeroed. Raises the
        `StoreError` family.

        `deleted` gives the end of the log at the time each topic was deleted: new queues of the name begin
        after it.

        Directories whose names are not numbers are ignored (broker:1.1).
        """
        cleared, self._deleted = 0, deleted
        try:
            names = [
                (topic.name, entry.name)
                for topic in disk.entries(self.directory)
                if topic.is_directory
                for entry in disk.entries(topic.path)
                if entry.is_directory and entry.name.isascii() and entry.name.isdigit()
            ]
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise disk.store_error("cannot read", self.directory, error) from error
        for topic_name, queue_id in (progress or OpeningProgress()).each("queues", sorted(names)):
            cleared += self.get(topic_name, int(queue_id)).load(thorough=thorough)
            self._pool.trim()
        return cleared

    def note_deleted(self, deleted: Mapping[str, int]) -> None:
        """Set the end of the log when topics were deleted: new queues of these names begin after it."""
        self._deleted = deleted

    def delete(self, topic: str) -> int:
        """Delete the topic's queues with their files; returns how many there were. Raises `StoreError`."""
        queues = list(self._topics.get(topic, {}).values())
        for queue in queues:
            self.delete_one(queue)
        return len(queues)

    def delete_one(self, queue: ConsumeQueue) -> None:
        """Delete one queue with its files; deleting the last queue deletes the topic. Raises `StoreError`."""
        queues = self._topics.get(queue.topic, {})
        if queues.pop(queue.queue_id, None) is not None:
            queue.delete()
        if not queues and self._topics.pop(queue.topic, None) is not None:
            with suppress(OSError):  # unknown files stay, and so does their directory
                disk.remove_directory(self.directory / queue.topic)

    def close(self) -> None:
        """Close the files of all queues."""
        for queue in self.all():
            queue.close()
