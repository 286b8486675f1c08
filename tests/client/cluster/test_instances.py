from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake import answer, fake_cluster
from tests.client.producing import sends
from tests.support import about, run, until

from sparrowmq import aio
from sparrowmq.client.base.hooks import RpcHook
from sparrowmq.client.base.lifecycle import State
from sparrowmq.client.base.settings import ClientSettings, ConsumerSettings, ProducerSettings, PullSettings
from sparrowmq.client.cluster.instance import InstanceState, client_id
from sparrowmq.client.cluster.instances import shared_instance
from sparrowmq.core.errors import ClientError, InvalidExpressionError
from sparrowmq.core.message import Message
from sparrowmq.core.subscription import Sql
from sparrowmq.protocol.codes import RequestCode, ResponseCode


@pytest.mark.proves("client:A-11", "client:A-12", "client:A-13", "client:A-16", "client:A-93")
def test_clients_with_one_id_share_an_instance_until_the_last_closes() -> None:
    async def main() -> None:
        settings = ClientSettings(namesrv="a:1", client_ip="1.2.3.4", instance_name="me")
        one, two = shared_instance(settings), shared_instance(settings)
        assert one is two
        assert shared_instance(settings, stream=True) is not one, "pull clients have an id of their own"
        one.start()
        await one.close()
        assert len(two.tasks) == 2, "it has a holder left"
        await two.close()
        assert not two.tasks
        assert shared_instance(settings) is not one

    run(main())


@pytest.mark.proves("client:A-07")
def test_clients_without_a_name_have_separate_instances() -> None:
    async def main() -> None:
        settings = ClientSettings(namesrv="a:1")
        assert shared_instance(settings) is not shared_instance(settings)

    run(main())


@pytest.mark.proves("client:A-09", "client:A-14")
def test_one_id_for_two_clusters_is_refused_and_different_hooks_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        values = {"client_ip": "1.2.3.4", "instance_name": "me"}
        one = shared_instance(ClientSettings(namesrv="a:1;b:1", **values))
        assert shared_instance(ClientSettings(namesrv="b:1;a:1", **values)) is one
        with pytest.raises(ClientError, check=about(what="name_server", value={"c:1"})):
            shared_instance(ClientSettings(namesrv="c:1", **values))
        assert not caplog.records
        with caplog.at_level(logging.WARNING):
            same = shared_instance(ClientSettings(namesrv="a:1;b:1", hooks=(RpcHook(),), **values))
        assert same is one
        assert "it keeps the request hooks that it was created with" in caplog.text
        other = shared_instance(ClientSettings(namesrv="c:1", unit_name="two", **values))
        assert other is not one

    run(main())


@pytest.mark.proves("client:A-93", "client:D.2-14", "client:D-02")
@pytest.mark.parametrize("stream", [False, True], ids=["push", "pull"])
def test_consumer_with_a_failed_start_releases_its_client_once(stream: bool) -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            values = {"namesrv": cluster.namesrv, "client_ip": "1.2.3.4", "instance_name": "me"}
            one, two = (_consumer(group, stream, values) for group in ("one", "two"))
            await one.start()
            refused = int(ResponseCode.SUBSCRIPTION_PARSE_FAILED)
            cluster.broker.on[RequestCode.CHECK_CLIENT_CONFIG] = lambda conn, c: answer(refused, remark="no")
            two.subscribe("T", Sql("a > 1"))
            with pytest.raises(InvalidExpressionError):
                await two.start()
            await two.close()
            instance = shared_instance(ClientSettings(**values), stream=stream)
            assert instance.state is InstanceState.RUNNING, "one still holds it"
            await instance.close()
            assert instance.state is InstanceState.RUNNING
            await one.close()
            assert instance.state is InstanceState.CLOSED

    run(main())


def _consumer(group: str, stream: bool, values: dict[str, str]) -> aio.PushConsumer | aio.PullConsumer:
    if stream:
        return aio.PullConsumer(group, settings=PullSettings(**values))
    return aio.PushConsumer(group, settings=ConsumerSettings(**values))


