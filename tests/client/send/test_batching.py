"""Lingering: which messages share a batch, order, results, bounds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.fake import FakeCluster, answer, never
from tests.client.producing import SEND, flow, sends
from tests.support import about, until

from sparrowmq.client.producer.producer import Producer
from sparrowmq.client.send.batching import parts_of
from sparrowmq.core.errors import BrokerError, InvalidMessageError, NoRoomError, RequestTimeoutError
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.core.results import SendResult, SendStatus
from sparrowmq.protocol.batch import decode_batch
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command

QUEUE = MessageQueue("T", "broker-a", 1)


def batches(cluster: FakeCluster) -> list[list[bytes]]:
    return [
        [body for _, body, _ in decode_batch(c.body)] if c.ext.get("m") == "true" else [c.body]
        for c in cluster.broker.seen
        if c.code in (310, 320)
    ]


def several_ids(cluster: FakeCluster) -> None:
    """Answer batches as brokers do: with an id for each message."""
    plain = cluster.broker.send

    def handle(conn: Any, command: Command) -> Command:
        done = plain(conn, command)
        count = sum(1 for _ in decode_batch(command.body))
        done.ext["msgId"] = ",".join(f"{done.ext['msgId']}{n}" for n in range(count))
        return done

    cluster.broker.on[320] = handle


@pytest.mark.proves("client:B-77", "client:B-79")
def test_simultaneous_sends_share_a_batch_and_get_their_own_results() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        several_ids(cluster)
        results = await asyncio.gather(*(producer.send(Message("T", b"%d" % n)) for n in range(10)))
        assert batches(cluster) == [[b"%d" % n for n in range(10)]]
        assert [r.queue_offset for r in results] == list(range(10))
        assert len({r.message_id for r in results}) == len({r.offset_message_id for r in results}) == 10
        assert {r.queue for r in results} == {results[0].queue}
        assert producer.in_flight == 0

    flow(test, linger=0.05)


@pytest.mark.proves("client:B-77")
def test_topic_queue_tag_and_waiting_separate_messages() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.add_topic("U")
        messages = [
            Message("T", b"1"),
            Message("U", b"2"),
            Message("T", b"3", tags="A"),
            Message("T", b"4", wait_store_ok=False),
            Message("T", b"5"),
        ]
        done = [producer.send(m) for m in messages] + [producer.send(Message("T", b"6"), queue=QUEUE)]
        await asyncio.gather(*done)
        assert sorted(batches(cluster)) == [[b"1", b"5"], [b"2"], [b"3"], [b"4"], [b"6"]]

    flow(test, linger=0.05)


def test_flush_sends_what_waits_and_waits_for_it() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        held = [asyncio.create_task(producer.send(Message("T", b"%d" % n), queue=QUEUE)) for n in range(3)]
        await asyncio.sleep(0)
        await producer.flush(20)  # less than they would linger
        assert producer.in_flight == 0
        assert [(await one).queue for one in held] == [QUEUE] * 3
        assert batches(cluster) == [[b"0", b"1", b"2"]]
        cluster.broker.on[SEND] = never
        lost = asyncio.create_task(producer.send(Message("T", b"lost"), timeout=20))
        await until(lambda: producer.in_flight)
        with pytest.raises(RequestTimeoutError, check=about(value=1, limit=0.01)):
            await producer.flush(0.01)
        lost.cancel()

    flow(test, linger=30.0)


@pytest.mark.parametrize("options", [{"hash_key": "k"}, {}])
def test_flush_waits_for_sends_whose_route_is_looked_up(options: dict[str, str]) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.add_topic("U")
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def slow(conn: Any, command: Command) -> Command:
            asked.set()
            await go_on.wait()
            return cluster.route(conn, command)

        cluster.on[RequestCode.GET_ROUTEINFO_BY_TOPIC] = slow
        sent = asyncio.create_task(producer.send(Message("U", b"1", key="k"), **options))
        await asked.wait()
        with pytest.raises(RequestTimeoutError, check=about(value=1, limit=0)):
            await producer.flush(0)
        flushed = asyncio.create_task(producer.flush(20))  # less than it would linger
        await asyncio.sleep(0)
        go_on.set()
        await flushed
        assert (await sent).queue.topic == "U"

    flow(test, linger=30.0)


@pytest.mark.proves("client:B-77", "client:B-78")
def test_delayed_and_timed_messages_are_sent_alone_at_once() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        async with asyncio.timeout(25):  # less than they would linger
            await producer.send(Message("T", b"1", delay_level=1))
            await producer.send(Message("T", b"2", delay=5))
            await producer.send(Message("T", b"3"), timeout=20)
            await producer.send(Message("T", b"4"), timeout=20, queue=QUEUE)
        assert batches(cluster) == [[b"1"], [b"2"], [b"3"], [b"4"]]

    flow(test, linger=30.0)


@pytest.mark.proves("client:B-77")
def test_full_batch_is_sent_before_its_time() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        await asyncio.gather(*(producer.send(Message("T", b"x" * 100)) for _ in range(20)))
        assert len(batches(cluster)) > 1 and sum(map(len, batches(cluster))) == 20

    flow(test, linger=0.2, linger_bytes=900)


def test_batch_stays_below_the_message_limit() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        bodies = [b"%02d" % n + b"x" * 400 for n in range(6)]
        await asyncio.gather(*(producer.send(Message("T", body)) for body in bodies))
        await asyncio.gather(*(producer.send(Message("T", body), queue=QUEUE) for body in bodies))
        found = batches(cluster)
        assert all(len(batch) <= 2 for batch in found)
        assert sorted(body for batch in found for body in batch) == sorted(bodies * 2)
        queued = [r for r in sends(cluster) if r.queue_id == 1]
        assert queued

    flow(test, linger=0.01, linger_bytes=1 << 20, message_bytes_max=1200)


@pytest.mark.proves("client:B-77")
def test_messages_to_a_selected_queue_keep_their_order_over_retried_batches() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        gate = asyncio.Event()

        async def first_waits(conn: Any, command: Command) -> Command:
            if len(batches(cluster)) == 1:
                await gate.wait()
            done: Command = stored(conn, command)
            return done

        several_ids(cluster)
        stored: Any = cluster.broker.on[320]
        cluster.broker.on[320] = first_waits
        tasks = [
            asyncio.create_task(producer.send(Message("T", b"%02d" % n + b"x" * 60), queue=QUEUE))
            for n in range(30)
        ]
        await until(lambda: batches(cluster))
        assert producer._sender is not None and producer._sender.linger is not None
        (bucket,) = producer._sender.linger._buckets.values()
        await until(lambda: 0 < len(bucket.held) == bucket.due)
        assert len(batches(cluster)) == 1, "the next batch waits for the first"
        gate.set()
        results = await asyncio.gather(*tasks)
        assert [r.queue_offset for r in results] == list(range(30))
        assert [body[:2] for batch in batches(cluster) for body in batch] == [b"%02d" % n for n in range(30)]

    flow(test, linger=0.01, linger_bytes=500)


@pytest.mark.proves("client:B-77")
def test_messages_to_a_selected_queue_keep_their_order_whatever_their_tags() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        several_ids(cluster)
        tags = ["A", "A", "B", "A", None, "B", "B"]
        messages = [Message("T", b"%d" % n, tags=tag) for n, tag in enumerate(tags)]
        messages.append(Message("T", b"7", tags="B", wait_store_ok=False))
        tasks = [asyncio.create_task(producer.send(m, queue=QUEUE)) for m in messages]
        await until(lambda: batches(cluster))
        tasks.append(asyncio.create_task(producer.send(Message("T", b"8", tags="A"), queue=QUEUE)))
        results = await asyncio.gather(*tasks)
        assert [r.queue_offset for r in results] == list(range(9))
        assert batches(cluster) == [[b"0", b"1"], [b"2"], [b"3"], [b"4"], [b"5", b"6"], [b"7"], [b"8"]]

    flow(test, linger=0.05)


@pytest.mark.proves("client:B-31")
@pytest.mark.parametrize("queue", [None, QUEUE])
def test_exception_of_one_callback_does_not_affect_the_other_results(queue: MessageQueue | None) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, what: told.append(what))

        def fails(result: SendResult | None, error: BaseException | None) -> None:
            raise ValueError("a callback's fault")

        for number in range(3):
            producer.submit(Message("T", b"%d" % number), fails, queue=queue)
        assert (await producer.send(Message("T", b"3"), queue=queue)).status is SendStatus.SEND_OK
        assert batches(cluster) == [[b"0", b"1", b"2", b"3"]]
        assert (await producer.send(Message("T", b"4"), queue=queue)).status is SendStatus.SEND_OK
        assert [str(one["exception"]) for one in told] == ["a callback's fault"] * 3

    flow(test, linger=0.02)


def test_selectors_and_keys_select_the_queue_before_lingering() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        await asyncio.gather(*(producer.send(Message("T", b"x"), hash_key="order-1") for _ in range(5)))
        assert [len(batch) for batch in batches(cluster)] == [5]
        assert sends(cluster)[0].queue_id == 2

    flow(test, linger=0.02)


def test_error_reaches_every_message_of_the_batch_and_invalid_ones_are_refused_at_once() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.broker.on[320] = lambda conn, c: answer(13, remark="illegal")
        outcomes = await asyncio.gather(
            *(producer.send(Message("T", b"x")) for _ in range(3)), return_exceptions=True
        )
        assert all(isinstance(outcome, BrokerError) for outcome in outcomes)
        with pytest.raises(InvalidMessageError, check=about(part="body")):
            await producer.send(Message("T", b""))
        with pytest.raises(InvalidMessageError, check=about(part="body", limit=4194304)):
            await producer.send(Message("T", b"x" * (5 << 20)))

    flow(test, linger=0.01)


@pytest.mark.proves("client:B-77")
def test_messages_beyond_the_total_are_sent_alone_or_refused_if_ordered() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        held = asyncio.create_task(producer.send(Message("T", b"x" * 200), queue=QUEUE))
        await asyncio.sleep(0)
        alone = await producer.send(Message("T", b"alone"))
        assert alone.status is SendStatus.SEND_OK and not held.done()
        with pytest.raises(NoRoomError, check=about(limit=100)):
            await producer.send(Message("T", b"x"), queue=QUEUE)
        await producer.close()
        assert (await held).queue == QUEUE, "closing lets what waits leave"

    flow(test, linger=30.0, linger_total_bytes=100)


def test_submitted_messages_linger_too_and_cancelling_recalls_none() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        done: list[Any] = []
        for number in range(3):
            producer.submit(Message("T", b"%d" % number), lambda *outcome: done.append(outcome))
        task = asyncio.create_task(producer.send(Message("T", b"3")))
        await asyncio.sleep(0)
        task.cancel()
        await until(lambda: len(done) == 3)
        assert batches(cluster) == [[b"0", b"1", b"2", b"3"]]
        assert all(error is None for _, error in done)
        assert "buckets=0" in repr(producer._sender and producer._sender.linger)

    flow(test, linger=0.02)


@pytest.mark.proves("client:B-79")
def test_answer_with_one_id_is_the_result_of_every_message() -> None:
    result = SendResult(SendStatus.SEND_OK, "a,b", "X,Y", QUEUE, 5)
    _, second = parts_of(result, ["a", "b"])
    assert (second.message_id, second.offset_message_id, second.queue_offset) == ("b", "Y", 6)
    inner = SendResult(SendStatus.SEND_OK, "batch", "X", QUEUE, 5)
    assert parts_of(inner, ["a", "b"]) == [inner, inner]


def test_results_of_a_large_batch_take_time_in_proportion_to_its_messages() -> None:
    class Ids(str):
        splits = 0

        def split(self, *args: Any) -> list[str]:
            Ids.splits += 1
            return super().split(*args)

    keys = [f"key{number}" for number in range(1000)]
    result = SendResult(SendStatus.SEND_OK, "batch", Ids(",".join(keys)), QUEUE, 5)
    results = parts_of(result, keys)
    assert [one.queue_offset for one in results] == list(range(5, 1005))
    assert [one.offset_message_id for one in results] == keys
    assert Ids.splits == 1
