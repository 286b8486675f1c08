"""Division of queues among the members of a group: when, by whom, and what changes (client:C)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.core.allocation import AllocateStrategy, queue_key, utf16_key
from sparrowmq.core.errors import AllocationError, BrokerError, ClientError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import RETRY_PREFIX
from sparrowmq.protocol.bodies.clients import POP_MODE
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.client")

_RETRY_ROUTE_ROUNDS: Final = 10
"""Consecutive rounds that wait for a new group's retry topic; later it is checked less often."""


@dataclass(frozen=True, slots=True)
class QueueChange:
    """The changes of one round in the queues of one topic."""

    leaving: tuple[MessageQueue, ...]
    joining: tuple[MessageQueue, ...]


def plan_change(topic: str, owned: Iterable[MessageQueue], wanted: Collection[MessageQueue]) -> QueueChange:
    """The queues of `topic` to give up and to take.

    A strategy may name queues of other topics (client:C.5.3): these are taken if they are not owned yet.
    """
    held, target = set(owned), set(wanted)
    leaving = {queue for queue in held if queue.topic == topic} - target
    return QueueChange(tuple(sorted(leaving, key=queue_key)), tuple(sorted(target - held, key=queue_key)))


class QueueOwner(Protocol):
    """The consumer whose queues are assigned."""

    def topics(self) -> Iterable[str]:
        """Subscribed topics."""

    def owned(self) -> Collection[MessageQueue]:
        """Queues that it reads now."""

    async def announce(self) -> None:
        """Announce new information about this member to the brokers."""

    async def give_up(self, queues: Collection[MessageQueue]) -> None:
        """Stop reading queues and commit their offsets."""

    async def take(self, queue: MessageQueue) -> bool:
        """Start reading a queue; False when that must be retried."""


class PopOwner(Protocol):
    """The part of a consumer that receives by POP from the queues that a broker names for it."""

    def owned(self) -> Collection[MessageQueue]:
        """Queues that it receives from now."""

    def give_up(self, queues: Collection[MessageQueue]) -> None:
        """Receive no more from queues."""

    def take(self, queue: MessageQueue) -> bool:
        """Begin to receive from a queue; False when that must be retried."""


@dataclass(frozen=True, slots=True)
class Share:
    """The queues of a topic for one member: those that it pulls, and those from which it receives by POP."""

    pulled: Collection[MessageQueue]
    popped: Collection[MessageQueue] = ()


class RebalanceSettings(Protocol):
    """The intervals of a rebalance loop, in seconds."""

    @property
    def rebalance_interval(self) -> float:
        """Interval of periodic rounds."""

    @property
    def rebalance_interval_min(self) -> float:
        """Minimum interval between any two rounds."""


