"""Consumers and slaves: the choice of the broker, no commits to slaves, and reads without a master."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from tests.client.consuming import FAST, PULL
from tests.client.fake import BROKER, FakeBroker, FakeCluster, answer, fake_cluster
from tests.client.pulling import quick
from tests.support import run, until

from sparrowmq.client.base.settings import ConsumerSettings
from sparrowmq.client.pull.pull_consumer import PullConsumer
from sparrowmq.client.push.push_consumer import PushConsumer
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol import headers
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import PullMessageRequest
from sparrowmq.transport.connection import Connection

QUEUE = MessageQueue("T", BROKER, 0)
LITE_PULL = int(RequestCode.LITE_PULL_MESSAGE)
COMMIT = 1
"""Bit of a pull's `sys_flag`: the broker shall keep the offset that comes with it."""

Reader = Callable[..., AbstractAsyncContextManager[None]]
"""A running consumer that puts the numbers of what it gets into the list."""


def put(broker: FakeBroker, numbers: range) -> None:
    """Store numbered messages in the one queue."""
    for number in numbers:
        broker.store("T", 0, b"%d" % number)


def pulls(broker: FakeBroker) -> list[PullMessageRequest]:
    """The pulls that a broker was sent, of either kind."""
    asked = [command for command in broker.seen if command.code in (PULL, LITE_PULL)]
    found = [headers.from_ext(PullMessageRequest, command.ext) for command in asked]
    return [header for header in found if header.topic == "T"]


@asynccontextmanager
async def with_slave(messages: int) -> AsyncIterator[tuple[FakeCluster, FakeBroker]]:
    """A master, and a slave that has the same messages; the master suggests the slave."""
    async with fake_cluster("T", queues=1) as cluster:
        slave = FakeBroker(cluster, BROKER)
        await slave.server.start()
        cluster.slaves[BROKER] = slave
        cluster.broker.suggests = 1
        for broker in (cluster.broker, slave):
            put(broker, range(messages))
        try:
            yield cluster, slave
        finally:
            await slave.server.close(timeout=1.0)


@asynccontextmanager
async def pushing(cluster: FakeCluster, got: list[int], **changes: Any) -> AsyncIterator[None]:
    """A push consumer of group g."""
    values: dict[str, Any] = {**FAST, "route_interval": 0.1, "pull_batch_behind": 32, **changes}
    settings = ConsumerSettings(namesrv=cluster.namesrv, **values)
    async with PushConsumer("g", settings=settings) as consumer:
        consumer.subscribe("T", handler=lambda message: got.append(int(message.body)))
        yield


@asynccontextmanager
async def polling(cluster: FakeCluster, got: list[int], **changes: Any) -> AsyncIterator[None]:
    """A consumer of group g that polls its assigned queues."""
    async with (
        PullConsumer("g", settings=quick(cluster, **changes)) as consumer,
        asyncio.TaskGroup() as tasks,
    ):

        async def poll() -> None:
            while True:
                got.extend(int(message.body) for message in await consumer.poll(1))

        consumer.subscribe("T")
        task = tasks.create_task(poll())
        yield
        task.cancel()


@asynccontextmanager
async def reading(cluster: FakeCluster, got: list[int]) -> AsyncIterator[None]:
    """A consumer that pulls by offset."""
    async with PullConsumer("g", settings=quick(cluster)) as consumer, asyncio.TaskGroup() as tasks:

        async def read() -> None:
            offset = 0
            while True:
                try:
                    result = await consumer.pull(QUEUE, offset, wait=0.1)
                except SparrowError:
                    await asyncio.sleep(0.01)  # the pace of its tries
                    continue
                got.extend(int(message.body) for message in result.messages)
                offset = result.next_offset

        await consumer.queues("T")
        task = tasks.create_task(read())
        yield
        task.cancel()


READERS = pytest.mark.parametrize("reader", [pushing, polling, reading])


