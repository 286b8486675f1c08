"""A member of a consumer group: which queues it has, and the parts that pull, handle and commit them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from sparrowmq.client import control
from sparrowmq.client.callables import CallThreads, awaited, call
from sparrowmq.client.consume import ConsumeService
from sparrowmq.client.consume_hooks import ConsumeHooks
from sparrowmq.client.decoding import decode_messages
from sparrowmq.client.delivery import HandedMessage
from sparrowmq.client.hooks import Hooks
from sparrowmq.client.instances import shared_instance
from sparrowmq.client.knobs import Changed, LiveKnobs, knob_properties, log_knobs
from sparrowmq.client.locks import QueueLocks
from sparrowmq.client.managed import ManagedMember
from sparrowmq.client.offset_store import BrokerOffsetStore, store_of
from sparrowmq.client.ordered import OrderedService
from sparrowmq.client.outcomes import ConsumeResult, Retry, refuse_unfinished
from sparrowmq.client.owned_queues import OwnedQueues
from sparrowmq.client.process_queue import ProcessQueue
from sparrowmq.client.pulling import Puller
from sparrowmq.client.rebalance import Rebalancer
from sparrowmq.client.requests import need_address
from sparrowmq.client.send_back import SendBack
from sparrowmq.client.settings import ConsumerSettings, QueueListener
from sparrowmq.client.statistics import SAMPLE_SECONDS, ConsumeStatistics
from sparrowmq.client.subscriptions import Subscriptions
from sparrowmq.client.tasks import TaskGroup, run_every
from sparrowmq.client.tracing import hooks_with, tracing_of
from sparrowmq.core.errors import ClientError, InvalidExpressionError
from sparrowmq.core.knobs import Setting, Unable, is_paused
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import RETRY_PREFIX, without_namespace
from sparrowmq.core.route import TopicRoute
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol import bodies
from sparrowmq.protocol.failing import failing_text
from sparrowmq.protocol.managed import GENERATIONS_PROPERTY

log = logging.getLogger("sparrowmq.client")

HANDLER_SHARE: Final = 0.7
"""Part of the time for closing that running handlers get; the rest is for commits and goodbyes."""
LOCK_FIRST_SECONDS: Final = 1.0
"""When locks are renewed for the first time (client:C-30)."""
LOCK_SOON_SECONDS: Final = 0.1
"""Until a lock is asked for that a run of ordered consumption misses; then the run is tried again."""
LOCK_AGAIN_SECONDS: Final = 3.0
GOODBYE_SECONDS: Final = 1.0
"""How long a member that breaks off tells brokers, when its connections stay for others."""
DIRECT_THREADS: Final = 4
"""Plain handlers at work at once for tools that bring one message; more wait."""
RESET_SECONDS: Final = 10.0
"""How long a reset waits for running handlers (client:D-81)."""


class GroupMember(control.ControlledMember):
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
        self._message_type = message_type
        self._is_broadcasting = settings.model == "broadcasting"
        self.instance = shared_instance(settings)
        self._tracing = tracing_of(group, settings, "CONSUME")
        self._store = store_of(settings, self.instance, group)
        self._tasks = TaskGroup(on_death)
        self.statistics = ConsumeStatistics(group, self.instance.clock.monotonic)
        clock = self.instance.clock
        self.knobs = LiveKnobs(settings, clock.now_ms, clock.monotonic)
        self._send_back = SendBack(
            self.instance, group, settings.max_reconsume_times, settings.request_timeout
        )
        self.service: ConsumeService | OrderedService = self._consume_service()
        self._locks = QueueLocks(self.instance, group) if settings.ordered else None
        self.queues = OwnedQueues(
            group, settings, self.instance, self._store, self._tasks, self._locks, again=self._again
        )
        self.puller = self.queues.puller = Puller(
            group,
            settings,
            self.instance,
            self._store,
            message_type=message_type,
            find_subscription=subscriptions.find,
            submit=self.service.submit,
            illegal_offset=self.queues.go_on_from,
            statistics=self.statistics,
            knobs=self.knobs,
        )
        self._managed = self._managed_member() if settings.managed else None
        self._rebalancer = Rebalancer(
            group,
            settings,
            self.instance,
            settings.allocate,
            self,
            is_broadcasting=self._is_broadcasting,
            asks_broker=settings.server_assignment,
            on_change=self._changed,
        )
        self._announced: tuple[tuple[SubscriptionData, ...], frozenset[str]] | None = None
        self._started_ms = self.instance.clock.now_ms()
        self._locking: set[ProcessQueue] = set()
        self._direct = CallThreads(DIRECT_THREADS, f"sparrowmq-{group}-direct")
        self._paused = False
        self._resets = 0
        self._untold: dict[str, None] = {}  # topics in order
        self._teller: asyncio.Task[None] | None = None
        self._closing = False
        self._released = False
        self._ending: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"queues={len(self.queues)} {self.service!r}"

    def _consume_service(self) -> ConsumeService | OrderedService:
        settings = self._settings
        self._consume_hooks = hooks = ConsumeHooks(
            Hooks(hooks_with(settings, self._tracing)),
            self.group,
            settings.consume_timeout,
            ordered=settings.ordered,
        )
        known = (self._store, self._subscriptions, self._tasks, self._send_back, self.statistics)
        common, clock = (*known, hooks, self.knobs), self.instance.clock
        if settings.ordered:
            return OrderedService(self.group, settings, *common, clock.monotonic, self._lock_soon)
        return ConsumeService(self.group, settings, *common, clock.now_ms)

    def _managed_member(self) -> ManagedMember:
        store, back = self._store, self._send_back
        assert isinstance(store, BrokerOffsetStore), "settings refuse other stores"
        managed = ManagedMember(
            self.group,
            self.instance,
            self.queues,
            self._tasks,
            topics=self.topics,
            late=self.late_results,
            forget=lambda: self.service.forget_given_up(),
            on_change=self._plan_changed,
            announce=self.announce,
            knobs=self.knobs,
            unable=self.unable,
            apply_knobs=self.apply_knobs,
        )
        store.generation_of = back.generation_of = managed.generation
        self.puller.generation_of = managed.generation
        if self._locks is not None:
            self._locks.generation_of = managed.generation
        managed.on_start = store.started.__setitem__
        back.copies = False
        self.service.stream.counts = True
        self.queues.make = managed.make_queue
        return managed

    def late_results(self) -> int:
        """Commits and messages sent back that brokers refused because the queue had gone on."""
        store = self._store
        return self._send_back.refused + (store.refused if isinstance(store, BrokerOffsetStore) else 0)

    # Life

    async def start(self) -> None:
        """Load offsets, learn routes, say hello to the brokers, begin to share queues (client:D.2)."""
        await self._store.load()
        self.instance.register_consumer(self.group, self)
        control.serve(self.instance)
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
        # A coordinator may shorten the time that handlers have.
        look = 1.0 if settings.managed else 30.0
        self._every(
            min(look, settings.consume_timeout / 4), self._expire, "looking for messages in hand too long"
        )
        self._every(SAMPLE_SECONDS, self._sample, "sampling statistics")
        if settings.ordered:
            self.instance.on_lost.append(self.queues.doubt_locks)
            first = min(LOCK_FIRST_SECONDS, settings.lock_interval)
            self._every(settings.lock_interval, self.queues.renew_locks, "renewing locks", first)
        if not self._subscriptions.is_empty:
            self._rebalancer.wake()

    def _every(self, seconds: float, work: Callable[[], Any], name: str, first: float | None = None) -> None:
        self._tasks.start(run_every(seconds, work, first=first, name=name), name)

    async def close(self) -> None:
        """Let handlers end, commit, tell the brokers, close; bounded by `close_timeout` (client:D.14)."""
        self._closing = True
        timeout = self._settings.close_timeout
        if self._managed is not None:
            self._managed.close()
        try:
            self._rest()
            self.queues.stop()
            await self.service.close(timeout * HANDLER_SHARE)
            await self._say_goodbye(max(0.1, timeout * (1 - HANDLER_SHARE)))
            if self._managed is not None:
                await self._managed.leave()
        finally:
            await self.abort()  # also when the caller does not want to wait any longer

    async def _say_goodbye(self, timeout: float) -> None:
        """Commit, then unlock and leave; a broker that is silent costs the others nothing."""
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
        """Close at once, without committing."""
        self._closing = True
        self.queues.clear()
        await self.service.close(0)
        self._direct.close()
        await self._tasks.close()
        if self.instance.is_shared and self.instance.consumer(self.group) is self:
            # Connections stay, so brokers would count this member and leave its queues to nobody.
            with suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await self.instance.unregister(consumer=self.group)
        self.instance.forget_consumer(self.group, self)
        with suppress(ValueError):
            self.instance.on_lost.remove(self.queues.doubt_locks)
        if not self._released:  # others may hold it, so it is let go once, however often this is called
            self._released = True
            await self.instance.close()
        tracing, self._tracing = self._tracing, None
        if tracing is not None:
            await tracing.close()

    def stop(self, error: BaseException) -> None:
        """Leave the group, because something is broken: others shall get the queues. Iterating users get
        `error`.
        """
        self.service.stream.end(error)
        self._ending = asyncio.get_running_loop().create_task(self.abort())

    # Live knobs

    def unable(self) -> dict[str, Unable]:
        """The live knobs that are set and that this consumer cannot go by."""
        cannot: dict[str, Unable] = {}
        if not self._subscriptions.is_empty and not self._subscriptions.has_handlers:
            cannot = {"threads": Unable.ITERATED, "batch": Unable.ITERATED}
        else:
            if not self.knobs.takes_lists:
                cannot["batch"] = Unable.SINGLE
            if self._settings.ordered:
                cannot["consume_timeout"] = Unable.ORDERED
        return self.knobs.unable(cannot)

    def apply_knobs(
        self, revision: int, settings: Sequence[Setting], now_ms: int = 0, unknown: Sequence[str] = ()
    ) -> None:
        """Go by these live knobs from now on; what began under others and matters is begun anew."""
        knobs, topics = self.knobs, self._subscriptions
        changed = knobs.take(revision, settings, now_ms, unknown)
        log_knobs(self.group, knobs, self.unable())
        if changed.threads:
            self.service.resize(knobs.threads)
        self.service.rebatch()
        self._send_back.max_reconsume_times = knobs.max_reconsume_times
        self._consume_hooks.limit = knobs.consume_timeout
        try:
            topics.replace_tags(knobs.tags)
        except InvalidExpressionError as error:
            log.warning("group %s keeps the tags it subscribes: %s", self.group, error)
        self.queues.pull_anew(changed.pulls | changed.tags)
        self._tasks.start(self._begin_anew(changed), "new knobs")

    async def _begin_anew(self, changed: Changed) -> None:
        """Drop what is in hand of queues that rest now or have other tags; it is pulled again."""
        if changed.tags:
            await self.announce()
        if self._managed is not None and (changed.tags or changed.pauses):
            self._managed.begin_anew(
                lambda queue: queue.topic in changed.tags or is_paused(changed.pauses, queue, 0)
            )

    # What users ask

    def lag(self) -> dict[MessageQueue, int]:
        """Messages per own queue that wait to be consumed, as of the last pull."""
        found = {}
        for held in sorted(self.queues.process_queues(), key=lambda held: held.queue):
            committed = self._store.get(held.queue)
            consumed = held.next_offset if committed is None else committed
            found[held.queue] = max(0, held.broker_max_offset - consumed)
        return found

    def pause(self) -> None:
        """Pull nothing and keep the queues; what was pulled is consumed (client:D-80)."""
        self._paused = True
        self._rest()

    def resume(self) -> None:
        """Go on after `pause`, and when no reset is under way any more."""
        self._paused = False
        self._rest()

    def _rest(self) -> None:
        rests = self._paused or self._resets > 0 or self._closing
        self.puller.paused = self._rebalancer.paused = rests
        if not rests:
            self._rebalancer.wake()

    @property
    def is_paused(self) -> bool:
        """Whether it rests."""
        return self.puller.paused

    def subscriptions_changed(self) -> None:
        """Share anew; the round that follows tells the brokers first."""
        if self._managed is not None:
            self._managed.topics_changed()
        self._rebalancer.wake()

    async def find_offsets(self, timestamp_ms: int) -> dict[MessageQueue, int]:
        """Where each own queue of subscribed topics stood at a time (client:D-82). Raises `SparrowError`."""
        found = {}
        for queue in self.queues.queues():
            if not queue.topic.startswith(RETRY_PREFIX):
                address = need_address(self.instance.routes.master(queue.broker_name), queue, "master")
                found[queue] = await self.instance.brokers.search_offset(address, queue, timestamp_ms)
        return found

    # What brokers ask

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on from these offsets: rest, drop what is in hand, commit, take the queues anew (client:D-81).

        Broadcasting consumers cannot be reset (client:D-83); a message says so in the log.
        """
        if self._is_broadcasting:
            log.warning("group %s is broadcasting and cannot be reset from outside", self.group)
            return
        self._resets += 1
        self._rest()
        if self._managed is not None:
            self._managed.resting = True
        try:
            done = await self.queues.set_offsets(dict(offsets), RESET_SECONDS)
            self.service.forget_given_up()
            log.info("group %s goes on from new offsets in %s", self.group, ", ".join(map(str, done)))
        finally:
            self._resets -= 1
            self._rest()
            if self._managed is not None:
                self._managed.resting = self._resets > 0

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Offsets in memory of the queues of `topic` (221)."""
        pairs = ((queue, self._store.get(queue)) for queue in self.queues.queues() if queue.topic == topic)
        return {queue: offset for queue, offset in pairs if offset is not None}

    def running_info(self) -> bodies.ConsumerRunningInfo:
        """What it does, as tools show it (client:D-86)."""
        clock = self.instance.clock
        now, now_ms = clock.monotonic(), clock.now_ms()
        data = self._subscriptions.data
        return bodies.ConsumerRunningInfo(
            properties=self._properties(),
            subscriptions=data,
            queues={
                held.queue: control.queue_info(held, self._store.get(held.queue), now, now_ms)
                for held in sorted(self.queues.process_queues(), key=lambda held: held.queue)
            },
            statuses={one.topic: self.statistics.status(one.topic) for one in data},
        )

    def _properties(self) -> dict[str, str]:
        settings = self._settings
        return control.properties_of(
            settings,
            self.instance,
            self.group,
            bodies.ConsumeType.CONSUME_PASSIVELY,
            self._started_ms,
            messageModel=settings.model.upper(),
            allocateMessageQueueStrategy=settings.allocate.name,
            PROP_CONSUMEORDERLY=str(settings.ordered).lower(),
            PROP_THREADPOOL_CORE_SIZE=str(self.knobs.threads),
            **knob_properties(self.knobs, self.unable()),
            lateResults=str(self.late_results()),
            failingQueues=failing_text(self.statistics.failing()),
            **({} if self._managed is None else {GENERATIONS_PROPERTY: self._managed.generations()}),
        )

    async def consume_directly(self, body: bytes, broker_name: str) -> bodies.ConsumeMessageDirectlyResult:
        """Have the handler take one stored message, outside of all queues (client:D-88)."""
        found = decode_messages(body, MessageQueue("", broker_name, 0), self._message_type)
        message = control.one_message(list(found))
        topic = message.properties.get("RETRY_TOPIC", message.topic)
        message.topic = topic = without_namespace(self.instance.namespace, topic)
        handler = self._subscriptions.handler(topic)
        if handler is None:
            raise ClientError(f"group {self.group} has no handler of topic {topic}")
        assert isinstance(message, HandedMessage)
        message.begin(self.instance.clock.now_ms())
        argument: Any = [message] if self._settings.batch > 1 else message
        start, result = time.perf_counter(), "CR_SUCCESS"
        error: BaseException | None = None
        try:
            if handler.is_async:
                said = await awaited(handler.call(argument))
            else:
                said = await self._direct.result(partial(handler.call, argument))
            refuse_unfinished(said)
            if isinstance(said, Retry) or said is ConsumeResult.LATER:
                result = "CR_LATER"
            elif said is ConsumeResult.COMMIT or said is ConsumeResult.ROLLBACK:
                result = f"CR_{said.name}"
        except Retry as raised:
            error, result = raised, "CR_LATER"
        except Exception as raised:
            error, result = raised, "CR_THROW_EXCEPTION"
        settings = self._settings
        return control.direct_result(
            error, result, ordered=settings.ordered, auto_commit=settings.auto_commit, start=start
        )

    # What the instance asks

    def topics(self) -> Iterable[str]:
        """Topics whose routes are kept fresh, and whose queues are shared."""
        return self._subscriptions.topics

    def route_changed(self, topic: str, route: TopicRoute) -> None:
        """New queues are shared at the next round; one that has no queue yet is looked at soon."""
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

    def wake_rebalance(self) -> None:
        """Members of the group changed."""
        self._rebalancer.wake()

    # What the rebalancer asks

    async def announce(self) -> None:
        """Tell brokers of subscriptions, and new brokers of us, before they are asked about the group."""
        if self._managed is None:  # a managed member gives queues up when their handlers have ended
            await self.queues.tidy()
        known = (self._subscriptions.data, frozenset(self.instance.routes.all_addresses()))
        if known != self._announced and await self.instance.heartbeat():
            self._announced = known

    def owned(self) -> Collection[MessageQueue]:
        """The queues this member reads now."""
        return self.queues.queues()

    async def give_up(self, queues: Collection[MessageQueue]) -> None:
        """Stop reading queues and commit what was consumed of them."""
        await self.queues.give_up(queues)
        if queues:
            self.service.forget_given_up()

    async def take(self, queue: MessageQueue) -> bool:
        """Begin to read a queue where the group stands."""
        return not self._closing and await self.queues.take(queue)

    async def _changed(self, topics: Collection[str]) -> None:
        """Own queues changed: new limits and versions, heartbeat, listener (client:C-39)."""
        self.queues.share_limits()
        for topic in topics:
            self._subscriptions.touch(topic)
        await self.instance.heartbeat()
        self._tell_listener(topics)

    async def _plan_changed(self, topics: Collection[str]) -> None:
        """The same for queues a coordinator gave or took: brokers know the subscriptions already."""
        self.queues.share_limits()
        self._tell_listener(topics)

    def _tell_listener(self, topics: Collection[str]) -> None:
        """Tell the listener, of one topic after the other; sharing goes on, however long that takes."""
        listener = self._settings.queue_listener
        if listener is None:
            return
        self._untold.update(dict.fromkeys(sorted(topics)))
        if self._teller is None or self._teller.done():
            self._teller = self._tasks.start(self._tell(listener), "queue listener")

    async def _tell(self, listener: QueueListener) -> None:
        while self._untold:
            topic = next(iter(self._untold))
            del self._untold[topic]
            route = self.instance.routes.get(topic)
            every = [] if route is None or self._settings.server_assignment else route.subscribe_queues(topic)
            mine = [queue for queue in self.queues.queues() if queue.topic == topic]
            try:
                await call(listener, topic, every, mine)
            except Exception:
                log.exception("the queue listener of group %s failed for %s", self.group, topic)

    def _again(self) -> None:
        """Something waits for the next round."""
        self.service.forget_given_up()
        if not self._closing:
            self._rebalancer.wake()

    # Ordered runs

    def _lock_soon(self, process_queue: ProcessQueue) -> None:
        """A run has no lock: ask for it and run again soon, or later when it is not granted (client:D.11)."""
        if process_queue not in self._locking:
            self._locking.add(process_queue)
            self._tasks.start(self._lock_and_run(process_queue), f"lock {process_queue.queue}")

    async def _lock_and_run(self, process_queue: ProcessQueue) -> None:
        try:
            await asyncio.sleep(LOCK_SOON_SECONDS)
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
        else:  # what is held back is not forgotten: it counts when the lock is back
            await self._store.persist(committable)

    async def _expire(self) -> None:
        await self.service.expire(self.queues.process_queues())

    async def _sample(self) -> None:
        self.statistics.sample()


_WHERE = {
    "last": bodies.ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    "first": bodies.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
}
