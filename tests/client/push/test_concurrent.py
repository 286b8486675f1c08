"""Results of handlers: commits, retries, messages whose processing takes too long."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.client.consuming import (
    SEND_BACK,
    committed,
    consumer_of,
    flow,
    put,
)
from tests.client.fake import FakeCluster, answer
from tests.support import until

from sparrowmq.client.consumer.outcomes import Retry
from sparrowmq.client.push.message_stream import DeliveredMessage
from sparrowmq.core.message import ReceivedMessage
from sparrowmq.protocol import headers, properties
from sparrowmq.protocol.codes import RequestCode, ResponseCode


@pytest.mark.proves("client:D-48", "MUST-34")
def test_batches_are_lists_up_to_the_size_of_one_queue() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[list[ReceivedMessage]] = []
        async with consumer_of(cluster, batch=8) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: sum(map(len, got)) == 50)
        assert {len(batch) for batch in got} <= set(range(1, 9))
        assert all(len({m.queue for m in batch}) == 1 for batch in got)

    flow(test, 50)


@pytest.mark.proves("client:D-44")
def test_message_processed_for_too_long_is_retried() -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.on[SEND_BACK] = lambda conn, c: answer()
        async with consumer_of(cluster, consume_timeout=0.05) as consumer:
            consumer.subscribe("T")
            iterator: Any = aiter(consumer)
            message = await anext(iterator)
            (request,) = await until(lambda: cluster.broker.requests(SEND_BACK))
            assert request.ext["originMsgId"] == message.message_id
            assert not await message.ack()
            await iterator.aclose()

    flow(test, 1)


@pytest.mark.proves("client:D-53", "client:D-55", "client:D-56")
def test_failed_message_is_sent_back_and_skipped() -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.on[SEND_BACK] = lambda conn, c: answer()

        def handle(message: ReceivedMessage) -> None:
            if message.body == b"3":
                raise ValueError("three")

        async with consumer_of(cluster, max_reconsume_times=5) as consumer:
            consumer.subscribe("T", handler=handle)
            await until(lambda: committed(cluster) == {0: 5, 1: 5})
        (request,) = cluster.broker.requests(SEND_BACK)
        header = headers.from_ext(headers.ConsumerSendMsgBackRequest, request.ext)
        assert (header.group, header.origin_topic, header.origin_msg_id) == ("g", "T", "U3")
        assert (header.delay_level, header.max_reconsume_times) == (0, 5)
        assert (header.broker_name, header.sparrow_error) == ("broker-a", "ValueError: three")

    flow(test, 10)


@pytest.mark.proves("client:D-54")
@pytest.mark.parametrize("refusal", ["unsupported", "lost"])
def test_messages_that_cannot_be_sent_back_are_retried_locally(refusal: str) -> None:
    async def test(cluster: FakeCluster) -> None:
        if refusal == "lost":
            cluster.broker.on[SEND_BACK] = lambda conn, c: conn.abort()
        times: list[int] = []

        async def handle(message: ReceivedMessage) -> None:
            if message.body == b"2":
                times.append(message.reconsume_times)
                if len(times) < 4:
                    raise ValueError("not yet")

        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=handle)
            await until(lambda: committed(cluster).get(1) == 5)
            await until(lambda: committed(cluster).get(0) == 5)
        assert times == [0, 1, 2, 3]
        assert len(cluster.broker.requests(SEND_BACK)) == 3

    flow(test, 10)


def test_message_that_no_broker_can_store_is_skipped_and_counted() -> None:
    async def test(cluster: FakeCluster) -> None:
        for code in (SEND_BACK, RequestCode.SEND_MESSAGE_V2):
            cluster.broker.on[code] = lambda conn, c: answer(ResponseCode.MESSAGE_ILLEGAL, remark="too long")

        async with consumer_of(cluster, max_reconsume_times=0) as consumer:
            consumer.subscribe("T", handler=lambda message: Retry())
            await until(lambda: committed(cluster) == {0: 1, 1: 1})
            assert consumer.skipped_messages == 2
            assert consumer.running_info().properties["skippedMessages"] == "2"

    flow(test, 2)


@pytest.mark.proves("client:D-59", "client:D-57")
@pytest.mark.parametrize("form", ["raised", "returned", "by the message"])
@pytest.mark.parametrize(
    ("wish", "level"), [({"after": 30}, 4), ({"after": 31}, 5), ({"dead": True}, -1), ({}, 0)]
)
def test_handler_chooses_the_retry_delay(form: str, wish: dict[str, Any], level: int) -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.on[SEND_BACK] = lambda conn, c: answer()

        def handle(message: ReceivedMessage) -> Retry:
            if form == "raised":
                raise Retry(**wish)
            return Retry(**wish)

        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=None if form == "by the message" else handle)
            if form == "by the message":
                async for message in consumer:
                    assert await message.retry(**wish)
                    break
            await until(lambda: cluster.broker.requests(SEND_BACK))
        (request,) = cluster.broker.requests(SEND_BACK)
        assert request.ext["delayLevel"] == str(level)

    flow(test, 1)


@pytest.mark.proves("client:D-46", "client:D-54")
def test_offset_is_held_while_a_message_waits_locally() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []

        def handle(message: ReceivedMessage) -> None:
            got.append(message)
            if message.body == b"4":
                raise ValueError("always")

        async with consumer_of(cluster, redeliver_delay=60) as consumer:
            consumer.subscribe("T", handler=handle)
            await until(lambda: len(got) == 10)
            await until(lambda: committed(cluster) == {0: 2, 1: 5})
        assert committed(cluster) == {0: 2, 1: 5}

    flow(test, 10)


@pytest.mark.proves("client:D.9")
def test_messages_from_the_retry_topic_reach_the_handler_of_their_topic() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: "%RETRY%g" in {q.topic for q in consumer.assignment})
            props = properties.encode({"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "U0"})
            cluster.broker.store("%RETRY%g", 0, b"again", props, reconsume_times=1)
            await until(lambda: got)
        assert (got[0].topic, got[0].queue.topic, got[0].reconsume_times) == ("T", "%RETRY%g", 1)

    flow(test)


def test_retries_of_an_unsubscribed_topic_are_sent_back() -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.on[SEND_BACK] = lambda conn, c: answer()
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=print)
            await until(lambda: "%RETRY%g" in {q.topic for q in consumer.assignment})
            _, physical = cluster.broker.store(
                "%RETRY%g", 0, b"of before", properties.encode({"RETRY_TOPIC": "Old"}), reconsume_times=1
            )
            (request,) = await until(lambda: cluster.broker.requests(SEND_BACK))
            assert (request.ext["originTopic"], int(request.ext["offset"])) == ("Old", physical)
            await until(lambda: cluster.broker.offsets.get(("g", "%RETRY%g", 0)) == 1)

    flow(test)


def test_only_locally_started_messages_can_time_out() -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.on[SEND_BACK] = lambda conn, c: answer()
        go, got = asyncio.Event(), []

        async def handle(message: ReceivedMessage) -> None:
            got.append(message)
            await go.wait()

        async with consumer_of(cluster, threads=1, consume_timeout=30.0) as consumer:
            consumer.subscribe("T", handler=handle)
            await until(lambda: {q.topic for q in consumer.assignment} == {"T", "%RETRY%g"})
            put(cluster, 0)
            await until(lambda: got)
            stale = {"RETRY_TOPIC": "T", "CONSUME_START_TIME": "1"}
            cluster.broker.store("%RETRY%g", 0, b"1", properties.encode(stale), reconsume_times=1)
            cluster.broker.store("T", 1, b"2", properties.encode({"CONSUME_START_TIME": "soon"}))
            await until(lambda: sum(consumer.lag.values()) == 3)
            assert consumer._member is not None
            await consumer._member._expire()
            go.set()
            await until(lambda: len(got) == 3)
        assert not cluster.broker.requests(SEND_BACK)

    flow(test)


def test_message_of_a_handler_that_takes_too_long_is_sent_back_once() -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.on[SEND_BACK] = lambda conn, c: answer()
        go = threading.Event()

        def handle(message: ReceivedMessage) -> None:
            go.wait(20)
            raise ValueError("and it fails in the end")

        async with consumer_of(cluster, consume_timeout=0.02) as consumer:
            consumer.subscribe("T", handler=handle)
            (request,) = await until(lambda: cluster.broker.requests(SEND_BACK))
            assert request.ext["delayLevel"] == "3"
            await until(lambda: committed(cluster).get(0) == 1)
            go.set()
        assert len(cluster.broker.requests(SEND_BACK)) == 1

    flow(test, 1)


@pytest.mark.proves("client:C-53", "MUST-36")
def test_results_of_a_dropped_queue_are_discarded() -> None:
    async def test(cluster: FakeCluster) -> None:
        running, go = asyncio.Event(), asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            running.set()
            await go.wait()

        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=handle)
            await running.wait()
            consumer.unsubscribe("T")
            await until(lambda: not [q for q in consumer.assignment if q.topic == "T"])
            go.set()
        assert not any(committed(cluster).values())

    flow(test, 1)


@pytest.mark.proves("client:D-49")
@pytest.mark.parametrize("is_async", [True, False])
def test_messages_are_handled_whether_or_not_a_run_should_start(is_async: bool) -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []

        async def handle(message: ReceivedMessage) -> None:
            got.append(message)

        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=handle if is_async else got.append)
            await until(lambda: len(got) == 1)
            member = consumer._member
            assert member is not None
            held = member.queues.find(got[0].queue)
            assert held is not None
            for number, dispatch in ((1, False), (2, True)):
                queue = got[0].queue
                message = DeliveredMessage(
                    queue, number, 0, "T", b"%d" % number, {}, 0, 0, 0, "", 0, "", 0, 0, 0, ""
                )
                held.put([message])
                member.service.submit(held, [message], dispatch)
                await until(lambda number=number: len(got) == number + 1)
        assert [m.body for m in got] == [b"0", b"1", b"2"]

    flow(test, 1, queues=1)