@READERS
@pytest.mark.proves("client:D-19", "client:D-22")
def test_suggested_slave_is_pulled_next_and_the_master_when_the_slave_says_so(reader: Reader) -> None:
    async def main() -> None:
        got: list[int] = []
        async with with_slave(40) as (cluster, slave), reader(cluster, got):
            await until(lambda: len(got) == 40)
            assert got == list(range(40))
            at_master, at_slave = pulls(cluster.broker), pulls(slave)
            assert at_master[0].queue_offset == 0
            batch = min(32, at_master[0].max_msg_nums)
            assert at_slave[0].queue_offset == batch, "all but the first batch comes from the slave"
            await until(lambda: pulls(cluster.broker)[-1].queue_offset == 40)
            cluster.broker.suggests = 0
            put(cluster.broker, range(40, 50))
            put(slave, range(40, 50))
            await until(lambda: len(got) == 50)
            await until(lambda: pulls(cluster.broker)[-1].queue_offset == 50)
            assert all(one.queue_offset < 50 for one in pulls(slave))
        assert got == list(range(50))

    run(main())


@pytest.mark.proves("client:D-21", "client:D.5-11")
def test_slave_gets_no_offsets_to_store() -> None:
    async def main() -> None:
        got: list[int] = []
        async with with_slave(40) as (cluster, slave):
            slave.suggests = 1
            async with pushing(cluster, got):
                for count in (40, 50, 60):
                    await until(lambda count=count: len(got) == count)
                    await until(lambda count=count: cluster.broker.offsets.get(("g", "T", 0)) == count)
                    put(slave, range(count, count + 10))
                await until(lambda: len(got) == 70 and pulls(slave)[-1].commit_offset >= 60)
                assert not any(one.sys_flag & COMMIT for one in pulls(slave))
                assert slave.requests(RequestCode.UPDATE_CONSUMER_OFFSET) == [] and not slave.offsets
                cluster.broker.suggests = slave.suggests = 0
                put(cluster.broker, range(40, 80))
                put(slave, range(70, 75))
                await until(lambda: len(got) == 80)
                put(cluster.broker, range(80, 81))
                await until(lambda: len(got) == 81 and pulls(cluster.broker)[-1].sys_flag & COMMIT)
        assert got == list(range(81))

    run(main())


@READERS
@pytest.mark.proves("client:A-53")
def test_slave_is_read_without_a_master(reader: Reader) -> None:
    async def main() -> None:
        got: list[int] = []
        async with with_slave(10) as (cluster, slave):
            cluster.broker.suggests = 0
            async with reader(cluster, got):
                await until(lambda: len(got) == 10)
                assert not pulls(slave)
                cluster.gone.add(BROKER)
                await cluster.broker.server.close(timeout=0.1)
                put(slave, range(10, 20))
                await until(lambda: len(got) == 20)
                if reader is pushing:
                    await until(lambda: slave.offsets.get(("g", "T", 0)) == 20)
        assert got == list(range(20))

    run(main())


@pytest.mark.proves("client:D-76")
def test_consumer_can_start_without_a_master() -> None:
    async def main() -> None:
        got: list[int] = []
        async with with_slave(10) as (cluster, slave):
            cluster.gone.add(BROKER)
            slave.offsets["g", "T", 0] = 4
            async with pushing(cluster, got):
                await until(lambda: len(got) == 6)
        assert got == list(range(4, 10))
        assert not pulls(cluster.broker)

    run(main())


@pytest.mark.proves("broker:5.4")
@pytest.mark.parametrize("reader", [pushing, polling])
def test_slave_that_refers_to_an_unavailable_master_is_pulled_less_often(
    reader: Reader,
) -> None:
    async def main() -> None:
        got: list[int] = []
        async with with_slave(10) as (cluster, slave):
            cluster.gone.add(BROKER)
            again = {"suggestWhichBrokerId": "0", "minOffset": "0", "maxOffset": "10"}

            def refuse(connection: Connection, command: Command) -> Command:
                if command.ext["topic"] != "T":
                    return answer(19, {**again, "nextBeginOffset": "0"})
                return answer(20, {**again, "nextBeginOffset": command.ext["queueOffset"]})

            slave.on[PULL] = slave.on[LITE_PULL] = refuse
            async with reader(cluster, got, error_delay=30.0, heartbeat_interval=0.05):
                await until(lambda: len(pulls(slave)) == 2)
                known = len(slave.heartbeats)
                await until(lambda: len(slave.heartbeats) >= known + 3)
                assert len(pulls(slave)) == 2
            assert not got

    run(main())
