"""Answers of Apache's name server to real peers, compared with ours in the same situation.

Each recorded request is sent, byte for byte, to a name server that was brought into the state the recorded
answer shows; code, fields, text and body must be the same. Bodies are compared as values: the order of their
members and of name lists means nothing.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support import run

from sparrowmq.nameserver.kv import ORDER_TOPIC_CONFIG
from sparrowmq.nameserver.server import NameServer
from sparrowmq.protocol.bodies import (
    ClusterInfo,
    DataVersion,
    TopicConfig,
    TopicConfigTable,
    route_from_json,
)
from sparrowmq.protocol.frame import Command, FrameReader, decode
from sparrowmq.protocol.headers import RegisterBrokerRequest
from sparrowmq.protocol.java_json import loads

WIRE = Path(__file__).parent.parent / "fixtures" / "wire"
BROKER = "127.0.0.1:21911"
NOT_OURS = "topicQueueMappingByBroker"
"""Static topics are not kept; clients without the member treat the topic as an ordinary one."""


@dataclass(frozen=True)
class Exchange:
    """One recorded request and its answer."""

    name: str
    frame: bytes
    request: Command
    answer: Command


def command_of(frame: bytes) -> Command:
    (raw,) = FrameReader().feed(frame)
    return decode(*raw)


def recorded(*files: str) -> Iterator[Exchange]:
    for file in files:
        for number, line in enumerate((WIRE / file).read_text().splitlines()):
            sample = json.loads(line)
            if sample["to"] == "namesrv" and sample["response"] is not None:
                frame = base64.b64decode(sample["request"])
                yield Exchange(
                    f"{file.removesuffix('.jsonl')}-{number}-{sample['code']}",
                    frame,
                    command_of(frame),
                    command_of(base64.b64decode(sample["response"])),
                )


class Peer:
    """Sends bytes to a name server and reads answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    async def ask(self, frame: bytes) -> Command:
        self.writer.write(frame)
        async with asyncio.timeout(20):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            rest = await self._reader.readexactly(size)
        return command_of(size.to_bytes(4, "big") + rest)


def value(body: bytes) -> Any:
    """A body as a value in which the order of names means nothing."""
    if not body:
        return None
    found = loads(body)
    if isinstance(found, dict):
        found.pop(NOT_OURS, None)
        if "topicList" in found:
            found["topicList"] = sorted(found["topicList"])
    return found


def check(exchange: Exchange, answer: Command) -> None:
    expected = exchange.answer
    assert answer.opaque == exchange.request.opaque
    assert answer.is_response and answer.version >= 401
    assert (answer.code, answer.ext) == (expected.code, expected.ext)
    if expected.code or answer.remark:  # a text beside code 0 means nothing (remoting:1.2)
        assert answer.remark == expected.remark
    assert value(answer.body) == value(expected.body)


async def prepare(server: NameServer, exchange: Exchange) -> None:
    """Bring the name server into the state that the recorded answer shows."""
    code, answer = exchange.request.code, exchange.answer
    names: list[str] = []
    table: dict[str, TopicConfig] = {}
    version = DataVersion(1, 0, 1)
    if answer.code == 17:
        return
    if code == 105:
        route = route_from_json(answer.body)
        topic = exchange.request.ext["topic"]
        for data in route.queues:
            table[topic] = TopicConfig(
                topic_name=topic,
                perm=data.perm,
                read_queue_nums=data.read_queue_nums,
                write_queue_nums=data.write_queue_nums,
                topic_sys_flag=data.topic_sys_flag,
            )
        if route.order_topic_conf is not None:
            await server._values.put(ORDER_TOPIC_CONFIG, topic, route.order_topic_conf)
    elif code in (205, 327):
        names = [f"T{n}" for n in range(int(*answer.ext.values()))]
    elif code in (206, 224, 311, 312, 313):
        names = json.loads(answer.body)["topicList"]
    elif code == 322 and answer.body:
        version = DataVersion.decode(answer.body)
    elif code == 101 and not answer.code:
        request = exchange.request.ext
        await server._values.put(request["namespace"], request["key"], answer.ext["value"])
    elif code in (103, 219) and answer.body:
        for key, text in json.loads(answer.body)["table"].items():
            await server._values.put(ORDER_TOPIC_CONFIG, key, text)
    if code == 106 and not ClusterInfo.decode(answer.body).brokers:
        return
    table |= {name: TopicConfig(topic_name=name) for name in names}
    await register(server, table, version)


