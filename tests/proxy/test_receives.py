"""Receives, acknowledgements and invisible times through the proxy, at our own brokers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.proxy.rig import ApiClient, connected, message, running, subscribing
from tests.support import run, until

from sparrowmq import aio
from sparrowmq.core.message import ReceivedMessage
from sparrowmq.proxy.base.converting import to_message
from sparrowmq.proxy.base.handles import parse_handle
from sparrowmq.proxy.calls import answers
from sparrowmq.proxy.definition.messages import Code, FilterType, v2
from sparrowmq.proxy.server import MESSAGES_OF_TURN
from sparrowmq.testing import LocalCluster
from sparrowmq.transport.slices import TurnGate


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(enable_property_filter=True) as running_cluster:
        yield running_cluster


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.originalname).removeprefix("test_")[:60]


@asynccontextmanager
async def receiving(cluster: LocalCluster, topic: str, bodies: list[bytes]) -> AsyncIterator[ApiClient]:
    """A client of a proxy, with messages in a topic that a group of the same name can receive."""
    async with aio.Admin(namesrv=cluster.namesrv) as admin:
        await admin.topics.create(topic, 2)
        await admin.groups.create(topic)
    async with running(cluster.namesrv) as proxy, connected(proxy.address) as client:
        for number, body in enumerate(bodies):
            assert (await client.send(message(topic, body, number=number, tag="TagA"))).status.code == Code.OK
        yield client


async def gather(client: ApiClient, topic: str, count: int, **fields: Any) -> list[Any]:
    """Receive this many messages, in as many calls as needed."""
    got: list[Any] = []

    async def enough() -> bool:
        _, found = await client.receive(topic, topic, **fields)
        got.extend(found)
        return len(got) >= count

    await until(enough)
    assert len(got) == count
    return got


def change(topic: str, handle: str, seconds: int) -> Any:
    request = v2.ChangeInvisibleDurationRequest(receipt_handle=handle)
    request.topic.name = request.group.name = topic
    request.invisible_duration.seconds = seconds
    return request


def ack(topic: str, *messages: Any) -> Any:
    request = v2.AckMessageRequest()
    request.topic.name = request.group.name = topic
    for each in messages:
        handle = each if isinstance(each, str) else each.system_properties.receipt_handle
        request.entries.add(receipt_handle=handle, message_id="m")
    return request


def test_large_message_has_a_turn_of_the_loop_of_its_own(
    cluster: LocalCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights: list[int] = []
    passed = TurnGate.passed

    async def noted(gate: TurnGate, weight: int) -> None:
        weights.append(weight)
        await passed(gate, weight)

    monkeypatch.setattr(TurnGate, "passed", noted)

    async def main() -> None:
        async with receiving(cluster, topic, [b"a", bytes(2 << 20)]) as client:
            weights.clear()
            got = await gather(client, topic, 2)
            received = sorted(weights)[-2:]
            assert received[0] <= 2 and received[1] > MESSAGES_OF_TURN
            large = max(got, key=lambda one: len(one.body)).system_properties
            queue = v2.MessageQueue(id=large.queue_id)
            queue.topic.name, queue.broker.name = topic, "broker-a"
            pull = v2.PullMessageRequest(group=v2.Resource(name=topic), message_queue=queue, batch_size=32)
            weights.clear()
            assert [one async for one in client.stream("PullMessage", pull)]
            read, made = sorted(weights)[-2:]
            assert min(read, made) > MESSAGES_OF_TURN

    run(main())


def test_large_message_is_made_in_a_thread(
    cluster: LocalCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[int, int]] = []

    def noted(message: ReceivedMessage, topic: Any) -> Any:
        made.append((len(message.body), threading.get_ident()))
        return to_message(message, topic)

    monkeypatch.setattr(answers, "to_message", noted)

    async def main() -> None:
        async with receiving(cluster, topic, [b"a", bytes(2 << 20)]) as client:
            await gather(client, topic, 2)

    run(main())
    (_, loop), (_, thread) = sorted(made)
    assert loop != thread


def test_messages_are_received_and_acknowledged(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        async with receiving(cluster, topic, [b"a", b"b", b"c"]) as client:
            got = await gather(client, topic, 3)
            assert sorted(each.body for each in got) == [b"a", b"b", b"c"]
            assert {each.topic.name for each in got} == {topic}
            assert {each.system_properties.delivery_attempt for each in got} == {1}
            answer = await client.call("AckMessage", ack(topic, *got))
            assert answer.status.code == Code.OK
            assert [entry.status.code for entry in answer.entries] == [Code.OK] * 3
            wait = v2.ReceiveMessageRequest().long_polling_timeout
            wait.seconds = 1
            code, more = await client.receive(topic, topic, long_polling_timeout=wait)
            assert (code, more) == (Code.MESSAGE_NOT_FOUND, [])

    run(main())


def test_simultaneous_acknowledgements_are_all_applied(cluster: LocalCluster, topic: str) -> None:
    """Many share a request to the broker. No acknowledged message comes again; the one without an
    acknowledgement does."""

    async def main() -> None:
        bodies = [f"body {number}".encode() for number in range(60)]
        async with receiving(cluster, topic, bodies) as client:
            hidden = v2.ReceiveMessageRequest().invisible_duration
            hidden.seconds = 10
            got = await gather(client, topic, 60, invisible_duration=hidden)
            left, *others = got
            answers = await asyncio.gather(*(client.call("AckMessage", ack(topic, one)) for one in others))
            assert {answer.status.code for answer in answers} == {Code.OK}
            handles = [answer.entries[0].receipt_handle for answer in answers]
            assert handles == [one.system_properties.receipt_handle for one in others]
            (again,) = await gather(client, topic, 1)
            assert again.body == left.body
            assert (await client.call("AckMessage", ack(topic, again))).status.code == Code.OK
            wait = v2.ReceiveMessageRequest().long_polling_timeout
            wait.seconds = 5
            assert await client.receive(topic, topic, long_polling_timeout=wait) == (
                Code.MESSAGE_NOT_FOUND,
                [],
            )

    run(main())


def test_message_with_changed_invisible_time_comes_again(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        async with receiving(cluster, topic, [b"again"]) as client:
            (first,) = await gather(client, topic, 1)
            changed = await client.call(
                "ChangeInvisibleDuration", change(topic, first.system_properties.receipt_handle, 1)
            )
            assert changed.status.code == Code.OK
            assert changed.receipt_handle != first.system_properties.receipt_handle
            (second,) = await gather(client, topic, 1)
            assert (second.body, second.topic.name) == (b"again", topic)
            assert second.system_properties.delivery_attempt == 2
            assert (await client.call("AckMessage", ack(topic, second))).status.code == Code.OK

    run(main())


def test_message_is_forwarded_to_the_dead_letter_queue(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        async with receiving(cluster, topic, [b"dead"]) as client:
            (got,) = await gather(client, topic, 1)
            request = v2.ForwardMessageToDeadLetterQueueRequest(
                receipt_handle=got.system_properties.receipt_handle,
                message_id=got.system_properties.message_id,
            )
            request.topic.name = request.group.name = topic
            answer = await client.call("ForwardMessageToDeadLetterQueue", request)
            assert answer.status.code == Code.OK
        async with aio.PullConsumer("dead-reader", namesrv=cluster.namesrv) as consumer:
            (queue,) = await consumer.queues(f"%DLQ%{topic}")
            (dead,) = (await consumer.pull(queue, 0)).messages
            assert dead.body == b"dead"

    run(main())


@pytest.mark.parametrize(("kind", "expression"), [(FilterType.TAG, "TagB"), (FilterType.SQL, "a = 'b'")])
def test_filters_select_messages(cluster: LocalCluster, topic: str, kind: int, expression: str) -> None:
    topic = f"{topic}_{kind}"

    async def main() -> None:
        async with receiving(cluster, topic, [b"other"]) as client:
            wanted = message(topic, b"wanted", number=7, tag="TagB")
            wanted.user_properties["a"] = "b"
            assert (await client.send(wanted)).status.code == Code.OK
            expressed = v2.FilterExpression(type=kind, expression=expression)
            (got,) = await gather(client, topic, 1, filter_expression=expressed)
            assert got.body == b"wanted"

    run(main())


def test_auto_renew_hides_messages_for_a_minute_with_or_without_a_stream(
    cluster: LocalCluster, topic: str
) -> None:
    async def main() -> None:
        async with receiving(cluster, topic, [b"one", b"two"]) as client:
            (got,) = await gather(client, topic, 1, auto_renew=True, batch_size=1)
            assert parse_handle(got.system_properties.receipt_handle).receipt.invisible_time == 60_000
            stream, _ = await client.introduce(subscribing(topic, topic))
            (got,) = await gather(client, topic, 1, auto_renew=True, batch_size=1)
            assert parse_handle(got.system_properties.receipt_handle).receipt.invisible_time == 60_000
            assert (await client.call("AckMessage", ack(topic, got))).status.code == Code.OK
            stream.cancel()

    run(main())


def test_invalid_handles_are_refused(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        async with receiving(cluster, topic, [b"x"]) as client:
            (got,) = await gather(client, topic, 1)
            good = got.system_properties.receipt_handle
            words = good.split(" ")
            expired = " ".join([words[0], "1000", *words[2:]])
            elsewhere = " ".join([*words[:5], "no-broker", *words[6:]])
            codes = {
                "forged": Code.INVALID_RECEIPT_HANDLE,
                expired: Code.INVALID_RECEIPT_HANDLE,
                elsewhere: Code.BAD_REQUEST,
                good: Code.OK,
            }
            answer = await client.call("AckMessage", ack(topic, *codes))
            assert answer.status.code == Code.MULTIPLE_RESULTS
            assert [entry.status.code for entry in answer.entries] == list(codes.values())
            changed = await client.call("ChangeInvisibleDuration", change(topic, "forged", 1))
            assert changed.status.code == Code.INVALID_RECEIPT_HANDLE
            changed = await client.call("ChangeInvisibleDuration", change(topic, good, 13 * 3600))
            assert changed.status.code == Code.ILLEGAL_INVISIBLE_TIME

    run(main())


def test_invalid_receives_are_refused(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        async with receiving(cluster, topic, []) as client:
            short = v2.ReceiveMessageRequest().invisible_duration
            short.seconds = 9
            assert (await client.receive(topic, topic, invisible_duration=short))[
                0
            ] == Code.ILLEGAL_INVISIBLE_TIME
            assert (await client.receive("a b", topic))[0] == Code.ILLEGAL_CONSUMER_GROUP
            assert (await client.receive(topic, "missing"))[0] == Code.TOPIC_NOT_FOUND
            bad = v2.FilterExpression(type=FilterType.SQL, expression="a ==== 1")
            code, _ = await client.receive(topic, topic, filter_expression=bad)
            assert code == Code.ILLEGAL_FILTER_EXPRESSION
            request = v2.ReceiveMessageRequest()
            request.group.name = request.message_queue.topic.name = topic
            request.invisible_duration.seconds = 30
            answers = [one async for one in client.stream("ReceiveMessage", request, seconds=2)]
            assert answers[0].status.code == Code.ILLEGAL_POLLING_TIME

    run(main())


def test_messages_of_a_cancelled_receive_are_returned(cluster: LocalCluster, topic: str) -> None:
    """The client cancels its receive; a message that arrives then is delivered again soon after."""

    async def main() -> None:
        async with receiving(cluster, topic, []) as client:
            request = v2.ReceiveMessageRequest(batch_size=1)
            request.group.name = request.message_queue.topic.name = topic
            request.invisible_duration.seconds = 3600
            call = client.stream("ReceiveMessage", request)
            reading = call.read()
            waiting = asyncio.ensure_future(reading)
            await until(lambda: not waiting.done())
            await asyncio.sleep(0.3)
            call.cancel()
            assert (await client.send(message(topic, b"late"))).status.code == Code.OK
            (got,) = await gather(client, topic, 1)
            assert got.body == b"late"

    run(main())


def test_pulls_and_offset_queries_are_answered(cluster: LocalCluster, topic: str) -> None:
    """Two messages in each of two queues; one queue is read by offset."""

    async def main() -> None:
        async with receiving(cluster, topic, [b"0", b"1", b"2", b"3"]) as client:
            queue = v2.MessageQueue(id=0)
            queue.topic.name, queue.broker.name = topic, "broker-a"
            group = v2.Resource(name=topic)
            pull = v2.PullMessageRequest(group=group, message_queue=queue, batch_size=32)
            answers = [one async for one in client.stream("PullMessage", pull)]
            assert answers[0].status.code == Code.OK
            assert len([one for one in answers if one.WhichOneof("content") == "message"]) == 2
            assert answers[-1].next_offset == 2
            pull.offset = 2
            answers = [one async for one in client.stream("PullMessage", pull)]
            assert (answers[0].status.code, answers[-1].next_offset) == (Code.MESSAGE_NOT_FOUND, 2)
            pull.offset = 99
            (answer,) = [one async for one in client.stream("PullMessage", pull)]
            assert answer.status.code == Code.ILLEGAL_OFFSET
            get = v2.GetOffsetRequest(group=group, message_queue=queue)
            assert (await client.call("GetOffset", get)).offset == 0, "a broker begins new groups there"
            update = v2.UpdateOffsetRequest(group=group, message_queue=queue, offset=2)
            assert (await client.call("UpdateOffset", update)).status.code == Code.OK
            assert (await client.call("GetOffset", get)).offset == 2
            update.offset = -1
            assert (await client.call("UpdateOffset", update)).status.code == Code.ILLEGAL_OFFSET
            query = v2.QueryOffsetRequest(message_queue=queue)
            found = []
            for policy in range(3):
                query.query_offset_policy = policy
                query.timestamp.seconds = 1
                found.append((await client.call("QueryOffset", query)).offset)
            assert found == [0, 2, 0]
            query.message_queue.id = -1
            assert (await client.call("QueryOffset", query)).status.code == Code.BAD_REQUEST

    run(main())
