"""Queries of the services to brokers: groups, their offsets, and the owners of queues.

An interface and its implementation on the client's public names: it also works with Apache's brokers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from sparrowmq.aio import Admin, Producer, QueueProgress
from sparrowmq.coordinator.cluster.asking import LOOK_SECONDS, each
from sparrowmq.coordinator.cluster.fleet import CANARY_GROUP, Fleet, FleetView
from sparrowmq.coordinator.cluster.member_reports import MemberReports, MemberReportsView
from sparrowmq.coordinator.cluster.offsets import GroupOffsets, complete, oldest_waiting, unread
from sparrowmq.coordinator.groups.members import Keeper
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import DLQ_PREFIX, is_system_group

FRESH_SECONDS: Final = 1.0
"""Maximum age of the offsets that services get."""
AGES_SECONDS: Final = 90.0
"""Time limit of a query of all offsets, including reads of the oldest unread messages."""


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """A group's place in one queue: unread messages, and the store time of the oldest of them (0: none).

    Exact for the queue with the topic's oldest message; for other queues the time may be too early, but not
    before that of the oldest.
    """

    queue: MessageQueue
    lag: int
    oldest_ms: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """Result of a query of all groups, by group; `failed` says why some could not be queried."""

    places: dict[str, list[GroupPosition]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


class ClusterView(FleetView, MemberReportsView, Protocol):
    """The queries of services."""

    async def places(self, *, ages: bool, fresh_seconds: float = FRESH_SECONDS) -> Seen:
        """Every group's offsets, at most this old; with `ages` also the age of the oldest unread messages."""

    async def queues(self, topics: Iterable[str]) -> tuple[dict[str, frozenset[MessageQueue]], set[str]]:
        """The readable queues of topics, and the topics for which they are unknown."""

    async def keeper(self) -> Keeper:
        """The admin client, for code that plans groups. Raises `SparrowError` if it cannot be started."""

    async def close(self) -> None:
        """Close the connections."""


class ObservedCluster(Fleet, MemberReports):
    """The cluster of some name servers. Connects on first use. Raises `SparrowError` if the groups cannot be
    listed.
    """

    def __init__(self, offsets: GroupOffsets) -> None:
        super().__init__()
        self._offsets = offsets
        self._clients = offsets.clients

    def __repr__(self) -> str:
        return f"<Cluster {self._clients.namesrv}>"

    async def places(self, *, ages: bool, fresh_seconds: float = FRESH_SECONDS) -> Seen:
        """Every group's offsets. One that has offsets at a master that does not answer has failed."""
        found = complete(await self._offsets.all(fresh_seconds))
        failed = {group: why for group, why in found.unknown.items() if not is_system_group(group)}
        groups = {
            group: [one for one in rows if not one.queue.topic.startswith(DLQ_PREFIX)]
            for group, rows in found.groups.items()
            if group not in failed and not is_system_group(group)
        }
        admin = await self._clients.admin()
        firsts = await self._offsets.firsts.of(admin, (one for rows in groups.values() for one in rows))

        async def look(group: str) -> list[GroupPosition]:
            oldest = await self._oldest(groups[group]) if ages else {}
            return [
                GroupPosition(one.queue, unread(one, firsts), oldest.get(one.queue, 0))
                for one in groups[group]
            ]

        seconds = AGES_SECONDS if ages else LOOK_SECONDS
        return Seen(await each(sorted(groups), look, failed, seconds=seconds), failed)

    async def _oldest(self, rows: Iterable[QueueProgress]) -> dict[MessageQueue, int]:
        return await oldest_waiting(await self._clients.reader(), rows, self._offsets.stored)

    async def queues(self, topics: Iterable[str]) -> tuple[dict[str, frozenset[MessageQueue]], set[str]]:
        """Gets the route of each topic once; a topic that does not exist yet has no queues."""
        admin, failed = await self._clients.admin(), dict[str, str]()
        routes = await each(topics, admin.topics.route, failed, vanish=True)
        found = {topic: frozenset(route.subscribe_queues(topic)) for topic, route in routes.items()}
        return found, set(failed)

    async def keeper(self) -> Keeper:
        """The calls of the admin client that groups need."""
        return await self._clients.calls()

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._members_told.close()
        await self._offsets.close()
        await self._clients.close()

    async def _asker(self) -> Admin:
        return await self._clients.admin()

    async def _canary_producer(self) -> Producer:
        return await self._clients.producer(CANARY_GROUP)