@pytest.mark.proves("client:A-13", "client:A-30", "client:A-31")
def test_producers_of_one_name_share_connections_and_a_group_is_unique() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            settings = ProducerSettings(namesrv=cluster.namesrv, instance_name="me")
            async with (
                aio.Producer("one", settings=settings) as one,
                aio.Producer("two", settings=settings) as two,
            ):
                assert one.client_id == two.client_id
                await one.send(Message("T", b"1"))
                await two.send(Message("T", b"2"))
                assert len(cluster.broker.server.connections) == 1
                refused = aio.Producer("one", settings=settings)
                with pytest.raises(ClientError, check=about(what="producer", value="one")):
                    await refused.start()
                assert refused.state is State.CREATED
                await one.send(Message("T", b"3"))
                await one.close()
                await two.send(Message("T", b"4"))
                await refused.start()
                await refused.send(Message("T", b"5"))
                await refused.close()
            assert len(sends(cluster)) == 5

    run(main())


@pytest.mark.proves("client:A-94", "client:A-93")
def test_last_client_ends_tasks_and_connections() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            settings = ProducerSettings(namesrv=cluster.namesrv, instance_name="me")
            one, two = aio.Producer("one", settings=settings), aio.Producer("two", settings=settings)
            await one.start()
            await two.start()
            await one.send(Message("T", b"1"))
            assert one._sender is not None
            instance = one._sender.instance
            await one.close()
            assert len(instance.tasks) == 2 and cluster.broker.server.connections
            await two.close()
            assert not instance.tasks
            await until(lambda: not cluster.broker.server.connections)
            await two.close()

    run(main())


def name_of(client: Any) -> str:
    """The id by which brokers know a running client."""
    name: str = client.calls.running().client_id if isinstance(client, aio.Admin) else client.client_id
    return name


@pytest.mark.proves("client:A-05", "client:A-06")
def test_every_kind_of_client_gets_its_own_name_by_default() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            clients: list[Any] = [
                aio.Producer("p", namesrv=cluster.namesrv),
                aio.Producer("p", namesrv=cluster.namesrv),
                aio.PushConsumer("c", namesrv=cluster.namesrv),
                aio.PullConsumer("c", namesrv=cluster.namesrv),
                aio.Admin(namesrv=cluster.namesrv),
            ]
            settings = ProducerSettings(namesrv=cluster.namesrv, instance_name="mine")
            told = aio.Producer("p", settings=settings)
            for client in (*clients, told):
                await client.start()
            ids = {name_of(client) for client in clients}
            assert len(ids) == 5 and all(f"@{os.getpid()}#" in name for name in ids)
            assert name_of(told).endswith("@mine")
            for client in (*clients, told):
                await client.close()

    run(main())


@pytest.mark.proves("client:A-10")
def test_one_name_in_two_processes_is_one_client_id(monkeypatch: pytest.MonkeyPatch) -> None:
    named, unnamed = ClientSettings(client_ip="1.2.3.4", instance_name="me"), ClientSettings()
    found = []
    for pid in (1, 2):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        found.append((client_id(named), client_id(unnamed).partition("@")[2].partition("#")[0]))
    assert found == [("1.2.3.4@me", "1"), ("1.2.3.4@me", "2")], "the guide warns of it"
    guide = (Path(__file__).parents[3] / "docs" / "client.md").read_text()
    assert "with the same name as one member" in guide.replace("\n", " ")


def test_many_producers_share_one_client() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            settings = ProducerSettings(namesrv=cluster.namesrv, instance_name="me")
            producers = [aio.Producer(f"group{number}", settings=settings) for number in range(100)]
            await asyncio.gather(*(producer.start() for producer in producers))
            await asyncio.gather(*(producer.send(Message("T", b"x")) for producer in producers))
            assert len(cluster.broker.server.connections) == 1
            assert len({sent.producer_group for sent in sends(cluster)}) == 100
            assert producers[0]._sender is not None
            assert await producers[0]._sender.instance.heartbeat()
            assert len(cluster.broker.heartbeats[-1].producers) == 100
            await asyncio.gather(*(producer.close() for producer in producers))

    run(main())
