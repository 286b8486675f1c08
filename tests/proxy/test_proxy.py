"""A proxy in front of our own brokers, tested with the API's messages."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import pytest
from tests.proxy.rig import ApiClient, connected, message, publishing, running, subscribing
from tests.support import about, run, until

from sparrowmq import aio
from sparrowmq.core.errors import ListenError
from sparrowmq.core.message import Message, ReceivedMessage
from sparrowmq.proxy.base.handles import parse_transaction_id
from sparrowmq.proxy.definition.messages import (
    ClientType,
    Code,
    FilterType,
    MessageType,
    Resolution,
    Source,
    v2,
)
from sparrowmq.testing import LocalCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(
        transaction_time_out=300, transaction_check_interval=300, recall_message_enable=True
    ) as running_cluster:
        yield running_cluster


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.originalname).removeprefix("test_")[:60]


async def create(cluster: LocalCluster, topic: str, kind: str = "NORMAL", queues: int = 4) -> None:
    async with aio.Admin(namesrv=cluster.namesrv) as admin:
        await admin.topics.create(topic, queues, attributes={"message.type": kind})


@asynccontextmanager
async def client_of(cluster: LocalCluster) -> AsyncIterator[ApiClient]:
    async with running(cluster.namesrv) as proxy, connected(proxy.address) as client:
        yield client


async def read(cluster: LocalCluster, topic: str, count: int) -> list[ReceivedMessage]:
    """Read this many messages of a topic with a remoting client."""
    got: list[ReceivedMessage] = []
    async with aio.PullConsumer(f"{topic}-reader", namesrv=cluster.namesrv) as consumer:
        for queue in await consumer.queues(topic):
            at = 0
            while (found := await consumer.pull(queue, at)).messages:
                got += found.messages
                at = found.next_offset
    assert len(got) == count
    return got


def test_route_of_a_topic_is_returned(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        await create(cluster, topic, "FIFO")
        async with client_of(cluster) as client:
            request = v2.QueryRouteRequest()
            request.topic.name = topic
            request.endpoints.addresses.add(host="proxy.example", port=80)
            found = await client.call("QueryRoute", request)
            assert found.status.code == Code.OK
            assert [queue.id for queue in found.message_queues] == [0, 1, 2, 3]
            queue = found.message_queues[0]
            assert queue.broker.endpoints.addresses[0].host == "proxy.example"
            assert list(queue.accept_message_types) == [MessageType.FIFO]
            asked = v2.QueryAssignmentRequest(topic=request.topic, endpoints=request.endpoints)
            asked.group.name = "g"
            assigned = await client.call("QueryAssignment", asked)
            assert [each.message_queue.id for each in assigned.assignments] == [-1]

    run(main())


def test_remoting_clients_can_read_sent_messages(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        await create(cluster, topic)
        async with client_of(cluster) as client:
            one = await client.send(message(topic, b"one", number=1, tag="TagA", keys=["k"]))
            assert (one.status.code, one.entries[0].status.code) == (Code.OK, Code.OK)
            batch = await client.send(*(message(topic, b"b%d" % n, number=n) for n in range(2, 5)))
        assert [entry.message_id[-1] for entry in batch.entries] == ["2", "3", "4"]
        assert [entry.offset - batch.entries[0].offset for entry in batch.entries] == [0, 1, 2]
        got = {each.body: each for each in await read(cluster, topic, 4)}
        assert set(got) == {b"one", b"b2", b"b3", b"b4"}
        assert (got[b"one"].tags, got[b"one"].keys) == ("TagA", ["k"])
        assert got[b"one"].message_id == one.entries[0].message_id

    run(main())


def test_simultaneous_sends_are_each_stored_once(cluster: LocalCluster, topic: str) -> None:
    """Many share a request to the broker. Each message is stored unchanged, at the place its answer names."""

    async def main() -> None:
        await create(cluster, topic, queues=2)
        async with client_of(cluster) as client:
            one = message(topic, b"first", number=1000)
            assert (await client.send(one)).status.code == Code.OK
            sent = {f"body {n}".encode(): message(topic, f"body {n}".encode(), number=n) for n in range(200)}
            for number, each in enumerate(sent.values()):
                each.user_properties["number"] = str(number)
            answers = await asyncio.gather(*(client.send(each) for each in sent.values()))
            wrong = message(topic, b"wrong", number=2000, message_group="g", message_type=MessageType.FIFO)
            refused, fine = await asyncio.gather(client.send(wrong), client.send(message(topic, number=2001)))
            assert refused.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
            assert fine.status.code == Code.OK
        assert {answer.status.code for answer in answers} == {Code.OK}
        told = {answer.entries[0].message_id: answer.entries[0].offset for answer in answers}
        found = {each.body: each for each in await read(cluster, topic, 202)}
        assert len(told) == 200
        for number, (body, each) in enumerate(sent.items()):
            got = found[body]
            assert got.message_id == each.system_properties.message_id
            assert got.queue_offset == told[got.message_id]
            assert (got.properties["number"], got.born_timestamp) == (str(number), 1_700_000_000_000)

    run(main())


def test_message_group_stays_in_one_queue(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        await create(cluster, topic, "FIFO")
        async with client_of(cluster) as client:
            for number in range(5):
                sent = await client.send(message(topic, b"%d" % number, number=number, message_group="g-1"))
                assert sent.status.code == Code.OK
            refused = await client.send(message(topic, b"plain"))
            assert refused.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        got = await read(cluster, topic, 5)
        assert len({each.queue.queue_id for each in got}) == 1
        assert [each.body for each in got] == [b"0", b"1", b"2", b"3", b"4"]

    run(main())


def test_transactions_are_committed_rolled_back_or_checked(cluster: LocalCluster, topic: str) -> None:
    """One is committed, one is rolled back, and one is settled when the broker checks it."""

    async def end(client: ApiClient, transaction_id: str, resolution: int, source: int) -> int:
        request = v2.EndTransactionRequest(
            transaction_id=transaction_id, resolution=resolution, source=source, message_id="m"
        )
        request.topic.name = topic
        found: int = (await client.call("EndTransaction", request)).status.code
        return found

    async def main() -> None:
        await create(cluster, topic, "TRANSACTION")
        async with running(cluster.namesrv) as proxy, connected(proxy.address) as client:
            stream, answer = await client.introduce(publishing(topic))
            assert answer.settings.publishing.validate_message_type
            ids = []
            for number in range(3):
                half = message(topic, b"%d" % number, number=number, message_type=MessageType.TRANSACTION)
                ids.append((await client.send(half)).entries[0].transaction_id)
            assert await end(client, ids[0], Resolution.COMMIT, Source.SOURCE_CLIENT) == Code.OK
            assert await end(client, ids[1], Resolution.ROLLBACK, Source.SOURCE_CLIENT) == Code.OK
            while (asked := await stream.read()).recover_orphaned_transaction_command.message.body != b"2":
                pass  # the broker may ask for the other ones before it knows how they ended
            question = asked.recover_orphaned_transaction_command
            assert question.message.topic.name == topic
            asked_for, sent = parse_transaction_id(question.transaction_id), parse_transaction_id(ids[2])
            assert asked_for.unique_key == sent.unique_key, "it was written again"
            code = await end(client, question.transaction_id, Resolution.COMMIT, Source.SOURCE_SERVER_CHECK)
            assert code == Code.OK
            assert await end(client, "forged", Resolution.COMMIT, 1) == Code.INVALID_TRANSACTION_ID

        async def committed() -> bool:
            async with aio.PullConsumer("reader", namesrv=cluster.namesrv) as consumer:
                queues = await consumer.queues(topic)
                return sum([await consumer.max_offset(queue) for queue in queues]) == 2

        await until(committed)
        assert sorted(each.body for each in await read(cluster, topic, 2)) == [b"0", b"2"]

    run(main())


def test_settings_are_answered(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        await create(cluster, topic)
        async with client_of(cluster) as client:
            _, answer = await client.introduce(publishing(topic))
            assert answer.status.code == Code.OK
            assert answer.settings.publishing.max_body_size == 4 * 1024 * 1024
            assert answer.settings.backoff_policy.max_attempts == 3
            stream, answer = await client.introduce(subscribing("settings-group", topic))
            told = answer.settings.subscription
            assert (told.receive_batch_size, told.fifo) == (32, False)
            assert answer.settings.backoff_policy.max_attempts == 17
            assert len(answer.settings.backoff_policy.customized_backoff.next) == 18
            beat = v2.HeartbeatRequest(client_type=ClientType.SIMPLE_CONSUMER)
            beat.group.name = "settings-group"
            assert (await client.call("Heartbeat", beat)).status.code == Code.OK
            gone = v2.NotifyClientTerminationRequest()
            assert (await client.call("NotifyClientTermination", gone)).status.code == Code.OK
            assert await stream.read() is grpc.aio.EOF
            assert (await client.call("Heartbeat", beat)).status.code == Code.UNRECOGNIZED_CLIENT_TYPE

    run(main())


def bad_subscription() -> Any:
    settings = subscribing("g", "t")
    settings.subscription.subscriptions[0].expression.type = FilterType.TAG
    settings.subscription.subscriptions[0].expression.expression = "||"
    return settings


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (v2.Settings(), "no publishing or subscription"),
        (publishing("a b"), "'a b' may only have letters"),
        (publishing("SCHEDULE_TOPIC_XXXX"), "is RocketMQ's own"),
        (subscribing("CID_RMQ_SYS_X"), "is RocketMQ's own"),
        (bad_subscription(), "has no tag"),
        (publishing(*(f"topic-{number:06}" for number in range(6000))), "settings take"),
    ],
)
def test_refused_settings_end_the_stream(cluster: LocalCluster, settings: Any, told: str) -> None:
    async def main() -> None:
        async with client_of(cluster) as client:
            stream = client.telemetry()
            await stream.write(v2.TelemetryCommand(settings=settings))
            with pytest.raises(grpc.aio.AioRpcError, match=told) as raised:
                await stream.read()
            assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT

    run(main())


def test_refusals_are_returned_as_statuses(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with running(cluster.namesrv) as proxy:
            async with connected(proxy.address) as client:
                request = v2.QueryRouteRequest()
                for name, code in {
                    "missing": Code.TOPIC_NOT_FOUND,
                    "": Code.ILLEGAL_TOPIC,
                    "a b": Code.ILLEGAL_TOPIC,
                    "x" * 128: Code.ILLEGAL_TOPIC,
                }.items():
                    request.topic.name = name
                    assert (await client.call("QueryRoute", request)).status.code == code
                assert (await client.send()).status.code == Code.MESSAGE_CORRUPTED
                mixed = await client.send(message("a"), message("b"))
                assert mixed.status.code == Code.MESSAGE_CORRUPTED
                unserved = await client.call("SyncLiteSubscription", v2.SyncLiteSubscriptionRequest())
                assert unserved.status.code == Code.NOT_IMPLEMENTED
                recall = v2.RecallMessageRequest(recall_handle="?")
                recall.topic.name = "missing"
                assert (await client.call("RecallMessage", recall)).status.code == Code.TOPIC_NOT_FOUND
            async with connected(proxy.address, "") as nameless:
                request.topic.name = "missing"
                assert (await nameless.call("QueryRoute", request)).status.code == Code.CLIENT_ID_REQUIRED
            async with connected(proxy.address, "x" * 256) as long:
                assert (await long.call("QueryRoute", request)).status.code == Code.BAD_REQUEST

    run(main())


def test_delayed_messages_can_be_recalled(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        await create(cluster, topic, "DELAY")
        async with client_of(cluster) as client:
            later = message(topic, b"later", message_type=MessageType.DELAY)
            later.system_properties.delivery_timestamp.GetCurrentTime()
            later.system_properties.delivery_timestamp.seconds += 600
            sent = await client.send(later)
            assert sent.status.code == Code.OK, sent
            recall = v2.RecallMessageRequest(recall_handle=sent.entries[0].recall_handle)
            recall.topic.name = topic
            answer = await client.call("RecallMessage", recall)
            assert (answer.status.code, answer.message_id) == (Code.OK, sent.entries[0].message_id)
            recall.recall_handle = "forged"
            assert (await client.call("RecallMessage", recall)).status.code == Code.BAD_REQUEST

    run(main())


def test_taken_port_is_an_error(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with running(cluster.namesrv) as proxy:
            with pytest.raises(ListenError, check=about(value=errno.EADDRINUSE)):
                async with running(cluster.namesrv, listen_port=proxy.port):
                    pass

    run(main())


def test_garbage_does_not_affect_other_clients(cluster: LocalCluster, topic: str) -> None:
    async def main() -> None:
        await create(cluster, topic)
        async with running(cluster.namesrv) as proxy, connected(proxy.address) as client:
            for garbage in (
                b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                bytes(range(256)) * 40,
                b"\x16\x03\x01\x02\x00",
            ):
                reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
                writer.write(garbage)
                with suppress(OSError):  # it may have closed the connection already
                    writer.write_eof()
                    await reader.read()
                writer.close()
                assert (await client.send(message(topic))).status.code == Code.OK

    run(main())


def test_remoting_clients_and_the_proxy_share_topics(cluster: LocalCluster, topic: str) -> None:
    """Messages sent through the proxy and messages of remoting clients meet in one topic, unchanged."""

    async def main() -> None:
        await create(cluster, topic)
        async with aio.Producer("p", namesrv=cluster.namesrv) as producer:
            await producer.send(Message(topic, b"remoting"))
        async with client_of(cluster) as client:
            await client.send(message(topic, b"grpc"))
        assert sorted(each.body for each in await read(cluster, topic, 2)) == [b"grpc", b"remoting"]

    run(main())
