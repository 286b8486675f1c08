"""The clients with which one process asks the cluster: one of each, for all services and users."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from sparrowmq.aio import Admin, Producer, PullConsumer


@dataclass(slots=True)
class ClusterClients:
    """An admin client, a consumer without group, and producers by group, started on first use.

    Every method raises `SparrowError` if the client cannot be started.
    """

    namesrv: str
    starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    made_admin: Admin | None = None
    made_reader: PullConsumer | None = None
    made_producers: dict[str, Producer] = field(default_factory=dict)

    async def admin(self) -> Admin:
        """The admin client."""
        async with self.starting:
            if self.made_admin is None:
                admin = Admin(namesrv=self.namesrv)
                await admin.start()
                self.made_admin = admin
            return self.made_admin

    async def reader(self) -> PullConsumer:
        """A consumer that reads by offset and commits nothing."""
        async with self.starting:
            if self.made_reader is None:
                reader = PullConsumer(namesrv=self.namesrv)
                await reader.start()
                self.made_reader = reader
            return self.made_reader

    async def producer(self, group: str) -> Producer:
        """The producer of a group."""
        async with self.starting:
            if group not in self.made_producers:
                producer = Producer(group, namesrv=self.namesrv)
                await producer.start()
                self.made_producers[group] = producer
            return self.made_producers[group]

    async def close(self) -> None:
        """Close all of them. Idempotent; a later use starts them again."""
        producers, self.made_producers = list(self.made_producers.values()), {}
        for producer in producers:
            await producer.close()
        reader, self.made_reader = self.made_reader, None
        if reader is not None:
            await reader.close()
        admin, self.made_admin = self.made_admin, None
        if admin is not None:
            await admin.close()
