"""A member of a consumer group: which queues it has, and the parts that pull, handle and commit them.

Queues that are given up are replaced, never reused: what is in flight keeps its old process queue, finds it
dropped and stops (client:C.6, C.7).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable

from sparrowmq.client.consume import ConsumeService
from sparrowmq.client.delivery import HandedMessage
from sparrowmq.client.instances import shared_instance
from sparrowmq.client.offset_store import BrokerOffsetStore
from sparrowmq.client.process_queue import Limits, ProcessQueue
from sparrowmq.client.pulling import Puller
from sparrowmq.client.rebalance import Rebalancer
from sparrowmq.client.settings import ConsumerSettings
from sparrowmq.client.start_offset import start_offset
from sparrowmq.client.subscriptions import Subscriptions
from sparrowmq.client.tasks import TaskGroup, run_every
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import RETRY_PREFIX
from sparrowmq.core.route import TopicRoute
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies import ConsumeFromWhere, ConsumerData

log = logging.getLogger("sparrowmq.client")

_HANDLER_SHARE = 0.7
"""Part of the time for closing that running handlers get; the rest is for commits and goodbyes."""


class GroupMember:
    """One consumer's membership, between `start` and `close`. Lives on one event loop."""

    def __init__(
        self,
        group: str,
        settings: ConsumerSettings,
        subscriptions: Subscriptions,
        on_death: Callable[[str, BaseException], None],
        message_type: type[HandedMessage],
    ) -> None:
        self.group = group
        self._settings = settings
        self._subscriptions = subscriptions
        self._limits = Limits(settings.queue_messages_max, settings.queue_bytes_max, settings.queue_span_max)
        self.instance = shared_instance(settings)
        self._store = BrokerOffsetStore(self.instance, group)
        self._tasks = TaskGroup(on_death)
        self.service = ConsumeService(group, settings, self.instance, self._store, subscriptions, self._tasks)
        self.puller = Puller(
            group,
            settings,
            self.instance,
            self._store,
            message_type=message_type,
            find_subscription=subscriptions.find,
            submit=self.service.submit,
            illegal_offset=self._go_on_from,
        )
        self._rebalancer = Rebalancer(group, settings, self.instance, settings.allocate, self)
        self._queues: dict[MessageQueue, tuple[ProcessQueue, asyncio.Task[None]]] = {}
        self._announced: tuple[tuple[SubscriptionData, ...], frozenset[str]] | None = None
        self._closing = False
        self._ending: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"queues={len(self._queues)} {self.service!r}"

    async def start(self) -> None:
        """Learn the routes, say hello to the brokers, begin to share queues (client:D.2)."""
        for topic in self._subscriptions.topics:
            await self.instance.update_route(topic)
        self.instance.register_consumer(self.group, self)
        self.instance.start()
        await self.announce()
        self._tasks.start(self._rebalancer.run(), "rebalance")
        settings = self._settings
        self._tasks.start(
            run_every(settings.persist_interval, self._persist, name="committing offsets"), "commit"
        )
        check = min(30.0, settings.consume_timeout / 4)
        self._tasks.start(
            run_every(check, self._expire, name="looking for messages in hand too long"), "expire"
        )
        if self._subscriptions.data[1:]:
            self._rebalancer.wake()

    async def close(self) -> None:
        """Let handlers end, commit, tell the brokers, close; bounded by `close_timeout`."""
        self._closing = True
        timeout = self._settings.close_timeout
        try:
            for _, pull in self._queues.values():
                pull.cancel()
            await self.service.close(timeout * _HANDLER_SHARE)
            async with asyncio.timeout(max(0.1, timeout * (1 - _HANDLER_SHARE))):
                await self._store.persist(self._queues, confirmed=True)
                await self.instance.unregister(consumer=self.group)
        except TimeoutError:
            log.warning(
                "brokers did not take the last commits of group %s in time; messages may repeat", self.group
            )
        finally:
            await self.abort()  # also when the caller does not want to wait any longer

    async def abort(self) -> None:
        """Close at once, without committing."""
        self._closing = True
        for process_queue, _ in self._queues.values():
            process_queue.drop()
        self._queues.clear()
        await self.service.close(0)
        await self._tasks.close()
        await self.instance.close()

    def stop(self, error: BaseException) -> None:
        """Leave the group, because something is broken: others shall get the queues. Iterating users get
        `error`.
        """
        self.service.stream.end(error)
        self._ending = asyncio.get_running_loop().create_task(self.abort())

    def lag(self) -> dict[MessageQueue, int]:
        """Messages per own queue that wait to be consumed, as of the last pull."""
        found = {}
        for queue, (process_queue, _) in sorted(self._queues.items()):
            committed = self._store.get(queue)
            consumed = process_queue.next_offset if committed is None else committed
            found[queue] = max(0, process_queue.broker_max_offset - consumed)
        return found

    def subscriptions_changed(self) -> None:
        """Share anew; the round that follows tells the brokers first."""
        self._rebalancer.wake()

    # What the instance asks

    def topics(self) -> Iterable[str]:
        """Topics whose routes are kept fresh, and whose queues are shared."""
        return self._subscriptions.topics

    def route_changed(self, topic: str, route: TopicRoute) -> None:
        """New queues are shared at the next round; one that has no queue yet is looked at soon."""
        if topic.startswith(RETRY_PREFIX) and not any(q.topic == topic for q in self._queues):
            self._rebalancer.wake()

    def heartbeat_data(self) -> ConsumerData:
        """Group, model and subscriptions."""
        return ConsumerData(
            self.group,
            consume_from_where=_WHERE.get(
                str(self._settings.consume_from), ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
            ),
            subscriptions=self._subscriptions.data,
        )

    def wake_rebalance(self) -> None:
        """Members of the group changed."""
        self._rebalancer.wake()

    # What the rebalancer asks

    async def announce(self) -> None:
        """Tell brokers of subscriptions, and new brokers of us, before they are asked about the group."""
        known = (self._subscriptions.data, frozenset(self.instance.routes.all_addresses()))
        if known != self._announced and await self.instance.heartbeat():
            self._announced = known

    def owned(self) -> Collection[MessageQueue]:
        """The queues this member reads now."""
        return list(self._queues)

    async def give_up(self, queues: Collection[MessageQueue]) -> None:
        """Drop queues first, then commit what was consumed of them (client:C-19, C-23)."""
        for queue in queues:
            process_queue, pull = self._queues.pop(queue)
            process_queue.drop()
            pull.cancel()
        if queues:
            await self._store.persist(queues, confirmed=True)
            for queue in queues:
                self._store.forget(queue)

    async def take(self, queue: MessageQueue) -> bool:
        """Begin to read a queue where the group stands."""
        self._store.forget(queue)
        try:
            offset = await start_offset(self.instance, self._store, queue, self._settings.consume_from)
        except SparrowError as error:
            log.warning("group %s cannot start with %s yet: %s", self.group, queue, error)
            return False
        if self._closing or offset < 0:
            return False
        self._store.set(queue, offset)  # committed soon, so that another owner does not start further on
        process_queue = ProcessQueue(queue, offset, self._limits)
        pull = self._tasks.start(self.puller.run(process_queue), f"pull {queue}")
        self._queues[queue] = (process_queue, pull)
        return True

    # Scheduled work

    async def _go_on_from(self, process_queue: ProcessQueue, offset: int) -> None:
        """The broker has no such offset: commit the one it named and take the queue anew (client:D.7)."""
        queue = process_queue.queue
        if self._queues.get(queue, (None,))[0] is not process_queue:
            return
        del self._queues[queue]
        process_queue.drop()
        self._store.set(queue, offset)
        await self._store.persist([queue], confirmed=True)
        self._store.forget(queue)
        self._rebalancer.wake()

    async def _persist(self) -> None:
        await self._store.persist(list(self._queues))

    async def _expire(self) -> None:
        await self.service.expire([process_queue for process_queue, _ in self._queues.values()])


_WHERE = {
    "last": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    "first": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
}
