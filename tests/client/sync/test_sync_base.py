"""The synchronous classes with a scripted cluster that runs on a separate loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.client.fake import FakeCluster, answer, fake_cluster
from tests.support import about, until_sync

import sparrowmq as mq
from sparrowmq.loops.event_loop import loop_thread
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.connection import Connection

SEND = int(RequestCode.SEND_MESSAGE_V2)
FAST = mq.ConsumerSettings(
    consume_from="first", rebalance_interval_min=0.01, persist_interval=0.02, redeliver_delay=0.02
)


@contextmanager
def cluster_thread(*topics: str) -> Iterator[FakeCluster]:
    """A scripted cluster on a thread with a loop."""
    ready: concurrent.futures.Future[FakeCluster] = concurrent.futures.Future()
    done = asyncio.Event()
    loop: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loop.append(asyncio.get_running_loop())
        async with fake_cluster(*topics, queues=2) as cluster:
            ready.set_result(cluster)
            await done.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        yield ready.result(20)
    finally:
        loop[0].call_soon_threadsafe(done.set)
        thread.join(20)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with cluster_thread("T") as cluster:
        yield cluster


def consumer_of(cluster: FakeCluster, group: str = "g", **changes: Any) -> mq.PushConsumer:
    return mq.PushConsumer(group, namesrv=cluster.namesrv, settings=replace(FAST, **changes))


def committed(cluster: FakeCluster) -> int:
    return sum(offset for (_, topic, _), offset in cluster.broker.offsets.items() if topic == "T")


def test_sends_of_every_kind_succeed(cluster: FakeCluster) -> None:
    with mq.Producer("p", namesrv=cluster.namesrv) as producer:
        assert producer.send(mq.Message("T", b"1")).status is mq.SendStatus.SEND_OK
        queue = mq.MessageQueue("T", "broker-a", 1)
        assert producer.send(mq.Message("T", b"2"), queue=queue).queue == queue
        assert producer.send(mq.Message("T", b"3"), hash_key="k").queue.topic == "T"
        assert producer.send_batch([mq.Message("T", b"4"), mq.Message("T", b"5")]).queue_offset >= 0
        producer.send_oneway(mq.Message("T", b"6"))
        assert producer.queues("T") == [mq.MessageQueue("T", "broker-a", 0), queue]
        assert producer.state is mq.State.RUNNING
        assert producer.in_flight == 0
        assert "sent=5" in repr(producer)
        until_sync(lambda: sum(map(len, cluster.broker.queues.values())) == 6)
    producer.close()
    assert "closed" in repr(producer)


def test_many_threads_share_a_producer(cluster: FakeCluster) -> None:
    with mq.Producer("p", namesrv=cluster.namesrv) as producer:

        def work(number: int) -> list[mq.SendResult]:
            return [producer.send(mq.Message("T", b"%d" % number)) for _ in range(20)]

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            results = [result for found in pool.map(work, range(8)) for result in found]
        assert len({(r.queue, r.queue_offset) for r in results}) == 160


def test_sends_return_futures(cluster: FakeCluster) -> None:
    with mq.Producer("p", namesrv=cluster.namesrv) as producer:
        futures = [producer.send_async(mq.Message("T", b"%d" % n)) for n in range(100)]
        producer.flush(20)
        assert producer.in_flight == 0 and all(f.done() for f in futures)
        assert len({f.result(20).message_id for f in futures}) == 100
        assert not futures[0].cancel()
        with pytest.raises(mq.InvalidMessageError):
            producer.send_async(mq.Message("T", b"")).result(20)
        with pytest.raises(mq.NoRouteError):
            producer.send_async(mq.Message("Nowhere", b"x")).result(20)


def test_errors_of_sends_reach_the_caller(cluster: FakeCluster) -> None:
    with mq.Producer("p", namesrv=cluster.namesrv) as producer:
        with pytest.raises(mq.InvalidMessageError):
            producer.send(mq.Message("T", b""))
        cluster.broker.on[SEND] = lambda conn, c: answer(13, remark="illegal")
        with pytest.raises(mq.BrokerError, check=about(code=13, remark="illegal")):
            producer.send(mq.Message("T", b"x"))
    with pytest.raises(mq.InvalidStateError, check=about(what="running", value="closed")):
        producer.send(mq.Message("T", b"x"))
    with pytest.raises(mq.InvalidStateError, check=about(what="running", value="closed")):
        producer.send_async(mq.Message("T", b"x")).result(20)


def test_number_of_futures_is_bounded(cluster: FakeCluster) -> None:
    go = asyncio.Event()

    async def held(conn: Connection, command: Command) -> Command:
        await go.wait()
        return cluster.broker.send(conn, command)

    settings = mq.ProducerSettings(namesrv=cluster.namesrv, in_flight_max=2)
    with mq.Producer("p", settings=settings) as producer:
        producer.send(mq.Message("T", b"warm"))
        cluster.broker.on[SEND] = held
        futures = [producer.send_async(mq.Message("T", b"x")) for _ in range(2)]
        with pytest.raises(mq.NoRoomError, check=about(limit=2)):
            producer.send_async(mq.Message("T", b"x"), timeout=0.01)
        cluster.name_server._listener.get_loop().call_soon_threadsafe(go.set)
        assert all(f.result(20).status is mq.SendStatus.SEND_OK for f in futures)


def test_handlers_run_in_threads_and_may_send(cluster: FakeCluster) -> None:
    got: list[bytes] = []
    with mq.Producer("p", namesrv=cluster.namesrv) as producer, consumer_of(cluster) as consumer:

        def handle(message: mq.ReceivedMessage) -> None:
            if message.topic == "T":
                producer.send(mq.Message("T", b"answer"))
            got.append(message.body)

        consumer.subscribe("T", handler=lambda m: handle(m) if m.body == b"question" else got.append(m.body))
        producer.send(mq.Message("T", b"question"))
        until_sync(lambda: sorted(got) == [b"answer", b"question"])
        until_sync(lambda: consumer.lag and sum(consumer.lag.values()) == 0)
        assert consumer.last_poll is not None
        assert len([q for q in consumer.assignment if q.topic == "T"]) == 2


def test_async_handler_cannot_use_the_synchronous_classes(cluster: FakeCluster) -> None:
    errors: list[Exception] = []
    with mq.Producer("p", namesrv=cluster.namesrv) as producer, consumer_of(cluster) as consumer:

        async def handle(message: mq.ReceivedMessage) -> None:
            for call in (producer.send, producer.send_async):
                try:
                    call(mq.Message("T", b"x"))
                except mq.InvalidStateError as error:
                    errors.append(error)
            assert producer.state is mq.State.RUNNING, "what needs no waiting may be asked"

        consumer.subscribe("T", handler=handle)
        producer.send(mq.Message("T", b"question"))
        until_sync(lambda: len(errors) == 2)
        assert "own loop" in str(errors[0])
        until_sync(lambda: committed(cluster) == 1)


def test_consumer_can_be_iterated(cluster: FakeCluster) -> None:
    with mq.Producer("p", namesrv=cluster.namesrv) as producer:
        for number in range(50):
            producer.send(mq.Message("T", b"%d" % number))
    got = []
    with consumer_of(cluster) as consumer:
        consumer.subscribe("T")
        for message in consumer:
            got.append(int(message.body))
            assert message.ack()
            assert not message.ack()
            if len(got) == 50:
                break
        until_sync(lambda: committed(cluster) == 50)
    assert sorted(got) == list(range(50))


def test_leaving_the_loop_returns_unsettled_messages(cluster: FakeCluster) -> None:
    with mq.Producer("p", namesrv=cluster.namesrv) as producer:
        for number in range(10):
            producer.send(mq.Message("T", b"%d" % number), queue=mq.MessageQueue("T", "broker-a", 0))
    with consumer_of(cluster) as consumer:
        consumer.subscribe("T")
        first: list[Any] = []
        for message in consumer:
            first.append(message)
            if len(first) == 3:
                break
        assert not first[0].ack()
        again = []
        for message in consumer:
            again.append(int(message.body))
            message.ack()
            if len(again) == 10:
                break
        assert again == list(range(10))


@pytest.mark.parametrize("kind", [mq.PushConsumer, mq.Consumer])
def test_loops_inside_each_other_share_what_was_fetched(
    cluster: FakeCluster, kind: type[mq.PushConsumer | mq.Consumer]
) -> None:
    """The inner loop would wait for messages that the outer one holds; closing would wait for them, too."""
    with mq.Producer("p", namesrv=cluster.namesrv) as producer:
        for number in range(4):
            producer.send(mq.Message("T", b"%d" % number), queue=mq.MessageQueue("T", "broker-a", 0))
    with kind("g", namesrv=cluster.namesrv, settings=FAST) as consumer:
        consumer.subscribe("T")
        bodies = set()
        for first in consumer:
            bodies.add(first.body)
            for second in consumer:
                bodies.add(second.body)
                if len(bodies) >= 3:
                    break
            if len(bodies) >= 3:
                consumer.close()
    assert len(bodies) == 3


def test_message_may_be_retried_manually(cluster: FakeCluster) -> None:
    with mq.Producer("p", namesrv=cluster.namesrv) as producer:
        producer.send(mq.Message("T", b"x"))
    times = []
    with consumer_of(cluster) as consumer:
        consumer.subscribe("T")
        for message in consumer:
            times.append(message.reconsume_times)
            if len(times) < 3:
                message.retry()
                continue
            message.ack()
            break
    assert times == [0, 1, 2]


def test_closing_from_another_thread_ends_the_loop(cluster: FakeCluster) -> None:
    consumer = consumer_of(cluster)
    consumer.subscribe("T")
    consumer.start()
    waiting = threading.Thread(target=consumer.wait)
    waiting.start()
    closer = threading.Timer(0.02, consumer.close)
    closer.start()
    assert list(consumer) == []
    waiting.join(20)
    closer.join(20)
    assert consumer.state is mq.State.CLOSED


def test_signal_ends_iteration_after_the_current_message(cluster: FakeCluster) -> None:
    with mq.Producer("p", namesrv=cluster.namesrv) as producer:
        for number in range(10):
            producer.send(mq.Message("T", b"%d" % number), queue=mq.MessageQueue("T", "broker-a", 0))
    before = signal.getsignal(signal.SIGUSR1)
    got = []
    with consumer_of(cluster) as consumer:
        consumer.subscribe("T")
        consumer.close_on_signals(signal.SIGUSR1)
        for message in consumer:  # all ten were fetched at once
            signal.raise_signal(signal.SIGUSR1)
            until_sync(lambda: consumer.state is mq.State.CLOSING)
            got.append(int(message.body))
            assert message.ack()
    assert got == [0]
    assert consumer.state is mq.State.CLOSED
    assert committed(cluster) == 1
    signal.signal(signal.SIGUSR1, before)


def test_closing_in_its_own_loop_does_not_wait(cluster: FakeCluster) -> None:
    with mq.Producer("p", namesrv=cluster.namesrv) as producer:
        producer.send(mq.Message("T", b"x"))
    with consumer_of(cluster, close_timeout=3600) as consumer:
        consumer.subscribe("T")
        for message in consumer:
            consumer.close()
            assert not message.ack()
    assert consumer.state is mq.State.CLOSED


def test_admin_and_pull_consumer_work(cluster: FakeCluster) -> None:
    with mq.Admin(cluster.namesrv) as admin:
        admin.topics.create("New", 3)
        assert admin.topics.list() == ["New", "T"]
    with mq.PullConsumer("g", namesrv=cluster.namesrv) as consumer:
        queue = consumer.queues("New")[0]
        assert consumer.fetch_raw(queue, 0).count == 0
        consumer.commit(queue, 0)
        assert consumer.committed(queue) == 0


def test_pull_consumer_is_iterated(cluster: FakeCluster) -> None:
    for number in range(5):
        cluster.broker.store("T", 0, b"%d" % number)
    seen = []
    with mq.PullConsumer("g", namesrv=cluster.namesrv, settings=mq.PullSettings(pull_hold=0.2)) as consumer:
        queue = mq.MessageQueue("T", "broker-a", 0)
        consumer.assign([queue])
        consumer.seek_to_beginning(queue)
        for message in consumer:
            seen.append(message.body)
            if len(seen) == 3:
                assert (consumer.position(queue), consumer.lag) == (3, {queue: 3})
                break
        assert consumer.position(queue) == 2, "the message in hand is delivered again"
    assert seen == [b"0", b"1", b"2"]
    assert cluster.broker.offsets["g", "T", 0] == 2, "the last one was in hand"


def test_interrupt_while_waiting_cancels_the_call() -> None:
    started, cancelled = threading.Event(), threading.Event()
    main = threading.get_ident()

    async def waits() -> None:
        started.set()
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()

    def interrupt() -> None:
        started.wait(20)
        until_sync(lambda: sys._current_frames()[main].f_code.co_name == "wait")
        signal.pthread_kill(main, signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        loop_thread().run(waits())
    interrupter.join()
    assert cancelled.wait(20)


@pytest.mark.parametrize("make", [mq.Producer, mq.PushConsumer])
def test_invalid_arguments_are_refused_at_once(make: Any) -> None:
    with pytest.raises(mq.InvalidNameError):
        make("a b")
