"""Requests that wait for replies, with a scripted broker that pushes them."""

from __future__ import annotations

import asyncio
import logging
import zlib
from typing import Any

import pytest
from tests.client.fake import FakeCluster, answer, never
from tests.client.producing import SEND, flow, sends
from tests.support import about, run, until

from sparrowmq.client.cluster.request_reply import PendingReplies, create_reply_message
from sparrowmq.client.producer.producer import Producer
from sparrowmq.core.errors import (
    ClientError,
    InvalidMessageError,
    NoRoomError,
    NoRouteError,
    ReplyTimeoutError,
)
from sparrowmq.core.message import Message, MessageQueue, ReceivedMessage
from sparrowmq.protocol import properties
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command

REPLY = int(RequestCode.SEND_REPLY_MESSAGE_V2)
PUSH = int(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)


def received(**found: str) -> ReceivedMessage:
    return ReceivedMessage(
        MessageQueue("T", "b", 0), 0, 0, "T", b"x", dict(found), 0, 0, 0, "", 0, "", 0, 0, 0, "id"
    )


def pushed(text: str, body: bytes = b"pong", *, sys_flag: int = 0, **changes: str) -> Command:
    """A broker's push of a reply with these properties."""
    ext = {
        "producerGroup": "g",
        "topic": "C_REPLY_TOPIC",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": str(sys_flag),
        "bornTimestamp": "1",
        "flag": "7",
        "properties": text,
        "bornHost": "10.0.0.1:5",
        "storeHost": "10.0.0.2:6",
        "storeTimestamp": "2",
    }
    return Command(PUSH, ext={**ext, **changes}, body=body)


def replying(cluster: FakeCluster, body: bytes = b"pong", times: int = 1) -> list[Command]:
    """Make the broker answer every request it stores with `times` replies; returns the requests."""
    seen: list[Command] = []

    def handle(conn: Any, command: Command) -> Command:
        stored = cluster.broker.send(conn, command)
        seen.append(command)
        asked = properties.decode(command.ext["i"].encode())
        text = f"CORRELATION_ID\x01{asked['CORRELATION_ID']}\x02"
        for _ in range(times):
            conn.notify(pushed(text, body))
        return stored

    cluster.broker.on[SEND] = handle
    return seen


@pytest.mark.proves("client:B-89", "client:B-90", "client:B-96", "client:A-92")
def test_request_names_the_requester_and_gets_the_pushed_reply() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        seen = replying(cluster)
        reply = await producer.request(Message("T", b"ping", properties={"a": "b"}), 20.0)
        assert (reply.body, reply.flag, reply.topic) == (b"pong", 7, "C_REPLY_TOPIC")
        assert (reply.born_host, reply.store_host) == ("10.0.0.1:5", "10.0.0.2:6")
        assert int(reply.properties["ARRIVE_TIME"]) > 1_700_000_000_000
        asked = properties.decode(seen[0].ext["i"].encode())
        assert asked["REPLY_TO_CLIENT"] == producer.client_id
        assert (asked["TTL"], asked["a"]) == ("20000", "b")
        assert len(asked["CORRELATION_ID"]) == 36
        assert cluster.broker.heartbeats[0].client_id == producer.client_id
        codes = [command.code for command in cluster.broker.seen]
        assert codes.index(RequestCode.HEART_BEAT) < codes.index(SEND), "the broker knows where replies go"
        again = await producer.request(Message("T", b"ping"), 20.0)
        assert again.properties["CORRELATION_ID"] != asked["CORRELATION_ID"]

    flow(test)


@pytest.mark.proves("client:B-90")
def test_request_to_a_new_topic_sends_a_heartbeat_first() -> None:
    """Its brokers may differ from those already registered at; here they are the same."""

    async def test(cluster: FakeCluster, producer: Producer) -> None:
        replying(cluster)
        cluster.add_topic("U")
        await producer.request(Message("T", b"ping"), 20.0)
        before = len(cluster.broker.seen)
        await producer.request(Message("U", b"ping"), 20.0)
        codes = [command.code for command in cluster.broker.seen[before:]]
        assert codes.index(RequestCode.HEART_BEAT) < codes.index(SEND)

    flow(test)


@pytest.mark.proves("client:B-94")
def test_request_can_go_to_a_selected_queue() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        replying(cluster)
        for choice in (
            {"queue": MessageQueue("T", "broker-a", 3)},
            {"selector": lambda queues, message, number: queues[number], "argument": 3},
        ):
            await producer.request(Message("T", b"ping"), 20.0, **choice)
        await producer.request(Message("T", b"ping"), 20.0, hash_key="order-1")
        assert [sent.queue_id for sent in sends(cluster)] == [3, 3, 2]

    flow(test)


@pytest.mark.proves("client:B-92", "client:B-69", "client:B-91")
def test_request_without_a_reply_times_out_with_its_own_error() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        await producer.queues("T")
        with pytest.raises(ReplyTimeoutError, check=about(code=10006)):
            await producer.request(Message("T", b"ping"), 0.2)
        assert producer._sender is not None and len(producer._sender.instance.replies) == 0

    flow(test)


