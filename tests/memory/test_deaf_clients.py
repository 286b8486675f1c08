"""Whatever is asked, and however much of it, by clients that read no answer: the server's memory has a bound.

The requests are those of the tables of handlers, the fields those of all headers: a new request is tried
without a change here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from tests.memory.client import LIMIT, SETTLE_SECONDS, Client, Watch, anonymous, clients, most, settle

from sparrowmq.broker.access.rights import RIGHTS
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.ids import offset_message_id, pack_host
from sparrowmq.nameserver.handlers import Handlers
from sparrowmq.nameserver.kv import KeyValues
from sparrowmq.nameserver.options import Options
from sparrowmq.nameserver.registry import Registry
from sparrowmq.protocol import call_headers, headers
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.codes import request_name
from sparrowmq.protocol.frame import Command, encode
from sparrowmq.runtime.child import ChildServers

pytestmark = [
    pytest.mark.crash,
    pytest.mark.timeout(120),
    pytest.mark.stalls(seconds=60, why="thousands of requests for messages of 4 MiB at once"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RssAnon is Linux's"),
]

CLIENTS, REQUESTS = 60, 50
BIG_BODY = 4 * 1024 * 1024 - 1024
MESSAGES, TOPICS = 4, 1000


@dataclass(frozen=True)
class World:
    """A server in a process of its own, and what a request's fields may be."""

    address: str
    pid: int
    fields: Mapping[str, str]
    quick: int


def every_field() -> dict[str, str]:
    """A value for each field that any header has."""
    found: dict[str, str] = {}
    for module in (headers, call_headers):
        for name, kind in vars(module).items():
            if name.endswith("Request") and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                for item in msgspec.structs.fields(kind):
                    found.setdefault(item.encode_name, "0" if "int" in str(item.type) else "false")
    return found


def topic_config(name: str, queues: int) -> dict[str, object]:
    return {"topicName": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}


def batched(items: list[Any]) -> Iterator[list[Any]]:
    """A few hundred at a time: lists have a limit."""
    for at in range(0, len(items), 300):
        yield items[at : at + 300]


