"""A push consumer's life cycle: handlers, iteration, closing, errors that reach the user."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest
from tests.client.consuming import (
    committed,
    consumer_of,
    flow,
    numbers,
    put,
)
from tests.client.fake import FakeCluster, never
from tests.support import about, free_port, run, until

from sparrowmq.client.base.lifecycle import State
from sparrowmq.client.base.settings import ConsumerSettings
from sparrowmq.client.push.message_stream import DeliveredMessage
from sparrowmq.client.push.push_consumer import PushConsumer
from sparrowmq.core.errors import (
    ClientError,
    ConnectError,
    InvalidExpressionError,
    InvalidNameError,
    InvalidStateError,
    NoNameServerError,
)
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.connection import Connection


@pytest.mark.proves("MUST-02", "client:A-36", "client:D-55")
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


def test_second_start_continues_where_the_first_stopped() -> None:
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


def test_iteration_delivers_and_settles_messages() -> None:
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


def test_unacknowledged_messages_are_not_committed() -> None:
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


@pytest.mark.proves("client:D.14", "client:D-85", "client:A-95")
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


@pytest.mark.parametrize("ordered", [False, True])
def test_closing_waits_for_iterators_and_commits_their_work(ordered: bool) -> None:
    async def test(cluster: FakeCluster) -> None:
        begun, go, acked = asyncio.Event(), asyncio.Event(), list[bool]()

        async def work(consumer: PushConsumer) -> None:
            async for message in consumer:
                begun.set()
                await go.wait()
                acked.append(await message.ack())

        consumer = consumer_of(cluster, persist_interval=3600, ordered=ordered)
        consumer.subscribe("T")
        async with consumer:
            working = asyncio.create_task(work(consumer))
            await begun.wait()
            closing = asyncio.create_task(consumer.close())
            await until(lambda: consumer.state is State.CLOSING)
            second = asyncio.create_task(consumer.close())
            await asyncio.sleep(0)
            assert not second.done(), "it waits for the first"
            go.set()
            await asyncio.gather(closing, second, working)
        assert acked == [True]
        assert sum(committed(cluster).values()) == 1

    flow(test, 10, queues=1)


def test_closing_inside_its_own_loop_does_not_wait_for_it() -> None:
    async def test(cluster: FakeCluster) -> None:
        consumer = consumer_of(cluster, close_timeout=3600)
        consumer.subscribe("T")
        async with consumer:
            async for message in consumer:
                await consumer.close()
                assert not await message.ack()
        assert not any(committed(cluster).values())

    flow(test, 3)


def test_signal_closes_and_ends_waiting() -> None:
    async def test(cluster: FakeCluster) -> None:
        before = signal.getsignal(signal.SIGUSR1)
        got: list[ReceivedMessage] = []
        consumer = consumer_of(cluster)
        consumer.subscribe("T", handler=got.append)
        with pytest.raises(InvalidStateError, check=about(what="running", value="created")):
            consumer.close_on_signals(signal.SIGUSR1)
        async with consumer:
            consumer.close_on_signals(signal.SIGUSR1)
            await until(lambda: len(got) == 4)
            signal.raise_signal(signal.SIGUSR1)
            await consumer.wait()
            assert consumer.state is State.CLOSED
            await consumer.wait()
            assert [message async for message in consumer] == []
        assert signal.getsignal(signal.SIGUSR1) == before
        assert sum(committed(cluster).values()) == 4

    flow(test, 4)


@pytest.mark.proves("client:D-84")
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
        assert not any(committed(cluster).values())

    flow(test, 1)


def test_closing_waits_for_a_running_start() -> None:
    async def test(cluster: FakeCluster) -> None:
        asked, answers = asyncio.Event(), asyncio.Event()

        async def route(conn: Connection, command: Command) -> Command:
            asked.set()
            await answers.wait()
            return cluster.route(conn, command)

        cluster.on[RequestCode.GET_ROUTEINFO_BY_TOPIC] = route
        consumer = consumer_of(cluster)
        consumer.subscribe("T", handler=print)
        starting = asyncio.create_task(consumer.start())
        await asked.wait()
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        answers.set()
        await asyncio.gather(starting, closing)
        assert consumer.state is State.CLOSED
        await until(lambda: not cluster.broker.server.connections)

    flow(test)


def test_closing_is_bounded_when_brokers_are_silent() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        consumer = consumer_of(cluster, close_timeout=0.2)
        consumer.subscribe("T", handler=got.append)
        await consumer.start()
        await until(lambda: len(got) == 2)
        for code in (RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.UNREGISTER_CLIENT):
            cluster.broker.on[code] = never
        await consumer.close()
        assert consumer.state is State.CLOSED

    flow(test, 2)


def test_cancelled_close_leaves_no_member_behind() -> None:
    async def test(cluster: FakeCluster) -> None:
        running = asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            running.set()
            await asyncio.sleep(3600)

        consumer = consumer_of(cluster, close_timeout=3600)
        consumer.subscribe("T", handler=handle)
        await consumer.start()
        await running.wait()
        closing = asyncio.create_task(consumer.close())
        await until(lambda: consumer.state is State.CLOSING)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert consumer.state is State.CLOSED
        await until(lambda: not cluster.broker.server.connections)

    flow(test, 1)


def test_failed_consumer_leaves_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    async def test(cluster: FakeCluster) -> None:
        monkeypatch.setattr("sparrowmq.client.consumer.pull_loop.decode_messages", broken)
        consumer = consumer_of(cluster)
        consumer.subscribe("T", handler=print)
        await consumer.start()
        await until(lambda: consumer.state is State.FAILED)
        await until(lambda: not cluster.broker.server.connections)
        assert consumer.assignment == []
        with pytest.raises(ClientError, check=about(what="task")):
            await consumer.close()

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


def test_dead_background_task_reaches_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    async def test(cluster: FakeCluster) -> None:
        monkeypatch.setattr("sparrowmq.client.consumer.pull_loop.decode_messages", broken)
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
        with pytest.raises(ClientError, check=about(what="task")):
            await consumer.wait()
        await consumer.close()
        assert consumer.state is State.CLOSED

    flow(test, 2)


def test_close_raises_a_failure_that_was_not_raised_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    async def test(cluster: FakeCluster) -> None:
        monkeypatch.setattr("sparrowmq.client.consumer.pull_loop.decode_messages", broken)
        with pytest.raises(ClientError, check=about(what="task")) as caught:
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


@pytest.mark.proves("client:A-29", "MUST-04")
def test_consumer_starts_and_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARROW_NAMESRV", raising=False)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    async def main() -> None:
        consumer = PushConsumer("g")
        assert (consumer.state, consumer.lag, consumer.assignment) == (State.CREATED, {}, [])
        assert (consumer.last_poll, consumer.last_error, consumer.failure) == (None, None, None)
        assert "created" in repr(consumer)
        with pytest.raises(InvalidStateError, check=about(what="running", value="created")):
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


@pytest.mark.proves("client:D.2-1", "MUST-05")
def test_invalid_groups_topics_and_expressions_are_refused() -> None:
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


@pytest.mark.proves("client:A-05", "client:A-06")
def test_only_broadcasting_has_the_same_instance_name_after_each_start() -> None:
    """The path of its offset file contains the name; other consumers get a new name each time."""
    names = [
        PushConsumer("g", namesrv="a:1", model="broadcasting").settings.instance_name,
        PushConsumer("g", namesrv="a:1").settings.instance_name,
        PushConsumer(
            "g", model="broadcasting", settings=ConsumerSettings(instance_name="mine")
        ).settings.instance_name,
    ]
    assert names == ["DEFAULT", None, "mine"]
