"""What the services ask brokers: groups, their places in queues, and who of their members has which queue.

An interface and its implementation on the client's public names: it works with Apache's brokers as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from sparrowmq import aio
from sparrowmq.coordinator.cluster.asking import LOOK_SECONDS, each
from sparrowmq.coordinator.cluster.fleet import CANARY_GROUP, Fleet, FleetView
from sparrowmq.coordinator.cluster.told import Telling, TellingView
from sparrowmq.coordinator.groups.members import Keeper
from sparrowmq.core.errors import BrokerError, TransportError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import DLQ_PREFIX

AGES_SECONDS: Final = 90.0
"""How long a look at all places may take when the oldest unread messages are read."""


@dataclass(frozen=True, slots=True)
class Place:
    """A group's place in one queue: unread messages, and the store time of the oldest of them (0: none)."""

    queue: MessageQueue
    lag: int
    oldest_ms: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look at all groups found, by group; `failed` says why some could not be looked at."""

    places: dict[str, list[Place]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


class ClusterView(FleetView, TellingView, Protocol):
    """What services look at."""

    async def places(self, *, ages: bool) -> Seen:
        """Every group's places; with `ages` the oldest unread message of each queue is looked at, too."""

    async def queues(self, topics: Iterable[str]) -> tuple[dict[str, frozenset[MessageQueue]], set[str]]:
        """The queues of topics that can be read, and the topics nobody could say it of."""

    async def keeper(self) -> Keeper:
        """Its calls, for whoever plans groups. Raises `SparrowError` when it cannot be had."""

    async def close(self) -> None:
        """Let go of the connections."""


class Cluster(Fleet, Telling):
    """The cluster behind name servers. Connects when first asked. Raises the `SparrowError` of the list of
    groups.
    """

    def __init__(self, namesrv: str) -> None:
        super().__init__()
        self._namesrv = namesrv
        self._admin: aio.Admin | None = None
        self._reader: aio.PullConsumer | None = None
        self._canary: aio.Producer | None = None
        self._starting = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Cluster {self._namesrv}>"

    async def places(self, *, ages: bool) -> Seen:
        """Every group's places."""
        (admin, _), failed = await self._started(), dict[str, str]()

        async def look(group: str) -> list[Place]:
            return await self._places(group, ages=ages)

        seconds = AGES_SECONDS if ages else LOOK_SECONDS
        return Seen(await each(await admin.group_list(), look, failed, seconds=seconds), failed)

    async def queues(self, topics: Iterable[str]) -> tuple[dict[str, frozenset[MessageQueue]], set[str]]:
        """Asks for the route of each topic once; one that is not made yet has no queues."""
        (admin, _), failed = await self._started(), dict[str, str]()
        routes = await each(topics, admin.topic_route, failed, vanish=True)
        found = {topic: frozenset(route.subscribe_queues(topic)) for topic, route in routes.items()}
        return found, set(failed)

    async def keeper(self) -> Keeper:
        """The admin client."""
        return (await self._started())[0]

    async def close(self) -> None:
        """Let go of the connections. Idempotent."""
        await self._members_told.close()
        admin, self._admin = self._admin, None
        reader, self._reader = self._reader, None
        canary, self._canary = self._canary, None
        if canary is not None:
            await canary.close()
        if reader is not None:
            await reader.close()
        if admin is not None:
            await admin.close()

    async def _started(self) -> tuple[aio.Admin, aio.PullConsumer]:
        async with self._starting:
            if self._admin is None:
                admin = aio.Admin(namesrv=self._namesrv)
                await admin.start()
                self._admin = admin
            if self._reader is None:
                reader = aio.PullConsumer(namesrv=self._namesrv)
                await reader.start()
                self._reader = reader
            return self._admin, self._reader

    async def _asker(self) -> aio.Admin:
        return (await self._started())[0]

    async def _canary_producer(self) -> aio.Producer:
        async with self._starting:
            if self._canary is None:
                producer = aio.Producer(CANARY_GROUP, namesrv=self._namesrv)
                await producer.start()
                self._canary = producer
            return self._canary

    async def _places(self, group: str, *, ages: bool) -> list[Place]:
        admin, reader = await self._started()
        places = []
        for progress in await admin.group_progress(group):
            if progress.queue.topic.startswith(DLQ_PREFIX):
                continue
            oldest = 0
            if ages and progress.lag > 0:
                oldest = await _store_time(reader, progress.queue, progress.consumer_offset)
            places.append(Place(progress.queue, max(0, progress.lag), oldest))
        return places


async def _store_time(reader: aio.PullConsumer, queue: MessageQueue, offset: int) -> int:
    """When the message at an offset was stored; of the first one after it when it is gone; 0 when there is
    none.
    """
    try:
        result = await reader.pull(queue, offset, max_messages=1)
        if not result.messages and result.min_offset > offset:
            result = await reader.pull(queue, result.min_offset, max_messages=1)
    except (BrokerError, TransportError):
        return 0
    return result.messages[0].store_timestamp if result.messages else 0
