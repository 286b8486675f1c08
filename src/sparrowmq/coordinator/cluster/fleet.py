"""Queries and changes of brokers by the services: which are registered and answer, which accept messages, and
their backlogs.

An interface and its implementation on the client's public names: it also works with Apache's brokers.
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
class FleetBroker:
    """A broker registered at the name servers; id 0 is the master. `error` says why it does not answer;
    `delayed` counts its delayed messages; `rival` is the address of another broker with its name and id.
    """

    cluster: str
    name: str
    id: int
    address: str
    error: str = ""
    delayed: int = 0
    rival: str = ""


@dataclass(frozen=True, slots=True)
class Backlog:
    """Unread messages on one broker by group; `failed` says why some topics could not be queried."""

    groups: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)


class FleetView(Protocol):
    """The queries of services, and the two changes they make. Everything raises `SparrowError`."""

    async def brokers(self) -> list[FleetBroker]:
        """Every registered broker, with its report."""

    async def write(self, broker: str) -> None:
        """Send a message to a broker's own topic, which has no consumers."""

    async def permission(self, broker: str) -> int:
        """Permission of a broker's master: 4 read, 2 write, 6 both."""

    async def set_permission(self, broker: str, permission: int) -> None:
        """Set the permission of a broker's topics. Its other settings stay."""

    async def only_at(self, broker: str) -> list[str]:
        """Topics for which no other broker accepts messages."""

    async def backlog(self, broker: str) -> Backlog:
        """Messages of a broker that groups have not read."""


def waiting(runtime: Mapping[str, str]) -> int:
    """Number of delayed messages, from a broker's report (broker:16.1). Pure."""
    total = _number(runtime.get(TIMED_KEY, ""))
    for name, text in runtime.items():
        if name.startswith(LEVELS_KEY):
            delivered, _, end = text.partition(",")
            total += max(0, _number(end) - _number(delivered))
    return total


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def only_writable_at(broker: str, routes: Mapping[str, TopicRoute]) -> list[str]:
    """Topics that are writable only at this broker. Pure."""
    found = []
    for topic, route in sorted(routes.items()):
        names = {queue.broker_name for queue in route.publish_queues(topic)}
        if names == {broker}:
            found.append(topic)
    return found


class Fleet(ABC):
    """The brokers of some name servers, queried with the clients of the subclass."""

    @abstractmethod
    async def _asker(self) -> aio.Admin:
        """A started admin client."""

    @abstractmethod
    async def _canary_producer(self) -> aio.Producer:
        """A started producer of `CANARY_GROUP`."""

    async def brokers(self) -> list[FleetBroker]:
        """Every registered broker, with its report."""
        admin = await self._asker()
        return [
            FleetBroker(
                one.cluster,
                one.broker_name,
                one.broker_id,
                one.address,
                one.error or "",
                waiting(one.runtime),
                one.rival,
            )
            for one in await admin.brokers.list()
        ]

    async def write(self, broker: str) -> None:
        """Send a message to the topic that every broker has under its own name."""
        producer = await self._canary_producer()
        queue = MessageQueue(broker, broker, 0)
        await producer.send(aio.Message(broker, CANARY_BODY), queue=queue, timeout=CANARY_SECONDS)

    async def permission(self, broker: str) -> int:
        """The permission in the broker's settings."""
        admin = await self._asker()
        text = (await admin.brokers.settings(broker)).get("brokerPermission", "")
        return int(text) if text.isdecimal() else READ_WRITE

    async def set_permission(self, broker: str, permission: int) -> None:
        """Change the setting `brokerPermission`, which reaches every name server with the topics.

        If a broker does not allow the change, its topics are changed at the name servers.
        """
        admin = await self._asker()
        try:
            await admin.brokers.set_settings(broker, {"brokerPermission": str(permission)})
        except BrokerError:
            if permission & PERM_WRITE:
                await admin.name_servers.add_write_perm(broker)
            else:
                await admin.name_servers.wipe_write_perm(broker)

    async def only_at(self, broker: str) -> list[str]:
        """Checks the route of every topic except RocketMQ's own."""
        admin, failed = await self._asker(), dict[str, str]()
        routes = await each(await admin.topics.list(), admin.topics.route, failed, vanish=True)
        for topic, why in failed.items():
            raise CoordinatorError(f"the route of topic {topic} is not known: {why}")
        return only_writable_at(broker, routes)

    async def backlog(self, broker: str) -> Backlog:
        """Asks the broker for the offsets of all groups, and finds retry topics that their group never began
        to read.
        """
        admin = await self._asker()
        progress = await admin.brokers.progress(broker)
        topics = await admin.topics.list(system=True)
        known = {(group, one.queue.topic) for group, places in progress.items() for one in places}
        alone = [topic for topic in topics if topic.startswith(RETRY_PREFIX)]
        alone = [topic for topic in alone if (topic.removeprefix(RETRY_PREFIX), topic) not in known]
        behind = {one.queue.topic for places in progress.values() for one in places if one.lag > 0}
        ends, failed = await self._ends(admin, broker, sorted(behind.union(alone)))
        return Backlog(unread(progress, alone, ends), failed)

    async def _ends(
        self, admin: aio.Admin, broker: str, topics: Iterable[str]
    ) -> tuple[dict[MessageQueue, tuple[int, int]], dict[str, str]]:
        """First and next offset of the broker's queues of some topics, and errors of the others."""
        failed: dict[str, str] = {}
        found = await each(topics, admin.topics.status, failed, vanish=True)
        of_broker = (one for all_ in found.values() for one in all_ if one.queue.broker_name == broker)
        return {one.queue: (one.min_offset, one.max_offset) for one in of_broker}, failed


def unread(
    progress: Mapping[str, Iterable[aio.QueueProgress]],
    alone: Iterable[str],
    ends: Mapping[MessageQueue, tuple[int, int]],
) -> dict[str, int]:
    """Unread messages by group: those after the group's offsets that are still stored, and those in retry
    topics without offsets. Dead letters are not counted. Pure.
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
