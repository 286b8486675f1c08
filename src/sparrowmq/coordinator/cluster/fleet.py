"""Brokers as services see and change them: who is registered and answers, who takes messages, what waits
where.

An interface and its implementation on the client's public names: it works with Apache's brokers as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from sparrowmq import aio
from sparrowmq.coordinator.cluster.asking import each
from sparrowmq.core.errors import BrokerError, CoordinatorError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import DLQ_PREFIX, RETRY_PREFIX, is_system_group
from sparrowmq.core.route import PERM_READ, PERM_WRITE, TopicRoute

CANARY_GROUP: Final = "SPARROW_CANARY"
CANARY_BODY: Final = b"may this broker be written to?"
CANARY_SECONDS: Final = 5.0
READ_WRITE: Final = PERM_READ | PERM_WRITE
LEVELS_KEY: Final = "scheduleMessageOffset_"
TIMED_KEY: Final = "timerCongestNum"


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that is registered at the name servers; id 0 is the master. `error` says why it does not
    answer; `delayed` counts messages that wait there for their time.
    """

    cluster: str
    name: str
    id: int
    address: str
    error: str = ""
    delayed: int = 0


@dataclass(frozen=True, slots=True)
class Backlog:
    """Unread messages on one broker by group; `failed` says why some topics could not be asked for."""

    groups: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)


class FleetView(Protocol):
    """What services look at, and the two things they change. Everything raises `SparrowError`."""

    async def brokers(self) -> list[Broker]:
        """Every registered broker, with what it answers."""

    async def write(self, broker: str) -> None:
        """Send a message to a broker's own topic, which nobody reads."""

    async def permission(self, broker: str) -> int:
        """What a broker's master permits: 4 read, 2 write, 6 both."""

    async def set_permission(self, broker: str, permission: int) -> None:
        """Have a broker's topics offered for that alone. Its other settings stay."""

    async def only_at(self, broker: str) -> list[str]:
        """Topics that no other broker takes messages of."""

    async def backlog(self, broker: str) -> Backlog:
        """What groups have not read of a broker's messages."""


def waiting(runtime: Mapping[str, str]) -> int:
    """How many messages wait for their time, by what a broker tells about itself (broker:16.1). Pure."""
    total = _number(runtime.get(TIMED_KEY, ""))
    for name, text in runtime.items():
        if name.startswith(LEVELS_KEY):
            delivered, _, end = text.partition(",")
            total += max(0, _number(end) - _number(delivered))
    return total


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def only_writable_at(broker: str, routes: Mapping[str, TopicRoute]) -> list[str]:
    """Topics whose messages only this broker takes. Pure."""
    found = []
    for topic, route in sorted(routes.items()):
        names = {queue.broker_name for queue in route.publish_queues(topic)}
        if names == {broker}:
            found.append(topic)
    return found


class Fleet(ABC):
    """The brokers behind name servers, asked with the clients of whoever derives from it."""

    @abstractmethod
    async def _asker(self) -> aio.Admin:
        """A started admin client."""

    @abstractmethod
    async def _canary_producer(self) -> aio.Producer:
        """A started producer of `CANARY_GROUP`."""

    async def brokers(self) -> list[Broker]:
        """Every registered broker, with what it answers."""
        admin = await self._asker()
        return [
            Broker(
                one.cluster,
                one.broker_name,
                one.broker_id,
                one.address,
                one.error or "",
                waiting(one.runtime),
            )
            for one in await admin.broker_list()
        ]

    async def write(self, broker: str) -> None:
        """Send a message to the topic that every broker has under its own name."""
        producer = await self._canary_producer()
        queue = MessageQueue(broker, broker, 0)
        await producer.send(aio.Message(broker, CANARY_BODY), queue=queue, timeout=CANARY_SECONDS)

    async def permission(self, broker: str) -> int:
        """What the broker's settings permit."""
        admin = await self._asker()
        text = (await admin.broker_settings(broker)).get("brokerPermission", "")
        return int(text) if text.isdecimal() else READ_WRITE

    async def set_permission(self, broker: str, permission: int) -> None:
        """Change the setting `brokerPermission`, which reaches every name server with the topics.

        A broker that does not let it be changed has its topics changed at the name servers.
        """
        admin = await self._asker()
        try:
            await admin.change_broker_settings(broker, {"brokerPermission": str(permission)})
        except BrokerError:
            if permission & PERM_WRITE:
                await admin.add_write_perm(broker)
            else:
                await admin.wipe_write_perm(broker)

    async def only_at(self, broker: str) -> list[str]:
        """Looks at the route of every topic that is not RocketMQ's own."""
        admin, failed = await self._asker(), dict[str, str]()
        routes = await each(await admin.topic_list(), admin.topic_route, failed, vanish=True)
        for topic, why in failed.items():
            raise CoordinatorError(f"the route of topic {topic} is not known: {why}")
        return only_writable_at(broker, routes)

    async def backlog(self, broker: str) -> Backlog:
        """Asks the broker for all groups' places, and looks for retries that their group never began to
        read.
        """
        admin = await self._asker()
        progress = await admin.broker_progress(broker)
        topics = await admin.topic_list(system=True)
        known = {(group, one.queue.topic) for group, places in progress.items() for one in places}
        alone = [topic for topic in topics if topic.startswith(RETRY_PREFIX)]
        alone = [topic for topic in alone if (topic.removeprefix(RETRY_PREFIX), topic) not in known]
        behind = {one.queue.topic for places in progress.values() for one in places if one.lag > 0}
        ends, failed = await self._ends(admin, broker, sorted(behind.union(alone)))
        return Backlog(unread(progress, alone, ends), failed)

    async def _ends(
        self, admin: aio.Admin, broker: str, topics: Iterable[str]
    ) -> tuple[dict[MessageQueue, tuple[int, int]], dict[str, str]]:
        """First and next offset of the broker's queues of some topics, and why some could not be asked."""
        failed: dict[str, str] = {}
        found = await each(topics, admin.topic_status, failed, vanish=True)
        of_broker = (one for all_ in found.values() for one in all_ if one.queue.broker_name == broker)
        return {one.queue: (one.min_offset, one.max_offset) for one in of_broker}, failed


def unread(
    progress: Mapping[str, Iterable[aio.QueueProgress]],
    alone: Iterable[str],
    ends: Mapping[MessageQueue, tuple[int, int]],
) -> dict[str, int]:
    """Unread messages by group: behind the group's places, those that are stored still, and in retry topics
    that have no places. Dead letters are nobody's to read. Pure.
    """
    found: dict[str, int] = {}
    for group, places in progress.items():
        for one in places:
            if one.queue.topic.startswith(DLQ_PREFIX) or is_system_group(group):
                continue
            first, _ = ends.get(one.queue, (0, 0))
            found[group] = found.get(group, 0) + max(0, one.broker_offset - max(one.consumer_offset, first))
    for topic in alone:
        group = topic.removeprefix(RETRY_PREFIX)
        stored = sum(end - first for queue, (first, end) in ends.items() if queue.topic == topic)
        found[group] = found.get(group, 0) + stored
    return {group: count for group, count in sorted(found.items()) if count}
