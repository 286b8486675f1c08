"""A topic that is deleted and made again under a group that is online: all new messages arrive."""

from __future__ import annotations

import asyncio

import pytest
from tests.support import run, until

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.testing import LocalCluster


async def lags(admin: aio.Admin, group: str) -> list[int]:
    return [row.lag for row in await admin.group_progress(group, "T")]


async def made_again(cluster: LocalCluster, group: str, got: list[bytes]) -> None:
    """Fill, delete and re-create the topic; the new one has fewer messages than were consumed of the old."""
    async with (
        aio.Admin(namesrv=cluster.namesrv) as admin,
        aio.Producer("p", namesrv=cluster.namesrv) as producer,
    ):
        for _ in range(15):
            await producer.send(mq.Message("T", b"old"))
        await until(lambda: got.count(b"old") == 15)
        await admin.delete_topic("T")
        await admin.create_topic("T", queues=1)
        for number in range(5):
            await producer.send(mq.Message("T", b"new%d" % number))
        await until(lambda: {body for body in got if body != b"old"} == {b"new%d" % n for n in range(5)})
        assert min(await lags(admin, group), default=0) >= 0


@pytest.mark.parametrize("ordered", [False, True])
def test_push_consumer_gets_all_messages_of_the_new_topic(ordered: bool) -> None:
    async def test(cluster: LocalCluster) -> None:
        got: list[bytes] = []
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            await admin.create_topic("T", queues=1)
        settings = mq.ConsumerSettings(namesrv=cluster.namesrv, consume_from="first", ordered=ordered)
        consumer = aio.PushConsumer("g", settings=settings)
        consumer.subscribe("T", handler=lambda message: got.append(message.body))
        await consumer.start()
        await made_again(cluster, "g", got)
        await consumer.close()

    with LocalCluster() as cluster:
        run(test(cluster))


def test_poller_gets_all_messages_of_the_new_topic() -> None:
    async def test(cluster: LocalCluster) -> None:
        got: list[bytes] = []
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            await admin.create_topic("T", queues=1)
        settings = mq.PullSettings(namesrv=cluster.namesrv, consume_from="first", auto_commit_interval=1)
        consumer = aio.PullConsumer("g", settings=settings)
        consumer.subscribe("T", "*")
        await consumer.start()

        async def poll() -> None:
            while True:
                got.extend(message.body for message in await consumer.poll(timeout=1))

        polling = asyncio.create_task(poll())
        await made_again(cluster, "g", got)
        polling.cancel()
        await consumer.close()

    with LocalCluster() as cluster:
        run(test(cluster))
