"""A pull consumer as a member of its group: heartbeats, its share of queues, its offsets (client:E.1, E.3).

This module decides which queues belong to the consumer, either together with the other members or as a
coordinator says (managed). It does not read them: `LitePull` does, or the application gets the list of queues
and pulls from them itself (classic pull).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from sparrowmq.client.base.offset_store_protocol import OffsetStore
from sparrowmq.client.base.settings import PullSettings
from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.consumer import broker_requests
from sparrowmq.client.consumer.dynamic_settings import Changed
from sparrowmq.client.consumer.leases import Leases
from sparrowmq.client.consumer.managed import ManagedMember
from sparrowmq.client.consumer.membership import ConsumerMembership
from sparrowmq.client.consumer.offset_store import BrokerOffsetStore
from sparrowmq.client.consumer.process_queue import ProcessQueue
from sparrowmq.client.consumer.rebalance import Rebalancer
from sparrowmq.client.pull.offset_pulls import OffsetPulls
from sparrowmq.client.pull.polling import LitePull
from sparrowmq.client.pull.pull_hooks import PullHooks
from sparrowmq.client.pull.read_mode import Mode, PullPlan
from sparrowmq.client.pull.unfinished_pulls import UnfinishedPulls
from sparrowmq.core.dynamic_settings import Unable
from sparrowmq.core.errors import BrokerError
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.route import TopicRoute
from sparrowmq.protocol.bodies import (
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
    ProcessQueueInfo,
)
from sparrowmq.protocol.codes import ResponseCode

log = logging.getLogger("sparrowmq.client")

_UNABLE: Final = dict.fromkeys(("threads", "batch", "consume_timeout"), Unable.PULLS)


class PullMember(ConsumerMembership):
    """A pull consumer's membership."""

    def __init__(
        self,
        group: str,
        settings: PullSettings,
        plan: PullPlan,
        instance: ClientInstance,
        store: OffsetStore,
        tasks: TaskGroup,
    ) -> None:
        super().__init__(group, settings, instance, store, tasks)
        self._settings = settings
        self._plan = plan
        self._user: LitePull | UnfinishedPulls | None = None
        self._owned: set[MessageQueue] = set()
        self._told: dict[str, list[MessageQueue]] = {}
        self._rebalancer = Rebalancer(
            group,
            settings,
            instance,
            settings.allocate,
            self,
            is_broadcasting=settings.model == "broadcasting",
            on_round=self._round_ended,
        )
        self._sharing: asyncio.Task[None] | None = None
        self._refused = 0
        self._pulls: OffsetPulls | None = None
        self._leases: Leases | None = None
        if settings.managed:
            assert isinstance(store, BrokerOffsetStore), "settings refuse other stores"
            self._leases = leases = Leases(instance.clock.monotonic)
            handed = self._user = UnfinishedPulls(leases.make_queue, instance.clock.monotonic)
            self._pulls = OffsetPulls(self.dynamic, handed, instance.clock)
            self._managed = ManagedMember(group, instance, self, tasks, leases, self)

    # What a managed member asks

    def managed_topics(self) -> Iterable[str]:
        """The topics whose queues are divided among members."""
        return self._plan.shared

    def forget_given_up(self) -> None:
        """Nothing waits here: the application takes the messages."""

    def go_on(self) -> None:
        """Hand out messages again after the lease was expired."""
        if self._user is not None:
            self._user.go_on()
        self._round_ended()

    async def queues_changed(self, topics: Collection[str]) -> None:
        """A coordinator assigned or revoked queues of these topics."""
        self._round_ended()

    def __repr__(self) -> str:
        return f"<PullMember {self.group!r} queues={len(self._owned)}>"

    def start(self) -> None:
        """Start, after registration. The first round sends heartbeats and takes queues."""
        settings = self._settings
        broker_requests.serve(self.instance)
        self._every(settings.persist_interval, self._persist, "committing offsets")
        if self._plan.mode is Mode.ASSIGN:
            self.reassign()
        elif self._managed is not None:
            self._tasks.start(self._managed.run(), "managed membership")
        elif settings.rebalance:
            self._sharing = self._tasks.start(self._rebalancer.run(), "rebalance")
            self._rebalancer.wake()

    def read_ahead(self, hooks: PullHooks) -> LitePull:
        """Create the `LitePull` that reads the queues ahead. Call it before the first queue is assigned."""
        lite = self._user = LitePull(
            self.group,
            self._settings,
            self._plan,
            self.instance,
            self._store,
            self._tasks,
            hooks,
            dynamic=self.dynamic,
            make=ProcessQueue if self._leases is None else self._leases.make_queue,
            generation_of=self.generation,
        )
        return lite

    def reassign(self) -> None:
        """Read the queues of the plan's assignment, and no others (client:E-23)."""
        if self._sharing is not None:  # assigned queues are not shared with the group
            self._sharing.cancel()
            self._sharing = None
        wanted = set(self._plan.assigned)
        for queue in sorted(self._owned - wanted):
            self._drop(queue)
        for queue in sorted(wanted - self._owned):
            self._owned.add(queue)
            if self._user is not None:
                self._user.add(queue)

    def plan_changed(self) -> None:
        """Rebalance after topics were added or removed. Queues of removed topics are dropped immediately
        (client:E-40).
        """
        if self._managed is not None:
            self._managed.topics_changed()
            return
        for queue in [queue for queue in self._owned if queue.topic not in self._plan.shared]:
            self._drop(queue)
        for topic in self._told.keys() - set(self._plan.shared):
            del self._told[topic]  # the listener is called again if the topic is resubscribed
            self._untold.pop(topic, None)
        self._rebalancer.wake()

    async def close(self) -> None:
        """Commit pending offsets and notify the brokers (client:E-45). Raises `SparrowError`."""
        self._closing = True
        if self._managed is not None:
            self._managed.close()
        queues = list(self._owned)
        for queue in queues:
            if self._user is not None:
                self._user.remove(queue)
        self._owned.clear()
        await self._store.persist(queues, confirmed=True)
        await self.instance.unregister(consumer=self.group)
        if self._managed is not None:
            await self._managed.leave()

    async def abort(self) -> None:
        """Stop being a member without a proper close; others that use this client are not affected."""
        await self._leave_brokers()

    # Called by the client instance

    def topics(self) -> Iterable[str]:
        """Topics whose routes are refreshed and whose queues are divided among members, unless assigned."""
        return self._plan.topics

    def route_changed(self, topic: str, route: TopicRoute) -> None:
        """New queues are assigned in the next round."""

    def heartbeat_data(self) -> ConsumerData:
        """Group and subscriptions; the start position is always LAST_OFFSET (client:E-44)."""
        return ConsumerData(
            self.group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            message_model=MessageModel(self._settings.model.upper()),
            subscriptions=self._plan.announced,
        )

    # What brokers ask

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Offsets in memory of the queues of `topic` (221)."""
        pairs = ((queue, self._store.get(queue)) for queue in sorted(self._owned) if queue.topic == topic)
        return {queue: offset for queue, offset in pairs if offset is not None}

    def running_info(self) -> ConsumerRunningInfo:
        """Running info, as tools show it, with the queues and, for polled queues, their unfinished messages.

        Java's pull consumers by offset do not report queues (client:D-86).
        """
        clock = self.instance.clock
        now, now_ms = clock.monotonic(), clock.now_ms()
        held = [] if self._user is None else self._user.process_queues()
        queues = {
            queue: ProcessQueueInfo(commit_offset=-1 if (at := self._store.get(queue)) is None else at)
            for queue in sorted(self._owned)
        }
        for one in held:
            queues[one.queue] = broker_requests.queue_info(one, self._store.get(one.queue), now, now_ms)
        properties = self._properties(self._settings)
        return ConsumerRunningInfo(properties=properties, subscriptions=self._plan.announced, queues=queues)

    # Called by the rebalancer

    def owned(self) -> Collection[MessageQueue]:
        """The queues of this member now, without those that are about to move or have no lease."""
        if self._managed is None:
            return list(self._owned)
        return [queue for queue in self._owned if (held := self.find(queue)) is not None and held.may_start()]

    async def give_up(self, queues: Collection[MessageQueue]) -> None:
        """Stop reading queues, then commit their pending offsets (client:C-23)."""
        for queue in queues:
            self._drop(queue)
        if queues:
            await self._store.persist(queues, confirmed=True)
            for queue in queues:
                self._store.forget(queue)

    async def take(self, queue: MessageQueue) -> bool:
        """Take a queue; its start offset is determined at the first read."""
        if self._closing or queue.topic not in self._plan.shared:
            return False
        self._store.forget(queue)
        self._owned.add(queue)
        if self._user is not None:
            self._user.add(queue)
        return True

    # Called by a coordinator

    def unable(self) -> dict[str, Unable]:
        """The dynamic settings that are set but that pull consumers cannot apply."""
        return self.dynamic.unable(_UNABLE)

    def replace_tags(self, instead: dict[str, str]) -> None:
        """Filter topics by these expressions."""
        self._plan.replace_tags(instead)

    def settings_changed(self, changed: Changed) -> None:
        """Pull buffered messages again that dynamic settings affect."""
        if isinstance(self._user, LitePull):
            self._user.begin_anew(changed)
        if changed.tags:
            self._tasks.start(self.announce(), "new tags")

    def generation(self, queue: MessageQueue) -> int | None:
        """The generation for requests about a queue; None in a group that is not managed."""
        return None if self._leases is None else self._leases.generation(queue)

    @contextmanager
    def noting_late(self) -> Iterator[None]:
        """Count requests that are refused because the queue has moved, and re-raise the error."""
        try:
            yield
        except BrokerError as error:
            self._refused += error.code == ResponseCode.GENERATION_FENCED
            raise

    async def retry_of(self, message: ReceivedMessage, level: int, address: str) -> tuple[int, int]:
        """Delay level and maximum retries of a message returned to the broker at `address`; level 0 leaves
        the choice to dynamic settings or the broker.
        """
        seconds = self.dynamic.retry_seconds(message.reconsume_times)
        if not level and seconds is not None:
            level = await self.instance.delay_levels.level_after(address, seconds)
        return level, self.dynamic.max_reconsume_times

    def refused_results(self) -> int:
        """Number of late commits and returned messages of the application, not counting those of the
        store.
        """
        return self._refused

    def find(self, queue: MessageQueue) -> ProcessQueue | None:
        """The process queue of a queue in a managed group, if the queue is read."""
        assert self._user is not None
        return self._user.find(queue)

    def rest(self, queue: MessageQueue) -> None:
        """Stop handing out messages of a queue; listeners are called immediately."""
        assert self._user is not None
        self._user.rest(queue)
        self._round_ended()

    async def settle(self, process_queue: ProcessQueue) -> bool:
        """Commit the consumed messages of a paused queue; False if the commit must be retried."""
        assert self._user is not None
        queue = process_queue.queue
        if self._closing or self.find(queue) is not process_queue:
            return True
        self._user.settle(queue)
        return await self._store.persist([queue], confirmed=True)

    async def retire(self, process_queue: ProcessQueue) -> None:
        """Drop a paused queue."""
        queue = process_queue.queue
        if not self._closing and self.find(queue) is process_queue:
            self._drop(queue)
            self._store.forget(queue)

    async def renew_doubtful(self) -> None:
        """Nothing to do: there are no locks."""

    @property
    def handed(self) -> UnfinishedPulls | None:
        """The queues that the application pulls by offset, in a managed group without polling."""
        return self._user if isinstance(self._user, UnfinishedPulls) else None

    @property
    def pulls(self) -> OffsetPulls | None:
        """The pulls by offset, in a managed group without polling."""
        return None if self.handed is None else self._pulls

    # Inside

    def _drop(self, queue: MessageQueue) -> None:
        self._owned.discard(queue)
        if self._user is not None:
            self._user.remove(queue)

    def _round_ended(self) -> None:
        """Call the listeners of topics whose assigned queues changed (client:C-40, C-41, E-46)."""
        for topic in self._plan.shared:
            mine = sorted(queue for queue in self.owned() if queue.topic == topic)
            if mine == self._told.get(topic, []):
                continue
            self._told[topic] = mine
            listener = self._plan.listener_of(topic)
            if listener is not None:
                route = self.instance.routes.get(topic)
                every = [] if route is None else route.subscribe_queues(topic)
                self.tell(listener, topic, every, mine)

    async def _persist(self) -> None:
        await self._store.persist(list(self._owned))
