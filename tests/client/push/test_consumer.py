"""`Consumer`: a message counts as handled when the loop asks for the next one."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import aclosing
from typing import Any

import pytest
from tests.client.consuming import FAST, SEND_BACK, committed, flow
from tests.client.fake import FakeCluster, answer
from tests.support import about, until, until_sync

import sparrowmq as mq
from sparrowmq.client.push.consumer import Consumer
from sparrowmq.core.errors import InvalidStateError, SettingsError

Given = dict[str, Any]


def given(cluster: FakeCluster, **values: Any) -> Given:
    """Keyword arguments with short intervals."""
    return {"name_server": cluster.namesrv, **FAST, **values}


def test_message_counts_as_handled_when_the_next_one_is_asked_for() -> None:
    async def test(cluster: FakeCluster) -> None:
        seen: list[int] = []
        async with Consumer("g", "T", **given(cluster)) as consumer:
            messages: Any = aiter(consumer)
            async with aclosing(messages):
                async for message in messages:
                    seen.append(int(message.body))
                    if len(seen) == 4:
                        await until(lambda: committed(cluster) == {0: 3})
                        break
        assert committed(cluster) == {0: 3}, "the fourth was in hand"
        async with Consumer("g", "T", **given(cluster)) as consumer:
            messages = aiter(consumer)
            async with aclosing(messages):
                assert int((await anext(messages)).body) == 3, "it comes again"
        assert seen == [0, 1, 2, 3]

    flow(test, 10, queues=1)


def test_error_in_the_loop_leaves_its_message_unhandled() -> None:
    async def test(cluster: FakeCluster) -> None:
        async def fail(consumer: Consumer) -> None:
            messages: Any = aiter(consumer)
            async with aclosing(messages):
                async for message in messages:
                    assert message.body == b"0", "the second one fails"

        async with Consumer("g", "T", **given(cluster)) as consumer:
            with pytest.raises(AssertionError, match="the second one fails"):
                await fail(consumer)
        assert committed(cluster) == {0: 1}

    flow(test, 3, queues=1)


def test_retry_in_the_loop_is_kept_and_acknowledging_is_allowed() -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.on[SEND_BACK] = lambda conn, c: answer()
        async with Consumer("g", "T", **given(cluster)) as consumer:
            async for message in consumer:
                if message.body == b"0":
                    assert await message.retry(after=10)
                if message.body == b"1":
                    assert await message.ack()
                if message.body == b"2":
                    break
        (sent,) = cluster.broker.requests(SEND_BACK)
        assert sent.ext["offset"] == "0"
        assert committed(cluster) == {0: 2}

    flow(test, 3, queues=1)


def test_tags_select_the_messages() -> None:
    async def test(cluster: FakeCluster) -> None:
        async with Consumer("g", "T", tags="B", **given(cluster)) as consumer:
            messages: Any = aiter(consumer)
            async with aclosing(messages):
                assert [int((await anext(messages)).body) for _ in range(2)] == [1, 3]

    flow(test, 4, queues=1, tags=("A", "B"))


def test_decorated_functions_handle_their_topics_until_a_signal() -> None:
    async def test(cluster: FakeCluster) -> None:
        consumer, seen = Consumer("g", **given(cluster)), []

        @consumer.handler("T")
        async def bill(message: mq.ReceivedMessage) -> None:
            seen.append(int(message.body))

        running = asyncio.create_task(consumer.run())
        await until(lambda: sorted(seen) == [0, 1, 2, 3])
        os.kill(os.getpid(), signal.SIGTERM)
        await running
        assert consumer.state is mq.State.CLOSED and committed(cluster) == {0: 4}

    flow(test, 4, queues=1)


@pytest.mark.parametrize("kind", [Consumer, mq.Consumer])
def test_tags_need_a_topic(kind: Any) -> None:
    with pytest.raises(SettingsError, check=about(setting="tags", value="A", other="topic")):
        kind("g", tags="A")


def test_loop_needs_a_topic_without_handler_and_run_needs_a_handler() -> None:
    async def test(cluster: FakeCluster) -> None:
        async with Consumer("g", **given(cluster)) as consumer:
            consumer.handler("T")(print)
            with pytest.raises(InvalidStateError):
                aiter(consumer)
        with pytest.raises(InvalidStateError):
            await Consumer("g", "T", **given(cluster)).run()
        await asyncio.to_thread(read, cluster)

    def read(cluster: FakeCluster) -> None:
        with mq.Consumer("g", **given(cluster)) as consumer, pytest.raises(InvalidStateError):
            next(iter(consumer))
        with pytest.raises(InvalidStateError):
            mq.Consumer("g", "T", **given(cluster)).run()

    flow(test)


def test_synchronous_consumer_follows_the_same_rule() -> None:
    async def test(cluster: FakeCluster) -> None:
        await asyncio.to_thread(read, cluster)

    def read(cluster: FakeCluster) -> None:
        seen = []
        with mq.Consumer("g", "T", **given(cluster)) as consumer:
            for message in consumer:
                seen.append(int(message.body))
                if len(seen) == 4:
                    until_sync(lambda: committed(cluster) == {0: 3})
                    break
        assert committed(cluster) == {0: 3}
        with mq.Consumer("g", **given(cluster)) as consumer:

            @consumer.handler("T")
            def bill(message: mq.ReceivedMessage) -> None:
                seen.append(int(message.body))

            until_sync(lambda: len(seen) == 11)
        assert seen == [0, 1, 2, 3, *range(3, 10)]

    flow(test, 10, queues=1)
