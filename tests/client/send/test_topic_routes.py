from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.client.fake import FakeCluster, fake_cluster
from tests.support import about, run

from sparrowmq.client.base.settings import ProducerSettings
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.send.topic_routes import PublishTable, target_of
from sparrowmq.core.errors import ClientError, InvalidNameError, NoRouteError, RequestTimeoutError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import TEMPLATE_TOPIC
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.transport.address import vip_address

ROUTE = int(RequestCode.GET_ROUTEINFO_BY_TOPIC)


def flow(
    test: Callable[[FakeCluster, PublishTable], Coroutine[Any, Any, None]], brokers: int = 1, **settings: Any
) -> None:
    """Run `test` with a cluster that has topic T with two queues per broker, and a table."""

    async def main() -> None:
        async with fake_cluster("T", queues=2, brokers=brokers) as cluster:
            made = ProducerSettings(namesrv=cluster.namesrv, **settings)
            instance = ClientInstance(made)
            table = PublishTable("g", made, instance)
            instance.register_producer("g", table)
            instance.start()
            try:
                await test(cluster, table)
            finally:
                await instance.close()

    run(main())


def soon(seconds: float = 20.0) -> float:
    return asyncio.get_running_loop().time() + seconds


def asked(cluster: FakeCluster) -> list[str]:
    return [command.ext["topic"] for command in cluster.seen if command.code == ROUTE]


def test_topic_is_requested_once() -> None:
    async def test(cluster: FakeCluster, table: PublishTable) -> None:
        first = await table.find("T", soon())
        assert await table.find("T", soon()) is first
        assert asked(cluster) == ["T"]
        assert sorted(first.queues) == [
            MessageQueue("T", f"broker-{name}", number) for name in "ab" for number in (0, 1)
        ]
        assert (len(table), list(table.topics())) == (1, ["T"])

    flow(test, brokers=2)


@pytest.mark.proves("client:B-17", "client:A-43")
def test_unknown_topic_uses_the_queues_of_the_template() -> None:
    async def test(cluster: FakeCluster, table: PublishTable) -> None:
        cluster.add_topic(TEMPLATE_TOPIC, 8)
        info = await table.find("New", soon())
        assert [queue.queue_id for queue in sorted(info.queues)] == [0, 1, 2]
        assert (asked(cluster)[0], set(asked(cluster))) == ("New", {"New", TEMPLATE_TOPIC})

    flow(test, create_topic_queues=3)


@pytest.mark.proves("client:B.4")
@pytest.mark.parametrize(("compat", "template"), [("5.x", TEMPLATE_TOPIC), ("4.9", "Mine")])
def test_template_depends_on_the_release(compat: str, template: str) -> None:
    async def test(cluster: FakeCluster, table: PublishTable) -> None:
        cluster.add_topic(template, 8)
        await table.find("New", soon())
        assert set(asked(cluster)) == {"New", template}  # in this order, but routes are refreshed meanwhile
        assert list(table.topics()) == (["Mine", "New"] if compat == "4.9" else ["New"])

    flow(test, compat=compat, create_topic_key="Mine")


def test_topic_that_never_had_a_queue_is_forgotten() -> None:
    async def test(cluster: FakeCluster, table: PublishTable) -> None:
        with pytest.raises(NoRouteError, check=about(topic="Nowhere")):
            await table.find("Nowhere", soon())
        assert (len(table), table.infos) == (0, {})
        cluster.add_topic("Sealed", 2, perm=4)
        with pytest.raises(NoRouteError, check=about(topic="Sealed")):
            await table.find("Sealed", soon())
        assert (len(table), table.infos) == (0, {})
        with pytest.raises(InvalidNameError):
            await table.find("not a topic", soon())
        assert len(table) == 0

    flow(test)


def test_slow_name_server_is_named() -> None:
    async def test(cluster: FakeCluster, table: PublishTable) -> None:
        cluster.on[ROUTE] = lambda conn, c: asyncio.sleep(20)
        with pytest.raises(RequestTimeoutError, check=about(address=cluster.namesrv)):
            await table.find("T", soon(0.02))

    flow(test)


def test_new_route_continues_the_rotation_and_unknown_topics_are_ignored() -> None:
    async def test(cluster: FakeCluster, table: PublishTable) -> None:
        info = await table.find("T", soon())
        info.next()
        cluster.add_topic("T", 5)
        route = await table._instance.update_route("T")
        assert route is not None
        table.route_changed("T", route)
        assert (len(table.infos["T"].targets), table.infos["T"].index) == (5, info.index)
        table.route_changed("Other", route)
        assert list(table.infos) == ["T"]
        cluster.gone.add("broker-a")
        route = await table._instance.update_route("T")
        assert route is not None
        table.route_changed("T", route)
        assert table.infos["T"].targets == ()

    flow(test)


@pytest.mark.parametrize("vip", [False, True])
def test_vip_channel_is_another_port(vip: bool) -> None:
    async def test(cluster: FakeCluster, table: PublishTable) -> None:
        address = cluster.broker.server.address
        wanted = vip_address(address) if vip else address
        assert {target.address for target in (await table.find("T", soon())).targets} == {wanted}

    flow(test, vip_channel=vip)


def test_named_queue_must_belong_to_the_topic() -> None:
    async def test(cluster: FakeCluster, table: PublishTable) -> None:
        info = await table.find("T", soon())
        queue = MessageQueue("T", "broker-a", 1)
        assert target_of(info, queue).queue == queue
        with pytest.raises(
            ClientError, check=about(what="queue", value=MessageQueue("Other", "broker-a", 1))
        ):
            target_of(info, MessageQueue("Other", "broker-a", 1))
        with pytest.raises(NoRouteError, check=about(topic="T")):
            target_of(info, MessageQueue("T", "broker-a", 2))

    flow(test)
