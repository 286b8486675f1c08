"""`Message.key`: equal keys go to one queue in every kind of send, in order, and consumers see the key."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.fake import FakeCluster, answer
from tests.client.producing import SEND, flow, sends
from tests.support import about, until

from sparrowmq.client.producer.producer import Producer
from sparrowmq.client.send.encoding import outgoing_single, split_batch
from sparrowmq.client.send.queue_selection import select_by_hash
from sparrowmq.core.errors import InvalidMessageError, NoRoomError, NoRouteError
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.core.results import SendResult
from sparrowmq.core.route import QueueData
from sparrowmq.protocol import properties
from sparrowmq.protocol.batch import decode_batch
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.connection import Connection

KEYS = [f"customer-{number}" for number in range(12)]


def keyed(number: int, key: str | None = None) -> Message:
    return Message("T", b"%d" % number, key=key or KEYS[number % len(KEYS)])


def stored(cluster: FakeCluster) -> list[tuple[int, str, bytes]]:
    """Queue, key and body of all messages in the order in which the broker got them."""
    found = []
    for command in cluster.broker.seen:
        if command.code not in (SEND, 320):
            continue
        queue = int(command.ext["e"])
        items = (
            decode_batch(command.body)
            if command.ext["m"] == "true"
            else [(0, command.body, command.ext["i"].encode())]
        )
        for _, body, text in items:
            found.append((queue, properties.decode(text)["__SHARDINGKEY"], body))
    return found


def is_by_key(found: list[tuple[int, str, bytes]], count: int = 4) -> bool:
    """Whether each message is where RocketMQ's selector by hash puts its key, and every key has its order."""
    queues = [MessageQueue("T", "broker-a", number) for number in range(count)]
    places = all(queue == select_by_hash(queues, Message("T", b"x"), key).queue_id for queue, key, _ in found)
    by_key: dict[str, list[int]] = {}
    for _, key, body in found:
        by_key.setdefault(key, []).append(int(body))
    return places and all(numbers == sorted(numbers) for numbers in by_key.values())


def test_every_kind_of_send_takes_the_keys_queue() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        results: list[SendResult | BaseException | None] = []
        for number in range(0, 24, 4):
            await producer.send(keyed(number))
            producer.submit(keyed(number + 1), lambda result, error: results.append(result or error))
            await producer.send_oneway(keyed(number + 2))
            key = KEYS[number % 12]
            await producer.send_batch([keyed(number + 3, key), keyed(number + 4, key)])
        await until(lambda: len(results) == 6)
        await until(lambda: len(stored(cluster)) == 30)
        found = stored(cluster)
        queues = [MessageQueue("T", "broker-a", number) for number in range(4)]
        for queue, key, _ in found:
            assert queue == select_by_hash(queues, Message("T", b"x"), key).queue_id
        assert len({queue for queue, _, _ in found}) > 1
        assert all(isinstance(one, SendResult) for one in results)

    flow(test)


def test_retries_stay_in_the_keys_queue() -> None:
    """Elsewhere a later message of the key could overtake it."""

    async def test(cluster: FakeCluster, producer: Producer) -> None:
        for broker in cluster.brokers.values():
            refused = iter([True, True, False] * 2)

            def handle(
                conn: Connection, command: Command, one: Any = broker, first: Any = refused
            ) -> Command:
                return answer(2, remark="busy") if next(first) else one.send(conn, command)

            broker.on[SEND] = handle
        result = await producer.send(keyed(1))
        done: list[SendResult | None] = []
        producer.submit(keyed(1), lambda result, error: done.append(result))
        await until(lambda: bool(done))
        assert done == [None] or (done[0] is not None and done[0].queue == result.queue)
        tried = {(name, one.queue_id) for name in cluster.brokers for one in sends(cluster, name)}
        assert tried == {(result.queue.broker_name, result.queue.queue_id)}

    flow(test, brokers=2)


