"""Ordered consumption: one handler per queue, in order, through failures, locks and rebalances."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.client import churn
from tests.client.churn import SimCluster, run_virtually, virtual_time
from tests.client.consuming import PULL, SEND_BACK, committed, consumer_of, flow, numbers, put
from tests.client.fake import BROKER, FakeCluster, answer, fake_cluster, never
from tests.support import run, until

from sparrowmq.client.base.lifecycle import State
from sparrowmq.client.base.settings import ConsumerSettings
from sparrowmq.client.consumer.lazy_message import LazyMessage
from sparrowmq.client.consumer.outcomes import ConsumeResult, Retry
from sparrowmq.client.consumer.queue_states import OrderedRun
from sparrowmq.client.push.push_consumer import PushConsumer
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.protocol import bodies, headers
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command

ORDERED: dict[str, Any] = {"ordered": True, "suspend_time": 0.01, "lock_interval": 0.05}


def offsets(messages: list[ReceivedMessage], queue_id: int = 0) -> list[int]:
    return [m.queue_offset for m in messages if m.queue.queue_id == queue_id]


def without_commits(cluster: FakeCluster) -> Any:
    """A broker whose pulls commit nothing."""

    async def pull(conn: Any, command: Command) -> Command:
        command.ext["sysFlag"] = str(int(command.ext["sysFlag"]) & ~1)
        return await cluster.broker.pull(conn, command)

    return pull


def waiting_message(queue: MessageQueue) -> LazyMessage:
    return LazyMessage(queue, 0, 0, "T", b"stale", {}, 0, 0, 0, "", 0, "", 0, 0, 0, "")


def t_queues(consumer: PushConsumer) -> list[MessageQueue]:
    return [queue for queue in consumer.assignment if queue.topic == "T"]


@pytest.mark.proves("client:D-62", "MUST-40", "MUST-41")
@pytest.mark.parametrize("kind", ["plain", "async", "iterating"])
def test_each_queue_is_handled_in_order_one_at_a_time(kind: str) -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        running: set[int] = set()
        lock = threading.Lock()

        def note(message: ReceivedMessage) -> None:
            with lock:
                assert message.queue.queue_id not in running, "two handlers at one queue"
                running.add(message.queue.queue_id)
                got.append(message)
            with lock:
                running.discard(message.queue.queue_id)

        async def note_async(message: ReceivedMessage) -> None:
            assert message.queue.queue_id not in running
            running.add(message.queue.queue_id)
            await asyncio.sleep(0)
            got.append(message)
            running.discard(message.queue.queue_id)

        async with consumer_of(cluster, **ORDERED) as consumer:
            if kind == "iterating":
                consumer.subscribe("T")
                async for message in consumer:
                    got.append(message)
                    await message.ack()
                    if len(got) == 200:
                        break
            else:
                consumer.subscribe("T", handler=note if kind == "plain" else note_async)
            await until(lambda: len(got) == 200)
            assert offsets(got, 0) == offsets(got, 1) == list(range(100))
        assert committed(cluster) == {0: 100, 1: 100}
        assert cluster.broker.locks == {}, "unlocked when it left (client:D-68)"

    flow(test, 200)


@pytest.mark.proves("client:D-63", "client:D-64", "MUST-42")
@pytest.mark.parametrize("is_async", [False, True])
def test_failure_stops_its_queue_until_it_succeeds(is_async: bool) -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[tuple[int, int]] = []

        def handle(message: ReceivedMessage) -> None:
            got.append((message.queue_offset, message.reconsume_times))
            if message.queue_offset == 3 and message.reconsume_times < 2:
                raise ValueError("not yet")

        async def handle_async(message: ReceivedMessage) -> None:
            handle(message)

        async with consumer_of(cluster, **ORDERED) as consumer:
            consumer.subscribe("T", handler=handle_async if is_async else handle)
            await until(lambda: committed(cluster) == {0: 6})
        assert got == [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1), (3, 2), (4, 0), (5, 0)]
        assert cluster.broker.requests(SEND_BACK) == []

    flow(test, 6, queues=1)


@pytest.mark.proves("client:D-50", "client:D-64")
def test_batch_result_says_how_many_succeeded() -> None:
    async def test(cluster: FakeCluster) -> None:
        calls: list[list[int]] = []

        def handle(messages: list[ReceivedMessage]) -> None:
            calls.append([m.queue_offset for m in messages])
            if len(calls) == 1:
                raise Retry(done=2, after=0.01)

        async with consumer_of(cluster, batch=4, **ORDERED) as consumer:
            consumer.subscribe("T", handler=handle)
            await until(lambda: committed(cluster) == {0: 6})
        assert calls == [[0, 1, 2, 3], [2, 3, 4, 5]]

    flow(test, 6, queues=1)


@pytest.mark.proves("client:D-64", "MUST-64")
def test_message_that_failed_too_often_goes_to_the_retry_topic_and_is_skipped() -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.takes_retries = True
        got: list[int] = []

        def handle(message: ReceivedMessage) -> None:
            got.append(message.queue_offset)
            if message.queue_offset == 1 and message.topic == "T" and message.queue.topic == "T":
                raise ValueError("never")

        async with consumer_of(cluster, max_reconsume_times=2, **ORDERED) as consumer:
            consumer.subscribe("T", handler=handle)
            await until(lambda: committed(cluster) == {0: 3})
        assert got[:5] == [0, 1, 1, 1, 2]
        sends = [headers.send_from_v2(c.ext) for c in cluster.broker.requests(RequestCode.SEND_MESSAGE_V2)]
        (sent,) = [header for header in sends if header.topic == "%RETRY%g"]
        assert (sent.reconsume_times, sent.max_reconsume_times) == (3, 2)
        assert "RETRY_TOPIC\x01T\x02" in (sent.properties or "")

    flow(test, 3, queues=1)


def test_no_message_of_a_batch_overtakes_an_unfinished_one() -> None:
    async def test(cluster: FakeCluster) -> None:
        calls: list[list[int]] = []
        answers = [answer(), answer(1, remark="not now")]
        cluster.broker.on[SEND_BACK] = lambda conn, c: answers.pop(0) if answers else answer()

        def handle(messages: list[ReceivedMessage]) -> None:
            calls.append([message.queue_offset for message in messages])
            if messages[0].queue_offset < 3:
                raise Retry(dead=True)

        async with consumer_of(cluster, batch=3, **ORDERED) as consumer:
            consumer.subscribe("T", handler=handle)
            await until(lambda: committed(cluster) == {0: 6})
        assert calls == [[0, 1, 2], [1, 2, 3], [4, 5]]
        assert len(cluster.broker.requests(SEND_BACK)) == 5

    flow(test, 6, queues=1)


@pytest.mark.parametrize("refusals", [0, 2])
def test_handler_makes_a_message_a_dead_letter_and_its_queue_continues(refusals: int) -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[int] = []
        left = [answer(1, remark="not now")] * refusals
        cluster.broker.on[SEND_BACK] = lambda conn, c: left.pop() if left else answer()

        def handle(message: ReceivedMessage) -> None:
            got.append(message.queue_offset)
            if message.queue_offset == 1:
                raise Retry(dead=True)

        async with consumer_of(cluster, **ORDERED) as consumer:
            consumer.subscribe("T", handler=handle)
            await until(lambda: committed(cluster) == {0: 3})
        assert got == [0, *[1] * (refusals + 1), 2], "until the broker took it, nothing passes it"
        requests = cluster.broker.requests(SEND_BACK)
        assert [request.ext["delayLevel"] for request in requests] == ["-1"] * (refusals + 1)
        assert cluster.broker.requests(RequestCode.SEND_MESSAGE_V2) == [], "no copy that would come again"

    flow(test, 3, queues=1)


@pytest.mark.proves("client:D-66", "client:D-36", "MUST-42")
def test_handler_may_commit_and_roll_back() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[int] = []
        rolled_back = False

        def handle(message: ReceivedMessage) -> ConsumeResult | None:
            nonlocal rolled_back
            got.append(message.queue_offset)
            if message.queue_offset == 2 and not rolled_back:
                rolled_back = True
                return ConsumeResult.ROLLBACK
            return ConsumeResult.COMMIT if message.queue_offset in (0, 4) else None

        async with consumer_of(cluster, auto_commit=False, **ORDERED) as consumer:
            consumer.subscribe("T", handler=handle)
            await until(lambda: len(got) == 8)
            await until(lambda: committed(cluster) == {0: 5})
            assert got == [0, 1, 2, 1, 2, 3, 4, 5]
        assert committed(cluster) == {0: 5}, "the last one was not committed"

    flow(test, 6, queues=1)


@pytest.mark.proves("client:D-66")
def test_with_auto_commit_these_results_are_successes() -> None:
    async def test(cluster: FakeCluster) -> None:
        async with consumer_of(cluster, **ORDERED) as consumer:
            consumer.subscribe("T", handler=lambda m: ConsumeResult.ROLLBACK)
            await until(lambda: committed(cluster) == {0: 4})

    flow(test, 4, queues=1)


@pytest.mark.proves("client:C-26", "client:D-67")
def test_queue_locked_by_another_member_is_neither_pulled_nor_consumed() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        taken = MessageQueue("T", "broker-a", 1)
        cluster.broker.locks["g", taken] = "somebody"
        async with consumer_of(cluster, **ORDERED) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 5)
            assert t_queues(consumer) == [MessageQueue("T", "broker-a", 0)]
            del cluster.broker.locks["g", taken]
            await until(lambda: len(got) == 10)
        assert offsets(got, 1) == list(range(5))

    flow(test, 10)


@pytest.mark.proves("client:C-27", "client:C-31", "client:D-67")
def test_lost_lock_stops_the_queue_which_continues_from_the_committed_offset() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        queue = MessageQueue("T", "broker-a", 0)
        async with consumer_of(cluster, **ORDERED) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 3)
            await until(lambda: committed(cluster) == {0: 3})
            cluster.broker.locks["g", queue] = "somebody"
            member = consumer._member
            assert member is not None
            held = member.queues.find(queue)
            assert held is not None
            await until(lambda: not held.locked)
            for number in range(3, 8):
                put(cluster, number, queues=1)
            cluster.broker.offsets["g", "T", 0] = 6  # somebody consumed up to here
            del cluster.broker.locks["g", queue]
            await until(lambda: len(got) == 5)
        assert offsets(got) == [0, 1, 2, 6, 7]
        assert held.dropped, "what was in hand was stale"

    flow(test, 3, queues=1)


@pytest.mark.proves("client:C-20", "client:C-25", "MUST-22")
def test_queue_is_not_released_while_its_handler_runs() -> None:
    async def test(cluster: FakeCluster) -> None:
        begun, free = asyncio.Event(), asyncio.Event()
        one_got: list[int] = []
        two_got: list[int] = []

        async def slow(message: ReceivedMessage) -> None:
            begun.set()
            await free.wait()
            one_got.append(message.queue_offset)

        async with consumer_of(cluster, **ORDERED) as one:
            one.subscribe("T", handler=slow)
            await begun.wait()
            async with consumer_of(cluster, client_ip="0.0.0.0", **ORDERED) as two:  # sorts first
                two.subscribe("T", handler=lambda m: two_got.append(m.queue_offset))
                await until(
                    lambda: one._member is not None and one._member.queues.process_queues()[-1].leaving
                )
                assert two_got == []
                free.set()
                await until(lambda: len(two_got) == 4)
        assert one_got == [0], "the handler that ran was the last, and its work counts"
        assert two_got == [1, 2, 3, 4]

    flow(test, 5, queues=1)


def test_messages_of_an_unsubscribed_topic_are_sent_back() -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.on[SEND_BACK] = lambda conn, c: answer()
        from sparrowmq.protocol import properties

        cluster.add_topic("%RETRY%g", 1)
        cluster.broker.store("%RETRY%g", 0, b"1", properties.encode({"RETRY_TOPIC": "Gone"}))
        cluster.broker.store("%RETRY%g", 0, b"2", properties.encode({"RETRY_TOPIC": "T"}))
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster, **ORDERED) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: got)
            (request,) = cluster.broker.requests(SEND_BACK)
        assert request.ext["originTopic"] == "Gone"
        assert numbers(got) == [2]

    flow(test, 0, queues=1)


def test_closing_waits_for_ordered_handlers_and_commits_their_work() -> None:
    async def test(cluster: FakeCluster) -> None:
        begun, free = threading.Event(), threading.Event()

        def slow(message: ReceivedMessage) -> None:
            begun.set()
            free.wait(20)

        consumer = consumer_of(cluster, **ORDERED)
        consumer.subscribe("T", handler=slow)
        await consumer.start()
        await until(begun.is_set)
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        free.set()
        await closing
        assert committed(cluster) == {0: 1}

    flow(test, 5, queues=1)


def test_number_of_queues_handled_at_once_is_limited() -> None:
    async def test(cluster: FakeCluster) -> None:
        at_once, most, done = 0, 0, 0

        async def handle(message: ReceivedMessage) -> None:
            nonlocal at_once, most, done
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0)
            at_once -= 1
            done += 1

        async with consumer_of(cluster, threads=2, **ORDERED) as consumer:
            consumer.subscribe("T", handler=handle)
            await until(lambda: done == 40)
            assert most == 2
            consumer.set_threads(4)
            for number in range(40):
                put(cluster, number, queues=8)
            await until(lambda: done == 80)

    flow(test, 40, queues=8)


@pytest.mark.proves("client:D-60", "MUST-40")
def test_plain_handlers_share_a_pool_and_paused_queues_use_no_thread() -> None:
    async def test(cluster: FakeCluster) -> None:
        names: set[str] = set()
        got: list[ReceivedMessage] = []
        may_succeed = threading.Event()

        def handle(message: ReceivedMessage) -> None:
            names.add(threading.current_thread().name)
            if message.queue.queue_id == 0 and not may_succeed.is_set():
                raise Retry(after=0.01)
            got.append(message)

        async with consumer_of(cluster, threads=1, **ORDERED) as consumer:
            consumer.subscribe("T", handler=handle)
            await until(lambda: len(got) == 15)
            assert {m.queue.queue_id for m in got} == {1, 2, 3}
            may_succeed.set()
            await until(lambda: len(got) == 20)
        assert offsets(got, 0) == list(range(5))
        assert names == {"sparrowmq-g-1"}

    flow(test, 20, queues=4)


@pytest.mark.proves("client:D-65")
def test_commit_sets_the_offset_wherever_it_was() -> None:
    async def test(cluster: FakeCluster) -> None:
        queue = MessageQueue("T", "broker-a", 0)

        async with consumer_of(cluster, **ORDERED) as consumer:
            member = consumer._member
            assert member is not None

            async def handle(message: ReceivedMessage) -> None:
                member._store.set(queue, 100)

            consumer.subscribe("T", handler=handle)
            await until(lambda: committed(cluster) == {0: 3})

    flow(test, 3, queues=1)


@pytest.mark.proves("client:D-68", "client:A-95")
def test_close_drops_paused_messages_waits_for_the_pool_and_unlocks() -> None:
    async def test(cluster: FakeCluster) -> None:
        told: list[str] = []
        rested, begun, free = threading.Event(), threading.Event(), threading.Event()

        def handle(message: ReceivedMessage) -> None:
            if message.queue.queue_id == 0:
                rested.set()
                raise Retry(after=20)
            begun.set()
            free.wait(20)
            told.append("handled")

        def unlock(conn: Any, command: Command) -> Command:
            told.append("one-way" if command.is_oneway else "unlocked")
            return cluster.broker.unlock(conn, command)

        cluster.broker.on[RequestCode.UNLOCK_BATCH_MQ] = unlock
        consumer = consumer_of(cluster, close_timeout=20.0, **ORDERED)
        consumer.subscribe("T", handler=handle)
        await consumer.start()
        await until(lambda: rested.is_set() and begun.is_set())
        assert len(cluster.broker.locks) == 3, "with the retry topic's"
        closing = asyncio.create_task(consumer.close())
        await until(lambda: consumer.state is State.CLOSING)
        assert not closing.done()
        free.set()
        await closing
        assert told == ["handled", "unlocked"]
        assert cluster.broker.locks == {}
        assert committed(cluster) == {0: 0, 1: 1}

    flow(test, 10)


def test_idle_queue_regains_its_lock_soon_after_reconnecting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sparrowmq.client.push.member.LOCK_FIRST_SECONDS", 3600)

    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        values = {**ORDERED, "lock_interval": 25, "persist_interval": 3600}
        async with consumer_of(cluster, **values) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 5)
            member = consumer._member
            assert member is not None
            doubted: list[str] = []
            member.instance.on_lost.append(doubted.append)
            for conn in list(cluster.broker.server.connections):
                conn.abort()
            await until(lambda: cluster.broker.server.address in doubted)
            await until(lambda: not any(held.doubtful for held in member.queues.process_queues()))
        assert committed(cluster) == {0: 5}

    flow(test, 5, queues=1)


@pytest.mark.proves("client:D.11", "client:C-30")
def test_no_handler_begins_after_a_broker_is_lost_until_the_lock_is_renewed() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[int] = []
        begun, free, answers = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            got.append(message.queue_offset)
            begun.set()
            await free.wait()

        async def lock(conn: Any, command: Command) -> Command:
            await answers.wait()
            return cluster.broker.lock(conn, command)

        async with consumer_of(cluster, **{**ORDERED, "lock_interval": 20}) as consumer:
            consumer.subscribe("T", handler=handle)
            await begun.wait()
            await until(lambda: consumer.lag)
            cluster.broker.on[RequestCode.LOCK_BATCH_MQ] = lock
            before = len(cluster.broker.requests(RequestCode.LOCK_BATCH_MQ))
            for conn in list(cluster.broker.server.connections):
                conn.abort()
            member = consumer._member
            assert member is not None
            (held,) = (held for held in member.queues.process_queues() if held.queue.topic == "T")
            await until(lambda: held.doubtful)
            free.set()
            await until(lambda: len(cluster.broker.requests(RequestCode.LOCK_BATCH_MQ)) > before)
            assert (got, held.dropped) == ([0], False)
            answers.set()
            await until(lambda: committed(cluster) == {0: 5})
        assert got == [0, 1, 2, 3, 4], "nobody else had the lock: what was in hand goes on"

    flow(test, 5, queues=1)


def test_acked_messages_are_committed_while_the_next_is_processed() -> None:
    async def test(cluster: FakeCluster) -> None:
        async with consumer_of(cluster, **ORDERED) as consumer:
            consumer.subscribe("T")
            messages: Any = aiter(consumer)
            for _ in range(3):
                assert await (await anext(messages)).ack()
            held = await anext(messages)
            await until(lambda: committed(cluster) == {0: 3})
            assert held.queue_offset == 3
            await messages.aclose()

    flow(test, 5, queues=1)


@pytest.mark.proves("client:D-68")
def test_silent_broker_does_not_delay_unlocking_at_others_on_close() -> None:
    async def main() -> None:
        async with fake_cluster("T", brokers=2, queues=1) as cluster:
            got: list[ReceivedMessage] = []
            first, second = cluster.brokers.values()
            for broker in (first, second):
                broker.store("T", 0, b"1")
            consumer = consumer_of(cluster, **{**ORDERED, "close_timeout": 1.0, "persist_interval": 60})
            consumer.subscribe("T", handler=got.append)
            await consumer.start()
            await until(lambda: len(got) == 2)
            for code in (RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.UNLOCK_BATCH_MQ):
                first.on[code] = never
            await consumer.close()
            assert first.locks
            assert (second.locks, second.offsets["g", "T", 0]) == ({}, 1)
            assert not any(broker.members["g"] for broker in (first, second))

    run(main())


@pytest.mark.proves("client:C-30")
def test_work_done_under_a_lost_lock_is_committed_when_it_is_regained() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        values = {**ORDERED, "lock_interval": 20, "persist_interval": 0.02}
        async with consumer_of(cluster, **values) as consumer:
            cluster.broker.on[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda conn, c: answer()  # lost
            cluster.broker.on[PULL] = without_commits(cluster)
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 5)
            member = consumer._member
            assert member is not None
            (held,) = (held for held in member.queues.process_queues() if held.queue.topic == "T")
            await until(lambda: member._store.get(held.queue) == 5)  # the handler's thread was first
            held.broker_lost()
            await member._persist()  # of the retry topic's queue
            assert member._store.get(held.queue) == 5
            del cluster.broker.on[RequestCode.UPDATE_CONSUMER_OFFSET]
            await member.queues.renew_locks()
            assert (held.doubtful, held.dropped) == (False, False)
            await until(lambda: committed(cluster) == {0: 5})

    flow(test, 5, queues=1)


@pytest.mark.proves("client:D.11", "client:D-27")
@pytest.mark.parametrize("is_async", [True, False])
def test_reassigned_queue_waits_for_its_old_handler(is_async: bool) -> None:
    async def test(cluster: FakeCluster) -> None:
        begun, free = threading.Event(), threading.Event()
        got: list[int] = []

        def handle(message: ReceivedMessage) -> None:
            got.append(message.queue_offset)
            begun.set()
            free.wait(20)

        async def handle_async(message: ReceivedMessage) -> None:
            got.append(message.queue_offset)
            begun.set()
            await until(free.is_set)

        async with consumer_of(cluster, **ORDERED) as consumer:
            consumer.subscribe("T", handler=handle_async if is_async else handle)
            await until(begun.is_set)
            member = consumer._member
            assert member is not None
            (held,) = (held for held in member.queues.process_queues() if held.queue.topic == "T")
            cluster.broker.first["T", 0], cluster.broker.queues["T", 0][:] = 50, []
            put(cluster, 0, queues=1)
            await until(lambda: held.dropped)  # the broker has no such offset any more
            taken = await until(lambda: member.queues.find(held.queue))
            await until(lambda: taken.run is OrderedRun.DUE)  # a run is due
            await asyncio.sleep(0)
            assert got == [0]
            free.set()
            await until(lambda: len(got) == 2)
        assert got == [0, 50]

    flow(test, 3, queues=1)


@pytest.mark.proves("client:C-29")
def test_locks_of_queues_not_taken_again_are_released() -> None:
    async def test(cluster: FakeCluster) -> None:
        async with consumer_of(cluster, **ORDERED) as consumer:
            consumer.subscribe("T", handler=print)
            await until(lambda: len(t_queues(consumer)) == 2)
            member = consumer._member
            assert member is not None
            queue = MessageQueue("T", "broker-a", 1)
            cluster.broker.on[RequestCode.QUERY_CONSUMER_OFFSET] = lambda conn, c: answer(1, remark="no")
            held = member.queues.find(queue)
            assert held is not None
            member.queues._restart(held)  # it cannot be taken: its offset is not known
            await until(lambda: ("g", queue) not in cluster.broker.locks)
            del cluster.broker.on[RequestCode.QUERY_CONSUMER_OFFSET]
            await until(lambda: len(t_queues(consumer)) == 2)
            assert ("g", queue) in cluster.broker.locks

    flow(test)


# In virtual time


def virtual(
    monkeypatch: pytest.MonkeyPatch,
    test: Callable[[SimCluster, PushConsumer], Coroutine[Any, Any, None]],
    handler: Any,
    **values: Any,
) -> None:
    """Run a test with one member that began at second 0."""
    virtual_time(1, monkeypatch)

    async def main() -> None:
        world = SimCluster(random.Random(1))
        given = {
            "namesrv": "10.0.0.1:9876",
            "client_ip": "10.0.0.9",
            "consume_from": "first",
            "ordered": True,
        }
        settings = ConsumerSettings(**{**given, **values})
        consumer = PushConsumer("g", settings=settings)
        consumer.subscribe("T", handler=handler)
        async with consumer:
            await test(world, consumer)

    run_virtually(main())


@pytest.mark.proves("client:D-61", "client:D-67", "MUST-68")
@pytest.mark.parametrize("ordered", [True, False])
def test_own_queues_are_locked_after_one_second_and_then_every_twenty(
    ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked: list[float] = []

    async def test(world: SimCluster, consumer: PushConsumer) -> None:
        lock = churn.TABLE[RequestCode.LOCK_BATCH_MQ]

        def noting(broker: Any, conn: Any, command: Command) -> Command:
            if len(bodies.LockBatchRequestBody.decode(command.body).queues) > 1:  # not when one is taken
                locked.append(round(asyncio.get_running_loop().time()))
            return lock(broker, conn, command)

        monkeypatch.setitem(churn.TABLE, RequestCode.LOCK_BATCH_MQ, noting)
        await asyncio.sleep(70)

    virtual(monkeypatch, test, lambda message: None, ordered=ordered)
    assert sorted(set(locked)) == ([1, 21, 41, 61] if ordered else [])


@pytest.mark.proves("client:D.11")
def test_run_yields_to_others_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[tuple[float, int]] = []

    async def handle(message: ReceivedMessage) -> None:
        await asyncio.sleep(1)
        got.append((asyncio.get_running_loop().time(), message.queue.queue_id))

    async def test(world: SimCluster, consumer: PushConsumer) -> None:
        for queue_id in (0, 1):
            for number in range(100):
                world.brokers[BROKER].store("T", queue_id, b"%d" % number)
        await asyncio.sleep(150)

    virtual(monkeypatch, test, handle, threads=1)
    turns = [len(list(own)) for _, own in itertools.groupby(queue_id for _, queue_id in got)]
    assert turns[0] == turns[1] == 60, "a minute each; nothing else would end a run that has messages"


@pytest.mark.proves("client:D.11", "client:C-31")
def test_run_without_its_lock_requests_it_and_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the lock is granted it is requested about every 3 s, and nothing is handled."""
    got: list[tuple[float, bytes]] = []
    asked: list[float] = []

    async def handle(message: ReceivedMessage) -> None:
        got.append((asyncio.get_running_loop().time(), message.body))

    async def test(world: SimCluster, consumer: PushConsumer) -> None:
        await asyncio.sleep(5)
        broker, queue = world.brokers[BROKER], MessageQueue("T", BROKER, 0)
        member = consumer._member
        assert member is not None
        held = member.queues.find(queue)
        assert held is not None
        lock = member.queues._locks.lock

        async def noting(queues: Any) -> Any:
            if list(queues) == [queue]:
                asked.append(round(asyncio.get_running_loop().time(), 1))
            return await lock(queues)

        monkeypatch.setattr(member.queues._locks, "lock", noting)
        broker.locks["g", queue] = "somebody"
        broker.lock_times["g", queue] = 30.0
        held.lock_refused()
        held.put([waiting_message(queue)])
        member.service.submit(held, [], True)
        await asyncio.sleep(11)
        assert (got, held.locked) == ([], False)
        del broker.locks["g", queue]
        await asyncio.sleep(20)
        assert held.dropped, "somebody had the lock: it is started anew"
        broker.store("T", 0, b"new")
        await asyncio.sleep(1)

    virtual(monkeypatch, test, handle)
    assert [body for _, body in got] == [b"new"]
    assert len(asked) >= 3
    assert all(2.9 < later - sooner < 3.3 for sooner, later in itertools.pairwise(asked[:3]))