async def register(server: NameServer, table: dict[str, TopicConfig], version: DataVersion) -> None:
    request = RegisterBrokerRequest(
        broker_name="broker-a",
        broker_id=0,
        broker_addr=BROKER,
        cluster_name="DefaultCluster",
        ha_server_addr="127.0.0.1:21912",
    )
    registered = TopicConfigTable(version, table)
    for part in (TopicConfigTable(), registered):  # one topic alone would be refused
        server._registry.register(request, part, connection=0, now=server._clock.monotonic())


async def name_server() -> NameServer:
    server = NameServer(port=0)
    server._options.order_message_enable = True
    await server.start()
    return server


SAMPLES = [
    exchange
    for exchange in recorded("java-4.9.jsonl", "java-5.5.jsonl", "cpp.jsonl", "node.jsonl", "mqadmin.jsonl")
    if exchange.request.code != 319  # names and values of settings: below
]


@pytest.mark.parametrize("exchange", SAMPLES, ids=lambda exchange: exchange.name)
def test_answer_equals_the_recorded_one(exchange: Exchange) -> None:
    async def main() -> None:
        server = await name_server()
        peer = Peer(*await asyncio.open_connection("127.0.0.1", server.port))
        try:
            await prepare(server, exchange)
            answer = await peer.ask(exchange.frame)
            check(exchange, answer)
            if exchange.request.code == 105 and answer.body:
                bare = b'"brokerAddrs":{0:'
                assert (bare in answer.body) == (bare in exchange.answer.body)
                assert b": " not in answer.body and b", " not in answer.body
        finally:
            peer.writer.close()
            await server.close()

    run(main())


def test_every_code_that_clients_and_tools_send_has_samples() -> None:
    codes = {exchange.request.code for exchange in SAMPLES}
    assert codes >= {100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 219, 224, 304, 318, 322, 327, 901, 904}
    assert len(SAMPLES) > 100


def test_requests_of_a_brokers_life_get_the_recorded_answers() -> None:
    """The recorded requests of a broker in their order, over one connection."""

    asked: set[int] = set()

    async def main() -> None:
        server = await name_server()
        peer = Peer(*await asyncio.open_connection("127.0.0.1", server.port))
        try:
            for exchange in recorded("broker-to-namesrv.jsonl"):
                if exchange.request.ext.get("topic") == "%RETRY%GPop55":
                    continue  # made by a registration that was not kept among the samples
                await order_table(server, exchange)
                check(exchange, await peer.ask(exchange.frame))
                asked.add(exchange.request.code)
        finally:
            peer.writer.close()
            await server.close()

    async def order_table(server: NameServer, exchange: Exchange) -> None:
        """The table that operators changed meanwhile, as the recorded answer shows it."""
        if exchange.request.code == 103:
            for key in server._values.namespace(ORDER_TOPIC_CONFIG):
                await server._values.delete(ORDER_TOPIC_CONFIG, key)
            if exchange.answer.body:
                for key, text in json.loads(exchange.answer.body)["table"].items():
                    await server._values.put(ORDER_TOPIC_CONFIG, key, text)

    run(main())
    assert asked == {103, 104, 105, 106}


def test_settings_have_rocketmqs_names() -> None:
    async def main() -> None:
        server = await name_server()
        peer = Peer(*await asyncio.open_connection("127.0.0.1", server.port))
        (exchange,) = (e for e in recorded("mqadmin.jsonl") if e.request.code == 319)
        try:
            ours = (await peer.ask(exchange.frame)).body.decode().splitlines()
            theirs = exchange.answer.body.decode().splitlines()
            names = {line.partition("=")[0] for line in ours}
            assert names <= {line.partition("=")[0] for line in theirs}
            assert {"orderMessageEnable=true", f"listenPort={server.port}"} <= set(ours)
        finally:
            peer.writer.close()
            await server.close()

    run(main())
