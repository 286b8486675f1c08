"""Iteration over a pull consumer: a message counts as handled when the loop asks for the next one."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from tests.client.fake import FakeCluster
from tests.client.pulling import flow, quick, store
from tests.support import about, until

import sparrowmq as mq
from sparrowmq.client.pull.pull_consumer import PullConsumer
from sparrowmq.core.errors import InvalidStateError
from sparrowmq.core.message import MessageQueue

Q = MessageQueue("T", "broker-a", 0)
KEY = ("g", "T", 0)


async def read(consumer: PullConsumer, count: int) -> list[int]:
    """The first bodies of a loop, which is left with the last one in hand."""
    found: list[int] = []
    messages: Any = aiter(consumer)
    async with aclosing(messages):
        async for message in messages:
            found.append(int(message.body))
            if len(found) == count:
                break
    return found


def test_each_message_counts_as_handled_when_the_loop_asks_for_the_next_one() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        async for message in consumer:
            if message.body == b"3":
                assert await consumer.position(Q) == 4
                assert consumer.lag == {Q: 17}, "the one in hand is not handled"
                break
        await consumer.close()
        assert cluster.broker.offsets[KEY] == 3

    flow(test, messages=20)


def test_message_at_which_a_loop_is_left_comes_again() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        assert await read(consumer, 4) == [0, 1, 2, 3]
        assert await read(consumer, 3) == [3, 4, 5], "to the next loop"
        await consumer.close()
        async with PullConsumer("g", settings=quick(cluster)) as again:
            again.subscribe("T")
            assert await read(again, 2) == [5, 6], "to the next consumer"
            batch = await again.poll(10)
            assert int(batch[0].body) == 6, "to the next poll"

    flow(test, messages=20)


def test_commit_in_a_loop_says_that_its_message_is_handled() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        async for message in consumer:
            if message.body == b"2":
                await consumer.commit()
                break
        assert cluster.broker.offsets[KEY] == 3
        assert await read(consumer, 2) == [3, 4]

    flow(test, messages=5)


def test_loop_that_was_left_but_not_closed_yet_keeps_nothing() -> None:
    """`break` in `async for` leaves it to the event loop when the loop's iterator is closed."""

    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        left: Any = aiter(consumer)
        async with aclosing(left):
            assert (await anext(left)).body == b"0"
            assert await read(consumer, 2) == [0, 1]
            with pytest.raises(InvalidStateError):
                await anext(left)

    flow(test, messages=5)


def test_error_in_a_loop_leaves_only_its_message_unhandled() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        with pytest.raises(ZeroDivisionError):
            async with consumer:
                async for message in consumer:
                    if message.body == b"3":
                        raise ZeroDivisionError
        assert cluster.broker.offsets[KEY] == 3

    flow(test, messages=5)


def test_polled_batch_counts_as_handled_when_the_next_poll_is_made() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        with pytest.raises(ZeroDivisionError):
            async with consumer:
                assert len(await consumer.poll(10)) == 2
                assert len(await consumer.poll(10)) == 2
                assert consumer.lag[Q] == 4, "the second batch is in hand"
                raise ZeroDivisionError
        assert cluster.broker.offsets[KEY] == 2

    flow(test, messages=6, pull_batch=2)


def test_batches_that_several_tasks_polled_all_count() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        await until(lambda: len(consumer.assignment) == 2)
        polls = [asyncio.create_task(consumer.poll(20)) for _ in range(2)]
        assert await consumer.poll(0) == [], "both wait by now"
        for queue_id in (0, 1):
            store(cluster, 1, queue_id=queue_id)
            await until(lambda number=queue_id: sum(poll.done() for poll in polls) == number + 1)
        await consumer.close()
        assert [cluster.broker.offsets["g", "T", number] for number in (0, 1)] == [1, 1]

    flow(test, queues=2)


def test_loop_after_a_poll_says_that_the_batch_is_handled() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        assert len(await consumer.poll(10)) == 2
        assert await read(consumer, 2) == [2, 3]
        await consumer.close()
        assert cluster.broker.offsets[KEY] == 3

    flow(test, messages=6, pull_batch=2)


def test_synchronous_loop_follows_the_same_rule() -> None:
    def read_twice(cluster: FakeCluster) -> list[int]:
        seen: list[int] = []
        with mq.PullConsumer("g", settings=quick(cluster)) as consumer:
            consumer.subscribe("T")
            for _ in range(2):
                for message in consumer:
                    seen.append(int(message.body))
                    if len(seen) % 3 == 0:
                        break
        return seen

    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        assert await asyncio.to_thread(read_twice, cluster) == [0, 1, 2, 2, 3, 4]
        assert cluster.broker.offsets[KEY] == 4

    flow(test, messages=6)


def test_handled_messages_are_committed_while_the_loop_waits() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        consumer.subscribe("T")
        await consumer.start()
        seen: list[int] = []

        async def loop() -> None:
            async for message in consumer:
                seen.append(int(message.body))

        running = asyncio.create_task(loop())
        await until(lambda: seen == [0, 1, 2])
        await until(lambda: cluster.broker.offsets.get(KEY) == 3)
        store(cluster, 1)
        await until(lambda: len(seen) == 4)
        await consumer.close()
        await running  # it ends with the consumer

    flow(test, messages=3, auto_commit_interval=1.0)


def test_filtered_messages_do_not_take_the_offset_past_the_one_in_hand() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        store(cluster, 1)
        consumer.subscribe("T", "A")
        await consumer.start()
        messages: Any = aiter(consumer)
        async with aclosing(messages):
            assert (await anext(messages)).body == b"0"
            store(cluster, 5, tag="B")
            lite = consumer._lite
            assert lite is not None
            await until(lambda: lite.position(Q) == 6)
            await consumer.close()
        assert KEY not in cluster.broker.offsets, "it comes again"

    flow(test)


def test_loop_needs_something_to_read() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        with pytest.raises(InvalidStateError, check=about(what="running", value="created")):
            aiter(consumer)
        await consumer.start()
        with pytest.raises(InvalidStateError, check=about(what="subscription")):
            aiter(consumer)

    flow(test)


def test_former_names_still_work() -> None:
    assert PullConsumer.seek_to_begin is PullConsumer.seek_to_beginning
    assert PullConsumer.update_consume_offset is PullConsumer.store_offset
