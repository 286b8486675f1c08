"""A cluster, a coordinator, and members of the managed group `billing` that reads the topic `Orders`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tests.coordinator.groups.serving import serve_members
from tests.support import run, until

from sparrowmq import aio
from sparrowmq.coordinator.cluster.clients import ClusterCalls
from sparrowmq.coordinator.groups.handover import Times
from sparrowmq.testing import LocalCluster

TIMES = Times(member_lease=3.0, lease=4.0, drain=3.0)
SHORT = Times(member_lease=1.2, lease=1.5, drain=0.6)
"""Where a lease, or the time to drain, has to run out."""
GROUP = "billing"
SETTINGS = aio.ConsumerSettings(managed=True, consume_from="first", threads=4)


class Gate:
    """A handler that starts, and ends when the test allows it."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, message: aio.ReceivedMessage) -> None:
        self.started.set()
        await self.opened.wait()


class Led(AsyncExitStack):
    """A leading coordinator, and the members that joined; all are closed at the end of the block, last one
    first."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.server: Any = None

    async def join(self, *arguments: Any, **more: Any) -> aio.PushConsumer:
        """Add a member; arguments as of `World.member`."""
        return await self.enter_async_context(self._world.member(*arguments, **more))

    async def alone(self, *arguments: Any, **more: Any) -> aio.PushConsumer:
        """The first member, once it has all queues."""
        one = await self.join(*arguments, **more)
        await until(lambda: queues(one) == [0, 1, 2, 3])
        return one


@dataclass
class World:
    """A cluster with a topic `Orders` of four queues, an admin client, and a record of handled messages."""

    cluster: LocalCluster
    admin: aio.Admin
    handled: Counter[bytes] = field(default_factory=Counter)
    seen_by: dict[bytes, list[str]] = field(default_factory=dict)

    @property
    def namesrv(self) -> str:
        """The name server's address."""
        return self.cluster.namesrv

    def coordinator(self, times: Times = TIMES, **more: Any) -> Any:
        """A running coordinator."""
        return serve_members(ClusterCalls(self.admin), host="127.0.0.1", port=0, times=times, **more)

    @asynccontextmanager
    async def led(self, times: Times = TIMES, **more: Any) -> AsyncIterator[Led]:
        """A coordinator and its members."""
        async with Led(self) as led:
            led.server = await led.enter_async_context(self.coordinator(times, **more))
            yield led

    @asynccontextmanager
    async def member(
        self, name: str, handler: Callable[[Any], Awaitable[None]] | None = None, **more: Any
    ) -> AsyncIterator[aio.PushConsumer]:
        """A managed consumer; `more` are settings."""
        consumer = aio.PushConsumer(GROUP, namesrv=self.namesrv, settings=replace(SETTINGS, **more))

        async def handle(message: aio.ReceivedMessage) -> None:
            if handler is not None:
                await handler(message)
            self.note(name, message)

        consumer.subscribe("Orders", handler=handle)
        async with consumer:
            yield consumer

    def note(self, name: str, message: aio.ReceivedMessage) -> None:
        """Record a handled message."""
        self.handled[message.body] += 1
        self.seen_by.setdefault(message.body, []).append(name)

    async def send(self, first: int, count: int, queues: int = 4) -> None:
        """Send messages whose bodies count from `first`, to the queues in turn."""
        async with aio.Producer("senders", namesrv=self.namesrv) as producer:
            for number in range(first, first + count):
                queue = aio.MessageQueue("Orders", "broker-a", number % queues)
                await producer.send(aio.Message("Orders", b"%d" % number), queue=queue)

    async def owners(self) -> dict[int, tuple[str, int]]:
        """Client id and generation of each queue of the topic, as the broker enforces them."""
        found = (await self.admin.policies.list(GROUP))["broker-a"].policies
        return {
            one.queue_id: (one.owner.rpartition("#")[0], one.generation)
            for policy in found
            for one in policy.queues
            if one.topic == "Orders"
        }


def queues(consumer: aio.PushConsumer | aio.PullConsumer) -> list[int]:
    """The queues of the topic that a consumer has."""
    return sorted(queue.queue_id for queue in consumer.assignment if queue.topic == "Orders")


def rests(consumer: aio.PushConsumer) -> list[int]:
    """Queues in which no handler may start any more, though the consumer still has them."""
    member = consumer._member
    assert member is not None
    held = [one for one in member.queues.process_queues() if one.queue.topic == "Orders"]
    return sorted(one.queue.queue_id for one in held if not one.may_start())


def flow(test: Callable[[World], Awaitable[None]]) -> None:
    """Run a test in its own cluster."""
    with LocalCluster() as cluster:
        cluster.create_topic("Orders", queues=4)

        async def main() -> None:
            async with aio.Admin(namesrv=cluster.namesrv) as admin:
                await test(World(cluster, admin))

        run(main())
