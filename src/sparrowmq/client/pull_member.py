"""A pull consumer as a member of its group: heartbeats, its share of queues, its offsets (client:E.1, E.3).

Which queues are its own is decided here, by itself with the other members or by a coordinator (managed); what
is done with them is not: `LitePull` reads them, or nobody does, and the application asks for them and pulls
where it likes (classic pull).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from sparrowmq.client import control
from sparrowmq.client.callables import call
from sparrowmq.client.handed_queues import HandedQueues
from sparrowmq.client.instance import ClientInstance
from sparrowmq.client.knobs import LiveKnobs, knob_properties, log_knobs
from sparrowmq.client.lite_pull import LitePull
from sparrowmq.client.managed import ManagedMember
from sparrowmq.client.offset_pulls import OffsetPulls
from sparrowmq.client.offset_store import BrokerOffsetStore
from sparrowmq.client.offsets import OffsetStore
from sparrowmq.client.outcomes import retry_level
from sparrowmq.client.process_queue import ProcessQueue
from sparrowmq.client.pull_plan import Mode, PullPlan, QueueListener
from sparrowmq.client.rebalance import Rebalancer
from sparrowmq.client.settings import PullSettings
from sparrowmq.client.tasks import TaskGroup, run_every
from sparrowmq.core.errors import BrokerError, InvalidExpressionError
from sparrowmq.core.knobs import Setting, Unable
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.route import TopicRoute
from sparrowmq.core.subscription import SubscriptionData
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
GOODBYE_SECONDS: Final = 1.0
"""How long a member that breaks off tells brokers."""


class PullRebalancer(Rebalancer):
    """The rebalance loop, which tells its owner when a round is over."""

    on_round: Callable[[], None]

    async def round(self) -> bool:
        """One round; listeners are told once the queues are in place (client:E-22)."""
        settled = await super().round()
        self.on_round()
        return settled


class PullMember(control.TellingMember):
    """One pull consumer's membership, between `start` and `close`. Lives on one event loop."""

    def __init__(
        self,
        group: str,
        settings: PullSettings,
        plan: PullPlan,
        instance: ClientInstance,
        store: OffsetStore,
        tasks: TaskGroup,
        user: LitePull | None,
    ) -> None:
        self.group = group
        self.store = store
        self._settings = settings
        self._plan = plan
        self._instance = instance
        self._tasks = tasks
        self._user: LitePull | HandedQueues | None = None
        self._owned: set[MessageQueue] = set()
        self._told: dict[str, list[MessageQueue]] = {}
        self._untold: dict[str, tuple[QueueListener, list[MessageQueue], list[MessageQueue]]] = {}
        self._teller: asyncio.Task[None] | None = None
        self._announced: tuple[tuple[SubscriptionData, ...], frozenset[str]] | None = None
        self._closing = False
        self._started_ms = 0
        self._rebalancer = PullRebalancer(
            group,
            settings,
            instance,
            settings.allocate,
            self,
            is_broadcasting=settings.model == "broadcasting",
        )
        self._rebalancer.on_round = self._round_ended
        self._sharing: asyncio.Task[None] | None = None
        self.refused = 0
        """Commits and returned messages of the application that came too late, besides those of the store."""
        self.knobs = LiveKnobs(settings, instance.clock.now_ms, instance.clock.monotonic)
        self._pulls: OffsetPulls | None = None
        self._managed = self._managed_member() if settings.managed else None
        if user is not None:
            self.read_by(user)

    def _managed_member(self) -> ManagedMember:
        store, instance = self.store, self._instance
        assert isinstance(store, BrokerOffsetStore), "settings refuse other stores"
        managed = ManagedMember(
            self.group,
            instance,
            self,
            self._tasks,
            topics=lambda: self._plan.shared,
            late=self.late_results,
            forget=lambda: None,
            on_change=self._plan_in_force,
            announce=self.announce,
            knobs=self.knobs,
            unable=self.unable,
            apply_knobs=self.apply_knobs,
        )
        store.generation_of = managed.generation
        handed = self._user = HandedQueues(managed.make_queue, instance.clock.monotonic)
        self._pulls = OffsetPulls(self.knobs, handed, instance.clock)
        return managed

    def __repr__(self) -> str:
        return f"<PullMember {self.group!r} queues={len(self._owned)}>"

    def start(self) -> None:
        """Begin, once registered. The first round says hello to the brokers and takes queues."""
        settings = self._settings
        self._started_ms = self._instance.clock.now_ms()
        control.serve(self._instance)
        self._tasks.start(
            run_every(settings.persist_interval, self._persist, name="committing offsets"), "commit"
        )
        if self._plan.mode is Mode.ASSIGN:
            self.reassign()
        elif self._managed is not None:
            self._tasks.start(self._managed.run(), "managed membership")
        elif settings.rebalance:
            self._sharing = self._tasks.start(self._rebalancer.run(), "rebalance")
            self._rebalancer.wake()

    def read_by(self, user: LitePull) -> None:
        """Have `user` read the queues that come; there was nothing to read before."""
        self._user = user
        user.knobs = self.knobs
        if self._managed is not None:
            user.make, user.generation_of = self._managed.make_queue, self._managed.generation

    def reassign(self) -> None:
        """Read the queues of the plan's assignment, and no others (client:E-23)."""
        if self._sharing is not None:  # it began with nothing to share, and what is assigned is not shared
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
        """Share anew: topics came or went. Queues of topics that went are dropped at once (client:E-40)."""
        if self._managed is not None:
            self._managed.topics_changed()
            return
        for queue in [queue for queue in self._owned if queue.topic not in self._plan.shared]:
            self._drop(queue)
        for topic in self._told.keys() - set(self._plan.shared):
            del self._told[topic]  # subscribed again, it is told again
            self._untold.pop(topic, None)
        self._rebalancer.wake()

    async def close(self) -> None:
        """Commit what is to be committed and tell the brokers (client:E-45). Raises `SparrowError`."""
        self._closing = True
        if self._managed is not None:
            self._managed.close()
        queues = list(self._owned)
        for queue in queues:
            if self._user is not None:
                self._user.remove(queue)
        self._owned.clear()
        await self.store.persist(queues, confirmed=True)
        await self._instance.unregister(consumer=self.group)
        if self._managed is not None:
            await self._managed.leave()

    async def abort(self) -> None:
        """Be no member any more, for what did not close: others with this client go on."""
        if self._instance.consumer(self.group) is self:
            with suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await self._instance.unregister(consumer=self.group)

    # What the instance asks

    def topics(self) -> Iterable[str]:
        """Topics whose routes are kept fresh, and whose queues are shared unless they are assigned."""
        return self._plan.topics

    def route_changed(self, topic: str, route: TopicRoute) -> None:
        """New queues are shared at the next round."""

    def heartbeat_data(self) -> ConsumerData:
        """Group and subscriptions; the start position is LAST_OFFSET whatever was set (client:E-44)."""
        return ConsumerData(
            self.group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            message_model=MessageModel(self._settings.model.upper()),
            subscriptions=self._plan.announced,
        )

    def wake_rebalance(self) -> None:
        """Members of the group changed."""
        self._rebalancer.wake()

    # What brokers ask

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Offsets in memory of the queues of `topic` (221)."""
        pairs = ((queue, self.store.get(queue)) for queue in sorted(self._owned) if queue.topic == topic)
        return {queue: offset for queue, offset in pairs if offset is not None}

    def running_info(self) -> ConsumerRunningInfo:
        """What it does, as tools show it: its queues too, with what is in hand of those that are polled.

        Java's pull consumers by offset tell none (client:D-86).
        """
        clock, settings = self._instance.clock, self._settings
        now, now_ms = clock.monotonic(), clock.now_ms()
        held = [] if self._user is None else self._user.process_queues()
        properties = control.properties_of(
            settings,
            self._instance,
            self.group,
            ConsumeType.CONSUME_ACTIVELY,
            self._started_ms,
            messageModel=settings.model.upper(),
            allocateMessageQueueStrategy=settings.allocate.name,
            lateResults=str(self.late_results()),
            **knob_properties(self.knobs, self.unable()),
        )
        queues = {
            queue: ProcessQueueInfo(commit_offset=-1 if (at := self.store.get(queue)) is None else at)
            for queue in sorted(self._owned)
        }
        for one in held:
            queues[one.queue] = control.queue_info(one, self.store.get(one.queue), now, now_ms)
        return ConsumerRunningInfo(properties=properties, subscriptions=self._plan.announced, queues=queues)

    # What the rebalancer asks

    async def announce(self) -> None:
        """Tell brokers of subscriptions, and new brokers of us, before they are asked about the group."""
        known = (self._plan.announced, frozenset(self._instance.routes.all_addresses()))
        if known != self._announced and await self._instance.heartbeat():
            self._announced = known

    def owned(self) -> Collection[MessageQueue]:
        """The queues that are this member's now; not those that are about to move."""
        if self._managed is None:
            return list(self._owned)
        return [queue for queue in self._owned if (held := self.find(queue)) is not None and not held.leaving]

    async def give_up(self, queues: Collection[MessageQueue]) -> None:
        """Stop reading queues, then commit what was to be committed of them (client:C-23)."""
        for queue in queues:
            self._drop(queue)
        if queues:
            await self.store.persist(queues, confirmed=True)
            for queue in queues:
                self.store.forget(queue)

    async def take(self, queue: MessageQueue) -> bool:
        """Make a queue this member's own; where to start is looked up when it is first read."""
        if self._closing or queue.topic not in self._plan.shared:
            return False
        self.store.forget(queue)
        self._owned.add(queue)
        if self._user is not None:
            self._user.add(queue)
        return True

    # What a coordinator asks for

    def unable(self) -> dict[str, Unable]:
        """The live knobs that are set and that no pull consumer can go by."""
        return self.knobs.unable(_UNABLE)

    def apply_knobs(
        self, revision: int, settings: Sequence[Setting], now_ms: int = 0, unknown: Sequence[str] = ()
    ) -> None:
        """Go by these live knobs from now on; what was read ahead under others and matters is read again."""
        changed = self.knobs.take(revision, settings, now_ms, unknown)
        log_knobs(self.group, self.knobs, self.unable())
        try:
            self._plan.replace_tags(self.knobs.tags)
        except InvalidExpressionError as error:
            log.warning("group %s keeps the tags it subscribes: %s", self.group, error)
        if isinstance(self._user, LitePull):
            self._user.begin_anew(changed)
        if changed.tags:
            self._tasks.start(self.announce(), "new tags")

    def generation(self, queue: MessageQueue) -> int | None:
        """What requests about a queue carry; None in a group that is not managed."""
        return None if self._managed is None else self._managed.generation(queue)

    @contextmanager
    def noting_late(self) -> Iterator[None]:
        """Count what is refused because the queue has gone on, and raise it."""
        try:
            yield
        except BrokerError as error:
            self.refused += error.code == ResponseCode.GENERATION_FENCED
            raise

    def retry_of(self, message: ReceivedMessage, level: int) -> tuple[int, int]:
        """Delay level and most tries of a message that is sent back; level 0 is for knobs, or the broker."""
        seconds = self.knobs.retry_seconds(message.reconsume_times)
        return level or retry_level(seconds), self.knobs.max_reconsume_times

    def late_results(self) -> int:
        """Results that brokers refused because the queue had gone on to another member."""
        store = self.store
        return self.refused + (store.refused if isinstance(store, BrokerOffsetStore) else 0)

    def find(self, queue: MessageQueue) -> ProcessQueue | None:
        """What is in hand of a queue of a managed group, if it is read."""
        assert self._user is not None
        return self._user.find(queue)

    def rest(self, queue: MessageQueue) -> None:
        """Hand out no more of a queue; listeners hear of it at once."""
        assert self._user is not None
        self._user.rest(queue)
        self._round_ended()

    async def settle(self, process_queue: ProcessQueue) -> bool:
        """Commit what was consumed of a resting queue; False when its broker has to be asked again."""
        assert self._user is not None
        queue = process_queue.queue
        if self._closing or self.find(queue) is not process_queue:
            return True
        self._user.settle(queue)
        return await self.store.persist([queue], confirmed=True)

    async def retire(self, process_queue: ProcessQueue) -> None:
        """Have no more to do with a resting queue."""
        queue = process_queue.queue
        if not self._closing and self.find(queue) is process_queue:
            self._drop(queue)
            self.store.forget(queue)

    async def renew_doubtful(self) -> None:
        """There are no locks."""

    @property
    def handed(self) -> HandedQueues | None:
        """What the application pulled by offset, in a managed group that is not polled."""
        return self._user if isinstance(self._user, HandedQueues) else None

    @property
    def pulls(self) -> OffsetPulls | None:
        """How it pulls by offset, in a managed group that is not polled."""
        return None if self.handed is None else self._pulls

    # Inside

    async def _plan_in_force(self, topics: Collection[str]) -> None:
        self._round_ended()

    def _drop(self, queue: MessageQueue) -> None:
        self._owned.discard(queue)
        if self._user is not None:
            self._user.remove(queue)

    def _round_ended(self) -> None:
        """Tell the listeners of topics whose own queues changed (client:C-40, C-41, E-46)."""
        for topic in self._plan.shared:
            mine = sorted(queue for queue in self.owned() if queue.topic == topic)
            if mine == self._told.get(topic, []):
                continue
            self._told[topic] = mine
            listener = self._plan.listener_of(topic)
            if listener is not None:
                route = self._instance.routes.get(topic)
                every = [] if route is None else route.subscribe_queues(topic)
                self._untold[topic] = (listener, every, mine)
        if self._untold and (self._teller is None or self._teller.done()):
            self._teller = self._tasks.start(self._tell(), "queue listeners")

    async def _tell(self) -> None:
        """Call listeners one after the other. A change that comes before one was told takes its place."""
        while self._untold:
            topic = next(iter(self._untold))
            listener, every, mine = self._untold.pop(topic)
            await tell(listener, topic, every, mine)

    async def _persist(self) -> None:
        await self.store.persist(list(self._owned))


async def tell(
    listener: QueueListener, topic: str, every: list[MessageQueue], mine: list[MessageQueue]
) -> None:
    """Call a listener: a coroutine function here, a plain one in a thread. Its errors are logged."""
    try:
        await call(listener, topic, every, mine)
    except Exception:
        log.exception("the queue listener of topic %s failed", topic)
