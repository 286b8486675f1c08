"""Dividing queues among the members of a group: when, by whom, and what changes (client:C)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from sparrowmq.client.instance import ClientInstance
from sparrowmq.core.allocation import AllocateStrategy, queue_key, utf16_key
from sparrowmq.core.errors import AllocationError, BrokerError, ClientError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import RETRY_PREFIX
from sparrowmq.protocol.codes import ResponseCode
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


OnChange = Callable[[Collection[str]], Awaitable[object]]
"""Told the topics whose own queues changed in a round."""


class Rebalancer:
    """The rebalance loop of one consumer."""

    def __init__(
        self,
        group: str,
        settings: RebalanceSettings,
        instance: ClientInstance,
        strategy: AllocateStrategy,
        owner: QueueOwner,
        *,
        is_broadcasting: bool = False,
        asks_broker: bool = False,
        on_change: OnChange | None = None,
    ) -> None:
        """In broadcasting every member has all queues. With `asks_broker` a broker divides them (C.12).

        `on_change` is called with what changed in a round; without it brokers get a heartbeat then.
        """
        self._group = group
        self._settings = settings
        self._instance = instance
        self._strategy = strategy
        self._owner = owner
        self._is_broadcasting = is_broadcasting
        self._asks_broker = asks_broker
        self._on_change = on_change
        self.paused = False
        """Whether rounds are skipped (client:C.2)."""
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
        wait = settings.rebalance_interval
        while True:  # ends by cancellation when the consumer closes
            if self.balanced:
                try:
                    # Not wait_for: that can swallow a cancellation that comes with the wake-up.
                    async with asyncio.timeout(wait):
                        await self._wanted.wait()
                except TimeoutError:
                    pass
            self._wanted.clear()
            self.balanced = await self.round()
            await asyncio.sleep(settings.rebalance_interval_min)
            wait = max(0.0, settings.rebalance_interval - settings.rebalance_interval_min)

    async def round(self) -> bool:
        """Bring every topic's queues up to date; whether all are as they should be."""
        if self.paused:
            return False
        topics = list(self._owner.topics())
        changed: set[str] = set()
        stale = [queue for queue in self._owner.owned() if queue.topic not in topics]
        if stale:
            await self._owner.give_up(stale)
            changed |= {queue.topic for queue in stale}
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
            if topic_changed:
                changed.add(topic)
        if changed:
            await (self._instance.heartbeat() if self._on_change is None else self._on_change(changed))
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
        route = self._instance.routes.get(topic)
        if route is None:
            return True, False  # said by `_learn_routes`
        if topic.startswith(RETRY_PREFIX):
            self._retry_rounds = 0
        queues = sorted(route.subscribe_queues(topic), key=queue_key)
        wanted, is_member = await self._share(topic, queues)
        if wanted is None:
            return False, False
        change = plan_change(topic, self._owner.owned(), wanted)
        await self._owner.give_up(change.leaving)
        taken = await asyncio.gather(*(self._owner.take(queue) for queue in change.joining))
        return all(taken) and is_member, bool(change.leaving or any(taken))

    async def _share(
        self, topic: str, queues: list[MessageQueue]
    ) -> tuple[Collection[MessageQueue] | None, bool]:
        """(what this member should have, whether it is known as one); None: that is not known."""
        if not queues:
            text = f"topic {topic}, which group {self._group} subscribes to, has no queue that may be read"
            self._occasional.write(logging.WARNING, f"queues {topic}", text)
            return None, False
        if self._is_broadcasting:
            return queues, True
        instance = self._instance
        address = instance.routes.any_broker(topic, instance.rng)
        if address is None:
            return None, False
        if self._asks_broker:
            try:
                return await self._ask_broker(topic, address), True
            except BrokerError as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                text = f"{address} does not divide {topic} for group {self._group}; its members do"
                self._occasional.write(logging.INFO, f"divides {topic}", text)
        members = await instance.brokers.consumer_ids(address, self._group, instance.settings.request_timeout)
        if not members:
            return None, False
        # A client with two connections is in it twice, and stays so: Java's members count it twice.
        members = sorted(members, key=utf16_key)
        try:
            wanted = self._strategy.allocate(self._group, instance.client_id, queues, members)
        except Exception as error:
            if isinstance(error, SparrowError):
                raise
            raise AllocationError(f"{self._strategy.name} failed: {type(error).__name__}: {error}") from error
        is_member = instance.client_id in members
        if not is_member:
            log.info("%s does not know %s in group %s yet", address, instance.client_id, self._group)
            await instance.heartbeat()
        return wanted, is_member

    async def _ask_broker(self, topic: str, address: str) -> Collection[MessageQueue] | None:
        """What a broker assigns to this member, None to keep what it has (client:C-44).

        Raises `ClientError` for queues to pop, `BrokerError` with code 3 where the broker divides nothing.
        """
        found = await self._instance.brokers.query_assignment(
            address,
            topic,
            self._group,
            self._instance.client_id,
            self._strategy.name,
            self._instance.settings.request_timeout,
        )
        popped = [queue for queue, mode in found or () if mode != "PULL"]
        if popped:
            raise ClientError(
                f"{address} wants {popped[0]} to be popped, which this client does not do; set the group's "
                "mode to PULL (mqadmin setConsumeMode) or leave server_assignment out"
            )
        return None if found is None else [queue for queue, _ in found]

    def _without_route(self, topic: str) -> bool:
        """Whether a topic nobody serves counts as settled: only a retry topic that stays away."""
        if not topic.startswith(RETRY_PREFIX):
            text = f"no broker serves topic {topic}, which group {self._group} subscribes to; create it"
            self._occasional.write(logging.WARNING, f"route {topic}", text)
            return False
        self._retry_rounds += 1
        return self._retry_rounds > _RETRY_ROUTE_ROUNDS
