"""A real broker as services see it."""

from __future__ import annotations

import time

import pytest
from tests.coordinator.cluster.asked import observed
from tests.support import run, until

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.coordinator.cluster.view import ObservedCluster
from sparrowmq.coordinator.services.groups.unassigned import members_of, topics_of
from sparrowmq.core.errors import SparrowError
from sparrowmq.testing import LocalCluster


@pytest.mark.proves("pmq:T12")
def test_offsets_ages_and_members_of_a_real_cluster_are_read() -> None:
    async def main() -> None:
        with LocalCluster() as local:
            async with aio.Admin(namesrv=local.namesrv) as admin:
                await admin.topics.create("T", queues=2)
                await admin.groups.create("idle")
            before = int(time.time() * 1000)
            async with aio.Producer("p", namesrv=local.namesrv) as producer:
                for _ in range(4):
                    await producer.send(mq.Message("T", b"x"))
            cluster = observed(local.namesrv)
            async with aio.PushConsumer("g", namesrv=local.namesrv) as consumer:
                consumer.subscribe("T", handler=lambda message: None)
                await until(lambda: _owns(cluster, 2))
                async with aio.Admin(namesrv=local.namesrv) as admin:
                    for queue in (await admin.topics.route("T")).subscribe_queues("T"):
                        await admin.groups.commit("idle", queue, 0)
                assert (await cluster.told()).groups["idle"] == []
            places = (await cluster.places(ages=True)).places["idle"]
            assert [place.lag for place in places] == [2, 2]
            assert all(before - 60_000 <= place.oldest_ms <= before + 60_000 for place in places)
            await cluster.close()
            await cluster.close()

    run(main())


def test_pull_consumer_by_offset_reports_which_queues_it_reads() -> None:
    async def main() -> None:
        with LocalCluster() as local:
            local.create_topic("T", queues=2)
            cluster = observed(local.namesrv)
            consumer = aio.PullConsumer("g", namesrv=local.namesrv)
            consumer.register_topic("T")
            async with consumer:
                await until(lambda: _owns(cluster, 2))
            await cluster.close()

    run(main())


async def _owns(cluster: ObservedCluster, count: int) -> bool:
    told = await cluster.told()
    of_group = told.groups.get("g") or []
    found = members_of(of_group, *await cluster.queues(topics_of(of_group)))
    if found.silent or not found.online:
        return False
    topic = {queue for queue in found.wanted if queue.topic == "T"}
    return len(topic) == count and topic <= found.owned


def test_unavailable_cluster_is_an_error() -> None:
    async def main() -> None:
        cluster = observed("127.0.0.1:1")
        try:
            with pytest.raises(SparrowError):
                await cluster.places(ages=False)
        finally:
            await cluster.close()

    run(main())
