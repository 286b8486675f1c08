"""A cluster as services see it, made up by tests, and one step of a service on it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from sparrowmq.coordinator.cluster import Members, Place, Seen
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.fleet import Backlog, Broker
from sparrowmq.coordinator.leases import rules
from sparrowmq.coordinator.leases import table as leases
from sparrowmq.coordinator.leases.holder import LeaseHolder
from sparrowmq.coordinator.leases.rules import LeaseTimes, Owner
from sparrowmq.coordinator.services import board
from sparrowmq.coordinator.services.frame import Service, Work
from sparrowmq.coordinator.services.schedule import Report
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import TransportError
from sparrowmq.core.message import MessageQueue


def queue(topic: str = "t", number: int = 0) -> MessageQueue:
    return MessageQueue(topic, "broker-a", number)


def place(lag: int, oldest_ms: int = 0, topic: str = "t", number: int = 0) -> Place:
    return Place(queue(topic, number), lag, oldest_ms)


def members(
    *online: str, wanted: Sequence[MessageQueue] = (), owned: Sequence[MessageQueue] = (), **options: Any
) -> Members:
    return Members(online, frozenset(wanted), frozenset(owned), **options)


class MadeUpFleet:
    """The brokers of a `ClusterView` that says what it is told, and notes what is changed."""

    def __init__(self) -> None:
        self.there: list[Broker] = []
        self.failing: dict[str, str] = {}
        """What calls about a broker, or about all (`*`), fail with."""
        self.permissions: dict[str, int] = {}
        self.alone: list[str] = []
        self.left = Backlog()
        self.written: list[str] = []

    def _checked(self, broker: str) -> None:
        if broker in self.failing:
            raise TransportError(self.failing[broker], address="broker")

    async def brokers(self) -> list[Broker]:
        self._checked("*")
        return list(self.there)

    async def write(self, broker: str) -> None:
        self._checked(broker)
        self.written.append(broker)

    async def permission(self, broker: str) -> int:
        return self.permissions.get(broker, 6)

    async def set_permission(self, broker: str, permission: int) -> None:
        self._checked(broker)
        self.permissions[broker] = permission

    async def only_at(self, broker: str) -> list[str]:
        return self.alone

    async def backlog(self, broker: str) -> Backlog:
        return self.left


class MadeUp(MadeUpFleet):
    """A `ClusterView` that says what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = Seen()

    async def places(self, *, ages: bool) -> Seen:
        assert ages
        return self.seen

    async def members(self) -> Seen:
        return self.seen

    async def close(self) -> None:
        """Nothing to let go of."""


def step(database: Database, service: Service, **options: int) -> Report:
    """One step of the service, as its leader."""

    async def main() -> Report:
        owner, name = Owner("a" * 32, "one"), service.kind.name
        board.ensure(database, [service.kind])
        with database.write() as connection:
            leases.hand_over(connection, name, 0)
            epoch = leases.claim(connection, name, owner, 600_000)
        assert epoch is not None
        holder = LeaseHolder(database, name, owner, LeaseTimes(), SystemClock(), lambda: None)
        holder._candidate = rules.won(SystemClock().monotonic(), epoch, LeaseTimes())
        work = Work(database, holder, epoch, service.kind.defaults() | options)
        return await service.step(work)

    return asyncio.run(main())
