"""A broker is drained, removed and stopped while a producer and a consumer notice nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator
from pathlib import Path

import pytest
from tests.coordinator.services.watched import Once, step
from tests.support import run, until

from sparrowmq import aio
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.coordinator.services.brokers import drains
from sparrowmq.coordinator.services.brokers.broker_check import BrokerCheck
from sparrowmq.coordinator.services.brokers.drains import DrainState
from sparrowmq.core.settings.servers import BrokerSettings
from sparrowmq.runtime.servers import LocalServers
from sparrowmq.testing import LocalCluster

ANN = Actor("ann", "new disks")
REFRESH = 0.1


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[LocalCluster]:
    """Two brokers with a topic on both, and a group that has read nothing of it."""

    async def prepared(namesrv: str) -> None:
        async with aio.Admin(namesrv=namesrv) as admin:
            await admin.topics.create("T", queues=2)
            await admin.groups.create("readers")
            for queue in (await admin.topics.route("T")).subscribe_queues("T"):
                await admin.groups.commit("readers", queue, 0)

    with LocalCluster() as local:
        settings = BrokerSettings(
            broker_name="broker-b",
            listen_port=0,
            namesrv_addr=local.namesrv,
            store_path_root_dir=tmp_path / "b",
            mapped_file_size_commit_log=64 * 1024 * 1024,
        )
        other = LocalServers(None, settings)
        local.call(other.start())
        try:
            run(prepared(local.namesrv))
            yield local
        finally:
            local.call(other.close())


def check_once(database: Database, namesrv: str) -> DrainState | None:
    """One step; returns the state of broker-a's drain."""
    service = Once(namesrv, lambda cluster: BrokerCheck(cluster, Channels()))
    step(database, service, checks=1, settle_seconds=0)
    with database.read() as connection:
        found = drains.all_drains(connection).get("broker-a")
    return None if found is None else found.state


@pytest.mark.proves("pmq:9")
def test_producer_and_consumer_see_no_error_and_no_loss(database: Database, pair: LocalCluster) -> None:
    async def main(local: LocalCluster) -> None:
        sent, got, stop = 0, Counter[bytes](), asyncio.Event()
        where: list[str] = []
        settings = aio.ProducerSettings(route_interval=REFRESH)
        reading = aio.ConsumerSettings(
            route_interval=REFRESH,
            rebalance_interval=REFRESH,
            persist_interval=REFRESH,
            consume_from="first",
        )
        consumer = aio.PushConsumer("readers", namesrv=local.namesrv, settings=reading)
        consumer.subscribe("T", handler=lambda message: got.update([message.body]))
        async with aio.Producer("p", namesrv=local.namesrv, settings=settings) as producer:

            def check() -> Awaitable[DrainState | None]:
                return asyncio.to_thread(check_once, database, local.namesrv)

            async def produce() -> None:
                nonlocal sent
                while not stop.is_set():
                    result = await producer.send(aio.Message("T", b"%d" % sent))
                    where.append(result.queue.broker_name)
                    sent += 1
                    await asyncio.sleep(0.002)

            sending = asyncio.create_task(produce())
            await until(lambda: {"broker-a", "broker-b"} <= set(where))
            assert await check() is None
            with database.write() as connection:
                drains.ask(connection, "broker-a", False, ANN)
            assert await check() is DrainState.DRAINING
            await until(lambda: set(where[-20:]) == {"broker-b"})
            with database.read() as connection:
                left = drains.all_drains(connection)["broker-a"].left
            assert set(left.groups) == {"readers"}
            async with consumer:

                async def checked(state: DrainState) -> bool:
                    return await check() is state

                await until(lambda: checked(DrainState.DRAINED))
                with database.write() as connection:
                    drains.remove(connection, "broker-a", ANN)
                assert await checked(DrainState.REMOVED)
                local.stop_broker()
                assert await check() is None
                stop.set()
                await sending
                await until(lambda: len(got) == sent)
            with database.read() as connection:
                assert [row.broker for row in drains.known(connection)] == ["broker-b"]

    run(main(pair))
