"""Push consumers that use POP because their broker requests it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from time import monotonic
from typing import Any

import pytest
from tests.support import about, run, until

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.client.push.pop_returns import RETRY_SECONDS, retry_seconds
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import dlq_topic
from sparrowmq.testing import LocalCluster

_numbers = count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    """A separate topic for each test, which group `<topic>_g` receives by POP."""
    name = f"Popped{next(_numbers)}"
    cluster.create_topic(name, 4)
    with mq.Admin(namesrv=cluster.namesrv) as admin:
        admin.groups.create(f"{name}_g")
        admin.groups.set_request_mode(f"{name}_g", name, "POP")
    return name


def settings(cluster: LocalCluster, **values: Any) -> mq.ConsumerSettings:
    given: dict[str, Any] = {
        "namesrv": cluster.namesrv,
        "consume_from": "first",
        "server_assignment": True,
        "rebalance_interval": 0.5,
        "rebalance_interval_min": 0.1,
        "pull_hold": 1.0,
    }
    return mq.ConsumerSettings(**(given | values))


def send(cluster: LocalCluster, topic: str, *bodies: bytes, **fields: Any) -> None:
    with mq.Producer("p", namesrv=cluster.namesrv) as producer:
        for body in bodies:
            producer.send(mq.Message(topic, body, **fields))


async def nothing_left(cluster: LocalCluster, topic: str) -> None:
    """Everything was acknowledged: another member gets nothing, also after all invisible times have
    expired."""
    async with aio.SimpleConsumer(f"{topic}_g", namesrv=cluster.namesrv) as consumer:
        consumer.subscribe(topic)
        assert await consumer.receive(32, wait=2.5) == []


@pytest.mark.proves("client:C-43", "broker:13.10")
def test_messages_of_all_queues_are_handled_and_acknowledged(cluster: LocalCluster, topic: str) -> None:
    bodies = {b"%d" % number for number in range(100)}
    send(cluster, topic, *bodies)

    async def main() -> None:
        seen: list[bytes] = []
        consumer = aio.PushConsumer(f"{topic}_g", settings=settings(cluster, pop_invisible=2.0))
        consumer.subscribe(topic, handler=lambda message: seen.append(message.body))
        async with consumer:
            await until(lambda: len(seen) >= 100)
            assert MessageQueue(topic, "broker-a", -1) in consumer.assignment
            await until(lambda: consumer.last_poll is not None)
            assert consumer.last_error is None
        assert set(seen) == bodies and len(seen) == 100
        await nothing_left(cluster, topic)

    run(main())


def test_members_share_all_queues(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        seen: dict[str, list[bytes]] = {"a": [], "b": []}

        def member(name: str) -> aio.PushConsumer:
            how = settings(cluster, instance_name=name, pop_batch=1, threads=1)
            made = aio.PushConsumer(f"{topic}_g", settings=how)

            async def handle(message: mq.ReceivedMessage) -> None:
                seen[name].append(message.body)
                await asyncio.sleep(0.02)  # slow enough that the other one gets some

            made.subscribe(topic, handler=handle)
            return made

        async with member("a") as first, member("b") as second:
            await until(lambda: len(first.assignment) > 1 and len(second.assignment) > 0)
            queue = MessageQueue(topic, "broker-a", -1)
            await until(lambda: queue in first.assignment and queue in second.assignment)
            await asyncio.to_thread(send, cluster, topic, *(b"%d" % number for number in range(40)))
            await until(lambda: len(seen["a"]) + len(seen["b"]) >= 40)
        assert sorted(seen["a"] + seen["b"]) == sorted(b"%d" % number for number in range(40))
        assert seen["a"] and seen["b"]

    run(main())


def test_hooks_see_how_long_handlers_held_up_a_pop(cluster: LocalCluster, topic: str) -> None:
    send(cluster, topic, *(b"%d" % number for number in range(8)))
    found: list[float] = []

    class Watching(mq.PopHook):
        def after_pop(self, context: mq.PopContext) -> None:
            if context.receipts:
                found.append(context.held_up)

    async def main() -> float:
        seen: list[bytes] = []
        go_on = asyncio.Event()

        async def handle(message: mq.ReceivedMessage) -> None:
            seen.append(message.body)
            await go_on.wait()

        few: dict[str, Any] = {"pop_batch": 1, "pop_unfinished_max": 1, "threads": 1, "hooks": [Watching()]}
        consumer = aio.PushConsumer(f"{topic}_g", settings=settings(cluster, **few))
        consumer.subscribe(topic, handler=handle)
        async with consumer:
            await until(lambda: len(found) == 2)
            since = monotonic()
            await until(lambda: seen and monotonic() > since)
            held_up = monotonic() - since
            go_on.set()
            await until(lambda: len(seen) == 8)
        return held_up

    held_up = run(main())
    assert found[2] >= held_up > 0


def test_failed_message_comes_again_after_the_handlers_delay(cluster: LocalCluster, topic: str) -> None:
    send(cluster, topic, b"1", b"2")

    async def main() -> None:
        seen: list[tuple[bytes, int]] = []

        def handle(message: mq.ReceivedMessage) -> None:
            seen.append((message.body, message.reconsume_times))
            if message.body == b"1" and message.reconsume_times < 2:
                raise mq.Retry(after=0.0)

        consumer = aio.PushConsumer(f"{topic}_g", settings=settings(cluster, pop_invisible=30.0))
        consumer.subscribe(topic, handler=handle)
        async with consumer:
            await until(lambda: (b"1", 2) in seen)
        assert sorted(seen) == [(b"1", 0), (b"1", 1), (b"1", 2), (b"2", 0)]
        await nothing_left(cluster, topic)

    run(main())


def test_failed_messages_become_dead_letters(cluster: LocalCluster, topic: str) -> None:
    send(cluster, topic, b"often", b"at once")

    async def main() -> None:
        def handle(message: mq.ReceivedMessage) -> None:
            raise mq.Retry(after=0.0, dead=message.body == b"at once")

        how = settings(cluster, max_reconsume_times=1, pop_invisible=30.0)
        consumer = aio.PushConsumer(f"{topic}_g", settings=how)
        consumer.subscribe(topic, handler=handle)
        found: list[bytes] = []
        async with consumer, aio.PullConsumer(namesrv=cluster.namesrv) as reader:

            async def look() -> None:
                with suppress(aio.NoRouteError):
                    (queue,) = await reader.queues(dlq_topic(f"{topic}_g"))
                    found[:] = [one.body for one in (await reader.pull(queue, 0)).messages]

            await until(lambda: _after(look, lambda: len(found) == 2))
        assert sorted(found) == [b"at once", b"often"]
        await nothing_left(cluster, topic)

    run(main())


def test_group_decides_about_dead_letters_if_the_consumer_does_not_say(
    cluster: LocalCluster, topic: str
) -> None:
    send(cluster, topic, b"once")

    async def main() -> None:
        def handle(message: mq.ReceivedMessage) -> None:
            raise mq.Retry(after=0.0)

        group = f"{topic}_g"
        consumer = aio.PushConsumer(group, settings=settings(cluster, pop_invisible=30.0))
        consumer.subscribe(topic, handler=handle)
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            await admin.groups.create(group, retries=0)
            async with consumer:
                await until(lambda: _has_topic(admin, dlq_topic(group)))
        await nothing_left(cluster, topic)

    run(main())


async def _has_topic(admin: aio.Admin, topic: str) -> bool:
    return topic in await admin.topics.list(system=True)


def test_messages_are_iterated_and_settled(cluster: LocalCluster, topic: str) -> None:
    send(cluster, topic, b"1", b"2", b"3")

    async def main() -> None:
        how = settings(cluster, pop_invisible=30.0)
        async with aio.PushConsumer(f"{topic}_g", settings=how) as consumer:
            consumer.subscribe(topic)
            seen = []
            async for message in consumer:
                seen.append((message.body, message.reconsume_times))
                if message.body == b"2" and not message.reconsume_times:
                    assert await message.retry(after=0.0)
                else:
                    assert await message.ack()
                if len(seen) == 4:
                    break
        assert sorted(seen) == [(b"1", 0), (b"2", 0), (b"2", 1), (b"3", 0)]
        await nothing_left(cluster, topic)

    run(main())


def test_synchronous_consumer_uses_pop(cluster: LocalCluster, topic: str) -> None:
    send(cluster, topic, b"1", b"2")
    seen = set()
    with mq.PushConsumer(f"{topic}_g", settings=settings(cluster)) as consumer:
        consumer.subscribe(topic)
        for message in consumer:
            message.ack()
            seen.add(message.body)
            if len(seen) == 2:
                break
    assert seen == {b"1", b"2"}


def test_filtered_messages_are_acknowledged(cluster: LocalCluster, topic: str) -> None:
    """`Aa` and `BB` have the same hash, which is all that brokers compare."""
    send(cluster, topic, b"other", tags="BB")
    send(cluster, topic, b"mine", tags="Aa")

    async def main() -> None:
        seen: list[bytes] = []
        consumer = aio.PushConsumer(f"{topic}_g", settings=settings(cluster, pop_invisible=2.0))
        consumer.subscribe(topic, "Aa", handler=lambda message: seen.append(message.body))
        async with consumer:
            await until(lambda: bool(seen))
        assert seen == [b"mine"]
        await nothing_left(cluster, topic)

    run(main())


def test_message_that_waits_too_long_for_its_handler_goes_to_another_member(
    cluster: LocalCluster,
    topic: str,
) -> None:
    send(cluster, topic, *(b"%d" % number for number in range(4)))

    async def main() -> None:
        begun: list[bytes] = []
        release = asyncio.Event()

        async def handle(message: mq.ReceivedMessage) -> None:
            begun.append(message.body)
            await release.wait()

        how = settings(cluster, pop_invisible=2.0, threads=1, pop_unfinished_max=3)
        consumer = aio.PushConsumer(f"{topic}_g", settings=how)
        consumer.subscribe(topic, handler=handle)
        async with (
            consumer,
            aio.SimpleConsumer(f"{topic}_g", namesrv=cluster.namesrv) as other,
        ):
            await until(lambda: bool(begun))
            other.subscribe(topic)
            got: list[bytes] = []
            while len(got) < 4:
                for message in await other.receive(32, wait=5.0, invisible=60.0):
                    got.append(message.body)
                    await other.ack(message)
            release.set()
            assert sorted(got) == [b"0", b"1", b"2", b"3"]
        assert len(begun) == 1, "no handler starts with what is not this member's any more"

    run(main())


def test_mode_may_change_while_the_consumer_runs(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        seen: list[bytes] = []
        consumer = aio.PushConsumer(f"{topic}_g", settings=settings(cluster))
        consumer.subscribe(topic, handler=lambda message: seen.append(message.body))
        changes: list[set[int]] = []

        def mine() -> set[int]:
            return {queue.queue_id for queue in consumer.assignment if queue.topic == topic}

        async with consumer, aio.Admin(namesrv=cluster.namesrv) as admin:
            for mode, ids in (("POP", {-1}), ("PULL", {0, 1, 2, 3}), ("POP", {-1})):
                await admin.groups.set_request_mode(f"{topic}_g", topic, mode)
                await until(lambda wanted=ids: mine() == wanted)
                changes.append(mine())
                body = b"%d" % len(changes)
                await asyncio.to_thread(send, cluster, topic, body)
                await until(lambda wanted=body: wanted in seen)
            with pytest.raises(mq.NoRouteError):
                await admin.groups.set_request_mode(f"{topic}_g", "Nowhere", "POP")
            with pytest.raises(mq.SettingsError, check=about(setting="mode", value="PUSH")):
                await admin.groups.set_request_mode(f"{topic}_g", topic, "PUSH")
        assert changes == [{-1}, {0, 1, 2, 3}, {-1}]
        assert sorted(set(seen)) == [b"1", b"2", b"3"]

    run(main())


def test_namespace_is_supported(cluster: LocalCluster) -> None:
    async def main() -> None:
        space = {"namesrv": cluster.namesrv, "namespace": "space"}
        async with aio.Admin(settings=mq.ClientSettings(**space)) as admin:
            await admin.topics.create("T")
            await admin.groups.create("g")
            await admin.groups.set_request_mode("g", "T", "POP")
        async with aio.Producer("p", settings=mq.ProducerSettings(**space)) as producer:
            await producer.send(mq.Message("T", b"1"))
        seen: list[tuple[str, bytes, int]] = []

        def handle(message: mq.ReceivedMessage) -> None:
            seen.append((message.topic, message.body, message.reconsume_times))
            if not message.reconsume_times:
                raise mq.Retry(after=0.0)

        consumer = aio.PushConsumer("g", settings=settings(cluster, namespace="space"))
        consumer.subscribe("T", handler=handle)
        async with consumer:
            await until(lambda: len(seen) == 2)
            assert MessageQueue("T", "broker-a", -1) in consumer.assignment
        assert seen == [("T", b"1", 0), ("T", b"1", 1)]

    run(main())


async def _after(look: Callable[[], Awaitable[None]], is_true: Callable[[], bool]) -> bool:
    await look()
    return is_true()


def test_failed_message_is_hidden_for_the_retry_delay() -> None:
    assert retry_seconds(0.0, 5.0, 3) == 0.0
    assert retry_seconds(None, 5.0, 3) == 5.0
    assert [retry_seconds(None, None, times) for times in (0, 1, 15, 16, 99)] == [10, 30, 7200, 7200, 7200]
    assert len(RETRY_SECONDS) == 16


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"pop_invisible": 0.5}, "pop_invisible"),
        ({"pop_batch": 33}, "pop_batch"),
        ({"pop_unfinished_max": 0}, "pop_unfinished_max"),
        ({"ordered": True}, "cannot be combined with ordered"),
        ({"model": "broadcasting"}, "cannot be combined with model"),
    ],
)
def test_incompatible_settings_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(mq.SettingsError, match=said):
        mq.ConsumerSettings(server_assignment=True, consume_from=datetime(2026, 1, 1, tzinfo=UTC), **values)
