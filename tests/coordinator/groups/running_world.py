"""A coordinator with a database, a cluster, and members that apply dynamic settings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tests.coordinator.running import Running
from tests.support import until

from sparrowmq import aio
from sparrowmq.testing import LocalCluster

SETTINGS: Final = aio.ConsumerSettings(managed=True, consume_from="first", threads=4, persist_interval=0.1)


@dataclass
class World:
    """A cluster, its coordinator, and for each test a topic of two queues with a managed group."""

    cluster: LocalCluster
    database: Path
    coordinator: Running
    group: str = ""
    topic: str = ""
    handled: list[bytes] = field(default_factory=list)

    @property
    def namesrv(self) -> str:
        return self.cluster.namesrv

    async def call(self, method: str, path: str, body: object = None) -> Any:
        status, answer = await asyncio.to_thread(self.coordinator.call, method, path, body)
        assert status in (200, 202), answer
        return answer

    async def set(self, name: str, value: object, place: str = "*", seconds: int = 0) -> None:
        body = {"value": value, "place": place, "seconds": seconds, "reason": "a test"}
        await self.call("PUT", f"/groups/{self.group}/settings/{name}", body)

    async def unset(self, name: str, place: str = "*") -> None:
        await self.call("DELETE", f"/groups/{self.group}/settings/{name}?place={place}")

    async def move(self, place: str, **to: object) -> dict[str, Any]:
        """Reset the group's offsets; returns the result."""
        path = f"/groups/{self.group}/resets"
        number = (await self.call("POST", path, {"place": place, "reason": "a test", **to}))["id"]

        async def ended() -> Any:
            (mine,) = [one for one in await self.call("GET", path) if one["id"] == number]
            return mine["state"] != "waiting" and mine

        found: dict[str, Any] = await until(ended)
        return found

    @asynccontextmanager
    async def member(
        self, handler: Callable[[Any], Awaitable[None]] | None = None, **more: Any
    ) -> AsyncIterator[aio.PushConsumer]:
        """A consumer of the group; `more` are settings."""
        settings = replace(SETTINGS, **more)
        consumer = aio.PushConsumer(self.group, namesrv=self.namesrv, settings=settings)

        async def handle(found: Any) -> None:
            messages = found if isinstance(found, list) else [found]
            if handler is not None:
                await handler(found)
            self.handled += [message.body for message in messages]

        consumer.subscribe(self.topic, handler=handle)
        async with consumer:
            yield consumer

    async def send(self, first: int, number: int, tag: str = "") -> None:
        async with aio.Producer("senders", namesrv=self.namesrv) as producer:
            for body in range(first, first + number):
                queue = aio.MessageQueue(self.topic, "broker-a", body % 2)
                await producer.send(aio.Message(self.topic, b"%d" % body, tags=tag), queue=queue)


def owned(world: World, consumer: aio.PushConsumer) -> list[int]:
    return [queue.queue_id for queue in consumer.assignment if queue.topic == world.topic]


def told(consumer: aio.PushConsumer) -> str:
    """The dynamic settings that a consumer applies, as tools show them."""
    return consumer.running_info().properties["dynamicSettings"]
