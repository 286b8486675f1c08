"""A cluster as services see it, made up by tests, and one step of a service on it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from sparrowmq.coordinator.cluster import Members, Place, Seen
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.leases import rules
from sparrowmq.coordinator.leases import table as leases
from sparrowmq.coordinator.leases.holder import LeaseHolder
from sparrowmq.coordinator.leases.rules import LeaseTimes, Owner
from sparrowmq.coordinator.services import board
from sparrowmq.coordinator.services.frame import Service, Work
from sparrowmq.coordinator.services.schedule import Report
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.message import MessageQueue


def queue(topic: str = "t", number: int = 0) -> MessageQueue:
    return MessageQueue(topic, "broker-a", number)


def place(lag: int, oldest_ms: int = 0, topic: str = "t", number: int = 0) -> Place:
    return Place(queue(topic, number), lag, oldest_ms)


def members(
    *online: str, wanted: Sequence[MessageQueue] = (), owned: Sequence[MessageQueue] = (), **options: Any
) -> Members:
    return Members(online, frozenset(wanted), frozenset(owned), **options)


class MadeUp:
    """A `ClusterView` that says what it is told."""

    def __init__(self) -> None:
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
