"""The push consumer against a scripted cluster: handlers, iteration, retries, sharing, closing, faults."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from sparrowmq.client.delivery import DeliveredMessage
from sparrowmq.client.lifecycle import State
from sparrowmq.client.push_consumer import PushConsumer
from sparrowmq.client.settings import ConsumerSettings
from sparrowmq.core.errors import (
    ClientError,
    ConnectError,
    InvalidExpressionError,
    InvalidNameError,
    InvalidStateError,
    NoNameServerError,
)
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.protocol import headers, properties
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.connection import Connection
from tests.client.fake import FakeCluster, answer, fake_cluster
from tests.support import free_port, run, until

PULL = int(RequestCode.PULL_MESSAGE)
SEND_BACK = int(RequestCode.CONSUMER_SEND_MSG_BACK)
FAST: dict[str, Any] = {
    "consume_from": "first",
    "rebalance_interval_min": 0.01,
    "persist_interval": 0.02,
    "error_delay": 0.02,
    "redeliver_delay": 0.02,
    "close_timeout": 5.0,
}


def consumer_of(cluster: FakeCluster, group: str = "g", **values: Any) -> PushConsumer:
    return PushConsumer(group, settings=ConsumerSettings(namesrv=cluster.namesrv, **{**FAST, **values}))


@asynccontextmanager
async def cluster_with(count: int, *, queues: int = 2, tags: tuple[str, ...] = ("",)) -> Any:
    """A cluster whose topic T has `count` messages, bodies 0, 1, 2, …, spread over the queues."""
    async with fake_cluster("T", queues=queues) as cluster:
        for number in range(count):
            put(cluster, number, queues=queues, tag=tags[number % len(tags)])
        yield cluster


def put(cluster: FakeCluster, number: int, *, queues: int = 2, tag: str = "") -> None:
    props = properties.encode({"UNIQ_KEY": f"U{number}", "TAGS": tag})
    cluster.broker.store("T", number % queues, b"%d" % number, props)


def flow(test: Callable[[FakeCluster], Coroutine[Any, Any, None]], count: int = 0, **values: Any) -> None:
    async def main() -> None:
        async with cluster_with(count, **values) as cluster:
            await test(cluster)

    run(main())


def committed(cluster: FakeCluster, group: str = "g") -> dict[int, int]:
    return {
        q: offset
        for (name, topic, q), offset in cluster.broker.offsets.items()
        if (name, topic) == (group, "T")
    }


def numbers(messages: list[ReceivedMessage]) -> list[int]:
    return sorted(int(message.body) for message in messages)


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_handlers_get_every_message_and_offsets_are_committed(kind: str) -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []

        async def handle(message: ReceivedMessage) -> None:
            got.append(message)

        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=handle if kind == "async" else got.append)
            await until(lambda: len(got) == 100)
            await until(lambda: committed(cluster) == {0: 50, 1: 50})
            put(cluster, 100)
            await until(lambda: len(got) == 101)
            assert consumer.state is State.RUNNING
            assert consumer.last_poll is not None
            assert consumer.last_error is None
            await until(lambda: sum(consumer.lag.values()) == 0)
            assert [q for q in consumer.assignment if q.topic == "T"] == [
                MessageQueue("T", "broker-a", 0),
                MessageQueue("T", "broker-a", 1),
            ]
        assert numbers(got) == list(range(101))
        assert committed(cluster) == {0: 51, 1: 50}

    flow(test, 100)


def test_a_second_start_goes_on_where_the_first_stopped() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        for expected in (10, 20):
            async with consumer_of(cluster) as consumer:
                consumer.subscribe("T", handler=got.append)
                await until(lambda expected=expected: len(got) == expected)
            for number in range(10, 20):
                put(cluster, number)
        assert numbers(got) == list(range(20))

    flow(test, 10)


def test_batches_are_lists_up_to_the_size_of_one_queue() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[list[ReceivedMessage]] = []
        async with consumer_of(cluster, batch=8) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: sum(map(len, got)) == 50)
        assert {len(batch) for batch in got} <= set(range(1, 9))
        assert all(len({m.queue for m in batch}) == 1 for batch in got)

    flow(test, 50)


def test_tags_are_filtered_again_here() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", "A || C", got.append)
            await until(lambda: len(got) == 20)
            await until(
                lambda: committed(cluster) == {0: 20, 1: 10} or sum(committed(cluster).values()) >= 29
            )
        assert {m.tags for m in got} == {"A", "C"}

    flow(test, 30, tags=("A", "B", "C"))


def test_iterating_hands_out_and_settles() -> None:
    async def test(cluster: FakeCluster) -> None:
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T")
            got = []
            async for message in consumer:
                assert isinstance(message, DeliveredMessage)
                got.append(message)
                assert await message.ack()
                if len(got) == 20:
                    break
            await until(lambda: committed(cluster) == {0: 10, 1: 10})
        assert numbers(got) == list(range(20))

    flow(test, 20)


def test_what_was_not_acked_is_not_committed() -> None:
    async def test(cluster: FakeCluster) -> None:
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T")
            taken = []
            async for message in consumer:
                taken.append(message)
                if int(message.body) != 2:
                    await message.ack()
                if len(taken) == 10:
                    break
            await until(lambda: committed(cluster).get(1) == 5)
        assert committed(cluster) == {0: 1, 1: 5}
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 4)
        assert numbers(got) == [2, 4, 6, 8]

    flow(test, 10)


def test_a_message_in_hand_too_long_goes_to_retry() -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.on[SEND_BACK] = lambda conn, c: answer()
        async with consumer_of(cluster, consume_timeout=0.05) as consumer:
            consumer.subscribe("T")
            iterator = aiter(consumer)
            message = await anext(iterator)
            (request,) = await until(lambda: cluster.broker.requests(SEND_BACK))
            assert request.ext["originMsgId"] == message.message_id
            assert not await message.ack()
            await iterator.aclose()  # type: ignore[attr-defined]

    flow(test, 1)


def test_a_failed_message_is_sent_back_and_passed() -> None:
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
        assert header.broker_name == "broker-a"

    flow(test, 10)


@pytest.mark.parametrize("refusal", ["unsupported", "lost"])
def test_what_the_broker_does_not_take_back_is_handled_again_here(refusal: str) -> None:
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


def test_the_offset_is_held_while_a_message_waits_here() -> None:
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


def test_a_handler_that_takes_too_long_has_its_message_sent_back_once() -> None:
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
            await until(lambda: committed(cluster) == {0: 1})
            go.set()
        assert len(cluster.broker.requests(SEND_BACK)) == 1

    flow(test, 1)


def test_flow_control_bounds_what_is_in_hand() -> None:
    async def test(cluster: FakeCluster) -> None:
        go = asyncio.Event()
        started = 0

        async def handle(message: ReceivedMessage) -> None:
            nonlocal started
            started += 1
            await go.wait()

        async with consumer_of(cluster, queue_messages_max=40, threads=1000) as consumer:
            consumer.subscribe("T", handler=handle)
            await until(lambda: started == 64)
            pulls = len(cluster.broker.requests(PULL))
            for number in range(5):
                put(cluster, 1000 + number, queues=1)
            await asyncio.sleep(0)
            assert len([c for c in cluster.broker.requests(PULL) if c.ext["topic"] == "T"]) == 2
            assert pulls >= 2
            go.set()
            await until(lambda: started == 205)

    flow(test, 200, queues=1)


def test_two_members_share_the_queues_and_hand_them_over() -> None:
    async def test(cluster: FakeCluster) -> None:
        one_got: list[ReceivedMessage] = []
        two_got: list[ReceivedMessage] = []
        async with consumer_of(cluster) as one:
            one.subscribe("T", handler=one_got.append)
            await until(lambda: len(_of_t(one)) == 4)
            async with consumer_of(cluster) as two:
                two.subscribe("T", handler=two_got.append)
                await until(lambda: len(_of_t(one)) == len(_of_t(two)) == 2)
                assert not set(one.assignment) & set(two.assignment)
                for number in range(40):
                    put(cluster, number, queues=4)
                await until(lambda: len(one_got) + len(two_got) == 40)
                assert len(one_got) == len(two_got) == 20
            await until(lambda: len(_of_t(one)) == 4)
            put(cluster, 41, queues=4)
            await until(lambda: len(one_got) == 21)
        assert numbers([*one_got, *two_got]) == [*range(40), 41]

    def _of_t(consumer: PushConsumer) -> list[MessageQueue]:
        return [queue for queue in consumer.assignment if queue.topic == "T"]

    flow(test, 0, queues=4)


def test_results_of_a_queue_that_was_given_up_are_thrown_away() -> None:
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
        assert committed(cluster) == {}

    flow(test, 1)


@pytest.mark.parametrize(
    ("start", "expected"),
    [("first", [0, 2, 4, 6, 8, 10]), ("last", [10]), (datetime(2024, 1, 1, tzinfo=UTC), [4, 6, 8, 10])],
)
def test_where_a_new_group_starts(start: Any, expected: list[int]) -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster, consume_from=start) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: [q for q in consumer.assignment if q.topic == "T"])
            cluster.broker.store("T", 0, b"10")
            await until(lambda: any(m.body == b"10" for m in got))
            await until(lambda: len(got) == len(expected))
        assert numbers(got) == expected

    async def main() -> None:
        async with fake_cluster("T", queues=1) as cluster:
            for number in range(0, 10, 2):
                cluster.broker.store("T", 0, b"%d" % number)
            await test(cluster)

    run(main())


def test_an_offset_that_is_not_stored_is_repaired() -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.first["T", 0] = 50
        cluster.broker.offsets["g", "T", 0] = 7
        for number in range(3):
            cluster.broker.store("T", 0, b"%d" % number)
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 3)
            await until(lambda: committed(cluster) == {0: 53})
        assert [m.queue_offset for m in got] == [50, 51, 52]

    async def main() -> None:
        async with fake_cluster("T", queues=1) as cluster:
            await test(cluster)

    run(main())


def test_a_failed_pull_is_seen_and_repeated() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        cluster.broker.on[PULL] = lambda conn, c: answer(16, remark="not now")
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=got.append)
            error = await until(lambda: consumer.last_error)
            assert "answer 16" in str(error)
            del cluster.broker.on[PULL]
            await until(lambda: len(got) == 10 and consumer.last_error is None)

    flow(test, 10)


def test_pulls_under_flow_control_are_repeated_soon() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        refusals = iter(range(4))

        def handle(conn: Connection, command: Command) -> Any:
            if next(refusals, None) is not None:
                return answer(215, remark="flow control")
            return cluster.broker.pull(conn, command)

        cluster.broker.on[PULL] = handle
        async with consumer_of(cluster, error_delay=60) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 10)

    flow(test, 10)


def test_a_broker_that_forgot_the_group_gets_a_heartbeat() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        forgot = asyncio.Event()

        def handle(conn: Connection, command: Command) -> Any:
            if not forgot.is_set():
                forgot.set()
                cluster.broker.heartbeats.clear()
                return answer(24, remark="no subscription")
            return cluster.broker.pull(conn, command)

        cluster.broker.on[PULL] = handle
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 10)
            assert cluster.broker.heartbeats

    flow(test, 10)


def test_it_comes_back_after_the_connection_is_lost() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 10)
            for conn in list(cluster.broker.server.connections):
                conn.abort()
            put(cluster, 10)
            await until(lambda: len(got) == 11)

    flow(test, 10)


def test_heartbeats_carry_group_subscription_and_start() -> None:
    async def test(cluster: FakeCluster) -> None:
        async with consumer_of(cluster, consume_from="last") as consumer:
            consumer.subscribe("T", "A || B", print)
            heartbeat = await until(
                lambda: [h for h in cluster.broker.heartbeats if len(h.consumers[0].subscriptions) == 2]
            )
            (data,) = heartbeat[0].consumers
            assert heartbeat[0].client_id == consumer.client_id
            assert data.group == "g"
            assert data.consume_from_where == "CONSUME_FROM_LAST_OFFSET"
            assert {s.topic: s.tags for s in data.subscriptions} == {
                "T": {"A", "B"},
                "%RETRY%g": frozenset(),
            }
        goodbye = cluster.broker.requests(RequestCode.UNREGISTER_CLIENT)[-1]
        assert goodbye.ext["consumerGroup"] == "g"

    flow(test)


def test_pulls_commit_on_the_way() -> None:
    async def test(cluster: FakeCluster) -> None:
        async with consumer_of(cluster, persist_interval=3600) as consumer:
            consumer.subscribe("T", handler=lambda m: None)
            await until(lambda: consumer.lag and sum(consumer.lag.values()) == 0)
            for number in range(10, 20):
                put(cluster, number)
                await asyncio.sleep(0.005)
            await until(lambda: sum(committed(cluster).values()) >= 10)

    flow(test, 10)


def test_closing_waits_for_handlers_and_commits_their_work() -> None:
    async def test(cluster: FakeCluster) -> None:
        running, go = threading.Event(), threading.Event()

        def handle(message: ReceivedMessage) -> None:
            running.set()
            go.wait(20)

        consumer = consumer_of(cluster, threads=1, persist_interval=3600)
        consumer.subscribe("T", handler=handle)
        await consumer.start()
        await until(running.is_set)
        closing = asyncio.create_task(consumer.close())
        await until(lambda: consumer.state is State.CLOSING)
        go.set()
        await closing
        assert sum(committed(cluster).values()) == 1, "one handled, the others were not started"
        assert consumer.state is State.CLOSED
        await consumer.close()

    flow(test, 10)


def test_closing_is_bounded_when_a_handler_hangs() -> None:
    async def test(cluster: FakeCluster) -> None:
        running = asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            running.set()
            await asyncio.sleep(3600)

        consumer = consumer_of(cluster, close_timeout=0.05)
        consumer.subscribe("T", handler=handle)
        await consumer.start()
        await running.wait()
        await consumer.close()
        assert committed(cluster) == {}

    flow(test, 1)


def test_closing_is_bounded_when_brokers_are_silent() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        consumer = consumer_of(cluster, close_timeout=0.2)
        consumer.subscribe("T", handler=got.append)
        await consumer.start()
        await until(lambda: len(got) == 2)
        for code in (RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.UNREGISTER_CLIENT):
            cluster.broker.on[code] = lambda conn, c: asyncio.sleep(1)
        await consumer.close()
        assert consumer.state is State.CLOSED

    flow(test, 2)


def test_closing_ends_iteration_and_waiting() -> None:
    async def test(cluster: FakeCluster) -> None:
        consumer = consumer_of(cluster)
        consumer.subscribe("T")
        await consumer.start()

        async def read() -> int:
            return len([message async for message in consumer])

        reading, waiting = asyncio.create_task(read()), asyncio.create_task(consumer.wait())
        await until(lambda: consumer.assignment)
        await consumer.close()
        assert await reading == 0
        await waiting

    flow(test)


def test_a_dead_background_task_reaches_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    async def test(cluster: FakeCluster) -> None:
        monkeypatch.setattr("sparrowmq.client.pulling.decode_messages", broken)
        consumer = consumer_of(cluster)
        consumer.subscribe("T")
        await consumer.start()
        with pytest.raises(
            ClientError, match=r"background task 'pull T/broker-a/\d' died: ZeroDivisionError"
        ):
            async for _ in consumer:
                pytest.fail("nothing can come")
        assert consumer.state is State.FAILED
        assert consumer.failure is not None
        with pytest.raises(ClientError, match="died"):
            await consumer.wait()
        await consumer.close()
        assert consumer.state is State.CLOSED

    flow(test, 2)


def test_a_failure_nobody_saw_is_raised_by_close(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    async def test(cluster: FakeCluster) -> None:
        monkeypatch.setattr("sparrowmq.client.pulling.decode_messages", broken)
        with pytest.raises(ClientError, match="died") as caught:
            async with consumer_of(cluster) as consumer:
                consumer.subscribe("T", handler=print)
                await until(lambda: consumer.state is State.FAILED)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        with pytest.raises(KeyError):
            async with consumer_of(cluster) as consumer:
                consumer.subscribe("T", handler=print)
                await until(lambda: consumer.state is State.FAILED)
                raise KeyError("the user's own")

    flow(test, 2)


def test_a_broken_record_stops_neither_consumer_nor_other_queues() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        cluster.broker.queues["T", 0][0] = b"not a record"
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 5)
            error = await until(lambda: consumer.last_error)
            assert "record" in str(error)
            assert consumer.state is State.RUNNING

    flow(test, 10)


def test_the_life_of_a_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARROW_NAMESRV", raising=False)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    async def main() -> None:
        consumer = PushConsumer("g")
        assert (consumer.state, consumer.lag, consumer.assignment) == (State.CREATED, {}, [])
        assert (consumer.last_poll, consumer.last_error, consumer.failure) == (None, None, None)
        assert "created" in repr(consumer)
        with pytest.raises(InvalidStateError, match="start it first"):
            aiter(consumer)
        with pytest.raises(InvalidStateError):
            await consumer.wait()
        with pytest.raises(NoNameServerError):
            await consumer.start()
        assert consumer.state is State.FAILED
        await consumer.close()
        assert consumer.state is State.CLOSED
        with pytest.raises(InvalidStateError):
            await consumer.start()
        unused = PushConsumer("g")
        await unused.close()
        assert unused.state is State.CLOSED
        unreachable = PushConsumer("g", namesrv=f"127.0.0.1:{free_port()}")
        with pytest.raises(ConnectError):
            await unreachable.start()
        await unreachable.close()

    run(main())


def test_bad_groups_topics_and_expressions() -> None:
    with pytest.raises(InvalidNameError):
        PushConsumer("DEFAULT_CONSUMER")
    consumer = PushConsumer("g")
    with pytest.raises(InvalidNameError):
        consumer.subscribe("a b")
    with pytest.raises(InvalidExpressionError):
        consumer.subscribe("T", "||")


def test_arguments_override_settings() -> None:
    consumer = PushConsumer("g", namesrv="b:2", threads=3, batch=2, settings=ConsumerSettings(namesrv="a:1"))
    assert (consumer.settings.namesrv, consumer.settings.threads, consumer.settings.batch) == ("b:2", 3, 2)
