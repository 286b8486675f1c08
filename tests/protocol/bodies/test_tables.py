"""Topics, groups and lists: recorded answers, configuration files, defaults."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.protocol import archives, recorded

from sparrowmq.core.errors import BodyError
from sparrowmq.protocol import bodies
from sparrowmq.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigTable,
)
from sparrowmq.protocol.bodies.base import Body
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.java_json import dumps_pretty, loads

ANSWERS: dict[int, type[bodies.TopicList] | Any] = {
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: bodies.TopicList,
    Code.GET_TOPICS_BY_CLUSTER: bodies.TopicList,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: bodies.TopicList,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: bodies.TopicList,
    Code.QUERY_TOPICS_BY_CONSUMER: bodies.TopicList,
    Code.GET_CONSUMER_LIST_BY_GROUP: bodies.ConsumerList,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: bodies.GroupList,
    Code.GET_TOPIC_CONFIG: bodies.TopicConfig,
    Code.GET_ALL_TOPIC_CONFIG: bodies.TopicConfigTable,
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: bodies.SubscriptionGroupConfig,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: bodies.SubscriptionGroupTable,
    Code.GET_KVLIST_BY_NAMESPACE: bodies.KVTable,
    Code.GET_BROKER_RUNTIME_INFO: bodies.KVTable,
    Code.REGISTER_BROKER: bodies.KVTable,
    Code.QUERY_DATA_VERSION: bodies.DataVersion,
}
STATIC_TOPICS = {
    "mappingDataVersion",
    "topicQueueMappingDetailMap",
    "topicQueueMappingInfoMap",
    "mappingDetail",
}
"""Members of static topics, which are read over."""


@pytest.mark.parametrize("code", sorted(ANSWERS), ids=lambda code: Code(code).name)
def test_every_recorded_answer_is_read_and_written_with_the_same_meaning(code: int) -> None:
    type_ = ANSWERS[code]
    seen = 0
    for exchange, answer in recorded.answers(code):
        if not answer.body or exchange.body_dropped:
            continue
        body = type_.decode(answer.body)
        theirs = {name: value for name, value in loads(answer.body).items() if name not in STATIC_TOPICS}
        assert loads(body.encode()) == theirs, exchange
        assert type_.decode(body.encode()) == body, exchange
        seen += 1
    assert seen


@pytest.mark.parametrize(
    ("code", "type_"),
    [
        (Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, bodies.SubscriptionGroupConfig),
        (Code.QUERY_DATA_VERSION, bodies.DataVersion),
    ],
)
def test_every_recorded_request_is_read(code: int, type_: Any) -> None:
    seen = 0
    for exchange, request in recorded.requests(code):
        if request.body:
            assert loads(type_.decode(request.body).encode()) == loads(request.body), exchange
            seen += 1
    assert seen


@pytest.mark.parametrize("store", [archives.CLEAN_5, archives.CLEAN_4, archives.KILLED_5])
@pytest.mark.parametrize(
    ("file", "type_"),
    [("topics", bodies.TopicConfigTable), ("subscriptionGroup", bodies.SubscriptionGroupTable)],
)
def test_tables_of_real_brokers_are_read(store: str, file: str, type_: Any) -> None:
    data = (archives.unpacked(store) / "config" / f"{file}.json").read_bytes()
    table = type_.decode(data)
    raw = loads(data)
    name = "topicConfigTable" if file == "topics" else "subscriptionGroupTable"
    ours = loads(table.encode())
    assert ours[name].keys() == raw[name].keys()
    for key, config in raw[name].items():
        assert ours[name][key].items() >= config.items()
    if store != archives.CLEAN_4:
        assert dumps_pretty(msgspec.to_builtins(table)) == data or file == "subscriptionGroup"


def test_defaults_are_those_of_java() -> None:
    text = (
        b'{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
        b'"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"g1",'
        b'"groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,'
        b'"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}'
    )
    assert bodies.SubscriptionGroupConfig(group_name="g1").encode() == text
    assert bodies.SubscriptionGroupConfig.decode(b'{"groupName":"g1"}').encode() == text
    topic = bodies.TopicConfig(topic_name="TopicA", read_queue_nums=4, write_queue_nums=4)
    assert topic.encode() == (
        b'{"attributes":{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
        b'"topicName":"TopicA","topicSysFlag":0,"writeQueueNums":4}'
    )


def test_defaults_are_not_shared() -> None:
    assert bodies.TopicConfigTable().topic_config_table is not bodies.TopicConfigTable().topic_config_table
    one, two = (bodies.SubscriptionGroupConfig(group_name="g") for _ in range(2))
    assert one.group_retry_policy is not two.group_retry_policy


def test_a_change_bumps_a_version() -> None:
    version = bodies.DataVersion(3, 1, 1000).bumped(2000)
    assert version == bodies.DataVersion(counter=4, state_version=1, timestamp=2000)
    assert version.encode() == b'{"counter":4,"stateVersion":1,"timestamp":2000}'


def test_versions_of_4_9_have_no_state() -> None:
    assert bodies.DataVersion.decode(b'{"counter":1,"timestamp":5}') == bodies.DataVersion(1, 0, 5)


@pytest.mark.parametrize("type_", [bodies.TopicConfig, bodies.SubscriptionGroupConfig])
def test_configurations_without_name_are_refused(type_: Any) -> None:
    with pytest.raises(BodyError, match="Name"):
        type_.decode(b"{}")


def test_references_in_attributes_count_as_none() -> None:
    config = b'{"topicName":"T","attributes":{"$ref":"$.topicConfigTable.A.attributes"}}'
    body = b'{"topicConfigTable":{"T":' + config + b"}}"
    assert bodies.TopicConfigTable.decode(body).topic_config_table["T"].attributes == {}


def test_an_address_is_written_only_when_there_is_one() -> None:
    assert bodies.TopicList(["T"]).encode() == b'{"topicList":["T"]}'
    assert bodies.TopicList(["T"], "h:1").encode() == b'{"topicList":["T"],"brokerAddr":"h:1"}'


@pytest.mark.parametrize("names", [[], ["a"], ["a", 'b"ü']])
def test_large_tables_are_written_as_others_are(names: list[str]) -> None:
    def plain(body: Body) -> bytes:
        return Body.encode(body)

    version = DataVersion(3, 0, 7)
    topics = TopicConfigTable(version, {name: TopicConfig(topic_name=name) for name in names})
    assert topics.encode() == plain(topics)
    registration = RegisterBrokerBody(["f"], topics)
    assert registration.encode() == plain(registration)
    groups = {name: SubscriptionGroupConfig(group_name=name) for name in names}
    table, work = SubscriptionGroupTable(version, {"g": {"T": 4}}, groups), list[object]()
    encoding = table.encoding()
    while True:
        try:
            work.append(next(encoding))
        except StopIteration as end:
            assert end.value == plain(table)
            break
    assert len(work) == len(names)
