"""Clients of a gRPC proxy on the pages: who they are, and what they hold by POP."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.console.site import Answer, Reader, Site
from tests.proxy.rig import ApiClient, connected, running, subscribing
from tests.support import run, until

import sparrowmq as mq
from sparrowmq.console.pages.groups import in_flight
from sparrowmq.proxy.definition.messages import Code, v2
from sparrowmq.testing import LocalCluster

TOPIC, GROUP, CLIENT = "Parcels", "parcel-readers", "reader@grpc"
SENT = 5


@pytest.fixture(scope="module")
def parcels(cluster: LocalCluster) -> Iterator[None]:
    with (
        mq.Admin(namesrv=cluster.namesrv) as admin,
        mq.Producer("parcels", namesrv=cluster.namesrv) as producer,
    ):
        admin.topics.create(TOPIC, queues=1)
        for number in range(SENT):
            producer.send(mq.Message(TOPIC, str(number).encode()))
    yield


async def introduced(client: ApiClient) -> Any:
    """The open stream of a consumer of the topic."""
    request = v2.QueryRouteRequest()
    request.topic.name = TOPIC
    await client.call("QueryRoute", request)
    stream, answer = await client.introduce(subscribing(GROUP, TOPIC))
    assert answer.status.code == Code.OK
    return stream


def test_clients_of_a_proxy_are_named_with_what_is_invisible(
    parcels: None, console: Site, admin: Reader, cluster: LocalCluster
) -> None:
    async def main() -> list[Answer]:
        metadata = {"x-mq-language": "PYTHON", "x-mq-client-version": "5.1.2"}
        async with running(cluster.namesrv) as proxy, connected(proxy.address, CLIENT, **metadata) as client:
            stream = await introduced(client)
            code, messages = await client.receive(GROUP, TOPIC, batch_size=3)
            assert (code, len(messages)) == (Code.OK, 3)

            async def shown() -> Answer | None:
                page = await asyncio.to_thread(admin.page, f"/groups/{GROUP}")
                return page if CLIENT in page.part("members") else None

            group: Answer = await until(shown)
            servers = await asyncio.to_thread(console.call, "GET", "/cluster/servers")
            broker = json.loads(servers.text)["brokers"][0]["address"]
            clients = await asyncio.to_thread(admin.page, f"/brokers/{broker}/clients")
            topic = await asyncio.to_thread(admin.page, f"/topics/{TOPIC}")
            stream.cancel()
        return [group, clients, topic]

    group, clients, topic = run(main())
    assert re.search(rf"{CLIENT}\S* online .*PYTHON", group.part("members"))
    assert "In flight 3" in group.part("summary"), "received and not acknowledged: invisible to others"
    assert re.search(rf"Lag {SENT}\b", group.part("summary")), "what nobody acknowledged still waits"
    assert f"{TOPIC}: *" in group.part("summary")
    assert CLIENT in clients.part("clients") and GROUP in clients.part("clients")
    assert GROUP in topic.words


def test_what_is_invisible_counts_while_anybody_gets_messages() -> None:
    queue = {"in_flight": 3}
    assert in_flight({"online": True, "delivered_per_second": None}, queue) == 3
    assert in_flight({"online": False, "delivered_per_second": 0.5}, queue) == 3, "a SimpleConsumer"
    assert in_flight({"online": False, "delivered_per_second": 0.0}, queue) == 0, "nobody handles it"
    assert in_flight({"online": False, "delivered_per_second": None}, queue) == 0
