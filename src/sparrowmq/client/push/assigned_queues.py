"""The queues of a push consumer: how they are taken, given up, locked and restarted (client:C.6 to C.8).

The process queue of a queue that is given up is never reused: work in progress keeps the old one, finds it
dropped and stops. An ordered queue is given up only when its handler has ended, because another member may
immediately begin with the next message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any, Final

from sparrowmq.client.base.settings import ConsumerSettings
from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.consumer.offset_store import OffsetStore, forget_deleted
from sparrowmq.client.consumer.process_queue import PULL_SECONDS_MAX, Limits, MakeQueue, ProcessQueue
from sparrowmq.client.consumer.queue_locks import QueueLocks
from sparrowmq.client.consumer.start_offset import start_offset
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue

log = logging.getLogger("sparrowmq.client")

HANDLER_SECONDS: Final = 0.5
"""How long each attempt to give up an ordered queue waits for its handler (client:C-25)."""
FORCE_SECONDS: Final = 20.0
"""A lock that was not renewed for this long is released even if the handler still runs (client:C-25)."""


class OwnedQueues:
    """The process queues of one member, by queue. `locks` makes them ordered."""

    def __init__(
        self,
        group: str,
        settings: ConsumerSettings,
        instance: ClientInstance,
        store: OffsetStore,
        tasks: TaskGroup,
        locks: QueueLocks | None,
        *,
        make: MakeQueue,
        pull: Callable[[ProcessQueue], Coroutine[Any, Any, None]],
        again: Callable[[], None],
    ) -> None:
        """`make` creates the process queue of a queue, `pull` is the pull loop of one. `again()` is called
        when something must be retried at the next rebalance.
        """
        self._group = group
        self._settings = settings
        self._instance = instance
        self._store = store
        self._tasks = tasks
        self._locks = locks
        self._make = make
        self._pull = pull
        self._again = again
        self._monotonic = instance.clock.monotonic
        span = None if settings.ordered else settings.queue_span_max
        self._limits = Limits(settings.queue_messages_max, settings.queue_bytes_max, span)
        # Longer holds or pauses between pulls do not mean that the pull loop was lost.
        round_seconds = settings.pull_timeout + settings.pull_interval + settings.error_delay
        self._pull_seconds = max(PULL_SECONDS_MAX, 2 * round_seconds)
        self._table: dict[MessageQueue, tuple[ProcessQueue, asyncio.Task[None]]] = {}
        self._unowned: frozenset[MessageQueue] = frozenset()
        self._closing = False

    def __len__(self) -> int:
        return len(self._table)

    def queues(self) -> list[MessageQueue]:
        """The queues of this member, sorted, including those it is about to lose."""
        return sorted(self._table)

    def process_queues(self) -> list[ProcessQueue]:
        """Their process queues."""
        return [process_queue for process_queue, _ in self._table.values()]

    def find(self, queue: MessageQueue) -> ProcessQueue | None:
        """The process queue of `queue`, if this member has it."""
        entry = self._table.get(queue)
        return None if entry is None else entry[0]

    def committable(self) -> list[MessageQueue]:
        """Queues whose offsets this member may commit; an ordered queue only while it is locked."""
        now = self._monotonic()
        return [
            queue
            for queue, (process_queue, _) in self._table.items()
            if self._locks is None or process_queue.may_consume_in_order(now)
        ]

    # Taking

    async def take(self, queue: MessageQueue) -> bool:
        """Start reading a queue at the group's offset; False: try again later (client:C.6)."""
        if self._locks is not None:
            granted, _ = await self._locks.lock([queue])
            if queue not in granted:
                log.info("group %s cannot lock %s yet", self._group, queue)
                return False
        self._store.forget(queue)
        try:
            offset = await start_offset(self._instance, self._store, queue, self._settings.consume_from)
        except SparrowError as error:
            log.warning("group %s cannot start with %s yet: %s", self._group, queue, error)
            return False
        if self._closing or offset < 0 or queue in self._table:
            return False
        self._store.set(queue, offset)  # committed soon, so that the next owner does not start later
        process_queue = self._make(queue, offset, self._limits, now=self._monotonic())
        if self._locks is not None:
            process_queue.lock_taken()
        pull = self._tasks.start(self._pull(process_queue), f"pull {queue}")
        self._table[queue] = (process_queue, pull)
        return True

    def share_limits(self) -> None:
        """Divide the limits per topic among the current queues (client:C-39)."""
        settings, count = self._settings, max(1, len(self._table))
        messages, size = settings.queue_messages_max, settings.queue_bytes_max
        if settings.topic_messages_max is not None:
            messages = max(1, settings.topic_messages_max // count)
        if settings.topic_bytes_max is not None:
            size = max(1, settings.topic_bytes_max // count)
        limits = Limits(messages, size, self._limits.span)
        if limits != self._limits:
            self._limits = limits
            for process_queue in self.process_queues():
                process_queue.limit_to(limits)

    # Giving up

    async def give_up(self, queues: Collection[MessageQueue]) -> None:
        """Stop reading queues and commit their consumed messages (client:C-19, C-23, C-25).

        An ordered queue whose handler does not end stays until the next attempt.
        """
        if self._closing:
            return  # `stop` is in progress; handlers may still end and be committed
        leaving = [queue for queue in queues if queue in self._table]
        for queue in leaving:
            process_queue, pull = self._table[queue]
            pull.cancel()
            if self._locks is None:
                process_queue.drop()
                del self._table[queue]
            else:
                process_queue.leave()
        if not leaving:
            return
        if self._locks is not None:
            leaving = await self._wait_for_handlers(leaving, HANDLER_SECONDS)
        await self._store.persist(leaving, confirmed=True)
        for queue in leaving:
            self._store.forget(queue)
        if self._locks is not None and leaving:
            await self._locks.unlock(leaving)

    def rest(self, queue: MessageQueue) -> None:
        """Stop pulling and handing out messages of a queue; running handlers may end."""
        process_queue, pull = self._table[queue]
        process_queue.leave()
        pull.cancel()

    async def settle(self, process_queue: ProcessQueue) -> bool:
        """Commit the consumed messages of a paused queue; False if the commit must be retried."""
        queue = process_queue.queue
        if self.find(queue) is not process_queue or self._closing:
            return True
        return await self._store.persist([queue], confirmed=True)

    async def retire(self, process_queue: ProcessQueue) -> None:
        """Drop a paused queue; others may lock it now."""
        queue = process_queue.queue
        if self.find(queue) is not process_queue or self._closing:
            return
        process_queue.drop()
        del self._table[queue]
        self._store.forget(queue)
        if self._locks is not None:
            await self._locks.unlock([queue], confirmed=True)

    def pull_anew(self, topics: Collection[str]) -> None:
        """Restart the current pulls of these topics, which were made under other dynamic settings."""
        if self._closing:
            return
        for queue, (process_queue, pull) in self._table.items():
            if queue.topic in topics and not process_queue.leaving and not pull.done():
                pull.cancel()
                again = self._tasks.start(self._pull(process_queue), f"pull {queue}")
                self._table[queue] = (process_queue, again)

    async def _wait_for_handlers(self, queues: list[MessageQueue], timeout: float) -> list[MessageQueue]:
        """Remove ordered queues whose handlers have ended, and return them."""
        held = [process_queue for queue in queues if (process_queue := self.find(queue)) is not None]
        idle = await asyncio.gather(*(process_queue.idle(timeout) for process_queue in held))
        now = self._monotonic()
        gone = []
        for process_queue, is_idle in zip(held, idle, strict=True):
            queue = process_queue.queue
            if self.find(queue) is not process_queue:
                continue
            if is_idle or now - process_queue.last_lock > FORCE_SECONDS:
                process_queue.drop()
                del self._table[queue]
                gone.append(queue)
            else:
                process_queue.unlock_failed()
                log.info(
                    "the handler of %s in group %s is still running; it will be abandoned later",
                    queue,
                    self._group,
                )
        if len(gone) < len(held):
            self._again()
        return gone

    async def tidy(self) -> list[MessageQueue]:
        """Give up queues that had to wait before, and drop queues whose pull loop was lost. Returns the
        latter.

        The next round restarts them (client:C-20, C.6-1). If a queue was to be restarted but no round took it
        again, its lock is released, because the queue belongs to another member. Locks that are doubtful
        after a lost connection are renewed, so that commits continue.
        """
        await self.give_up([queue for queue, (held, _) in self._table.items() if held.leaving])
        if self._locks is not None and not self._closing:
            unowned = self._locks.asked - self._table.keys()
            await self._locks.unlock(unowned & self._unowned, confirmed=True)
            self._unowned = unowned
            await self.renew_doubtful()
        now = self._monotonic()
        lost = [
            queue for queue, (held, _) in self._table.items() if held.pull_expired(now, self._pull_seconds)
        ]
        if lost:
            log.error("no pull of %s returned in time; pulling them again", ", ".join(map(str, lost)))
            await self.give_up(lost)
        return lost

    async def go_on_from(self, process_queue: ProcessQueue, offset: int) -> None:
        """The broker does not have the offset: commit the one it suggested, restart the queue (client:D.7,
        D-27).

        If the broker lost its last messages, earlier unfinished messages are kept, because they have not been
        handled.
        """
        queue, unfinished = process_queue.queue, process_queue.unfinished
        if self.find(queue) is not process_queue:
            return
        if unfinished is not None and offset < process_queue.next_offset:
            offset = min(offset, unfinished)
        del self._table[queue]
        process_queue.drop()
        self._store.freeze(queue, offset)
        await self._store.persist([queue], confirmed=True)
        self._store.forget(queue)
        self._again()

    async def restart_deleted(self, process_queue: ProcessQueue) -> None:
        """The queue's topic was deleted: forget its offset, and restart it in the next round."""
        queue = process_queue.queue
        if self.find(queue) is not process_queue:
            return
        del self._table[queue]
        process_queue.drop()
        await forget_deleted(self._store, queue)
        self._again()

    async def set_offsets(self, offsets: dict[MessageQueue, int], timeout: float) -> list[MessageQueue]:
        """Drop this member's queues in `offsets`, wait for their handlers, commit these offsets. Returns the
        queues.

        The caller restarts them (client:D-81).
        """
        own = [(queue, held) for queue in offsets if (held := self.find(queue)) is not None]
        for queue, process_queue in own:
            self._table[queue][1].cancel()
            process_queue.drop()
        await asyncio.gather(*(process_queue.idle(timeout) for _, process_queue in own))
        for queue, _ in own:
            self._store.freeze(queue, offsets[queue])
        await self._store.persist([queue for queue, _ in own], confirmed=True)
        for queue, process_queue in own:
            if self.find(queue) is process_queue:
                del self._table[queue]
            self._store.forget(queue)
        return [queue for queue, _ in own]

    # Locks

    async def renew_locks(self, process_queues: Iterable[ProcessQueue] | None = None) -> None:
        """Renew the locks of queues, by default all. A queue whose lock was lost and granted again is
        restarted.
        """
        assert self._locks is not None
        asked = self.process_queues() if process_queues is None else process_queues
        chosen = {held.queue: held for held in asked if held.may_start()}
        granted, refused = await self._locks.lock(chosen)
        now = self._monotonic()
        for queue in refused:
            chosen[queue].lock_refused()
        for queue in granted:
            held = chosen[queue]
            if held.leaving or self.find(queue) is not held:
                continue
            if not held.lock_granted(now):
                self._restart(held)

    async def renew_doubtful(self) -> None:
        """Renew locks that are doubtful after a lost connection, so that commits continue."""
        doubtful = [held for held in self.process_queues() if held.doubtful]
        if doubtful:
            await self.renew_locks(doubtful)

    def doubt_locks(self, address: str) -> None:
        """The connection to a broker was lost: no handler of its queues starts until the locks are renewed.

        A restarted broker has lost its locks and grants them to the first member that asks.
        """
        master = self._instance.routes.master
        for held in self.process_queues():
            if master(held.queue.broker_name) == address:
                held.broker_lost()

    def _restart(self, process_queue: ProcessQueue) -> None:
        """Another member may have consumed the queue: drop the stale messages and read the offset again."""
        log.info("%s is locked again for group %s and restarts", process_queue.queue, self._group)
        self._table.pop(process_queue.queue)[1].cancel()
        process_queue.drop()
        self._store.forget(process_queue.queue)
        self._again()

    # The end

    def stop(self) -> None:
        """Stop pulling and handing out messages; running handlers may end."""
        self._closing = True
        for process_queue, pull in self._table.values():
            process_queue.leave()
            pull.cancel()

    async def unlock_all(self) -> None:
        """Unlock all queues and wait for the response, including queues that are being taken
        (client:D-68).
        """
        if self._locks is not None:
            await self._locks.unlock(self._locks.asked, confirmed=True)

    def clear(self) -> None:
        """Drop everything immediately."""
        self.stop()
        for process_queue, _ in self._table.values():
            process_queue.drop()
        self._table.clear()