OnChange = Callable[[Collection[str]], Awaitable[object]]
"""Called with the topics whose assigned queues changed in a round."""


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
        pops: PopOwner | None = None,
        on_change: OnChange | None = None,
        on_round: Callable[[], None] = lambda: None,
    ) -> None:
        """With broadcasting every member has all queues. With `asks_broker` a broker divides them (C.12), and
        may have some read by POP; without `pops` that is an error.

        `on_change` is called with the changed topics of a round; without it a change triggers a heartbeat.
        `on_round` is called after each round (client:E-22).
        """
        self._group = group
        self._settings = settings
        self._instance = instance
        self._strategy = strategy
        self._owner = owner
        self._is_broadcasting = is_broadcasting
        self._asks_broker = asks_broker
        self._pops = pops
        self._on_change = on_change
        self._on_round = on_round
        self._paused = False
        self._wanted = asyncio.Event()
        self._retry_rounds = 0
        self._occasional = OccasionalLog(log)
        self.balanced = False
        """Whether this member had the right queues after the last round."""

    def wake(self) -> None:
        """Run a round as soon as the minimum interval allows; several calls cause one round."""
        self._wanted.set()

    def pause(self) -> None:
        """Skip rounds until `resume` (client:C.2)."""
        self._paused = True

    def resume(self) -> None:
        """Resume rounds soon."""
        self._paused = False
        self.wake()

    async def run(self) -> None:
        """Rebalance until cancelled: when woken, otherwise every 20 s, sooner after an incomplete round."""
        settings = self._settings
        self.balanced = True  # no queues yet: wait for the first wake-up
        wait = settings.rebalance_interval
        while True:  # cancelled when the consumer closes
            if self.balanced:
                try:
                    # Not wait_for: it can swallow a cancellation that arrives with the wake-up.
                    async with asyncio.timeout(wait):
                        await self._wanted.wait()
                except TimeoutError:
                    pass
            self._wanted.clear()
            self.balanced = await self.round()
            self._on_round()
            await self._instance.sleep(settings.rebalance_interval_min)
            wait = max(0.0, settings.rebalance_interval - settings.rebalance_interval_min)

    async def round(self) -> bool:
        """Update the queues of every topic. Returns whether all are settled."""
        if self._paused:
            return False
        topics = list(self._owner.topics())
        changed: set[str] = set()
        stale = [queue for queue in self._owner.owned() if queue.topic not in topics]
        if stale:
            await self._owner.give_up(stale)
            changed |= {queue.topic for queue in stale}
        if self._pops is not None:
            gone = [queue for queue in self._pops.owned() if queue.topic not in topics]
            self._pops.give_up(gone)
            changed |= {queue.topic for queue in gone}
        settled = await self._learn_routes(topics)
        await self._owner.announce()
        for topic in topics:
            try:
                topic_settled, topic_changed = await self._topic_round(topic)
            except SparrowError as error:
                topic_settled, topic_changed = False, False
                level = logging.DEBUG if topic.startswith(RETRY_PREFIX) else logging.WARNING
                text = f"the queues of {topic} in group {self._group} do not change: {error}"
                self._occasional.write(level, f"round {topic}", text)
            settled &= topic_settled
            if topic_changed:
                changed.add(topic)
        if changed:
            await (self._instance.heartbeat() if self._on_change is None else self._on_change(changed))
        return settled

    async def _learn_routes(self, topics: Iterable[str]) -> bool:
        """Request missing routes. Returns whether all topics have a route or do not need one now."""
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
            return True, False  # reported by `_learn_routes`
        if topic.startswith(RETRY_PREFIX):
            self._retry_rounds = 0
        queues = sorted(route.subscribe_queues(topic), key=queue_key)
        share, is_member = await self._share(topic, queues)
        if share is None:
            return False, False
        change = plan_change(topic, self._owner.owned(), share.pulled)
        await self._owner.give_up(change.leaving)
        popping, popped = self._change_pops(topic, share.popped)
        taken = await asyncio.gather(*(self._owner.take(queue) for queue in change.joining))
        changed = bool(change.leaving or any(taken) or popped)
        return all(taken) and popping and is_member, changed

    def _change_pops(self, topic: str, wanted: Collection[MessageQueue]) -> tuple[bool, bool]:
        """(settled, changed) of the queues that are read by POP."""
        if self._pops is None:
            return True, False
        change = plan_change(topic, self._pops.owned(), wanted)
        self._pops.give_up(change.leaving)
        taken = [self._pops.take(queue) for queue in change.joining]
        return all(taken), bool(change.leaving or any(taken))

    async def _share(self, topic: str, queues: list[MessageQueue]) -> tuple[Share | None, bool]:
        """(queues for this member, whether brokers know it as a member); None: unknown."""
        if not queues:
            text = f"topic {topic}, which group {self._group} subscribes to, has no queue that may be read"
            self._occasional.write(logging.WARNING, f"queues {topic}", text)
            return None, False
        if self._is_broadcasting:
            return Share(queues), True
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
                text = (
                    f"{address} does not assign the queues of {topic} in group {self._group}; its members do"
                )
                self._occasional.write(logging.INFO, f"divides {topic}", text)
        members = await instance.brokers.consumer_ids(address, self._group, instance.settings.request_timeout)
        if not members:
            return None, False
        # Do not remove duplicates: a client with two connections is listed twice, and Java's members count it
        # twice.
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
        return Share(wanted), is_member

    async def _ask_broker(self, topic: str, address: str) -> Share | None:
        """The queues that a broker assigns to this member; None to keep the current ones (client:C-44).

        Raises `ClientError` for POP queues where they cannot be read, `BrokerError` with code 3 if the broker
        does not assign queues.
        """
        found = await self._instance.brokers.query_assignment(
            address,
            topic,
            self._group,
            self._instance.client_id,
            self._strategy.name,
            self._instance.settings.request_timeout,
        )
        if found is None:
            return None
        popped = [queue for queue, mode in found if mode == POP_MODE]
        if popped and self._pops is None:
            raise ClientError(
                f"{address} requires POP for {popped[0]}, which this client does not support; set the "
                f"group's mode to PULL (mqadmin setConsumeMode), or leave server_assignment out"
            )
        return Share([queue for queue, mode in found if mode != POP_MODE], popped)

    def _without_route(self, topic: str) -> bool:
        """Whether a topic without a route counts as settled: only a retry topic that remains missing."""
        if not topic.startswith(RETRY_PREFIX):
            text = f"no broker serves topic {topic}, which group {self._group} subscribes to; create it"
            self._occasional.write(logging.WARNING, f"route {topic}", text)
            return False
        self._retry_rounds += 1
        return self._retry_rounds > _RETRY_ROUTE_ROUNDS