def make_topics(client: Client) -> None:
    """Many topics, one with big messages, one with many queues."""
    topics = [topic_config(f"T{n:05}-{'x' * 100}", 4) for n in range(TOPICS)]
    topics += [topic_config("Big", 8), topic_config("Wide", 4096)]
    for some in batched(topics):
        body = json.dumps({"topicConfigList": some}).encode()
        made = client.ask(Code.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
        assert made.code == 0, made.remark


def fill(client: Client) -> int:
    """Messages of 4 MiB with one key, many topics, groups and offsets; a message's place in the log."""
    make_topics(client)
    place = -1
    for number in range(MESSAGES):
        sent = client.ask(
            Code.SEND_MESSAGE,
            {
                **every_field(),
                "topic": "Big",
                "producerGroup": "p",
                "properties": f"UNIQ_KEY\x01U{number}\x02KEYS\x01K\x02",
            },
            os.urandom(BIG_BODY),
        )
        assert sent.code == 0, sent.remark
        place = int(sent.ext["msgId"][-16:], 16)
    groups = [{"groupName": f"G{n:05}-{'x' * 100}", "subscriptionDataSet": []} for n in range(TOPICS)]
    for some in batched(groups):
        beat = {"clientID": "c", "producerDataSet": [], "consumerDataSet": [{**g, **CONSUMER} for g in some]}
        beaten = client.ask(Code.HEART_BEAT, body=json.dumps(beat).encode())
        assert beaten.code == 0, beaten.remark
    return place


CONSUMER = {
    "consumeType": "CONSUME_PASSIVELY",
    "messageModel": "CLUSTERING",
    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
    "unitMode": False,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("memory")
    settings = {
        "listenPort": "0",
        "storePathRootDir": str(root / "store"),
        "mappedFileSizeCommitLog": str(64 << 20),
        "maxHashSlotNum": "1000",
        "maxIndexNum": "4000",
        "diskSpaceWarningLevelRatio": "100",
        "diskMaxUsedSpaceRatio": "100",
        "diskSpaceCleanForciblyRatio": "100",
    }
    with ChildServers(settings, log=root / "log") as servers:
        with Client(servers.broker_address) as client:
            place = fill(client)
        fields = {
            **every_field(),
            **dict.fromkeys(("topic", "originTopic"), "Big"),
            **dict.fromkeys(("consumerGroup", "group", "groupName", "producerGroup", "srcGroup"), "g"),
            **dict.fromkeys(("destGroup", "compareGroup"), "h"),
            **dict.fromkeys(("offset", "commitLogOffset"), str(place)),
            **dict.fromkeys(("msgId", "offsetMsgId"), offset_message_id(pack_host("127.0.0.1", 1), place)),
            **dict.fromkeys(("clientID", "clientId"), "c"),
            **dict.fromkeys(("maxNum", "maxMsgNums", "count"), "1000"),
            "key": "K",
            "indexType": "K",
            "endTimestamp": str(2**62),
            "bulkBytes": str(8 << 20),
            "sysFlag": "4",
            "subscription": "*",
            "defaultTopic": "TBW102",
            "suspendTimeoutMillis": "20000",
            "properties": "UNIQ_KEY\x01U\x02",
            "perm": "6",
            "readQueueNums": "8",
            "writeQueueNums": "8",
        }
        del fields["expressionType"]
        yield World(servers.broker_address, servers.pid, fields, Code.GET_MAX_OFFSET)


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("names")
    settings = {
        "listenPort": "0",
        "storePathRootDir": str(root / "store"),
        "mappedFileSizeCommitLog": str(1 << 20),
    }
    with ChildServers(settings, {"listenPort": "0"}, log=root / "log") as servers:
        with Client(servers.broker_address) as client:
            make_topics(client)
        with Client(servers.nameserver_address) as client:
            value = {"namespace": "N", "key": "K", "value": "v" * (4 << 20)}
            assert client.ask(Code.PUT_KV_CONFIG, value).code == 0
        fields = {
            **every_field(),
            "namespace": "N",
            "key": "K",
            "cluster": "DefaultCluster",
            "clusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "topic": "TBW102",
        }
        yield World(servers.nameserver_address, servers.pid, fields, Code.GET_BROKER_CLUSTER_INFO)


def names_codes() -> list[int]:
    handlers = Handlers(Registry(), KeyValues(None), Options(), SystemClock(), settings=dict, runtime=dict)
    return sorted(handlers.table())


DESTRUCTIVE = {Code.DELETE_TOPIC_IN_BROKER, Code.DELETE_SUBSCRIPTIONGROUP, Code.UPDATE_BROKER_CONFIG}
"""They would take away what the other requests ask for: these ask for what is not there."""
FEW: dict[int, int] = {Code.CONSUMER_SEND_MSG_BACK: 5}
"""Requests of which each stores 4 MiB."""
BODIES: dict[int, bytes] = {
    Code.HEART_BEAT: json.dumps(
        {"clientID": "c", "producerDataSet": [], "consumerDataSet": [{"groupName": "g", **CONSUMER}]}
    ).encode(),
}


def reached(world: World, code: int) -> int:
    """The most memory while many clients ask and do not read."""
    fields = {**world.fields, "topic": "Gone", "groupName": "gone"} if code in DESTRUCTIVE else world.fields
    if code not in (Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE):
        fields = {**fields, "sysFlag": "0"}
    body = BODIES.get(code, b"{}")
    asked = b"".join(
        encode(Command(code, opaque, ext=dict(fields), body=body))
        for opaque in range(FEW.get(code, REQUESTS))
    )
    with Client(world.address) as other:
        return most(world.address, world.pid, lambda: other.ask(world.quick), asked, CLIENTS)


@pytest.mark.parametrize("code", sorted(RIGHTS), ids=request_name)
def test_no_request_of_a_broker_fills_its_memory(broker: World, code: int) -> None:
    assert reached(broker, code) < LIMIT


@pytest.mark.parametrize("code", names_codes(), ids=request_name)
def test_no_request_of_a_name_server_fills_its_memory(names: World, code: int) -> None:
    assert reached(names, code) < LIMIT


def test_requests_short_of_their_end_do_not_fill_the_memory(broker: World) -> None:
    size = 16 * 1024 * 1024 - 64
    start = encode(Command(Code.SEND_MESSAGE, 1, ext=dict(broker.fields), body=bytes(size - 8000)))[:-1000]
    with (
        Client(broker.address) as other,
        Watch(broker.pid) as watch,
        clients(broker.address, CLIENTS) as made,
    ):
        for client in made:
            client.push(start, 1.0)
        settle(lambda: other.ask(broker.quick), SETTLE_SECONDS)
    assert watch.most < LIMIT


def test_one_message_for_many_held_pulls_does_not_fill_the_memory(broker: World) -> None:
    fields = {
        name: broker.fields[name]
        for name in ("consumerGroup", "queueId", "maxMsgNums", "commitOffset", "subVersion", "subscription")
    }
    fields |= {"topic": "Wide", "queueOffset": "0", "sysFlag": "6", "suspendTimeoutMillis": "20000"}
    pulls = b"".join(encode(Command(Code.PULL_MESSAGE, opaque, ext=fields)) for opaque in range(5000))
    with (
        Client(broker.address) as other,
        Watch(broker.pid) as watch,
        clients(broker.address, 10, deaf=True) as deaf,
    ):
        for client in deaf:
            client.push(pulls, 5.0)
        settle(lambda: other.ask(broker.quick), 1.0)
        sent = {**broker.fields, "topic": "Wide", "queueId": "0", "sysFlag": "0"}
        assert other.ask(Code.SEND_MESSAGE, sent, os.urandom(7000)).code == 0
        settle(lambda: other.ask(broker.quick), 1.0)
    assert watch.most < LIMIT


def test_memory_is_given_back(broker: World) -> None:
    """What was kept for clients that are gone is free for others."""
    with Client(broker.address) as client:
        settle(lambda: client.ask(broker.quick), 1.0)
        answer = client.ask(Code.VIEW_MESSAGE_BY_ID, {"offset": broker.fields["offset"]})
        assert (answer.code, len(answer.body) > BIG_BODY) == (0, True)
    assert anonymous(broker.pid) < LIMIT
