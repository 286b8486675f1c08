"""Attributes of topics: known, supported, changeable; kept across changes and restarts; in every answer."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.admin.test_admin import Desk
from tests.broker.rig import Rig

from sparrowmq.broker.tables.topic_attributes import KNOWN, altered, not_served, parse
from sparrowmq.protocol.bodies import TopicConfig, TopicConfigList, TopicConfigTable
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.refusals import Refused

OLD = {"message.type": "FIFO", "queue.type": "SimpleCQ"}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.rig.close()


@pytest.mark.parametrize(
    ("current", "text", "result"),
    [
        (None, "", {}),
        (None, ",", {}),
        (None, "+message.type=FIFO,", {"message.type": "FIFO"}),
        (
            None,
            "+reserve.time=-1,+lite.topic.expiration=-1",
            {"lite.topic.expiration": "-1", "reserve.time": "-1"},
        ),
        (
            None,
            "+cleanup.policy=DELETE,+queue.type=SimpleCQ",
            {"cleanup.policy": "DELETE", "queue.type": "SimpleCQ"},
        ),
        *((None, f"+message.type={kind}", {"message.type": kind}) for kind in KNOWN["message.type"].served),
        (OLD, "", OLD),
        (OLD, "+message.type=NORMAL", {**OLD, "message.type": "NORMAL"}),
        (OLD, "-message.type", {"queue.type": "SimpleCQ"}),
        (OLD, "+reserve.time=-1", {**OLD, "reserve.time": "-1"}),
        (
            {"of.another.release": "x"},
            "+message.type=FIFO",
            {"message.type": "FIFO", "of.another.release": "x"},
        ),
    ],
)
def test_changes_produce_the_expected_attributes(
    current: dict[str, str] | None,
    text: str,
    result: dict[str, str],
) -> None:
    assert altered(current, parse(text)) == result


@pytest.mark.parametrize(
    ("current", "text", "remark"),
    [
        (None, "+nonsense=1", "unsupported key: nonsense (known: queue.type, "),
        (None, "+message.type=fifo", "value is not in set: [UNSPECIFIED, NORMAL, "),
        (
            None,
            "+message.type=LITE",
            "message.type=LITE is not supported by this broker; it supports UNSPECIFIED, ",
        ),
        (None, "+message.type=PRIORITY", "message.type=PRIORITY is not supported"),
        (
            None,
            "+queue.type=BatchCQ",
            "queue.type=BatchCQ is not supported by this broker; it supports SimpleCQ",
        ),
        (None, "+queue.type=x", "value is not in set: [SimpleCQ, BatchCQ]"),
        (None, "+cleanup.policy=COMPACTION", "cleanup.policy=COMPACTION is not supported"),
        (None, "+reserve.time=100", "reserve.time=100 is not supported by this broker; it supports -1"),
        (None, "+reserve.time=x", "value is not in range(-1, 9223372036854775807)"),
        (None, "+reserve.time=-2", "value is not in range(-1, 9223372036854775807)"),
        (None, "+reserve.time=٣", "value is not in range"),
        (None, "+reserve.time=" + "9" * 5000, "value is not in range"),
        (None, "+lite.topic.expiration=43201", "value is not in range(-1, 43200)"),
        (
            None,
            "message.type=FIFO",
            "add/alter attribute format is wrong: message.type=FIFO (write +key=value)",
        ),
        (None, "message.type", "delete attribute format is wrong: message.type (write -key)"),
        (None, "+message.type=", "add/alter attribute format is wrong"),
        (None, "+message.type=FIFO=x", "add/alter attribute format is wrong"),
        (None, "+=x", "kv string format wrong."),
        (None, "++message.type=FIFO", "kv string format wrong."),
        (None, " +message.type=FIFO", "kv string format wrong."),
        (None, "+message.type=FIFO,+message.type=FIFO", "key duplication: +message.type"),
        (OLD, "+message.type=FIFO,-message.type", "alter duplication key. key: message.type"),
        (None, "-message.type", "only add attribute is supported while creating topic. key: message.type"),
        (OLD, "-cleanup.policy", "attempt to delete a nonexistent key: cleanup.policy"),
        (OLD, "+queue.type=SimpleCQ", "attempt to update an unchangeable attribute. key: queue.type"),
        (OLD, "+cleanup.policy=DELETE", "attempt to update an unchangeable attribute. key: cleanup.policy"),
        (OLD, "-queue.type", "attempt to update an unchangeable attribute. key: queue.type"),
    ],
)
def test_invalid_attributes_are_refused(current: dict[str, str] | None, text: str, remark: str) -> None:
    with pytest.raises(Refused) as caught:
        altered(current, parse(text))
    assert remark in str(caught.value)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR


def test_mixed_topics_are_refused_as_by_rocketmq() -> None:
    with pytest.raises(Refused, match=r"^MIXED message type is not supported\.$") as caught:
        altered(None, parse("+message.type=MIXED"))
    assert caught.value.code == ResponseCode.INVALID_PARAMETER


def test_attributes_are_stored_shown_and_changed_one_by_one(desk: Desk) -> None:
    assert desk.create(attributes="+message.type=FIFO,+queue.type=SimpleCQ").code == ResponseCode.SUCCESS
    assert desk.create(readQueueNums=5).code == ResponseCode.SUCCESS
    config = desk.rig.topics.configs["T"]
    assert (config.read_queue_nums, config.attributes) == (5, OLD), "what is not named stays"
    told = TopicConfig.decode(desk.ask(desk.topics.config, topic="T").body)
    every = TopicConfigTable.decode(desk.ask(desk.topics.all_configs).body).topic_config_table["T"]
    assert told.attributes == every.attributes == OLD
    assert desk.create(attributes="-message.type").code == ResponseCode.SUCCESS
    assert desk.rig.topics.configs["T"].attributes == {"queue.type": "SimpleCQ"}
    refused = desk.create(attributes="+message.type=NORMAL,+nonsense=1", readQueueNums=9)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    config = desk.rig.topics.configs["T"]
    assert (config.read_queue_nums, config.attributes) == (2, {"queue.type": "SimpleCQ"}), "all or nothing"


def test_topic_with_refused_attributes_is_not_created(desk: Desk) -> None:
    for text in ("+nonsense=1", "+queue.type=BatchCQ", "+message.type=MIXED"):
        assert desk.create(attributes=text).code != ResponseCode.SUCCESS
    assert "T" not in desk.rig.topics.configs
    assert desk.rig.registration.waited == 0


def test_several_topics_keep_their_attributes_and_none_is_created_when_one_is_refused(desk: Desk) -> None:
    def create(**attributes: str) -> int:
        changes = {"A": {}, "B": {key.replace("_", "."): value for key, value in attributes.items()}}
        configs = [TopicConfig(topic_name=name, attributes=one) for name, one in changes.items()]
        signed = [
            TopicConfig(
                topic_name=one.topic_name, attributes={f"+{key}": x for key, x in one.attributes.items()}
            )
            for one in configs
        ]
        answer = desk.ask(desk.topics.create_all, TopicConfigList(signed).encode())
        return answer.code

    assert create(nonsense="1") == ResponseCode.SYSTEM_ERROR
    assert not {"A", "B"} & desk.rig.topics.configs.keys()
    assert create(message_type="DELAY") == ResponseCode.SUCCESS
    assert desk.rig.topics.configs["A"].attributes == {}
    assert desk.rig.topics.configs["B"].attributes == {"message.type": "DELAY"}


def test_attributes_survive_a_restart_in_rocketmqs_format(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.create(attributes="+message.type=FIFO")
    desk.rig.close()
    (path,) = tmp_path.rglob("topics.json")
    assert json.loads(path.read_text())["topicConfigTable"]["T"]["attributes"] == {"message.type": "FIFO"}
    again = Rig(tmp_path)
    assert again.topics.configs["T"].attributes == {"message.type": "FIFO"}
    again.close()


def test_unsupported_attributes_of_a_rocketmq_store_are_kept_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(tmp_path)
    desk.create()
    desk.rig.close()
    (path,) = tmp_path.rglob("topics.json")
    table = json.loads(path.read_text())
    foreign = {"cleanup.policy": "COMPACTION", "of.another.release": "x", "message.type": "FIFO"}
    table["topicConfigTable"]["T"]["attributes"] = foreign
    path.write_text(json.dumps(table))
    with caplog.at_level(logging.WARNING):
        desk = Desk(tmp_path)
    assert "cleanup.policy=COMPACTION, of.another.release=x is not supported by this broker" in caplog.text
    assert desk.create(readQueueNums=3).code == ResponseCode.SUCCESS
    config = desk.rig.topics.configs["T"]
    assert (config.read_queue_nums, config.attributes) == (3, foreign), "a change erases none"
    desk.rig.close()


def test_attributes_without_effect_are_accepted() -> None:
    assert not_served({"queue.type": "SimpleCQ", "reserve.time": "-1"}) == []
    assert not_served({"queue.type": "BatchCQ", "x": "y"}) == ["queue.type=BatchCQ", "x=y"]
