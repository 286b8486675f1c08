"""Deletion of topics and groups; after a crash at any moment they are either deleted or unchanged
(broker:6.1).

A topic is removed with one save of `topics.json`, which also records that it is being deleted. Then its
queues are deleted on disk, then the groups' offsets in it: a topic that is created again with this name
begins at offset 0, and an old offset would skip its messages. Only then the deletion is answered and the name
can be used again. A deletion that a crash interrupted is completed at the next start, or when it is requested
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterator
from typing import TYPE_CHECKING

from sparrowmq.core.errors import StoreError
from sparrowmq.transport.slices import shared

if TYPE_CHECKING:
    from sparrowmq.broker.tables.topics import TopicTable
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.store.tables.consumer_offsets import ConsumerOffsets

log = logging.getLogger("sparrowmq.broker")


def finish_deletions(store: MessageStore, topics: TopicTable, offsets: ConsumerOffsets) -> None:
    """Finish deletions of topics that a crash interrupted. A failed one is retried later."""
    for name in sorted(topics.deleting):
        try:
            store.delete_topic(name)
            offsets.forget_topic(name)
            offsets.save()
        except StoreError as error:
            log.error("the deletion of topic %s did not finish: %s; delete it again", name, error)
        else:
            log.warning("finished the deletion of topic %s, which a crash had interrupted", name)
            topics.deleted(name)


class Deletions:
    """Performs deletions. `release` answers the requests that wait for a topic's messages; `forget` drops
    what else is known of a topic, its producers and its messages at consumers; `save_offsets` returns when
    the current offsets are on disk.
    """

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        release: Callable[[str], None],
        forget: Callable[[str], None],
        save_offsets: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._release = release
        self._forget = forget
        self._save_offsets = save_offsets
        self._running: dict[str, asyncio.Task[bool]] = {}

    async def topic(self, name: str, *, left_over: bool = False) -> bool:
        """Delete a topic with its queues and offsets, on disk when this returns; False when it was unknown.

        With `left_over`, only the remains of an unknown topic are deleted.

        Concurrent callers wait for the same deletion, which continues even if they stop waiting. Raises
        `StoreError`: then the topic is unchanged, or the deletion continues when it is requested again.
        """
        task = self._running.get(name)
        if task is None:
            task = self._running[name] = asyncio.create_task(self._delete(name, left_over=left_over))
            task.add_done_callback(lambda _: self._running.pop(name, None))
        return await asyncio.shield(task)

    async def _delete(self, name: str, *, left_over: bool = False) -> bool:
        if left_over and name in self._topics.configs:  # it has just been created
            return False
        known = await self._topics.delete(name)
        queues = self._store.queues(name)
        is_left_over = bool(queues) and self._topics.reserve(name)  # queues of an unknown topic
        try:
            self._release(name)
            self._forget(name)
            await self._drop(name, queues, whole=True)
            self._offsets.forget_topic(name)
            await self._save_offsets()
        except StoreError:
            if is_left_over:
                self._topics.deleted(name)
            raise
        self._topics.deleted(name)
        return known

    async def _drop(self, name: str, queues: list[ConsumeQueue], *, whole: bool) -> None:
        """Delete queues; other tasks are not delayed by the disk or by a large number of queues."""
        if queues:
            leaving = self._store.leave(name, queues, whole=whole)
            await asyncio.to_thread(self._store.note, leaving)
            await shared().result(_through(self._store.drop(leaving)))

    async def offsets_of_group(self, group: str) -> None:
        """Remove a group's offsets, on disk when this returns. Raises `StoreError`."""
        self._offsets.forget_group(group)
        await self._save_offsets()

    async def queues(self, name: str, queues: list[ConsumeQueue]) -> None:
        """Delete queues of a remaining topic: their next messages get offset 0. Raises `StoreError`.

        Offsets are deleted first, so that no crash leaves one that skips those messages.
        """
        for queue in queues:
            self._offsets.forget_queue(name, queue.queue_id)
        await self._save_offsets()
        self._topics.close(name)
        self._release(name)
        for queue in queues:
            if self._store.is_expired(queue):  # it may have received messages meanwhile
                await self._drop(name, [queue], whole=False)
                self._offsets.forget_queue(name, queue.queue_id)  # offsets committed meanwhile
        await self._save_offsets()


def _through(steps: Iterator[None]) -> Generator[None, None, None]:
    yield from steps
