"""Whoever asks with ever new names, keys and addresses: what grows has a bound, which stands here.

Every request of a broker's and a name server's tables of handlers is asked again and again with names that
nobody used before, and every container that the servers reach is counted. One that grew is named in `BOUNDED`
with what ends it: a new table without a bound is found without a change here.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.broker.test_growth import sizes
from tests.broker.test_server import serving
from tests.memory.test_deaf_clients import CONSUMER, every_field, names_codes
from tests.support import run, until

from sparrowmq.broker.access.rights import RIGHTS
from sparrowmq.core.errors import SparrowError
from sparrowmq.nameserver.server import NameServer
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.codes import ResponseCode, request_name
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import SendMessageRequest, from_ext, send_v2_to_ext
from sparrowmq.transport.client import RemotingClient

pytestmark = [
    pytest.mark.timeout(420),
    pytest.mark.stalls(seconds=10, why="the clients that flood run on the servers' loop"),
]

ROUNDS, NAMES = 3, 8
UNKNOWN = (7, 4711, 99_999)
"""Codes that nobody has."""

BOUNDED = {
    "LoopWatch._parts": "the kinds of work of one turn",
    "Stall.where": "a few calls of each of the last 16 stalls",
    "BrokerStats._items": "50,000 items",
    "BrokerStats._of_queues": "50,000 items of single queues",
    "BrokerStats._pulled": "50,000 pairs of a queue and a group",
    "BrokerStats._put": "queuesMax",
    "Item.day": "25 samples of an item",
    "Item.hour": "7 samples of an item",
    "Item.minute": "7 samples of an item",
    "Holds._holds": "1,000 holds",
    "KeyHashes._heads": "10,000 topics, then it begins anew",
    "MessageIndex._topics": "10,000 topics, then it begins anew",
    "_Topic.keys": "of those",
    "_Topic.tags": "of those",
    "PlainSends._tag_codes": "10,000 tags, then it begins anew",
    "PullPath._taken": "queues and groups of the pulls since the last sample",
    "OccasionalLog._last": "65 kinds of lines",
    "OccasionalLog._left_out": "of those",
    "PlainSends._known": "4,096 shapes, then it begins anew",
    "MapPool._mapped": "a part of the files that the process may map",
    "QueueTable._topics": "queuesMax",
    "SegmentSequence._segments": "the files of the queues",
    "SafePoint.queues": "queuesMax",
    "Topic.queues": "queuesMax",
    "TopicTable._open": "topicsMax",
    "ConsumerOffsets._fresh": "consumerOffsetsMax",
    "ConsumerFilters._of_group": "10,000 filters",
    "ConsumerFilters._table": "10,000 filters",
    "BloomData.bit_pos": "of those",
    "Debt._marks": "64 for each connection, and what is closed is forgotten",
    "GroupTable._forbidden": "10,000 bans",
    "GroupTable.configs": "groupsMax",
    "SubscriptionGroupConfig.group_retry_policy": "of those",
    "ConsumerOffsets._table": "consumerOffsetsMax",
    "ConsumerOffsets.resets": "of those",
    "KeyValues._table": "10,000 keys and 8 MiB",
    "PendingCalls._slots": "until the time of the calls is up",
    "ProducerTable._ended": "10,000 families",
    "QueueLocks._groups": "200,000 locks, until a minute after the last claim",
    "Registry._served": "routesMax",
    "Registry._topics": "topicsMax",
    "StoreStats._samples": "the samples of ten minutes",
    "TableFile.on_disk": "as much as the tables of topics and groups",
    "TopicTable.births": "topicsMax",
    "TopicTable.configs": "topicsMax",
}
"""What may grow, and what ends it."""

ELSEWHERE = 100_000
MAKING = (
    *(
        Code.UPDATE_AND_CREATE_TOPIC,
        Code.UPDATE_AND_CREATE_TOPIC_LIST,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    ),
    *(Code.HEART_BEAT, Code.REGISTER_BROKER, Code.SEND_MESSAGE, Code.PUT_KV_CONFIG),
)
ENDING = (
    *(Code.DELETE_TOPIC_IN_BROKER, Code.DELETE_SUBSCRIPTIONGROUP, Code.UNREGISTER_CLIENT),
    *(
        Code.DELETE_TOPIC_IN_NAMESRV,
        Code.UNREGISTER_BROKER,
        Code.DELETE_KV_CONFIG,
        Code.DELETE_RETENTION_HOLD,
    ),
)
"""They end what others made; here they end what nobody has."""
MUST_DO_WELL = {
    *MAKING,
    *(Code.PULL_MESSAGE, Code.UPDATE_CONSUMER_OFFSET, Code.LOCK_BATCH_MQ),
    *(Code.SEND_MESSAGE_V2, Code.PUT_RETENTION_HOLD, Code.GET_ROUTEINFO_BY_TOPIC),
    *(Code.CLONE_GROUP_OFFSET, Code.GET_CONSUME_STATS, Code.INVOKE_BROKER_TO_RESET_OFFSET),
}
"""Requests of which some must succeed, or the test would look at nothing."""
FIELDS = every_field()
NUMBERS = {
    "offset": "0",
    "commitLogOffset": "0",
    "commitOffset": "0",
    "queueOffset": "0",
    "suspendTimeoutMillis": "0",
    "maxMsgNums": "1",
    "maxNum": "1",
    "sysFlag": "4",
    "perm": "6",
    "readQueueNums": "1",
    "writeQueueNums": "1",
    "defaultTopicQueueNums": "1",
    "hours": "1",
    "sizeMax": "0",
    "bornTimestamp": "1",
    "endTimestamp": str(2**62),
    "delayLevel": "1",
    "readable": "false",
    "attributes": "",
    "indexType": "U",
    "queueId": "0",
    "delayTimeLevel": "0",
    "topicFilterType": "SINGLE_TAG",
    "lockKey": "",
    "timestamp": "-1",
    "reconsumeTimes": "0",
    "heartbeatTimeoutMillis": "600000",
    "bodyCrc32": "0",
}


def fields(code: int, fresh: int) -> dict[str, str]:
    """A value for each field of any header; texts are new ones."""
    found = {name: f"{name}-{fresh}" if value == "false" else value for name, value in FIELDS.items()}
    booleans = ("batch", "unitMode", "order", "cleanOffset", "isForce", "offline", "isOrder", "compressed")
    found |= dict.fromkeys(booleans, "false")
    group, topic = f"g{fresh}", f"T{fresh}"
    found |= dict.fromkeys(("consumerGroup", "group", "groupName", "producerGroup", "srcGroup"), group)
    found |= dict.fromkeys(("topic", "originTopic"), topic)
    found |= dict.fromkeys(("clientID", "clientId"), f"c{fresh}")
    found |= {
        "brokerAddr": f"10.0.0.1:{fresh}",
        "haServerAddr": f"10.0.0.2:{fresh}",
        "defaultTopic": "TBW102",
    }
    found |= {"subscription": f"tag{fresh}", "properties": f"UNIQ_KEY\x01U{fresh}\x02TAGS\x01t{fresh}\x02"}
    del found["expressionType"]
    found |= NUMBERS
    if code not in (Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE):
        found["sysFlag"] = "0"
    else:
        found["subscription"] = "*"
    if code in (Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.SEND_REPLY_MESSAGE_V2):
        header = from_ext(SendMessageRequest, found)
        found |= {name: str(value) for name, value in send_v2_to_ext(header).items()}
    return found


def bodies(fresh: int) -> Iterator[bytes]:
    """What a request's body may be, with new names."""
    group, topic = f"g{fresh}", f"T{fresh}"
    subscription = {"topic": topic, "subString": f"tag{fresh}", "subVersion": 1, "tagsSet": [f"tag{fresh}"]}
    sql = {**subscription, "topic": f"S{fresh}", "subString": f"a > {fresh}", "expressionType": "SQL92"}
    consumer = {"groupName": group, **CONSUMER, "subscriptionDataSet": [subscription, sql]}
    producer = {"groupName": f"p{fresh}"}
    queue = {"topic": topic, "brokerName": f"b{fresh}", "queueId": 0}
    config = {"topicName": topic, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    other = {**config, "topicName": f"other{fresh}"}
    beat = {"clientID": f"c{fresh}", "producerDataSet": [producer], "consumerDataSet": [consumer]}
    yield json.dumps(beat).encode()
    yield json.dumps({"consumerGroup": group, "clientId": f"c{fresh}", "mqSet": [queue]}).encode()
    yield json.dumps({"groupName": group, "groupConfigList": [{"groupName": f"h{fresh}"}]}).encode()
    yield json.dumps({"topicConfigList": [config]}).encode()
    yield json.dumps(
        {
            "topicConfigSerializeWrapper": {
                "topicConfigTable": {topic: config, f"other{fresh}": other},
                "dataVersion": {"counter": fresh, "timestamp": fresh, "stateVersion": 0},
            },
            "filterServerList": [f"f{fresh}"],
        }
    ).encode()
    yield f"name{fresh}=value".encode()
    yield b"\xff" + str(fresh).encode()
    yield b""
    yield b"x"


def in_order(codes: Iterable[int]) -> list[int]:
    """Those that make things come first: the others find them."""
    return sorted(codes, key=lambda code: (MAKING.index(code) if code in MAKING else len(MAKING), code))


async def flood(client: RemotingClient, address: str, codes: Iterable[int], first: int) -> set[int]:
    """Every code with every body, with names that nobody used in the round before; which codes did well."""
    well: set[int] = set()

    async def one(code: int, fresh: int, body: bytes) -> None:
        fresh += ELSEWHERE if code in ENDING else 0
        command = Command(code, ext=fields(code, fresh), body=body, remark=f"remark{fresh}")
        with suppress(SparrowError):
            answer = await client.call(address, command, 5.0)
            well.update([code] if answer.code == ResponseCode.SUCCESS else [])

    for code in in_order(codes):
        names = range(first, first + NAMES)
        await asyncio.gather(*(one(code, fresh, body) for fresh in names for body in bodies(fresh)))
    return well


def test_what_grows_with_fresh_names_has_a_bound(tmp_path: Path) -> None:
    seen: list[Counter[str]] = []
    well: set[int] = set()

    async def main() -> None:
        names = NameServer(port=0)
        await names.start()
        changes = {"namesrv_addr": names.address, "mapped_file_size_consume_queue": 2000}
        try:
            async with serving(tmp_path, **changes) as call:
                for number in range(ROUNDS):
                    client, first = RemotingClient(), 1000 * (number + 1)
                    well.update(await flood(client, call.broker.address, [*RIGHTS, *UNKNOWN], first))
                    well.update(await flood(client, names.address, [*names_codes(), *UNKNOWN], first))
                    await client.close()
                    await until(lambda: not call.broker.parts.topics._unsaved)
                    gc.collect()
                    seen.append(sizes(call.broker, names))
        finally:
            await names.close()

    run(main())
    assert well >= MUST_DO_WELL, sorted(map(request_name, MUST_DO_WELL - well))
    grown = {path: seen[-1][path] - count for path, count in seen[-2].items()}
    grown = {path: count for path, count in grown.items() if count >= NAMES}
    assert {path: count for path, count in grown.items() if path not in BOUNDED} == {}
    assert grown.keys() >= {"TopicTable.configs", "GroupTable.configs", "QueueTable._topics"}
