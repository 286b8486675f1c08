"""A master that is frozen, killed or cut off, and its slave that takes over: nothing acknowledged is lost.

The test plays the coordinator: it renews the master's lease, and elects the slave when the lease is over.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from tests.broker.rig import send_command
from tests.support import free_port, run, until

from sparrowmq import aio
from sparrowmq.core.errors import SparrowError, TransportError
from sparrowmq.nameserver.server import NameServer
from sparrowmq.protocol.bodies.replicas import FOLLOWING, MASTER, SERVING, SLAVE, ReplicaOrders, ReplicaState
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import FrameReader, decode, encode
from sparrowmq.runtime.child import ChildServers

TOPIC = "TopicTest"
QUEUE = aio.MessageQueue(TOPIC, "broker-a", 0)
LEASE_MS = 1500


class Pair:
    """Two replicas in processes of their own, and what a coordinator does with them."""

    def __init__(self, root: Path, admin: aio.Admin, namesrv: str) -> None:
        self.admin = admin
        self.children = [self._child(root, namesrv, number) for number in range(2)]
        self.epoch = 0
        self.number = 0
        self.members: list[str] = []
        self.master = 0
        self._renewal: asyncio.Task[None] | None = None

    @staticmethod
    def _child(root: Path, namesrv: str, number: int) -> ChildServers:
        texts = {
            "listenPort": "0",
            "haListenPort": str(free_port()),
            "namesrvAddr": namesrv,
            "storePathRootDir": str(root / f"store{number}"),
            "mappedFileSizeCommitLog": str(1 << 20),
            "brokerRole": "SLAVE" if number else "SYNC_MASTER",
            "brokerId": str(number),
            "slaveTimeout": "500",
            "maxHashSlotNum": "1000",
            "maxIndexNum": "5000",
        }
        return ChildServers(texts, log=root / f"log{number}")

    def address(self, number: int) -> str:
        return self.children[number].broker_address

    async def state(self, number: int) -> ReplicaState | None:
        try:
            return await self.admin.replicas.state(self.address(number), timeout=1.0)
        except TransportError:
            return None

    async def lead(self, number: int, members: list[int]) -> None:
        """Elect a master, with this in-sync set, and go on renewing its lease."""
        await self.stop_renewing()
        self.epoch, self.number, self.master = self.epoch + 1, self.number + 1, number
        self.members = [self.address(one) for one in members]
        await self.renew()
        self._renewal = asyncio.create_task(self._renew())

    async def renew(self) -> None:
        known = await self.state(self.master)
        if known is None:
            return
        wanted = known.wanted or []
        is_current = (known.epoch, known.in_sync_number, known.state) == (self.epoch, self.number, SERVING)
        if is_current and wanted != self.members:
            self.number, self.members = self.number + 1, wanted
        orders = self._orders(self.master, MASTER, lease_from=known.stamp, run=known.run)
        await self.admin.replicas.set_role(self.address(self.master), orders, timeout=1.0)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            with suppress(SparrowError):
                await self.renew()

    async def stop_renewing(self) -> None:
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)

    def _orders(self, number: int, role: str, **lease: object) -> ReplicaOrders:
        values: dict[str, object] = {
            "cluster_name": "DefaultCluster",
            "broker_name": "broker-a",
            "epoch": self.epoch,
            "role": role,
            "broker_id": 0 if role == MASTER else 1,
            "master_address": "" if role == MASTER else self.address(self.master),
            "in_sync": self.members,
            "in_sync_number": self.number,
            "lease_ms": LEASE_MS,
        }
        return ReplicaOrders(**(values | lease))  # type: ignore[arg-type]

    async def follow(self, number: int) -> None:
        """Let a replica follow the master, as soon as it answers."""

        async def told() -> bool:
            try:
                await self.admin.replicas.set_role(
                    self.address(number), self._orders(number, SLAVE), timeout=1.0
                )
            except TransportError:
                return False
            return True

        await until(told)

    async def becomes(self, number: int, state: str) -> None:
        async def there() -> bool:
            found = await self.state(number)
            return found is not None and found.state == state and found.epoch == self.epoch

        await until(there)

    async def in_sync(self) -> None:
        """Wait until the set has both."""

        async def both() -> bool:
            found = await self.state(self.master)
            return found is not None and len(found.in_sync) == 2 and len(found.slaves) == 1

        await until(both)


@asynccontextmanager
async def pair(root: Path) -> AsyncIterator[Pair]:
    """Both replicas, the first one elected, the second in sync."""
    async with AsyncExitStack() as stack:
        names = NameServer(host="127.0.0.1", port=0)
        await names.start()
        stack.push_async_callback(names.close)
        admin = await stack.enter_async_context(aio.Admin(namesrv=names.address))
        made = Pair(root, admin, names.address)
        for child in made.children:
            await asyncio.to_thread(child.start)
            stack.push_async_callback(asyncio.to_thread, child.kill)
        stack.push_async_callback(made.stop_renewing)
        await made.lead(0, [0])
        await made.becomes(0, SERVING)
        await made.follow(1)
        await made.in_sync()
        yield made


class Sending:
    """A producer of numbers in one queue; `acknowledged` are those answered with SEND_OK."""

    def __init__(self, namesrv: str) -> None:
        settings = aio.ProducerSettings(namesrv=namesrv, route_interval=0.1, send_timeout=1.0)
        self.producer = aio.Producer("p", settings=settings)
        self.acknowledged: list[int] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Sending:
        await self.producer.start()
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.producer.close()

    async def _run(self) -> None:
        number = 0
        while True:
            number += 1
            try:
                result = await self.producer.send(aio.Message(TOPIC, b"%d" % number), queue=QUEUE)
            except SparrowError:
                await asyncio.sleep(0.01)
                continue
            if result.status is aio.SendStatus.SEND_OK:
                self.acknowledged.append(number)

    async def more(self, count: int) -> None:
        """Wait until so many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        await until(lambda: len(self.acknowledged) >= wanted)


