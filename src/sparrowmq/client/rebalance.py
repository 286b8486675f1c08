"""Dividing queues among the members of a group: when, by whom, and what changes (client:C)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from sparrowmq.client.instance import ClientInstance
from sparrowmq.core.allocation import AllocateStrategy, queue_key, utf16_key
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import RETRY_PREFIX
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.client")

_RETRY_ROUTE_ROUNDS: Final = 10
"""Rounds in a row that wait for a new group's retry topic to appear; later it is looked for less often."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a round does to the queues of one topic."""

    leaving: tuple[MessageQueue, ...]
    joining: tuple[MessageQueue, ...]


def plan_change(topic: str, owned: Iterable[MessageQueue], wanted: Collection[MessageQueue]) -> Change:
    """The queues of `topic` to give up and to take.

    A strategy may name queues of other topics (client:C.5.3): those are taken if they are not owned yet.
    """
    held, target = set(owned), set(wanted)
    leaving = {queue for queue in held if queue.topic == topic} - target
    return Change(tuple(sorted(leaving, key=queue_key)), tuple(sorted(target - held, key=queue_key)))


class QueueOwner(Protocol):
    """The consumer whose queues are decided on."""

    def topics(self) -> Iterable[str]:
        """Subscribed topics."""

    def owned(self) -> Collection[MessageQueue]:
        """Queues it reads now."""

    async def announce(self) -> None:
        """Tell brokers what they do not know of this member yet."""

    async def give_up(self, queues: Collection[MessageQueue]) -> None:
        """Stop reading queues and commit their offsets."""

    async def take(self, queue: MessageQueue) -> bool:
        """Start to read a queue; False when that has to be tried again."""


class RebalanceSettings(Protocol):
    """The times of a rebalance loop, in seconds."""

    @property
    def rebalance_interval(self) -> float:
        """Between rounds nothing asked for."""

    @property
    def rebalance_interval_min(self) -> float:
        """Between any two rounds."""


class Rebalancer:
    """The rebalance loop of one consumer."""

    def __init__(
        self,
        group: str,
        settings: RebalanceSettings,
        instance: ClientInstance,
        strategy: AllocateStrategy,
        owner: QueueOwner,
    ) -> None:
        self._group = group
        self._settings = settings
        self._instance = instance
        self._strategy = strategy
        self._owner = owner
        self._wanted = asyncio.Event()
        self._retry_rounds = 0
        self._occasional = OccasionalLog(log)
        self.balanced = False
        """Whether after the last round this member had the queues it should have."""

    def wake(self) -> None:
        """Run as soon as the least distance between two rounds allows; several calls make one round."""
        self._wanted.set()

    async def run(self) -> None:
        """Rebalance until cancelled: when woken, else every 20 s, sooner when not settled."""
        settings = self._settings
        self.balanced = True  # nothing is owned yet: wait for the first wake-up
        while True:  # ends by cancellation when the consumer closes
            if self.balanced:
                try:
                    # Not wait_for: that can swallow a cancellation that comes with the wake-up.
                    async with asyncio.timeout(settings.rebalance_interval):
                        await self._wanted.wait()
                except TimeoutError:
                    pass
            self._wanted.clear()
            self.balanced = await self.round()
            await asyncio.sleep(settings.rebalance_interval_min)

    async def round(self) -> bool:
        """Bring every topic's queues up to date; whether all are as they should be."""
        topics = list(self._owner.topics())
        stale = [queue for queue in self._owner.owned() if queue.topic not in topics]
        changed = bool(stale)
        if stale:
            await self._owner.give_up(stale)
        settled = await self._learn_routes(topics)
        await self._owner.announce()
        for topic in topics:
            try:
                topic_settled, topic_changed = await self._topic_round(topic)
            except SparrowError as error:
                topic_settled, topic_changed = False, False
                level = logging.DEBUG if topic.startswith(RETRY_PREFIX) else logging.WARNING
                text = f"the queues of {topic} for group {self._group} stay as they are: {error}"
                self._occasional.write(level, f"round {topic}", text)
            settled &= topic_settled
            changed |= topic_changed
        if changed:
            await self._instance.heartbeat()
        return settled

    async def _learn_routes(self, topics: Iterable[str]) -> bool:
        """Ask for routes that are not known yet; whether all topics have one or need none now."""
        settled = True
        for topic in topics:
            try:
                if await self._instance.find_route(topic) is None:
                    settled &= self._without_route(topic)
            except SparrowError as error:
                settled = False
                text = f"the route of {topic} for group {self._group} is not known: {error}"
                self._occasional.write(logging.WARNING, f"round {topic}", text)
        return settled

    async def _topic_round(self, topic: str) -> tuple[bool, bool]:
        """(settled, changed) of one topic."""
        instance = self._instance
        route = instance.routes.get(topic)
        if route is None:
            return True, False  # said by `_learn_routes`
        if topic.startswith(RETRY_PREFIX):
            self._retry_rounds = 0
        queues = sorted(route.subscribe_queues(topic), key=queue_key)
        address = instance.routes.any_broker(topic, instance.rng)
        if not queues or address is None:
            return False, False
        members = await instance.brokers.consumer_ids(address, self._group, instance.settings.request_timeout)
        if not members:
            return False, False
        # A client with two connections is in it twice, and stays so: Java's members count it twice.
        members = sorted(members, key=utf16_key)
        wanted = self._strategy.allocate(self._group, instance.client_id, queues, members)
        if instance.client_id not in members:
            log.info("%s does not know %s in group %s yet", address, instance.client_id, self._group)
            await instance.heartbeat()
        change = plan_change(topic, self._owner.owned(), wanted)
        await self._owner.give_up(change.leaving)
        taken = await asyncio.gather(*(self._owner.take(queue) for queue in change.joining))
        settled = all(taken) and instance.client_id in members
        return settled, bool(change.leaving or any(taken))

    def _without_route(self, topic: str) -> bool:
        """Whether a topic nobody serves counts as settled: only a retry topic that stays away."""
        if not topic.startswith(RETRY_PREFIX):
            text = f"no broker serves topic {topic}, which group {self._group} subscribes to; create it"
            self._occasional.write(logging.WARNING, f"route {topic}", text)
            return False
        self._retry_rounds += 1
        return self._retry_rounds > _RETRY_ROUTE_ROUNDS