@pytest.mark.proves("client:B-92", "client:B-93")
def test_request_that_cannot_be_sent_is_explained() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.broker.on[SEND] = lambda conn, c: answer(13, remark="illegal")
        with pytest.raises(ClientError, check=about(what="request", value="T")) as caught:
            await producer.request(Message("T", b"ping"), 20.0)
        assert caught.value.__cause__ is not None
        with pytest.raises(InvalidMessageError, check=about(part="body")):
            await producer.request(Message("T", b""), 20.0)
        with pytest.raises(NoRouteError):
            await producer.request(Message("Nowhere", b"x"), 20.0)

        cluster.broker.on[SEND] = never
        with pytest.raises(ClientError, check=about(what="request", value="T", limit=0.1)):
            await producer.request(Message("T", b"ping"), 0.1)
        assert producer._sender is not None and len(producer._sender.instance.replies) == 0

    flow(test)


@pytest.mark.proves("client:B-96", "client:B-91")
def test_late_and_repeated_replies_are_logged_and_dropped(caplog: pytest.LogCaptureFixture) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        replying(cluster, times=2)
        assert (await producer.request(Message("T", b"ping"), 20.0)).body == b"pong"
        await until(lambda: "unexpected reply" in caplog.text)
        assert (await producer.request(Message("T", b"ping"), 20.0)).body == b"pong"

    with caplog.at_level(logging.WARNING, "sparrowmq.client"):
        flow(test)


@pytest.mark.proves("client:B-96")
def test_replies_are_decompressed_and_broken_ones_refused() -> None:
    async def main() -> None:
        replies = PendingReplies()
        future = replies.expect("c")
        text = "CORRELATION_ID\x01c\x02"
        broken = replies.receive("b:1", pushed(text, b"junk", sys_flag=1))
        assert (broken.code, "cannot be read" in (broken.remark or "")) == (1, True)
        missing = pushed(text)
        del missing.ext["topic"]
        assert replies.receive("b:1", missing).code == 1
        assert not future.done()
        done = replies.receive("b:1", pushed(text, zlib.compress(b"pong"), sys_flag=0x301))
        assert done.code == 0
        reply = await future
        assert (reply.body, reply.sys_flag) == (b"pong", 0x300)
        assert replies.receive("b:1", pushed("")).code == 0, "without an id nobody waits"
        gone = replies.expect("d")
        gone.cancel()
        assert replies.receive("b:1", pushed("CORRELATION_ID\x01d\x02")).code == 0

    run(main())


@pytest.mark.proves("client:B-95", "client:B-41")
def test_reply_goes_to_the_reply_topic_of_the_cluster_with_its_own_code() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.add_topic("C_REPLY_TOPIC", 1)
        request = received(CLUSTER="C", CORRELATION_ID="c1", REPLY_TO_CLIENT="me@1", TTL="3000", KEYS="k")
        reply = create_reply_message(request, b"pong")
        assert (reply.topic, reply.body) == ("C_REPLY_TOPIC", b"pong")
        assert reply.system == {
            "MSG_TYPE": "reply",
            "CORRELATION_ID": "c1",
            "REPLY_TO_CLIENT": "me@1",
            "TTL": "3000",
        }
        cluster.broker.learn(REPLY, cluster.broker.send)
        result = await producer.reply(request, b"pong")
        assert result.queue.topic == "C_REPLY_TOPIC"
        (sent,) = (command for command in cluster.broker.seen if command.code == REPLY)
        assert set("abcdefghimn") <= set(sent.ext) and sent.body == b"pong"
        found = properties.decode(sent.ext["i"].encode())
        assert found["MSG_TYPE"] == "reply" and found["CORRELATION_ID"] == "c1"

    flow(test)


@pytest.mark.proves("client:B-95")
@pytest.mark.parametrize("missing", ["CLUSTER", "CORRELATION_ID", "REPLY_TO_CLIENT"])
def test_message_that_is_no_request_cannot_be_replied_to(missing: str) -> None:
    found = {"CLUSTER": "C", "CORRELATION_ID": "c1", "REPLY_TO_CLIENT": "me@1"}
    assert create_reply_message(received(**found), b"x").system is not None
    del found[missing]
    with pytest.raises(ClientError, check=about(code=10007, value=[missing])):
        create_reply_message(received(**found), b"x")


def test_number_of_waiting_requests_is_limited() -> None:
    async def main() -> None:
        replies = PendingReplies(waiting_max=2)
        for name in "ab":
            replies.expect(name)
        with pytest.raises(NoRoomError, check=about(limit=2)):
            replies.expect("c")
        replies.forget("a")
        replies.expect("c")
        assert len(replies) == 2

    run(main())


def test_silent_broker_takes_no_longer_than_the_requests_timeout() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        silent = asyncio.Event()
        cluster.broker.on[RequestCode.HEART_BEAT] = lambda conn, c: silent.wait()
        task = asyncio.create_task(producer.request(Message("T", b"ping"), 0.1))
        await asyncio.wait({task}, timeout=2.5)  # heartbeats may take 3 s
        assert task.done()
        with pytest.raises(ClientError):
            await task
        silent.set()

    flow(test)


def test_cancelling_a_request_leaves_nothing_behind() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        await producer.queues("T")
        task = asyncio.create_task(producer.request(Message("T", b"ping"), 60.0))
        await until(lambda: sends(cluster))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert producer._sender is not None and len(producer._sender.instance.replies) == 0

    flow(test)
