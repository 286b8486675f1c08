"""A topic that is deleted and made again under a group: all new messages arrive, even if nothing was pulled
in the meantime and the new topic has more messages than were consumed of the old one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.client.test_empty_disk import new_disk
from tests.support import run, until

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.testing import LocalCluster


async def lags(admin: aio.Admin, group: str) -> list[int]:
    return [row.lag for row in await admin.groups.progress(group, "T")]


async def made_again(cluster: LocalCluster, group: str, got: list[bytes]) -> None:
    """Fill, delete and re-create the topic; the new one has fewer messages than were consumed of the old."""
    async with (
        aio.Admin(namesrv=cluster.namesrv) as admin,
        aio.Producer("p", namesrv=cluster.namesrv) as producer,
    ):
        for _ in range(15):
            await producer.send(mq.Message("T", b"old"))
        await until(lambda: got.count(b"old") == 15)
        await admin.topics.delete("T")
        await admin.topics.create("T", queues=1)
        for number in range(5):
            await producer.send(mq.Message("T", b"new%d" % number))
        await until(lambda: {body for body in got if body != b"old"} == {b"new%d" % n for n in range(5)})
        assert min(await lags(admin, group), default=0) >= 0


@pytest.mark.parametrize("ordered", [False, True])
def test_push_consumer_gets_all_messages_of_the_new_topic(ordered: bool) -> None:
    async def test(cluster: LocalCluster) -> None:
        got: list[bytes] = []
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            await admin.topics.create("T", queues=1)
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
            await admin.topics.create("T", queues=1)
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


OLD, NEW = 5, 9
Step = Callable[[], Awaitable[None]]


async def again_while_absent(
    cluster: LocalCluster,
    got: list[bytes],
    leave: Step,
    come_back: Step,
    *,
    has_lag: bool = True,
    is_disk_new: bool = False,
) -> None:
    """Re-create the topic between `leave` and `come_back`, with more messages than the old one had."""
    async with (
        aio.Admin(namesrv=cluster.namesrv) as admin,
        aio.Producer("p", namesrv=cluster.namesrv) as producer,
    ):
        for _ in range(OLD):
            await producer.send(mq.Message("T", b"old"))
        await until(lambda: got.count(b"old") == OLD)
        await leave()
        if is_disk_new:
            await asyncio.to_thread(new_disk, cluster)
        else:
            await admin.topics.delete("T")
        await admin.topics.create("T", queues=1)
        for number in range(NEW):
            await producer.send(mq.Message("T", b"new%d" % number))
        await come_back()
        await until(lambda: {body for body in got if body != b"old"} == {b"new%d" % n for n in range(NEW)})
        await until(lambda: not has_lag or _is_consumed(admin))


async def _is_consumed(admin: aio.Admin) -> bool:
    return await lags(admin, "g") == [0]


def with_topic(test: Callable[[LocalCluster], Awaitable[None]], **broker: Any) -> None:
    async def created(cluster: LocalCluster) -> None:
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            await admin.topics.create("T", queues=1)
        await test(cluster)

    with LocalCluster(**broker) as cluster:
        run(created(cluster))


@pytest.mark.parametrize("is_disk_new", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
def test_paused_push_consumer_misses_nothing_of_the_new_topic(ordered: bool, is_disk_new: bool) -> None:
    async def test(cluster: LocalCluster) -> None:
        got: list[bytes] = []
        consumer = aio.PushConsumer("g", settings=pushing(cluster, ordered=ordered))
        consumer.subscribe("T", handler=lambda message: got.append(message.body))
        async with consumer:

            async def pause() -> None:
                consumer.pause()

            async def resume() -> None:
                consumer.resume()

            await again_while_absent(cluster, got, pause, resume, is_disk_new=is_disk_new)

    with_topic(test)


def pushing(cluster: LocalCluster, **how: Any) -> mq.ConsumerSettings:
    return mq.ConsumerSettings(namesrv=cluster.namesrv, consume_from="first", persist_interval=0.2, **how)


def test_push_consumer_with_a_full_buffer_misses_nothing_of_the_new_topic() -> None:
    async def test(cluster: LocalCluster) -> None:
        got: list[bytes] = []
        free = asyncio.Event()

        async def handle(message: mq.ReceivedMessage) -> None:
            got.append(message.body)
            await free.wait()

        settings = pushing(cluster, queue_messages_max=OLD - 1, pull_batch=1)
        consumer = aio.PushConsumer("g", settings=settings)
        consumer.subscribe("T", handler=handle)
        async with consumer:

            async def nothing() -> None:
                pass

            async def finish() -> None:
                free.set()

            await again_while_absent(cluster, got, nothing, finish)

    with_topic(test)


def test_broadcasting_member_that_was_away_misses_nothing_of_the_new_topic(tmp_path: Path) -> None:
    async def test(cluster: LocalCluster) -> None:
        got: list[bytes] = []
        settings = pushing(cluster, model="broadcasting", offset_dir=tmp_path, instance_name="one")
        members: list[aio.PushConsumer] = []

        async def come() -> None:
            members.append(aio.PushConsumer("g", settings=settings))
            members[-1].subscribe("T", handler=lambda message: got.append(message.body))
            await members[-1].start()

        async def leave() -> None:
            await members[-1].close()

        await come()
        await again_while_absent(cluster, got, leave, come, has_lag=False)
        await leave()

    with_topic(test)


@pytest.mark.parametrize("is_disk_new", [False, True])
def test_paused_poller_misses_nothing_of_the_new_topic(is_disk_new: bool) -> None:
    async def test(cluster: LocalCluster) -> None:
        got: list[bytes] = []
        settings = mq.PullSettings(
            namesrv=cluster.namesrv, consume_from="first", auto_commit_interval=1, pull_batch=1
        )
        consumer = aio.PullConsumer("g", settings=settings)
        consumer.subscribe("T", "*")
        await consumer.start()

        async def poll() -> None:
            while True:
                got.extend(message.body for message in await consumer.poll(timeout=1))

        polling = asyncio.create_task(poll())

        async def pause() -> None:
            consumer.pause(consumer.assignment)

        async def resume() -> None:
            consumer.resume(consumer.assignment)

        await again_while_absent(cluster, got, pause, resume, is_disk_new=is_disk_new)
        polling.cancel()
        await consumer.close()

    with_topic(test)


@pytest.mark.parametrize("is_acked_late", [False, True])
def test_pop_gets_all_messages_of_the_new_topic(is_acked_late: bool) -> None:
    """Also if messages of the old one are invisible at that moment, or acknowledged afterwards."""

    async def test(cluster: LocalCluster) -> None:
        got: list[bytes] = []
        old: list[mq.ReceivedMessage] = []
        consumer = aio.SimpleConsumer("g", namesrv=cluster.namesrv)
        consumer.subscribe("T")
        async with consumer:

            async def receive() -> list[mq.ReceivedMessage]:
                found = await consumer.receive(32, invisible=10, wait=1)
                got.extend(message.body for message in found)
                return found

            async def first() -> None:
                while len(old) < OLD:
                    old.extend(await receive())

            receiving = asyncio.create_task(first())

            async def leave() -> None:
                await receiving

            async def later() -> None:
                while len(set(got)) < 1 + NEW:
                    for message in await receive():
                        await consumer.ack(message)
                    for message in old if is_acked_late else ():
                        with suppress(mq.SparrowError):
                            await consumer.ack(message)

            receiving_again: list[asyncio.Task[None]] = []

            async def come_back() -> None:
                receiving_again.append(asyncio.create_task(later()))

            await again_while_absent(cluster, got, leave, come_back)
            await asyncio.gather(*receiving_again)

    with_topic(test)


def test_reader_by_offset_is_told_that_its_topic_was_made_again() -> None:
    async def test(cluster: LocalCluster) -> None:
        got: list[bytes] = []
        async with aio.PullConsumer("g", namesrv=cluster.namesrv) as consumer:
            queue = mq.MessageQueue("T", "broker-a", 0)

            async def read() -> None:
                found = await consumer.pull(queue, len(got))
                got.extend(message.body for message in found.messages)

            async def once() -> None:
                while len(got) < OLD:
                    await read()

            reading = asyncio.create_task(once())

            async def leave() -> None:
                await reading
                await consumer.commit(queue, OLD)

            async def come_back() -> None:
                await consumer.commit(queue, OLD)  # it has no effect: the offset is of the old topic
                assert await consumer.committed(queue) in (None, 0)
                moved = await consumer.pull(queue, OLD)
                assert (moved.status, moved.next_offset) == (mq.PullStatus.OFFSET_ILLEGAL, 0)
                found = await consumer.pull(queue, 0)
                got.extend(message.body for message in found.messages)
                await consumer.commit(queue, NEW)

            await again_while_absent(cluster, got, leave, come_back)

    with_topic(test)
