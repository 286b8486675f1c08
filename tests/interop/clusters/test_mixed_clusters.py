"""Apache's brokers at our name server and our broker at Apache's, with Java's clients and ours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.conftest import LONG
from tests.interop.apache import NEW, OLD, ApacheBroker, ApacheCluster, Release
from tests.interop.driver import JavaDriver
from tests.interop.ours import OurClients
from tests.support import expect_all, until_sync

from sparrowmq import aio
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.core.settings.servers import BrokerSettings
from sparrowmq.runtime.servers import LocalServers
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop


@contextmanager
def our_broker(ours: LocalCluster, namesrv: str, name: str, directory: Path) -> Iterator[str]:
    """One more broker of ours, registered at a name server; gives its address."""
    settings = BrokerSettings(
        broker_name=name,
        listen_port=0,
        namesrv_addr=namesrv,
        store_path_root_dir=directory / "store",
        mapped_file_size_commit_log=64 * 1024 * 1024,
    )
    servers = LocalServers(None, settings)
    listening = ours.call(servers.start())
    assert listening.broker is not None
    try:
        yield listening.broker
    finally:
        ours.call(servers.close())


def _queues(name: str, brokers: tuple[str, ...]) -> list[MessageQueue]:
    return [MessageQueue(name, broker, queue_id) for broker in brokers for queue_id in (0, 1)]


def _flow(
    namesrv: str, name: str, driver: JavaDriver, clients: OurClients, queues: list[MessageQueue]
) -> None:
    """Java's and our producer fill every queue; Java's and our consumer each get everything."""
    with (
        driver.producer(namesrv, f"{name}_java") as java,
        clients.producer(namesrv, f"{name}_ours") as own,
        driver.consumer(namesrv, f"{name}_java_c", {name: "*"}) as java_consumer,
        clients.consumer(namesrv, f"{name}_ours_c", {name: "*"}) as own_consumer,
    ):
        assert java.queues(name) == own.queues(name) == queues
        sent = []
        for producer in (java, own):
            results = producer.send([Message(name, b"%d" % number) for number in range(8)])
            assert {result.queue for result in results} <= set(queues)
            sent += results
            for queue in queues:
                sent += producer.send([Message(name, b"to a queue")], queue=queue)
        wanted = {result.msg_id for result in sent}
        expect_all(lambda: [message.msg_id for message in java_consumer.received()], wanted)
        expect_all(lambda: [message.msg_id for message in own_consumer.received()], wanted)


@pytest.mark.parametrize("release", [NEW, OLD] if LONG else [NEW], ids=lambda release: release.pom)
def test_apaches_broker_at_our_name_server(
    release: Release, driver: JavaDriver, our_clients: OurClients, name: str, tmp_path: Path
) -> None:
    async def create_and_find() -> list[str]:
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            await admin.topics.create(name, queues=2)
            return sorted(await admin.topics.groups(name))

    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster())
        broker = ApacheBroker(tmp_path, cluster.namesrv, name="broker-b", release=release)
        stack.callback(broker.kill)
        broker.start()
        broker.ready()
        admin = driver.admin(cluster.namesrv)
        until_sync(lambda: "broker-b" in admin.call("cluster")["brokerAddrTable"])
        assert asyncio.run(create_and_find()) == []
        brokers = admin.call("cluster")["brokerAddrTable"]
        assert brokers["broker-a"]["brokerAddrs"] == {"0": cluster.broker_address}
        assert brokers["broker-b"]["brokerAddrs"] == {"0": broker.address}
        _flow(cluster.namesrv, name, driver, our_clients, _queues(name, ("broker-a", "broker-b")))
        broker.kill()


@pytest.mark.parametrize("peer", ["apache", "apache49"])
def test_our_broker_at_apaches_name_server(
    request: pytest.FixtureRequest,
    peer: str,
    ours: LocalCluster,
    driver: JavaDriver,
    our_clients: OurClients,
    name: str,
    tmp_path: Path,
) -> None:
    apache: ApacheCluster = request.getfixturevalue(peer)
    admin = driver.admin(apache.namesrv)
    with our_broker(ours, apache.namesrv, "broker-sparrow", tmp_path) as address:
        brokers = admin.call("cluster")["brokerAddrTable"]
        assert brokers["broker-sparrow"]["brokerAddrs"] == {"0": address}
        admin.create_topic(apache.broker_address, name, 2)
        admin.call("create_topic", broker_addr=address, topic=name, queues=2)
        until_sync(lambda: admin.queues(name) == 4)
        _flow(apache.namesrv, name, driver, our_clients, _queues(name, ("broker-a", "broker-sparrow")))
    until_sync(lambda: "broker-sparrow" not in admin.call("cluster")["brokerAddrTable"])
    until_sync(lambda: admin.queues(name) == 2)
