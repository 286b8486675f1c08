"""Attributes of topics in requests 17 and 18: taken and refused as Apache's broker does, but for what is not
served here, which it keeps.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.interop.apache import ApacheCluster, ask

from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop

SAME = [
    "",
    ",",
    "+message.type=FIFO",
    "+message.type=FIFO,",
    "+message.type=UNSPECIFIED",
    "+message.type=NORMAL",
    "+message.type=DELAY",
    "+message.type=TRANSACTION",
    "+message.type=MIXED",
    "+message.type=fifo",
    "+queue.type=SimpleCQ",
    "+queue.type=x",
    "+cleanup.policy=DELETE",
    "+reserve.time=-1",
    "+reserve.time=x",
    "+reserve.time=-2",
    "+lite.topic.expiration=-1",
    "+lite.topic.expiration=43201",
    "+nonsense=1",
    "message.type=FIFO",
    "message.type",
    "-message.type",
    "+message.type",
    "+message.type=",
    "+=x",
    "++message.type=FIFO",
    " +message.type=FIFO",
    "+message+type=1",
    "+message.type=FIFO,+message.type=FIFO",
    "+message.type=FIFO,-message.type",
]
NOT_SERVED = [
    "+queue.type=BatchCQ",
    "+cleanup.policy=COMPACTION",
    "+reserve.time=100",
    "+message.type=LITE",
    "+message.type=PRIORITY",
    "+lite.topic.expiration=5",
]
CHANGES = [
    "",
    "+message.type=NORMAL",
    "-message.type",
    "+queue.type=SimpleCQ",
    "-queue.type",
    "-cleanup.policy",
    "-nonsense",
    "+cleanup.policy=DELETE",
]


def create(address: str, topic: str, attributes: str | None) -> tuple[int, dict[str, str] | None, str]:
    """The answer's code, the topic's attributes afterwards (None: there is no topic), and the remark."""
    ext = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    if attributes is not None:
        ext["attributes"] = attributes
    answer = ask(address, Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=ext))
    return answer.code, attributes_of(address, topic), answer.remark or ""


def attributes_of(address: str, topic: str) -> dict[str, str] | None:
    config = ask(address, Command(RequestCode.GET_TOPIC_CONFIG, ext={"topic": topic}))
    found: dict[str, Any] = json.loads(config.body) if config.code == ResponseCode.SUCCESS else {}
    return found.get("attributes")


def delete(address: str, topic: str) -> None:
    answer = ask(address, Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext={"topic": topic}))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


@pytest.fixture
def addresses(apache: ApacheCluster, ours: LocalCluster) -> tuple[str, str]:
    return apache.broker_address, ours.broker_address


def test_topics_are_made_with_the_same_attributes_or_refused_alike(addresses: tuple[str, str]) -> None:
    for number, text in enumerate(SAME):
        theirs, mine = (create(address, f"made_{number}", text) for address in addresses)
        assert mine[:2] == theirs[:2], (text, theirs, mine)


def test_topics_are_changed_alike(addresses: tuple[str, str]) -> None:
    for number, text in enumerate(CHANGES):
        topic = f"changed_{number}"
        for address in addresses:
            assert create(address, topic, "+message.type=FIFO,+queue.type=SimpleCQ")[0] == 0
        theirs, mine = (create(address, topic, text) for address in addresses)
        assert mine[:2] == theirs[:2], (text, theirs, mine)
        theirs, mine = (create(address, topic, None) for address in addresses)
        assert mine[:2] == theirs[:2], f"{text}: what is not named stays"


def test_what_we_do_not_serve_is_refused_here_and_kept_there(addresses: tuple[str, str]) -> None:
    for number, text in enumerate(NOT_SERVED):
        theirs, mine = (create(address, f"served_{number}", text) for address in addresses)
        assert theirs[0] == ResponseCode.SUCCESS, "or we need no rule for it"
        # An empty BatchCQ makes Apache's broker answer 306 (clean expired queues) with an error.
        delete(addresses[0], f"served_{number}")
        assert mine[:2] == (ResponseCode.SYSTEM_ERROR, None)
        assert "is not supported by this broker" in mine[2]


@pytest.mark.parametrize(
    "attributes",
    [{"+message.type": "FIFO"}, {"message.type": "FIFO"}, {"+nonsense": "1"}, {"+message.type": "MIXED"}, {}],
    ids=["set", "without sign", "unknown", "mixed", "none"],
)
def test_a_list_of_topics_has_them_in_the_same_way(
    addresses: tuple[str, str], attributes: dict[str, str], name: str
) -> None:
    one = {
        "topicName": name,
        "readQueueNums": 1,
        "writeQueueNums": 1,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "attributes": attributes,
    }
    body = json.dumps({"topicConfigList": [one]}).encode()
    command = Command(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
    theirs, mine = ((ask(at, command).code, attributes_of(at, name)) for at in addresses)
    assert mine == theirs
