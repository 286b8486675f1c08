"""Other versions, older and newer, on the other side; and messages as no version of ours writes them."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from tests.client import fake
from tests.client.fake import NOW_MS, fake_cluster
from tests.contract.bad_input import TOPIC, ask, connected, neighbour, send_one, send_request
from tests.support import run, until

from sparrowmq import aio
from sparrowmq.core.errors import BrokerError, NoRouteError
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.headers import SendMessageRequest, to_ext
from sparrowmq.protocol.record import RECORD_MAGIC_V1, RECORD_MAGIC_V2
from sparrowmq.protocol.sysflag import COMPRESSED
from sparrowmq.testing import LocalCluster

PREFIX = struct.Struct(">iI")
FUTURE_TYPE = 5 << 8
"""A compression type that no version has: the three bits have room for it (remoting:5.4)."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        running.create_topic(TOPIC, queues=1)
        yield running


def framed(header: bytes, body: bytes, kind: int) -> bytes:
    return PREFIX.pack(4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def as_json(command: Command, **members: Any) -> bytes:
    """A frame with these members in its header besides the needed ones."""
    header = {"code": command.code, "opaque": command.opaque, "extFields": command.ext} | members
    return framed(json.dumps(header).encode(), command.body, 0)


def as_compact(command: Command, language: int, version: int) -> bytes:
    fields = b"".join(
        struct.pack(f">h{len(name)}si{len(value)}s", len(name), name, len(value), value)
        for name, value in ((name.encode(), value.encode()) for name, value in command.ext.items())
    )
    head = struct.pack(">hBhiii", command.code, language, version, command.opaque, 0, 0)
    return framed(head + struct.pack(">i", len(fields)) + fields, command.body, 1)


def plain_send(body: bytes, **changes: Any) -> Command:
    """SEND_MESSAGE (10), as clients wrote it before the short names of 310."""
    header = SendMessageRequest(
        producer_group="old",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=NOW_MS,
        flag=0,
    )
    return Command(RequestCode.SEND_MESSAGE, 3, ext=to_ext(header) | changes, body=body)


NEW = {"flag": 0, "language": "ZIG", "version": 2**31 - 1, "compression": {"type": "brotli"}, "hops": [1]}
FRAMES = {
    "newer json": as_json(send_request(b"newer json", opaque=3), **NEW),
    "newer fields": as_json(plain_send(b"newer fields", aNewField="x", zz="1"), **NEW),
    "older json": as_json(plain_send(b"older json")),
    "nulls": as_json(plain_send(b"nulls"), flag=0, language=None, version=0, remark=None),
    "language as number": as_json(plain_send(b"language as number"), language=99, version=-1),
    "newer compact": as_compact(send_request(b"newer compact", opaque=3), 200, 32_767),
    "older compact": as_compact(plain_send(b"older compact"), 0, 0),
}


@pytest.mark.proves("remoting:1.2", "remoting:1.3")
@pytest.mark.parametrize("kind", FRAMES)
def test_sends_of_clients_of_other_versions_are_stored(cluster: LocalCluster, kind: str) -> None:
    async def main() -> None:
        async with connected(cluster.broker_address) as peer:
            await peer.send_bytes(FRAMES[kind])
            answer = await peer.command()
        assert (answer.code, answer.opaque, answer.flag) == (ResponseCode.SUCCESS, 3, FLAG_RESPONSE), answer
        async with aio.PullConsumer(namesrv=cluster.namesrv) as consumer:
            (queue,) = await consumer.queues(TOPIC)
            pulled = await consumer.pull(queue, int(answer.ext["queueOffset"]), max_messages=1)
            assert pulled.messages[0].body == kind.encode()

    run(main())


def test_bodies_of_newer_clients_are_read_as_far_as_they_are_known(cluster: LocalCluster) -> None:
    consumer = {"groupName": "newer", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
    consumer |= {"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [], "mood": "good"}
    body = {"clientID": "c", "consumerDataSet": [consumer], "shareDataSet": [{"x": 1}], "producerDataSet": []}
    unknown = body | {"consumerDataSet": [consumer | {"messageModel": "SHARED"}]}
    good, odd = (Command(RequestCode.HEART_BEAT, body=json.dumps(one).encode()) for one in (body, unknown))
    taken, refused = run(ask(cluster.broker_address, good, odd))
    assert taken.code == ResponseCode.SUCCESS
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "SHARED" in (refused.remark or "")


def newer(code: int = 0, ext: dict[str, str] | None = None, body: bytes = b"", remark: Any = None) -> Command:
    """An answer as a broker of a later version might give it."""
    if body.startswith(b"{"):
        body = b'{"aNewMember":{"deep":[1,{"x":null}]},' + body[1:] if body != b"{}" else b'{"aNewMember":1}'
    more = (ext or {}) | {"aNewField": "x", "flags": "7"}
    return Command(
        code, flag=FLAG_RESPONSE, ext=more, body=body, remark=remark, language="ZIG", version=2**31 - 1
    )


@pytest.mark.proves("remoting:1.2")
def test_clients_work_with_newer_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What answers have besides what is known is passed over, in fields and bodies."""
    monkeypatch.setattr(fake, "answer", newer)

    async def main() -> None:
        got: list[bytes] = []
        async with fake_cluster("T", queues=1) as cluster:
            async with aio.Producer("p", namesrv=cluster.namesrv) as producer:
                await producer.send(aio.Message("T", b"1"))
                await producer.send_batch([aio.Message("T", b"2"), aio.Message("T", b"3")])
            settings = aio.ConsumerSettings(namesrv=cluster.namesrv, consume_from="first")
            consumer = aio.PushConsumer("g", settings=settings)
            consumer.subscribe("T", handler=lambda message: got.append(message.body))
            async with consumer:
                await until(lambda: sorted(got) == [b"1", b"2", b"3"])
            async with aio.Admin(namesrv=cluster.namesrv) as admin:
                assert list((await admin.brokers.cluster_info()).brokers) == ["broker-a"]
                assert (await admin.topics.route("T")).queues[0].broker_name == "broker-a"

    run(main())


def test_an_answer_with_an_unknown_code_is_an_error_with_its_number_and_words() -> None:
    async def main() -> None:
        async with fake_cluster("T", queues=1) as cluster:
            cluster.broker.on[RequestCode.SEND_MESSAGE_V2] = lambda conn, command: newer(
                7321, remark="try Zig"
            )
            async with aio.Producer("p", namesrv=cluster.namesrv) as producer:
                with pytest.raises(BrokerError, match=r"7321.*try Zig") as caught:
                    await producer.send(aio.Message("T", b"1"))
            assert (caught.value.code, caught.value.remark) == (7321, "try Zig")

    run(main())


# Records


@pytest.mark.proves("broker:2.2")
def test_a_topic_too_long_for_the_first_record_layout_takes_the_second(cluster: LocalCluster) -> None:
    """Groups of older versions may have 255 characters: with %DLQ% before it, one byte is too small."""
    topic = f"%DLQ%{'g' * 200}"

    async def main() -> None:
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            await admin.topics.create(topic, queues=1)
        for sent in await ask(cluster.broker_address, plain_send(b"short"), plain_send(b"long", topic=topic)):
            assert sent.code == ResponseCode.SUCCESS, sent
        async with aio.PullConsumer(namesrv=cluster.namesrv) as consumer:
            for name, expected in ((TOPIC, RECORD_MAGIC_V1), (topic, RECORD_MAGIC_V2)):
                queue = await queue_zero(consumer, name)
                raw = await consumer.fetch_raw(queue, await consumer.max_offset(queue) - 1)
                assert magic(raw.buffer) == expected
            pulled = await consumer.pull(queue, 0)
            assert [(found.topic, found.body) for found in pulled.messages] == [(topic, b"long")]

    run(main())


async def queue_zero(consumer: aio.PullConsumer, topic: str) -> aio.MessageQueue:
    """The first queue of a topic that was made a moment ago."""

    async def found() -> aio.MessageQueue | None:
        try:
            return next(queue for queue in await consumer.queues(topic) if queue.queue_id == 0)
        except NoRouteError:
            return None

    return await until(found)


def magic(buffer: bytes) -> int:
    return int(struct.unpack_from(">I", buffer, 4)[0])


@pytest.mark.proves("remoting:5.4")
def test_a_body_with_an_unknown_compression_stays_as_it_is_and_blocks_no_other(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker stores what it need not understand; readers name the message and go on."""

    async def main() -> None:
        broker = cluster.broker_address
        odd = plain_send(b"zig zag", sysFlag=str(COMPRESSED | FUTURE_TYPE), topic="Future")
        good = plain_send(b"plain", topic="Future")
        async with neighbour(broker, send_one) as other, connected(broker) as peer:
            for request in (odd, good):
                await peer.send(request)
                answer = await peer.command()
                assert answer.code == ResponseCode.SUCCESS
            await other.goes_on()
        async with aio.PullConsumer(namesrv=cluster.namesrv) as consumer:
            pulled = await consumer.pull(await queue_zero(consumer, "Future"), 0)
            assert [message.body for message in pulled.messages] == [b"zig zag", b"plain"]
            assert pulled.messages[0].sys_flag & COMPRESSED

    with caplog.at_level(logging.WARNING, logger="sparrowmq.client"):
        run(main())
    assert any("at offset 0 is delivered with its compressed body" in line for line in caplog.messages)


# Control characters

CONTROLS = "".join(chr(code) for code in range(32) if code not in (0, 1, 2)) + "\x7f\x85\u2028\ufeff\u202e"


@pytest.mark.proves("broker:2.2")
def test_control_characters_in_properties_come_back_as_they_were(cluster: LocalCluster) -> None:
    """All but the two that part them: through sends, batches, pulls, queries and filters."""
    name = f"name{CONTROLS}"
    message = aio.Message("Controls", b"x", tags=f"t{CONTROLS}", properties={name: CONTROLS, "nul": "a\x00b"})

    async def main() -> None:
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            await admin.topics.create("Controls", queues=1)
        async with aio.Producer("p", namesrv=cluster.namesrv) as producer:
            await producer.send(message)
            await producer.send_batch([message, message])
        async with aio.PullConsumer(namesrv=cluster.namesrv) as consumer:
            (queue,) = await consumer.queues("Controls")
            pulled = await consumer.pull(queue, 0)
            assert len(pulled.messages) == 3
            for found in pulled.messages:
                assert found.properties[name] == CONTROLS
                assert found.properties["nul"] == "a\x00b"
                assert found.tags == f"t{CONTROLS}"
            filtered = await consumer.pull(queue, 0, expression=aio.Sql("nul = 'a\x00b' AND tab IS NULL"))
            assert len(filtered.messages) == 3

    run(main())
