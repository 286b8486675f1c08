"""A member of a consumer group: its queues, and the parts that pull, handle and commit messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Final

from sparrowmq.client.base.hooks import Hooks
from sparrowmq.client.base.settings import ConsumerSettings
from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.client.cluster.broker_api import GenerationOf, need_address, no_generation
from sparrowmq.client.cluster.instances import shared_instance
from sparrowmq.client.consumer import broker_requests
from sparrowmq.client.consumer.consume_hooks import CallRecords, ConsumeHooks
from sparrowmq.client.consumer.dynamic_settings import Changed
from sparrowmq.client.consumer.leases import Leases
from sparrowmq.client.consumer.managed import ManagedMember
from sparrowmq.client.consumer.membership import ConsumerMembership
from sparrowmq.client.consumer.offset_store import BrokerOffsetStore, store_of
from sparrowmq.client.consumer.process_queue import Limits, MakeQueue, ProcessQueue
from sparrowmq.client.consumer.queue_locks import QueueLocks
from sparrowmq.client.consumer.rebalance import Rebalancer
from sparrowmq.client.consumer.statistics import SAMPLE_SECONDS, ConsumeStatistics
from sparrowmq.client.push.assigned_queues import OwnedQueues
from sparrowmq.client.push.concurrent import ConsumeService
from sparrowmq.client.push.direct_calls import DirectCalls
from sparrowmq.client.push.message_stream import StreamedMessage
from sparrowmq.client.push.ordered import OrderedService
from sparrowmq.client.push.pop_returns import PopReturns
from sparrowmq.client.push.popped_queues import SWEEP_SECONDS, PoppedQueues
from sparrowmq.client.push.puller import Puller, PullTarget
from sparrowmq.client.push.send_back import SendBack
from sparrowmq.client.push.subscriptions import Subscriptions
from sparrowmq.client.tracing.on_demand import hooks_with, tracing_of
from sparrowmq.core.dynamic_settings import Unable, is_paused
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import RETRY_PREFIX
from sparrowmq.core.route import TopicRoute
from sparrowmq.protocol import bodies
from sparrowmq.protocol.failing import failing_text
from sparrowmq.protocol.managed import GENERATIONS_PROPERTY

log = logging.getLogger("sparrowmq.client")

HANDLER_SHARE: Final = 0.7
"""Share of the close timeout for running handlers; the remaining time is for commits and leave requests."""
LOCK_FIRST_SECONDS: Final = 1.0
"""Delay before the first renewal of locks (client:C-30)."""
LOCK_SOON_SECONDS: Final = 0.1
"""Delay before requesting a lock that an ordered run lacks; the run is then retried."""
LOCK_AGAIN_SECONDS: Final = 3.0
RESET_SECONDS: Final = 10.0
"""How long a reset waits for running handlers (client:D-81)."""


class GroupMember(ConsumerMembership, broker_requests.CommandableMember):
    """A push consumer's membership."""

    def __init__(
        self,
        group: str,
        settings: ConsumerSettings,
        subscriptions: Subscriptions,
        on_death: Callable[[str, BaseException], None],
        message_type: type[StreamedMessage],
    ) -> None:
        instance = shared_instance(settings)
        monotonic = instance.clock.monotonic
        leases = Leases(monotonic) if settings.managed else None
        generation_of = no_generation if leases is None else leases.generation
        store = store_of(settings, instance, group, generation_of)
        super().__init__(group, settings, instance, store, TaskGroup(on_death))
        self._settings = settings
        self._subscriptions = subscriptions
        self._is_broadcasting = settings.model == "broadcasting"
        self._tracing = tracing_of(group, settings, "CONSUME")
        self.statistics = ConsumeStatistics(group, monotonic)
        self._send_back = SendBack(
            self.instance,
            group,
            self.dynamic,
            settings.request_timeout,
            generation_of=generation_of,
            copies=leases is None,
        )
        self._returns = PopReturns(
            group, self.instance, self._send_back, self.dynamic, self._tasks, settings.hooks
        )
        self.service: ConsumeService | OrderedService = self._consume_service()
        self._locks = QueueLocks(self.instance, group, generation_of) if settings.ordered else None
        self.puller = self._make_puller(message_type, generation_of)
        self.queues = self._owned_queues(leases)
        self.popped = PoppedQueues(
            settings, self._returns, self.puller, self._tasks, self.service, message_type
        )
        if leases is not None:
            self._managed = ManagedMember(group, instance, self.queues, self._tasks, leases, self)
        self._rebalancer = self._make_rebalancer()
        self._locking: set[ProcessQueue] = set()
        self._direct = DirectCalls(group, settings, self.instance, subscriptions, message_type)
        self._paused = False
        self._resets = 0
        self._released = False
        self._ending: asyncio.Task[None] | None = None

    def _owned_queues(self, leases: Leases | None) -> OwnedQueues:
        return OwnedQueues(
            self.group,
            self._settings,
            self.instance,
            self._store,
            self._tasks,
            self._locks,
            make=ProcessQueue if leases is None else self._leased(leases),
            pull=self.puller.run,
            again=self._again,
        )

    def _make_rebalancer(self) -> Rebalancer:
        return Rebalancer(
            self.group,
            self._settings,
            self.instance,
            self._settings.allocate,
            self,
            is_broadcasting=self._is_broadcasting,
            asks_broker=self._settings.server_assignment,
            pops=self.popped,
            on_change=self._changed,
        )

    def _make_puller(self, message_type: type[StreamedMessage], generation_of: GenerationOf) -> Puller:
        return Puller(
            self.group,
            self._settings,
            self.instance,
            self._store,
            PullTarget(message_type, self.service.submit, self._not_stored, self._deleted),
            find_subscription=self._subscriptions.find,
            statistics=self.statistics,
            dynamic=self.dynamic,
            generation_of=generation_of,
        )

    def __repr__(self) -> str:
        return f"queues={len(self.queues)} {self.service!r}"

    def _consume_service(self) -> ConsumeService | OrderedService:
        settings = self._settings
        hooks = ConsumeHooks(
            Hooks(hooks_with(settings, self._tracing)),
            self.group,
            lambda: self.dynamic.consume_timeout,
            ordered=settings.ordered,
        )
        known = (self._store, self._subscriptions, self._tasks, self._send_back)
        common = (*known, CallRecords(hooks, self.statistics), self.dynamic, self.instance.clock)
        if settings.ordered:
            return OrderedService(self.group, settings, *common, self._lock_soon)
        return ConsumeService(self.group, settings, *common, self._returns)

    def _leased(self, leases: Leases) -> MakeQueue:
        """Creates process queues that respect the lease, and passes their start offsets to the offset
        store.
        """
        store = self._store
        assert isinstance(store, BrokerOffsetStore), "settings refuse other stores"

        def make(queue: MessageQueue, next_offset: int, limits: Limits, *, now: float) -> ProcessQueue:
            store.begun(queue, next_offset)
            return leases.make_queue(queue, next_offset, limits, now=now)

        return make

    # What a managed member asks

    def managed_topics(self) -> Iterable[str]:
        """The subscribed topics."""
        return self.topics()

    def forget_given_up(self) -> None:
        """Drop waiting messages of leaving queues."""
        self.service.forget_given_up()

    def go_on(self) -> None:
        """Start handlers that paused while the lease was expired."""
        self.service.go_on()

    def refused_results(self) -> int:
        """Number of returned messages that brokers refused because the queue had moved."""
        return self._send_back.refused

    def skipped_messages(self) -> int:
        """Number of messages that failed and that no broker could store for a retry or as dead letters."""
        return self._send_back.skipped

    # Life

    async def start(self) -> None:
        """Load offsets and routes, send heartbeats to the brokers, start the rebalance loop (client:D.2)."""
        await self._store.load()
        self.instance.register_consumer(self.group, self)
        broker_requests.serve(self.instance)
        self.instance.start()
        for topic in self._subscriptions.topics:
            await self.instance.update_route(topic)
        await self.instance.check_filters(self.group, self._subscriptions.data)
        await self.announce()
        settings = self._settings
        if self._tracing is not None:
            self._tracing.start()
        if self._managed is None:
            self._tasks.start(self._rebalancer.run(), "rebalance")
        else:
            self._tasks.start(self._managed.run(), "managed membership")
        self._every(settings.persist_interval, self._persist, "committing offsets")
        # A coordinator may shorten the handler timeout.
        look = 1.0 if settings.managed else 30.0
        self._every(
            min(look, settings.consume_timeout / 4), self._expire, "looking for messages that take too long"
        )
        self._every(SAMPLE_SECONDS, self._sample, "sampling statistics")
        if settings.server_assignment:
            self._every(SWEEP_SECONDS, self.popped.sweep, "looking for popped messages in hand too long")
        if settings.ordered:
            self.instance.on_lost.append(self.queues.doubt_locks)
            first = min(LOCK_FIRST_SECONDS, settings.lock_interval)
            self._every(settings.lock_interval, self.queues.renew_locks, "renewing locks", first)
        if not self._subscriptions.is_empty:
            self._rebalancer.wake()

    async def close(self) -> None:
        """Wait for handlers, commit, notify the brokers, close; bounded by `close_timeout` (client:D.14)."""
        self._closing = True
        timeout = self._settings.close_timeout
        if self._managed is not None:
            self._managed.close()
        try:
            self._rest()
            self.queues.stop()
            self.popped.stop()
            await self.service.close(timeout * HANDLER_SHARE)
            await self._say_goodbye(max(0.1, timeout * (1 - HANDLER_SHARE)))
            if self._managed is not None:
                await self._managed.leave()
        finally:
            await self.abort()  # also if the caller is cancelled

    async def _say_goodbye(self, timeout: float) -> None:
        """Commit, then unlock and leave; a broker that does not answer does not delay the others."""
        try:
            async with asyncio.timeout(timeout / 2):
                await self._store.persist(self.queues.committable(), confirmed=True)
        except TimeoutError:
            log.warning(
                "brokers did not take the last commits of group %s in time; messages may repeat", self.group
            )
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout / 2):
                await asyncio.gather(self.queues.unlock_all(), self.instance.unregister(consumer=self.group))

    async def abort(self) -> None:
        """Close at once, without committing, and completely even if cancelled."""
        self._closing = True
        self.queues.clear()
        self.popped.clear()
        async with AsyncExitStack() as end:  # in reverse order
            tracing, self._tracing = self._tracing, None
            if tracing is not None:
                end.push_async_callback(tracing.close)
            end.push_async_callback(self._release)
            end.push_async_callback(self._leave_shared)
            end.push_async_callback(self._tasks.close)
            end.callback(self._direct.close)
            end.push_async_callback(self.service.close, 0)

    async def _leave_shared(self) -> None:
        if self.instance.is_shared:
            await self._leave_brokers()

    async def _release(self) -> None:
        self.instance.forget_consumer(self.group, self)
        with suppress(ValueError):
            self.instance.on_lost.remove(self.queues.doubt_locks)
        if not self._released:  # the instance is shared, so release it only once even if this is called again
            self._released = True
            await self.instance.close()

    def stop(self, error: BaseException) -> None:
        """Leave the group after a failure, so that others get the queues. Iterators raise `error`."""
        self.service.stream.end(error)
        self._ending = asyncio.get_running_loop().create_task(self.abort())

    # Dynamic settings

    def unable(self) -> dict[str, Unable]:
        """The dynamic settings that are set but that this consumer cannot apply."""
        cannot: dict[str, Unable] = {}
        if not self._subscriptions.is_empty and not self._subscriptions.has_handlers:
            cannot = {"threads": Unable.ITERATED, "batch": Unable.ITERATED}
        else:
            if not self.dynamic.takes_lists:
                cannot["batch"] = Unable.SINGLE
            if self._settings.ordered:
                cannot["consume_timeout"] = Unable.ORDERED
        return self.dynamic.unable(cannot)

    def replace_tags(self, instead: dict[str, str]) -> None:
        """Filter topics by these expressions."""
        self._subscriptions.replace_tags(instead)

    def settings_changed(self, changed: Changed) -> None:
        """Restart the pulls that dynamic settings affect."""
        if changed.threads:
            self.service.resize(self.dynamic.threads)
        self.service.rebatch()
        self.queues.pull_anew(changed.pulls | changed.tags)
        self._tasks.start(self._begin_anew(changed), "changed settings")

    async def _begin_anew(self, changed: Changed) -> None:
        """Drop unfinished messages of queues that are now paused or have other tags; they are
        pulled again.
        """
        if changed.tags:
            await self.announce()
        if self._managed is not None and (changed.tags or changed.pauses):
            self._managed.begin_anew(
                lambda queue: queue.topic in changed.tags or is_paused(changed.pauses, queue, 0)
            )

    # What users ask

    def lag(self) -> dict[MessageQueue, int]:
        """Unconsumed messages per assigned queue, as of the last pull."""
        found = {}
        for held in sorted(self.queues.process_queues(), key=lambda held: held.queue):
            committed = self._store.get(held.queue)
            consumed = held.next_offset if committed is None else committed
            found[held.queue] = max(0, held.broker_max_offset - consumed)
        return found

    def pause(self) -> None:
        """Stop pulling but keep the queues; pulled messages are still consumed (client:D-80)."""
        self._paused = True
        self._rest()

    def resume(self) -> None:
        """Resume after `pause`, as soon as no reset is in progress."""
        self._paused = False
        self._rest()

    def _rest(self) -> None:
        """Start or stop pulling and rebalancing according to the current state."""
        if self._paused or self._resets > 0 or self._closing:
            self.puller.pause()
            self._rebalancer.pause()
        else:
            self.puller.resume()
            self._rebalancer.resume()

    @property
    def is_paused(self) -> bool:
        """Whether pulling is paused."""
        return self.puller.paused

    def subscriptions_changed(self) -> None:
        """Rebalance; the round first announces the subscriptions to the brokers."""
        if self._managed is not None:
            self._managed.topics_changed()
        self._rebalancer.wake()

    async def find_offsets(self, timestamp_ms: int) -> dict[MessageQueue, int]:
        """The offset of each assigned queue of subscribed topics at a time (client:D-82). Raises
        `SparrowError`.
        """
        found = {}
        for queue in self.queues.queues():
            if not queue.topic.startswith(RETRY_PREFIX):
                address = need_address(await self.instance.master_of(queue), queue, "master")
                found[queue] = await self.instance.brokers.search_offset(address, queue, timestamp_ms)
        return found

    # What brokers ask

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue from these offsets: pause, drop unfinished messages, commit, restart the queues
        (client:D-81).

        Broadcasting consumers cannot be reset (client:D-83); this is logged.
        """
        if self._is_broadcasting:
            log.warning("group %s is broadcasting, so a tool cannot reset its offsets", self.group)
            return
        self._resets += 1
        self._rest()
        if self._managed is not None:
            self._managed.hold_back()
        try:
            done = await self.queues.set_offsets(dict(offsets), RESET_SECONDS)
            self.service.forget_given_up()
            log.info("group %s continues at new offsets in %s", self.group, ", ".join(map(str, done)))
        finally:
            self._resets -= 1
            self._rest()
            if self._managed is not None and not self._resets:
                self._managed.go_on()

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Offsets in memory of the queues of `topic` (221)."""
        pairs = ((queue, self._store.get(queue)) for queue in self.queues.queues() if queue.topic == topic)
        return {queue: offset for queue, offset in pairs if offset is not None}

    def running_info(self) -> bodies.ConsumerRunningInfo:
        """Running info, as tools show it (client:D-86)."""
        clock = self.instance.clock
        now, now_ms = clock.monotonic(), clock.now_ms()
        data = self._subscriptions.data
        return bodies.ConsumerRunningInfo(
            properties=self._properties(
                self._settings,
                PROP_CONSUMEORDERLY=str(self._settings.ordered).lower(),
                PROP_THREADPOOL_CORE_SIZE=str(self.dynamic.threads),
                skippedMessages=str(self.skipped_messages()),
                failingQueues=failing_text(self.statistics.failing()),
                **({} if self._managed is None else {GENERATIONS_PROPERTY: self._managed.generations()}),
            ),
            subscriptions=data,
            queues={
                held.queue: broker_requests.queue_info(held, self._store.get(held.queue), now, now_ms)
                for held in sorted(self.queues.process_queues(), key=lambda held: held.queue)
            },
            statuses={one.topic: self.statistics.status(one.topic) for one in data},
        )

    async def consume_directly(self, body: bytes, broker_name: str) -> bodies.ConsumeMessageDirectlyResult:
        """Call the handler with one stored message, independently of all queues (client:D-88)."""
        return await self._direct.consume(body, broker_name)

    # Called by the client instance

    def topics(self) -> Iterable[str]:
        """Topics whose routes are refreshed and whose queues are divided among members."""
        return self._subscriptions.topics

    def route_changed(self, topic: str, route: TopicRoute) -> None:
        """New queues are assigned in the next round; a topic without queues is checked again soon."""
        if topic.startswith(RETRY_PREFIX) and not any(q.topic == topic for q in self.queues.queues()):
            self._rebalancer.wake()

    def heartbeat_data(self) -> bodies.ConsumerData:
        """Group, model and subscriptions."""
        return bodies.ConsumerData(
            self.group,
            message_model=bodies.MessageModel(self._settings.model.upper()),
            consume_from_where=_WHERE.get(
                str(self._settings.consume_from), bodies.ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
            ),
            subscriptions=self._subscriptions.data,
            unit_mode=self._settings.unit_mode,
        )

    # Called by the rebalancer

    async def announce(self) -> None:
        """Announce news to the brokers, without queues that are given up."""
        if self._managed is None:  # a managed member gives up queues when their handlers have ended
            await self.queues.tidy()
        await super().announce()

    def owned(self) -> Collection[MessageQueue]:
        """The queues this member reads now."""
        return self.queues.queues()

    def assigned(self) -> list[MessageQueue]:
        """These, and the queues from which it receives by POP, sorted."""
        return sorted((*self.queues.queues(), *self.popped.owned()))

    async def give_up(self, queues: Collection[MessageQueue]) -> None:
        """Stop reading queues and commit their consumed messages."""
        await self.queues.give_up(queues)
        if queues:
            self.service.forget_given_up()

    async def take(self, queue: MessageQueue) -> bool:
        """Start reading a queue at the group's offset."""
        return not self._closing and await self.queues.take(queue)

    async def _changed(self, topics: Collection[str]) -> None:
        """The assigned queues changed: update limits and versions, send a heartbeat, call the listener
        (client:C-39).
        """
        self.queues.share_limits()
        for topic in topics:
            self._subscriptions.touch(topic)
        await self.instance.heartbeat()
        self._tell_listener(topics)

    async def queues_changed(self, topics: Collection[str]) -> None:
        """A coordinator changed queues of these topics; brokers already know the subscriptions."""
        self.queues.share_limits()
        self._tell_listener(topics)

    def _tell_listener(self, topics: Collection[str]) -> None:
        """Call the listener for these topics. A member whose broker assigns queues does not know which queues
        there are.
        """
        listener, asks_broker = self._settings.queue_listener, self._settings.server_assignment
        if listener is None:
            return
        for topic in sorted(topics):
            route = self.instance.routes.get(topic)
            every = [] if route is None or asks_broker else route.subscribe_queues(topic)
            self.tell(listener, topic, every, [queue for queue in self.assigned() if queue.topic == topic])

    async def _not_stored(self, process_queue: ProcessQueue, offset: int) -> None:
        """The broker does not have the offset and suggested `offset`: restart the queue from there."""
        await self.queues.go_on_from(process_queue, offset)

    async def _deleted(self, process_queue: ProcessQueue) -> None:
        await self.queues.restart_deleted(process_queue)

    def _again(self) -> None:
        """Request another rebalance round."""
        self.service.forget_given_up()
        if not self._closing:
            self._rebalancer.wake()

    # Ordered runs

    def _lock_soon(self, process_queue: ProcessQueue) -> None:
        """A run has no lock: request it and run again soon, or later if it is not granted (client:D.11)."""
        if process_queue not in self._locking:
            self._locking.add(process_queue)
            self._tasks.start(self._lock_and_run(process_queue), f"lock {process_queue.queue}")

    async def _lock_and_run(self, process_queue: ProcessQueue) -> None:
        try:
            await self.instance.sleep(LOCK_SOON_SECONDS)
            await self.queues.renew_locks([process_queue])
        finally:
            self._locking.discard(process_queue)
        assert isinstance(self.service, OrderedService)
        is_locked = process_queue.may_consume_in_order(self.instance.clock.monotonic())
        self.service.again(process_queue, 0.01 if is_locked else LOCK_AGAIN_SECONDS)

    # Scheduled work

    async def _persist(self) -> None:
        committable = self.queues.committable()
        if len(committable) == len(self.queues):
            await self._store.persist_all(committable)
        else:  # messages held back are kept until the lock is granted again
            await self._store.persist(committable)

    async def _expire(self) -> None:
        await self.service.expire(self.queues.process_queues())

    async def _sample(self) -> None:
        self.statistics.sample()


_WHERE = {
    "last": bodies.ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    "first": bodies.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
}
