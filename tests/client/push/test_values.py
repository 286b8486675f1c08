"""`decode=`: loops and handlers get values, and what cannot be decoded fails as in a handler."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from tests.client.consuming import FAST, SEND_BACK, committed, flow
from tests.client.fake import FakeCluster, answer
from tests.support import until, until_sync

import sparrowmq as mq
from sparrowmq import Retry
from sparrowmq.client.push.consumer import Consumer
from sparrowmq.client.push.push_consumer import PushConsumer

Given = dict[str, Any]


def given(cluster: FakeCluster, **values: Any) -> Given:
    """Keyword arguments with short intervals."""
    return {"name_server": cluster.namesrv, **FAST, **values}


def number(message: mq.ReceivedMessage) -> int:
    """The body as a number; 2 cannot be decoded, and 4 asks for a retry itself."""
    found = message.json()
    if found == 2:
        raise ValueError("two is not allowed")
    if found == 4:
        raise Retry(after=30)
    return int(found)


def sent_back(cluster: FakeCluster) -> list[str]:
    return [request.ext["originMsgId"] for request in cluster.broker.requests(SEND_BACK)]


def test_loop_gets_values_and_what_cannot_be_decoded_goes_to_retry(caplog: pytest.LogCaptureFixture) -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.on[SEND_BACK] = lambda conn, c: answer()
        async with Consumer("g", "T", decode=number, **given(cluster)) as consumer:
            values: Any = aiter(consumer)
            async with aclosing(values):
                assert [await anext(values) for _ in range(4)] == [0, 1, 3, 5]
        assert sent_back(cluster) == ["U2", "U4"]
        assert committed(cluster) == {0: 5}, "the last one was in hand"
        assert "decode failed in group g for message U2" in caplog.text
        assert "U4" not in caplog.text, "it asked for a retry"

    flow(test, 7, queues=1)


def test_async_handler_gets_values_and_fails_where_decode_fails() -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.on[SEND_BACK] = lambda conn, c: answer()
        consumer, seen = Consumer("g", decode=number, **given(cluster)), []

        @consumer.handler("T")
        async def bill(value: int) -> None:
            seen.append(value)

        async with consumer:
            await until(lambda: committed(cluster) == {0: 6})
        assert sorted(seen) == [0, 1, 3, 5]
        assert sorted(sent_back(cluster)) == ["U2", "U4"]

    flow(test, 6, queues=1)


def test_plain_handler_gets_a_list_of_values_which_fail_together() -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.on[SEND_BACK] = lambda conn, c: answer()
        seen: list[list[int]] = []
        consumer = PushConsumer("g", **given(cluster, batch=2))
        consumer.subscribe("T", "*", seen.append, decode=number)
        async with consumer:
            await until(lambda: committed(cluster) == {0: 4})
        assert seen == [[0, 1]]
        assert sorted(sent_back(cluster)) == ["U2", "U3"]

    flow(test, 4, queues=1)


def test_ordered_queue_pauses_at_what_cannot_be_decoded() -> None:
    async def test(cluster: FakeCluster) -> None:
        tries: list[int] = []

        def decode(message: mq.ReceivedMessage) -> int:
            tries.append(int(message.body))
            if tries == [0, 1]:
                raise ValueError("the first time")
            return int(message.body)

        options = given(cluster, ordered=True, suspend_time=0.01)
        async with Consumer("g", "T", decode=decode, **options) as consumer:
            values: Any = aiter(consumer)
            async with aclosing(values):
                assert [await anext(values) for _ in range(3)] == [0, 1, 2]
        assert tries == [0, 1, 1, 2]

    flow(test, 4, queues=1)


def test_broadcasting_drops_what_cannot_be_decoded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(cluster: FakeCluster) -> None:
        options = given(cluster, model="broadcasting", offset_dir=tmp_path)
        async with Consumer("g", "T", decode=number, **options) as consumer:
            values: Any = aiter(consumer)
            async with aclosing(values):
                assert [await anext(values) for _ in range(3)] == [0, 1, 3]
        assert not sent_back(cluster)
        assert "broadcasting drops it" in caplog.text

    flow(test, 4, queues=1)


def test_synchronous_loop_and_handler_get_values() -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.on[SEND_BACK] = lambda conn, c: answer()
        await asyncio.to_thread(read, cluster)
        assert sent_back(cluster) == ["U2", "U4"]

    def read(cluster: FakeCluster) -> None:
        seen: list[int] = []
        with mq.Consumer("g", "T", decode=number, **given(cluster)) as consumer:
            for value in consumer:
                seen.append(value)
                if value == 5:
                    break
        with mq.Consumer("g", **given(cluster)) as consumer:
            consumer.handler("T", decode=mq.ReceivedMessage.json)(seen.append)
            until_sync(lambda: len(seen) == 6)
        assert seen[:4] == [0, 1, 3, 5] and sorted(seen[4:]) == [5, 6]

    flow(test, 7, queues=1)


async def later(message: mq.ReceivedMessage) -> object:
    return message


@pytest.mark.parametrize("decode", [later, "json"])
def test_decode_is_a_plain_function(decode: Any) -> None:
    with pytest.raises(TypeError):
        Consumer("g", "T", decode=decode)
    with pytest.raises(TypeError):
        PushConsumer("g").subscribe("T", handler=print, decode=decode)


def test_decode_of_a_subscription_needs_a_handler() -> None:
    with pytest.raises(TypeError):
        PushConsumer("g").subscribe("T", decode=number)