def test_key_gets_another_queue_when_its_own_is_gone() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        queue = (await producer.send(keyed(1))).queue
        assert queue.queue_id > 0

        def smaller(conn: Connection, command: Command) -> Command:
            return (
                answer(29, remark="queueId[2] is illegal")
                if int(command.ext["e"])
                else cluster.broker.send(conn, command)
            )

        cluster.broker.on[SEND] = smaller
        cluster.topics["T"]["broker-a"] = QueueData("broker-a", 1, 1, 6)
        assert (await producer.send(keyed(1))).queue.queue_id == 0

    flow(test)


def test_queue_and_selector_of_the_send_come_first() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        key = await producer.send(keyed(1))
        other = MessageQueue("T", "broker-a", (key.queue.queue_id + 1) % 4)
        assert (await producer.send(keyed(1), queue=other)).queue == other
        assert (await producer.send(keyed(1), selector=lambda queues, message, _: other)).queue == other
        by_number = await producer.send(keyed(1), hash_key=2)
        assert by_number.queue.queue_id == 2
        assert [key for _, key, _ in stored(cluster)] == ["customer-1"] * 4

    flow(test)


@pytest.mark.parametrize("idempotent", [False, True])
def test_lingering_keeps_the_order_of_keys_from_the_first_message_on(idempotent: bool) -> None:
    """The first messages wait for the route of their topic; none overtakes them."""

    async def test(cluster: FakeCluster, producer: Producer) -> None:
        done: list[SendResult | BaseException | None] = []
        tasks = []
        for number in range(600):
            if number % 3:
                producer.submit(keyed(number), lambda result, error: done.append(result or error))
            else:
                tasks.append(asyncio.ensure_future(producer.send(keyed(number))))
            if number % 50 == 0:
                await asyncio.sleep(0)
        done += await asyncio.gather(*tasks)
        await until(lambda: len(done) == 600)
        assert all(isinstance(one, SendResult) for one in done)
        found = stored(cluster)
        assert sorted(int(body) for _, _, body in found) == list(range(600))
        submitted = [one for one in found if int(one[2]) % 3]
        assert is_by_key(submitted)
        assert len(sends(cluster)) < 200, "most share a batch"
        assert producer.in_flight == 0

    flow(test, linger=0.01, idempotent=idempotent)


def test_messages_that_wait_for_a_route_are_bounded_and_fail_with_it() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.topics.clear()
        errors: list[BaseException | None] = []
        for number in range(3):
            producer.submit(
                Message("T", b"x" * 400, key=f"{number}"), lambda result, error: errors.append(error)
            )
        with pytest.raises(NoRoomError):
            producer.submit(Message("T", b"x", key="4"), lambda result, error: None)
        await until(lambda: len(errors) == 3)
        assert all(isinstance(error, NoRouteError) for error in errors)
        await producer.close()

    flow(test, linger=0.01, linger_total_bytes=1200)


def test_batch_has_one_key() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        with pytest.raises(InvalidMessageError, check=about(part="key")):
            await producer.send_batch([keyed(1), keyed(2)])

    flow(test)
    groups = split_batch([keyed(1), keyed(1), keyed(2), Message("T", b"x")])
    assert [[message.key for message in group] for group in groups] == [
        ["customer-1", "customer-1"],
        ["customer-2"],
        [None],
    ]


@pytest.mark.parametrize(
    ("key", "part"), [(7, "key"), (b"k", "key"), (" ", "key"), ("", "key"), ("a\x01b", "properties")]
)
def test_wrong_keys_are_refused(key: Any, part: str) -> None:
    with pytest.raises(InvalidMessageError, check=about(part=part)):
        outgoing_single(Message("T", b"x", key=key), "ID", 0, 1024)


def test_key_of_a_resent_message_is_written_once() -> None:
    system = {"__SHARDINGKEY": "a", "RECONSUME_TIME": "1"}
    outgoing = outgoing_single(Message("T", b"x", key="a", system=system), "ID", 0, 1024)
    assert outgoing.properties.count(b"__SHARDINGKEY") == 1
    with pytest.raises(InvalidMessageError, check=about(part="__SHARDINGKEY")):
        outgoing_single(Message("T", b"x", key="b", system=system), "ID", 0, 1024)
