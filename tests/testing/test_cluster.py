"""LocalCluster: start, options, topics, restarts, and what it leaves behind."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.proxy.rig import connected, message
from tests.support import about, run

from sparrowmq import aio
from sparrowmq.core.errors import BrokerError, InvalidStateError, NoRouteError, SettingsError, SparrowError
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.proxy.definition.messages import Code
from sparrowmq.proxy.server import Proxy
from sparrowmq.testing import LocalCluster


async def send(namesrv: str, topic: str, *bodies: bytes) -> None:
    async with aio.Producer("producers", namesrv=namesrv) as producer:
        for body in bodies:
            await producer.send(Message(topic, body))


async def count(namesrv: str, topic: str) -> int:
    async with aio.Admin(namesrv=namesrv) as admin:
        return sum(queue.messages for queue in await admin.topics.status(topic))


def test_messages_go_through(tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        cluster.create_topic("Orders", queues=2)
        run(send(cluster.namesrv, "Orders", b"1", b"2", b"3"))
        assert run(count(cluster.namesrv, "Orders")) == 3
        assert "namesrv=127.0.0.1" in repr(cluster)
    assert repr(cluster) == "<LocalCluster stopped>"


def test_the_temporary_directory_goes_and_the_given_one_stays(tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        temporary = cluster.data
        assert temporary.is_dir()
    assert not temporary.exists()
    with LocalCluster(tmp_path / "kept") as cluster:
        cluster.create_topic("Kept")
        run(send(cluster.namesrv, "Kept", b"x"))
    with LocalCluster(tmp_path / "kept") as cluster:
        assert run(count(cluster.namesrv, "Kept")) == 1


def test_settings_reach_the_broker() -> None:
    with (
        LocalCluster(auto_create_topic_enable=False) as cluster,
        pytest.raises((NoRouteError, BrokerError)),
    ):
        run(send(cluster.namesrv, "Nobody", b"x"))
    with pytest.raises(SettingsError, check=about(setting="brokerPermission")):
        LocalCluster(broker_permission=3)


def test_a_restart_keeps_messages_and_address() -> None:
    with LocalCluster() as cluster:
        cluster.create_topic("T", queues=1)
        run(send(cluster.namesrv, "T", b"1"))
        address = cluster.broker_address
        cluster.stop_broker()
        with pytest.raises(SparrowError):
            run(send_to(cluster.namesrv, MessageQueue("T", "broker-a", 0)))
        cluster.start_broker()
        cluster.restart_broker()
        assert cluster.broker_address == address
        run(send(cluster.namesrv, "T", b"2"))
        assert run(count(cluster.namesrv, "T")) == 2


async def send_to(namesrv: str, queue: MessageQueue) -> None:
    async with aio.Producer("producers", namesrv=namesrv) as producer:
        await producer.send(Message(queue.topic, b"x"), queue=queue)


def test_two_clusters_side_by_side() -> None:
    with LocalCluster() as one, LocalCluster() as two:
        one.create_topic("OnlyHere")
        assert one.namesrv != two.namesrv
        with pytest.raises(NoRouteError):
            run(count(two.namesrv, "OnlyHere"))


def test_use_outside_its_life_is_told() -> None:
    cluster = LocalCluster()
    for use in (
        lambda: cluster.namesrv,
        lambda: cluster.broker_address,
        lambda: cluster.data,
        cluster.stop_broker,
        cluster.restart_broker,
        lambda: cluster.create_topic("T"),
    ):
        with pytest.raises(InvalidStateError):
            use()
    cluster.stop()
    with cluster, pytest.raises(InvalidStateError, check=about(what="running")):
        cluster.start()


def test_a_failed_start_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    before = set(threading.enumerate())
    with pytest.raises(SparrowError):
        LocalCluster(tmp_path / "file").start()
    assert set(threading.enumerate()) == before


def test_a_proxy_for_clients_of_version_5() -> None:
    with LocalCluster(proxy=True) as cluster:
        cluster.create_topic("t")

        async def main() -> int:
            async with connected(cluster.proxy) as client:
                code: int = (await client.send(message("t"))).status.code
                return code

        assert run(main()) == Code.OK
        assert run(count(cluster.namesrv, "t")) == 1
    with LocalCluster() as cluster, pytest.raises(InvalidStateError, check=about(what="proxy")):
        _ = cluster.proxy


def test_a_proxy_that_does_not_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(self: Proxy) -> None:
        raise SettingsError("no")

    monkeypatch.setattr(Proxy, "start", start)
    before = threading.active_count()
    with pytest.raises(SettingsError, match="no"):
        LocalCluster(proxy=True).start()
    assert threading.active_count() == before
