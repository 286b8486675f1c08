"""Idempotent producers with a scripted cluster: sequence numbers, lost answers, unknown results, other
queues."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.fake import FakeCluster, answer
from tests.client.producing import SEND, flow
from tests.support import about, until

from sparrowmq.client.producer.producer import Producer
from sparrowmq.core.errors import (
    BrokerError,
    ClientError,
    InvalidMessageError,
    NoRoomError,
    RequestTimeoutError,
    SparrowError,
)
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.core.results import SendResult
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.producer_mark import Mark, binding, first_of_run
from sparrowmq.protocol.record import decode_records
from sparrowmq.transport.connection import Connection

BATCH = 320
Q0 = MessageQueue("T", "broker-a", 0)


def marks(cluster: FakeCluster, queue_id: int = 0, broker: str = "broker-a") -> list[tuple[int, int]]:
    """Epoch and sequence of the messages in a queue, in order."""
    held = cluster.brokers[broker].queues["T", queue_id]
    found = [first_of_run([decode_records(part)[0].properties])[0] for part in held]
    assert all(mark is not None and mark.bound_to == binding("T", queue_id) for mark in found)
    return [(mark.epoch, mark.sequence) for mark in found if mark is not None]


def judging(cluster: FakeCluster, broker: str = "broker-a") -> None:
    """Make a broker answer as one that deduplicates, whatever it is sent."""
    fake = cluster.brokers[broker]

    def send(conn: Connection, command: Command) -> Command:
        given = fake.send(conn, command)
        return answer(ext={**given.ext, "idempotent": "true"})

    for code in (SEND, BATCH):
        fake.on[code] = send


def once(
    cluster: FakeCluster, first: Callable[[Connection, Command], Command | Awaitable[Command | None] | None]
) -> None:
    """Answer the next send with `first`, later ones as a broker that deduplicates."""
    judging(cluster)
    usual = cluster.broker.on[SEND]

    def send(conn: Connection, command: Command) -> Any:
        cluster.broker.on[SEND] = usual
        return first(conn, command)

    cluster.broker.on[SEND] = send


def test_messages_of_a_queue_are_numbered_from_zero() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        judging(cluster)
        for _ in range(3):
            result = await producer.send(Message("T", b"x"), queue=Q0)
            assert result.idempotent
        await producer.send_batch([Message("T", b"y")] * 2, queue=Q0)
        await producer.send(Message("T", b"z"), queue=MessageQueue("T", "broker-a", 1))
        assert marks(cluster) == [(0, number) for number in range(5)]
        assert marks(cluster, 1) == [(0, 0)]
        assert all(c.ext["idempotent"] == "true" for c in cluster.broker.seen if c.code in (SEND, BATCH))
        assert "producer_id=" in repr(producer)

    flow(test, idempotent=True)


def test_simultaneous_sends_keep_their_order_in_their_queue() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        judging(cluster)
        sends = [producer.send(Message("T", b"%d" % n), hash_key="k") for n in range(50)]
        results = await asyncio.gather(*sends)
        queue_id = results[0].queue.queue_id
        assert marks(cluster, queue_id) == [(0, number) for number in range(50)]
        held = [decode_records(part)[0].body for part in cluster.broker.queues["T", queue_id]]
        assert held == [b"%d" % n for n in range(50)]

    flow(test, idempotent=True)


def test_lost_answer_repeats_the_same_numbers_to_the_same_queue() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        judging(cluster, "broker-b")

        def store_and_die(conn: Connection, command: Command) -> None:
            cluster.broker.send(conn, command)
            conn.close("test")

        once(cluster, store_and_die)
        result = await producer.send(Message("T", b"x"), queue=Q0)
        assert result.queue == Q0
        assert marks(cluster) == [(0, 0), (0, 0)], "a broker that judges stores it once"
        await producer.send(Message("T", b"y"), queue=Q0)
        assert marks(cluster)[2:] == [(0, 1)]

    flow(test, idempotent=True, brokers=2)


def test_send_with_an_unknown_result_begins_a_new_epoch() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        judging(cluster)
        usual = cluster.broker.on[SEND]
        await producer.send(Message("T", b"a"), queue=Q0)
        cluster.broker.on[SEND] = lambda conn, command: None
        with pytest.raises(RequestTimeoutError) as caught:
            await producer.send(Message("T", b"b"), queue=Q0, timeout=0.1)
        assert any("may still have stored it" in note for note in caught.value.__notes__)
        cluster.broker.on[SEND] = usual
        await producer.send(Message("T", b"c"), queue=Q0)
        assert marks(cluster) == [(0, 0), (1, 0)]

    flow(test, idempotent=True, try_timeout=0.03)


def test_cancelled_send_begins_a_new_epoch() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        judging(cluster)
        usual = cluster.broker.on[SEND]
        cluster.broker.on[SEND] = lambda conn, command: None
        task = asyncio.create_task(producer.send(Message("T", b"x"), queue=Q0))
        await until(lambda: bool(cluster.broker.requests(SEND)))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        cluster.broker.on[SEND] = usual
        await producer.send(Message("T", b"y"), queue=Q0)
        assert marks(cluster) == [(1, 0)]

    flow(test, idempotent=True)


@pytest.mark.parametrize("code", [2, 14])
def test_certainly_unstored_message_goes_to_another_broker(code: int) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        judging(cluster, "broker-b")
        cluster.broker.on[SEND] = lambda conn, c: answer(code, remark="no")
        results = [await producer.send(Message("T", b"x")) for _ in range(4)]
        assert {result.queue.broker_name for result in results} == {"broker-b"}
        judging(cluster)
        await producer.send(Message("T", b"y"), queue=Q0)
        assert marks(cluster) == [(0, 0)], "its numbers were not used up"

    flow(test, idempotent=True, brokers=2)


@pytest.mark.parametrize(
    "code", [ResponseCode.SEQUENCE_GAP, ResponseCode.PRODUCER_UNKNOWN, ResponseCode.PRODUCER_FENCED]
)
def test_unknown_sequence_numbers_start_a_new_epoch(code: int) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        judging(cluster)
        await producer.send(Message("T", b"a"), queue=Q0)
        once(cluster, lambda conn, c: answer(code, remark="forgotten"))
        await producer.send(Message("T", b"b"), queue=Q0)
        assert marks(cluster) == [(0, 0), (1, 0)]

    flow(test, idempotent=True)


def test_broker_that_never_knows_the_numbers_ends_the_send() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.broker.on[SEND] = lambda conn, c: answer(ResponseCode.PRODUCER_UNKNOWN, remark="never")
        with pytest.raises(BrokerError, check=about(code=90005, remark="never")):
            await producer.send(Message("T", b"a"), queue=Q0)
        assert len(cluster.broker.requests(SEND)) == 3

    flow(test, idempotent=True)


@pytest.mark.parametrize("code", [ResponseCode.PRODUCER_LIMIT, ResponseCode.MESSAGE_ILLEGAL])
def test_refusal_is_raised_and_uses_no_number(code: int) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        once(cluster, lambda conn, c: answer(code, remark="refused"))
        with pytest.raises(BrokerError) as caught:
            await producer.send(Message("T", b"a"), queue=Q0)
        assert caught.value.code == code
        await producer.send(Message("T", b"b"), queue=Q0)
        assert marks(cluster) == [(0, 0)]

    flow(test, idempotent=True)


def test_refusal_after_a_lost_answer_leaves_the_result_unknown() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        judging(cluster)

        def die(conn: Connection, command: Command) -> None:
            cluster.broker.on[SEND] = lambda conn, c: answer(ResponseCode.NO_PERMISSION, remark="closed")
            conn.close("test")

        cluster.broker.on[SEND] = die
        with pytest.raises(BrokerError, check=about(code=16, remark="closed")) as caught:
            await producer.send(Message("T", b"a"), queue=Q0)
        assert any("may still have stored it" in note for note in caught.value.__notes__)
        judging(cluster)
        await producer.send(Message("T", b"b"), queue=Q0)
        assert marks(cluster) == [(1, 0)]

    flow(test, idempotent=True)


def test_submitted_and_lingering_messages_are_numbered_too() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        judging(cluster)
        found: list[tuple[SendResult | None, BaseException | None]] = []
        for number in range(20):
            producer.submit(Message("T", b"%d" % number), lambda *pair: found.append(pair), queue=Q0)
        await until(lambda: len(found) == 20)
        assert [error for _, error in found if error] == []
        assert marks(cluster) == [(0, number) for number in range(20)]
        assert len(cluster.broker.requests(BATCH)) < 20

    flow(test, idempotent=True, linger=0.005)


@pytest.mark.parametrize("more", [{"delay_level": 3}, {"delay": 1.0}, {"deliver_at": 1.0}])
def test_only_plain_messages_are_sent(more: dict[str, Any]) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        with pytest.raises(InvalidMessageError, check=about(part="message")):
            await producer.send(Message("T", b"x", **more))
        with pytest.raises(ClientError, check=about(what="oneway")):
            await producer.send_oneway(Message("T", b"x"))
        assert not cluster.broker.requests(SEND)

    flow(test, idempotent=True)


def test_send_waits_for_room_up_to_its_timeout() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.broker.on[SEND] = lambda conn, command: None
        sends = [producer.send(Message("T", b"x"), queue=Q0, timeout=0.05) for _ in range(3)]
        errors = await asyncio.gather(*sends, return_exceptions=True)
        assert all(isinstance(error, SparrowError) for error in errors)
        assert any(
            isinstance(error, NoRoomError) and "used up by earlier sends" in str(error) for error in errors
        )

    flow(test, idempotent=True)


def test_brokers_that_do_not_deduplicate_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        for _ in range(3):
            result = await producer.send(Message("T", b"x"))
            assert not result.idempotent
        assert caplog.text.count("at least once") == 1

    flow(test, idempotent=True)


def test_plain_producers_number_nothing() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        await producer.send(Message("T", b"x"), queue=Q0)
        (held,) = cluster.broker.queues["T", 0]
        assert b"SPARROW" not in decode_records(held)[0].properties

    flow(test)


def test_batch_numbered_elsewhere_is_passed_on() -> None:
    from sparrowmq.protocol.batch import encode_batch
    from sparrowmq.protocol.producer_mark import mark_head

    async def test(cluster: FakeCluster, producer: Producer) -> None:
        judging(cluster)
        head = mark_head("spark", 9, "T", 0)
        body = encode_batch((0, b"x", head + b"%d\x02" % number) for number in range(4))
        result = await producer.send_encoded_batch("T", body, 4, queue=Q0, numbered=True)
        assert result.idempotent and marks(cluster) == [(9, number) for number in range(4)]
        assert Mark("spark", 9, 0, binding("T", 0)) == first_of_run([head + b"0\x02"])[0]

    flow(test)
