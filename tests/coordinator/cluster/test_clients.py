"""The requests that only a coordinator makes."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.client.fake import answer, fake_cluster
from tests.support import run

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.coordinator.cluster import clients
from sparrowmq.coordinator.cluster.clients import ClusterCalls
from sparrowmq.core.errors import ClientError, InvalidNameError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies import SubscriptionGroupConfig
from sparrowmq.testing import LocalCluster


def test_offsets_and_topics_of_a_broker_are_read_and_cleared() -> None:
    async def main(namesrv: str) -> None:
        async with aio.Admin(namesrv=namesrv) as admin:
            calls = ClusterCalls(admin)
            (broker,) = (await admin.brokers.cluster_info()).brokers
            await calls.put_group_config(broker, SubscriptionGroupConfig(group_name="g", retry_max_times=3))
            assert (await admin.brokers.groups(broker))["g"].retry_max_times == 3
            async with aio.Producer("p", namesrv=namesrv) as producer:
                await producer.send(mq.Message("U", b"x"))
            queue = MessageQueue("U", broker, 0)
            await admin.groups.commit("g", queue, 0)
            assert (await calls.stored_offsets(broker))["g"] == {queue: 0}
            await calls.clear_topic(broker, "U")
            assert "U" not in (await admin.brokers.topics(broker)).configs
            assert (await calls.stored_offsets(broker)).get("g", {}) == {}
            await calls.clear_topic(broker, "U")
            await calls.unlist_topic("U")
            (listed,) = (await admin.name_servers.topics()).values()
            assert "U" not in listed

    with LocalCluster() as cluster:
        run(main(cluster.namesrv))


def test_offsets_of_missing_topics_are_reported() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster, aio.Admin(namesrv=cluster.namesrv) as admin:
            (broker,) = cluster.brokers.values()
            broker.learn(43, lambda conn, c: answer(body=b'{"offsetTable":{"gone@g":{0:5,1:7}}}'))
            queues = {MessageQueue("gone", broker.name, 0): 5, MessageQueue("gone", broker.name, 1): 7}
            assert await ClusterCalls(admin).stored_offsets(broker.name) == {"g": queues}

    run(main())


def test_system_topics_and_invalid_groups_are_refused() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster, aio.Admin(namesrv=cluster.namesrv) as admin:
            calls = ClusterCalls(admin)
            with pytest.raises(ClientError, match="cannot be deleted"):
                await calls.clear_topic("broker-a", "TBW102")
            with pytest.raises(InvalidNameError):
                await calls.put_group_config("broker-a", SubscriptionGroupConfig(group_name="no group"))

    run(main())


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_very_many_offsets_are_parsed_in_a_thread(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of rows would block the loop."""
    threads: list[int] = []
    stored = clients._offsets_by_group

    def watched(broker: str, body: bytes) -> dict[str, dict[MessageQueue, int]]:
        threads.append(threading.get_ident())
        return stored(broker, body)

    async def main(namesrv: str) -> None:
        async with aio.Admin(namesrv=namesrv) as admin:
            (broker,) = (one.broker_name for one in await admin.brokers.list())
            assert list((await ClusterCalls(admin).stored_offsets(broker))["g"].values()) == [0]

    monkeypatch.setattr(clients, "OFFSETS_INLINE_BYTES", limit)
    monkeypatch.setattr(clients, "_offsets_by_group", watched)
    with LocalCluster() as cluster, mq.Admin(namesrv=cluster.namesrv) as made:
        made.topics.create("T", queues=2)
        made.groups.create("g")
        made.groups.commit("g", made.topics.status("T")[0].queue, 0)
        asyncio.run(main(cluster.namesrv))
    assert (threads == [threading.get_ident()]) == (limit > 0)