async def stored(namesrv: str) -> list[int]:
    """The numbers in the queue, in order."""
    found: list[int] = []
    async with aio.PullConsumer("reader", settings=aio.PullSettings(namesrv=namesrv)) as consumer:
        offset = 0
        while True:
            result = await consumer.pull(QUEUE, offset)
            if not result.messages:
                return found
            found += [int(message.body) for message in result.messages if message.body.isdigit()]
            offset = result.next_offset


def check(acknowledged: list[int], found: list[int]) -> None:
    """Everything acknowledged is there once, in order. What was not may be there too: its answer was lost."""
    assert found == sorted(set(found))
    assert sorted(set(acknowledged) - set(found)) == []


def test_a_frozen_master_takes_nothing_when_it_thaws_and_follows(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as both:
            namesrv = str(both.admin.settings.namesrv)
            host, _, port = both.address(0).rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            async with Sending(namesrv) as sending:
                await sending.more(50)
                old = both.children[0].pid
                os.kill(old, signal.SIGSTOP)
                # These wait in the frozen process' socket, with a renewal of the lease.
                for number in range(20):
                    writer.write(encode(send_command(b"to the frozen one", opaque=number)))
                frozen = asyncio.create_task(both.renew())
                await writer.drain()
                await asyncio.sleep(LEASE_MS / 1000 + 0.3)
                await both.lead(1, [1])
                await both.becomes(1, SERVING)
                await sending.more(20)
                os.kill(old, signal.SIGCONT)
                codes = await answers(reader, 20)
                await asyncio.gather(frozen, return_exceptions=True)
                assert set(codes) <= {ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR}, codes
                await both.follow(0)
                await both.becomes(0, FOLLOWING)
                await both.in_sync()
                await sending.more(20)
            writer.close()
            check(sending.acknowledged, await stored(namesrv))
            ends = [await both.state(number) for number in range(2)]
            assert ends[0] is not None and ends[1] is not None
            assert ends[0].epochs == ends[1].epochs

    async def answers(reader: asyncio.StreamReader, count: int) -> list[int]:
        frames, found = FrameReader(), list[int]()
        while len(found) < count:
            data = await asyncio.wait_for(reader.read(65536), 10)
            assert data, "the connection was closed before the sends were answered"
            found += [decode(*frame).code for frame in frames.feed(data)]
        return found

    run(scenario())


def test_a_killed_master_is_replaced_and_comes_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as both:
            namesrv = str(both.admin.settings.namesrv)
            async with Sending(namesrv) as sending:
                for round_number in range(2):
                    await sending.more(30)
                    gone, next_one = both.master, 1 - both.master
                    child = both.children[gone]
                    os.kill(child.pid, signal.SIGKILL)
                    await both.lead(next_one, [next_one])
                    await both.becomes(next_one, SERVING)
                    child.kill()
                    port = child.broker_address.rpartition(":")[2]
                    child.broker = {**child.broker, "listenPort": port}
                    await asyncio.to_thread(child.start)
                    await both.follow(gone)
                    await both.becomes(gone, FOLLOWING)
                    await both.in_sync()
                    assert both.epoch == round_number + 2
                await sending.more(30)
            check(sending.acknowledged, await stored(namesrv))

    run(scenario())
