"""What push and pull consumers have in common as members of their group."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from sparrowmq.client.base.callables import call
from sparrowmq.client.base.offset_store_protocol import OffsetStore
from sparrowmq.client.base.settings import ConsumerSettings, PullSettings, QueueListener
from sparrowmq.client.base.tasks import TaskGroup, run_every
from sparrowmq.client.cluster.instance import ClientInstance, ConsumerMember
from sparrowmq.client.consumer.broker_requests import QueryableMember, properties_of
from sparrowmq.client.consumer.dynamic_settings import (
    Changed,
    DynamicSettings,
    dynamic_properties,
    log_dynamic_settings,
)
from sparrowmq.client.consumer.managed import ManagedConsumer, ManagedMember
from sparrowmq.client.consumer.offset_store import BrokerOffsetStore
from sparrowmq.client.consumer.rebalance import Rebalancer
from sparrowmq.core.dynamic_settings import SettingValue
from sparrowmq.core.errors import InvalidExpressionError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.subscription import SubscriptionData

log = logging.getLogger("sparrowmq.client")

GOODBYE_SECONDS: Final = 1.0
"""How long an aborting member tries to notify brokers if its connections stay open for others."""


class ConsumerMembership(QueryableMember, ConsumerMember, ManagedConsumer):
    """One consumer's membership, between `start` and `close`. Lives on one event loop.

    Whoever makes it sets `_rebalancer`, and `_managed` in a managed group.
    """

    _rebalancer: Rebalancer
    _managed: ManagedMember | None = None

    def __init__(
        self,
        group: str,
        settings: ConsumerSettings | PullSettings,
        instance: ClientInstance,
        store: OffsetStore,
        tasks: TaskGroup,
    ) -> None:
        self.group = group
        self.instance = instance
        self.dynamic = DynamicSettings(settings, instance.clock.now_ms, instance.clock.monotonic)
        self._store = store
        self._tasks = tasks
        self._announced: tuple[Sequence[SubscriptionData], frozenset[str]] | None = None
        self._untold: dict[str, tuple[QueueListener, list[MessageQueue], list[MessageQueue]]] = {}
        """Topics, in order, whose listener is to be called."""
        self._teller: asyncio.Task[None] | None = None
        self._started_ms = instance.clock.now_ms()
        self._closing = False

    @abstractmethod
    def refused_results(self) -> int:
        """Number of results other than commits that brokers refused because the queue had moved."""

    @abstractmethod
    def replace_tags(self, instead: dict[str, str]) -> None:
        """Filter topics by these expressions. Raises `InvalidExpressionError`."""

    @abstractmethod
    def settings_changed(self, changed: Changed) -> None:
        """Dynamic settings changed: restart affected work."""

    async def announce(self) -> None:
        """Announce subscriptions to the brokers, and this member to new brokers, before asking about the
        group.
        """
        known = (self.heartbeat_data().subscriptions, frozenset(self.instance.routes.all_addresses()))
        if known != self._announced and await self.instance.heartbeat():
            self._announced = known

    def wake_rebalance(self) -> None:
        """Members of the group changed."""
        self._rebalancer.wake()

    def late_results(self) -> int:
        """Number of results that brokers refused because the queue had moved to another member."""
        store = self._store
        return self.refused_results() + (store.refused if isinstance(store, BrokerOffsetStore) else 0)

    def apply_dynamic_settings(
        self, revision: int, settings: Sequence[SettingValue], now_ms: int = 0, unknown: Sequence[str] = ()
    ) -> None:
        """Apply these dynamic settings from now on; affected pulls are restarted."""
        changed = self.dynamic.take(revision, settings, now_ms, unknown)
        log_dynamic_settings(self.group, self.dynamic, self.unable())
        try:
            self.replace_tags(self.dynamic.tags)
        except InvalidExpressionError as error:
            log.warning("group %s keeps its subscribed tags: %s", self.group, error)
        self.settings_changed(changed)

    def tell(
        self, listener: QueueListener, topic: str, every: list[MessageQueue], mine: list[MessageQueue]
    ) -> None:
        """Call a queue listener soon: one call at a time, without delaying the rebalance. A new change of a
        topic replaces one that was not reported yet.
        """
        self._untold[topic] = (listener, every, mine)
        if self._teller is None or self._teller.done():
            self._teller = self._tasks.start(self._tell(), "queue listener")

    async def _tell(self) -> None:
        while self._untold:
            topic = next(iter(self._untold))
            listener, every, mine = self._untold.pop(topic)
            try:
                await call(listener, topic, every, mine)
            except Exception:
                log.exception("the queue listener of topic %s failed in group %s", topic, self.group)

    def _every(
        self, seconds: float, work: Callable[[], Awaitable[object]], name: str, first: float | None = None
    ) -> None:
        every = run_every(seconds, work, first=first, name=name, sleep=self.instance.sleep)
        self._tasks.start(every, name)

    def _properties(self, settings: ConsumerSettings | PullSettings, **more: str) -> dict[str, str]:
        """The properties in the running info."""
        return properties_of(
            settings,
            self.instance,
            self.group,
            self.heartbeat_data().consume_type,
            self._started_ms,
            messageModel=settings.model.upper(),
            allocateMessageQueueStrategy=settings.allocate.name,
            lateResults=str(self.late_results()),
            **dynamic_properties(self.dynamic, self.unable()),
            **more,
        )

    async def _leave_brokers(self) -> None:
        """Leave the group at the brokers while the connections stay open, or nobody would read its queues."""
        if self.instance.consumer(self.group) is self:
            with suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await self.instance.unregister(consumer=self.group)
