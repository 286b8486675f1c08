"""All consume queues of one store, by topic and queue id."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import StoreError
from sparrowmq.store import disk
from sparrowmq.store.consume_queue import ConsumeQueue
from sparrowmq.store.segments import MapPool

if TYPE_CHECKING:
    from sparrowmq.store.commit_log import CommitLog

DIRECTORY: Final = "consumequeue"
QUEUE_ID_MAX: Final = 2**31 - 1


class QueueTable:
    """Queues made on demand; their files appear with the first message."""

    def __init__(self, root: Path, file_bytes: int, log: CommitLog, pool: MapPool) -> None:
        self.directory = root / DIRECTORY
        self._file_bytes = file_bytes
        self._log = log
        self._pool = pool
        self._topics: dict[str, dict[int, ConsumeQueue]] = {}

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made in memory if it is not known.

        Raises `StoreError` for a topic that cannot name a directory and for a negative queue id.
        """
        queue = self.find(topic, queue_id)
        if queue is None:
            if topic in ("", ".", "..") or "/" in topic or "\0" in topic or not 0 <= queue_id <= QUEUE_ID_MAX:
                raise StoreError(f"topic {topic[:80]!r} with queue {queue_id} cannot name a directory")
            queue = ConsumeQueue(topic, queue_id, self.directory, self._file_bytes, self._log, self._pool)
            self._topics.setdefault(topic, {})[queue_id] = queue
        return queue

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None when it is not known."""
        queues = self._topics.get(topic)
        return None if queues is None else queues.get(queue_id)

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        """The topic's known queues by id."""
        return [queue for _, queue in sorted(self._topics.get(topic, {}).items())]

    def topics(self) -> list[str]:
        """Topics with at least one known queue, sorted."""
        return sorted(self._topics)

    def all(self) -> list[ConsumeQueue]:
        """Every known queue."""
        return [queue for queues in list(self._topics.values()) for queue in list(queues.values())]

    def each(self) -> Iterator[ConsumeQueue]:
        """Every known queue, one after the other; what the caller maps of them stays bounded."""
        for queue in self.all():
            yield queue
            self._pool.trim()

    def trim(self) -> None:
        """Let go of mappings above the limit; called where nobody is in the middle of an entry."""
        self._pool.trim()

    def load(self, *, thorough: bool) -> int:
        """Open what is on disk; how many bytes of stale entries were zeroed. Raises the `StoreError` family.

        Directories that are not numbers are none of ours (broker:1.1).
        """
        cleared = 0
        try:
            names = [
                (topic.name, entry.name)
                for topic in os.scandir(self.directory)
                if topic.is_dir()
                for entry in os.scandir(topic.path)
                if entry.is_dir() and entry.name.isascii() and entry.name.isdigit()
            ]
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise disk.store_error("cannot read", self.directory, error) from error
        for topic_name, queue_id in sorted(names):
            cleared += self.get(topic_name, int(queue_id)).load(thorough=thorough)
            self._pool.trim()
        return cleared

    def delete(self, topic: str) -> int:
        """Delete the topic's queues with their files; how many there were. Raises `StoreError`."""
        queues = list(self._topics.get(topic, {}).values())
        for queue in queues:
            self.delete_one(queue)
        return len(queues)

    def delete_one(self, queue: ConsumeQueue) -> None:
        """Delete one queue with its files; the last one takes its topic along. Raises `StoreError`."""
        queues = self._topics.get(queue.topic, {})
        if queues.pop(queue.queue_id, None) is not None:
            queue.delete()
        if not queues and self._topics.pop(queue.topic, None) is not None:
            with suppress(OSError):  # foreign files stay, and their directory with them
                (self.directory / queue.topic).rmdir()

    def close(self) -> None:
        """Close the files of all queues."""
        for queue in self.all():
            queue.close()
