"""The queues a push consumer owns: how they are taken, given up, locked and started anew (client:C.6 to C.8).

Queues that are given up are replaced, never reused: what is in flight keeps its old process queue, finds it
dropped and stops. An ordered queue is given up only when its handler has ended, because another member may
begin with the next message at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final

from sparrowmq.client.instance import ClientInstance
from sparrowmq.client.locks import QueueLocks
from sparrowmq.client.offset_store import OffsetStore
from sparrowmq.client.process_queue import PULL_SECONDS_MAX, Limits, ProcessQueue
from sparrowmq.client.pulling import Puller
from sparrowmq.client.settings import ConsumerSettings
from sparrowmq.client.start_offset import start_offset
from sparrowmq.client.tasks import TaskGroup
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue

log = logging.getLogger("sparrowmq.client")

HANDLER_SECONDS: Final = 0.5
"""How long giving up an ordered queue waits for its handler, each time it is tried (client:C-25)."""
FORCE_SECONDS: Final = 20.0
"""A lock that was not renewed for so long is let go although the handler still runs (client:C-25)."""
BROKER_LOCK_SECONDS: Final = 60.0
"""How long a broker keeps a lock that is not renewed: later somebody else may have had the queue."""


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
        again: Callable[[], None],
    ) -> None:
        """`again()` is called when something must be tried once more at the next rebalance."""
        self._group = group
        self._settings = settings
        self._instance = instance
        self._store = store
        self._tasks = tasks
        self._locks = locks
        self._again = again
        self._monotonic = instance.clock.monotonic
        span = None if settings.ordered else settings.queue_span_max
        self._limits = Limits(settings.queue_messages_max, settings.queue_bytes_max, span)
        # Whoever has pulls held for longer than usual, or rests longer between them, has not lost them.
        round_seconds = settings.pull_timeout + settings.pull_interval + settings.error_delay
        self._pull_seconds = max(PULL_SECONDS_MAX, 2 * round_seconds)
        self._table: dict[MessageQueue, tuple[ProcessQueue, asyncio.Task[None]]] = {}
        self._unowned: frozenset[MessageQueue] = frozenset()
        self._closing = False
        self.make: Callable[..., ProcessQueue] = ProcessQueue
        """Makes what holds the messages of a queue."""
        self.puller: Puller
        """What pulls the queues; set right after making both."""

    def __len__(self) -> int:
        return len(self._table)

    def queues(self) -> list[MessageQueue]:
        """The queues this member has, sorted; also those it is about to lose."""
        return sorted(self._table)

    def process_queues(self) -> list[ProcessQueue]:
        """What is in hand of them."""
        return [process_queue for process_queue, _ in self._table.values()]

    def find(self, queue: MessageQueue) -> ProcessQueue | None:
        """What is in hand of `queue`, if it is this member's."""
        entry = self._table.get(queue)
        return None if entry is None else entry[0]

    def committable(self) -> list[MessageQueue]:
        """Queues whose offsets this member may commit: an ordered one only while it is locked."""
        now = self._monotonic()
        return [
            queue
            for queue, (process_queue, _) in self._table.items()
            if self._locks is None or process_queue.may_consume_in_order(now)
        ]

    # Taking

    async def take(self, queue: MessageQueue) -> bool:
        """Begin to read a queue where the group stands; False: try again later (client:C.6)."""
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
        self._store.set(queue, offset)  # committed soon, so that another owner does not start further on
        process_queue = self.make(queue, offset, self._limits, now=self._monotonic())
        process_queue.locked = self._locks is not None
        pull = self._tasks.start(self.puller.run(process_queue), f"pull {queue}")
        self._table[queue] = (process_queue, pull)
        return True

    def share_limits(self) -> None:
        """Divide the limits per topic among the queues of now (client:C-39)."""
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
                process_queue.limits = limits

    # Giving up

    async def give_up(self, queues: Collection[MessageQueue]) -> None:
        """Stop reading queues and commit what was consumed of them (client:C-19, C-23, C-25).

        An ordered queue whose handler does not end stays for the next try.
        """
        if self._closing:
            return  # `stop` has begun; handlers may still end and be committed
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
        """Pull and hand out no more of a queue; what is being handled may end."""
        process_queue, pull = self._table[queue]
        process_queue.leave()
        pull.cancel()

    async def settle(self, process_queue: ProcessQueue) -> bool:
        """Commit what was consumed of a resting queue; False when its broker has to be asked again."""
        queue = process_queue.queue
        if self.find(queue) is not process_queue or self._closing:
            return True
        return await self._store.persist([queue], confirmed=True)

    async def retire(self, process_queue: ProcessQueue) -> None:
        """Drop a resting queue, whose lock others may have now."""
        queue = process_queue.queue
        if self.find(queue) is not process_queue or self._closing:
            return
        process_queue.drop()
        del self._table[queue]
        self._store.forget(queue)
        if self._locks is not None:
            await self._locks.unlock([queue], confirmed=True)

    def pull_anew(self, topics: Collection[str]) -> None:
        """Begin anew with pulls of these topics that are under way: they were made under other knobs."""
        if self._closing:
            return
        for queue, (process_queue, pull) in self._table.items():
            if queue.topic in topics and not process_queue.leaving and not pull.done():
                pull.cancel()
                again = self._tasks.start(self.puller.run(process_queue), f"pull {queue}")
                self._table[queue] = (process_queue, again)

    async def _wait_for_handlers(self, queues: list[MessageQueue], timeout: float) -> list[MessageQueue]:
        """Take ordered queues out whose handlers have ended; those queues."""
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
                process_queue.unlock_tries += 1
                log.info("the handler of %s in group %s still runs; it is given up later", queue, self._group)
        if len(gone) < len(held):
            self._again()
        return gone

    async def tidy(self) -> list[MessageQueue]:
        """Finish what could not be given up before, and drop queues whose pull loop was lost; the latter.

        They are taken anew by the round that follows (client:C-20, C.6-1). Locks of queues that no round took
        again, once they were to be started anew, are given back: they are somebody else's now. Locks that a
        lost connection made doubtful are renewed, so that commits go on.
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
            log.error("no pull of %s came back in time; they are taken anew", ", ".join(map(str, lost)))
            await self.give_up(lost)
        return lost

    async def go_on_from(self, process_queue: ProcessQueue, offset: int) -> None:
        """The broker has no such offset: commit the one it named, take the queue anew (client:D.7, D-27)."""
        queue = process_queue.queue
        if self.find(queue) is not process_queue:
            return
        del self._table[queue]
        process_queue.drop()
        self._store.freeze(queue, offset)
        await self._store.persist([queue], confirmed=True)
        self._store.forget(queue)
        self._again()

    async def set_offsets(self, offsets: dict[MessageQueue, int], timeout: float) -> list[MessageQueue]:
        """Drop own queues among `offsets`, let their handlers end, and commit these offsets; which queues.

        The caller takes them anew (client:D-81).
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
        """Renew the locks of queues, all by default. One that was lost and is back is started anew."""
        assert self._locks is not None
        asked = self.process_queues() if process_queues is None else process_queues
        chosen = {held.queue: held for held in asked if not held.leaving}
        granted, refused = await self._locks.lock(chosen)
        now = self._monotonic()
        for queue in refused:
            chosen[queue].locked = False
        for queue in granted:
            held = chosen[queue]
            if held.leaving or self.find(queue) is not held:
                continue
            if held.locked and now - held.last_lock <= BROKER_LOCK_SECONDS:
                held.last_lock = now
                held.doubtful = False
            else:
                self._restart(held)

    async def renew_doubtful(self) -> None:
        """Renew what a lost connection made doubtful, so that commits go on."""
        doubtful = [held for held in self.process_queues() if held.doubtful]
        if doubtful:
            await self.renew_locks(doubtful)

    def doubt_locks(self, address: str) -> None:
        """The connection to a broker was lost: no handler begins there until the locks are renewed.

        A broker that starts anew has forgotten them, and whoever asks first has the queues.
        """
        master = self._instance.routes.master
        for held in self.process_queues():
            if master(held.queue.broker_name) == address:
                held.doubtful = True

    def _restart(self, process_queue: ProcessQueue) -> None:
        """Somebody else may have consumed the queue: what is in hand is stale, its place is asked again."""
        log.info("%s is locked again for group %s and started anew", process_queue.queue, self._group)
        self._table.pop(process_queue.queue)[1].cancel()
        process_queue.drop()
        self._store.forget(process_queue.queue)
        self._again()

    # The end

    def stop(self) -> None:
        """Pull and hand out no more; what is being handled may end."""
        self._closing = True
        for process_queue, pull in self._table.values():
            process_queue.leave()
            pull.cancel()

    async def unlock_all(self) -> None:
        """Let others have all queues, with an answer; also those that are just being taken (client:D-68)."""
        if self._locks is not None:
            await self._locks.unlock(self._locks.asked, confirmed=True)

    def clear(self) -> None:
        """Drop everything at once."""
        self.stop()
        for process_queue, _ in self._table.values():
            process_queue.drop()
        self._table.clear()
