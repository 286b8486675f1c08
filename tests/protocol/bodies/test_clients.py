"""Heartbeats, connections and locks: what Java, C++ and Node send, what Java needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol import recorded

from sparrowmq.core.errors import BodyError
from sparrowmq.core.hashing import java_hash
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies import (
    Assignments,
    CheckClientBody,
    ConnectionInfo,
    ConsumeFromWhere,
    ConsumerConnection,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageModel,
    ProducerConnection,
    ProducerData,
    check_client_body,
    wire_queues,
)
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.filter import parse_tags
from sparrowmq.protocol.java_json import loads

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
TAGS = st.lists(TEXT.filter(lambda t: t.strip() == t and "|" not in t and t != "*"), max_size=3)
SUBSCRIPTIONS = st.builds(
    lambda topic, tags, version: parse_tags(topic, "||".join(tags), version),
    TEXT,
    TAGS,
    st.integers(0, 2**62),
)
HEARTBEATS = st.builds(
    HeartbeatData,
    TEXT,
    st.lists(st.builds(ProducerData, TEXT), max_size=3).map(tuple),
    st.lists(
        st.builds(
            ConsumerData,
            TEXT,
            st.sampled_from(ConsumeType),
            st.sampled_from(MessageModel),
            st.sampled_from(ConsumeFromWhere),
            st.lists(SUBSCRIPTIONS, max_size=3).map(tuple),
            st.booleans(),
        ),
        max_size=3,
    ).map(tuple),
    st.integers(-(2**31), 2**31 - 1),
    st.booleans(),
)


@given(HEARTBEATS)
def test_heartbeats_come_back(data: HeartbeatData) -> None:
    assert HeartbeatData.decode(data.encode()) == data


def test_every_recorded_heartbeat_is_read() -> None:
    seen = 0
    for exchange, request in recorded.requests(Code.HEART_BEAT):
        theirs = loads(request.body)
        data = HeartbeatData.decode(request.body)
        assert data.client_id == theirs["clientID"], exchange
        assert [p.group for p in data.producers] == [
            item["groupName"] for item in theirs.get("producerDataSet", [])
        ], exchange
        assert len(data.consumers) == len(theirs.get("consumerDataSet", [])), exchange
        for consumer, raw in zip(data.consumers, theirs.get("consumerDataSet", []), strict=True):
            assert consumer.group == raw["groupName"], exchange
            for subscription, item in zip(consumer.subscriptions, raw["subscriptionDataSet"], strict=True):
                assert subscription.topic == item["topic"], exchange
                assert subscription.expression == item["subString"], exchange
                assert subscription.version == int(item["subVersion"]), exchange
                assert subscription.tags == frozenset(item.get("tagsSet", [])), exchange
                if exchange.file != "cpp.jsonl":
                    assert subscription.codes == frozenset(item["codeSet"]), exchange
        seen += 1
    assert seen == 54


def test_java_gets_its_own_heartbeats_back() -> None:
    """5.5 clients write every member, so ours must be the same but for the order of sets."""
    seen = 0
    for exchange, request in recorded.requests(Code.HEART_BEAT):
        if exchange.file == "java-5.5.jsonl":
            assert canonical(loads(HeartbeatData.decode(request.body).encode())) == canonical(
                loads(request.body)
            ), exchange
            seen += 1
    assert seen > 20


def canonical(value: object) -> object:
    """The value with lists in a fixed order: Java writes sets."""
    if isinstance(value, dict):
        return {key: canonical(item) for key, item in value.items()}
    return sorted(map(canonical, value), key=repr) if isinstance(value, list) else value


def test_both_sets_are_always_written() -> None:
    assert HeartbeatData("c").encode() == (
        b'{"clientID":"c","consumerDataSet":[],"heartbeatFingerprint":0,"producerDataSet":[],"withoutSub":false}'
    )


def test_c_plus_plus_writes_ordinals_strings_and_wrong_codes() -> None:
    data = HeartbeatData.decode(
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":4,"consumeType":0,"groupName":"g",'
        b'"messageModel":"0","subscriptionDataSet":[{"codeSet":[0],"subString":"TagA || TagB",'
        b'"subVersion":"7","tagsSet":["TagA","TagB"],"topic":"T"},{"subString":"*","subVersion":"8","topic":"U"}]}]}\n'
    )
    (consumer,) = data.consumers
    assert data.producers == ()
    assert consumer.consume_type is ConsumeType.CONSUME_ACTIVELY
    assert consumer.message_model is MessageModel.BROADCASTING
    assert consumer.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    first, second = consumer.subscriptions
    assert first.codes == {java_hash("TagA"), java_hash("TagB")} == {2598919, 2598920}
    assert second == SubscriptionData("U", version=8)


@pytest.mark.parametrize("tags", [b"", b',"tagsSet":[]', b',"tagsSet":null'])
def test_missing_tags_are_taken_from_the_expression(tags: bytes) -> None:
    body = (
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":'
        b'[{"topic":"T","subString":"A||B"' + tags + b"}]}]}"
    )
    (consumer,) = HeartbeatData.decode(body).consumers
    assert consumer.subscriptions[0].tags == {"A", "B"}


def test_sql_expressions_have_no_tags() -> None:
    body = (
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":'
        b'[{"topic":"T","subString":"a > 5","expressionType":"SQL92","subVersion":3}]}]}'
    )
    (consumer,) = HeartbeatData.decode(body).consumers
    assert consumer.subscriptions == (SubscriptionData("T", "a > 5", frozenset(), 3, "SQL92"),)
    assert HeartbeatData.decode(HeartbeatData("c", (), (consumer,)).encode()).consumers == (consumer,)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (ConsumeType, "CONSUME_ACTIVELY CONSUME_PASSIVELY CONSUME_POP"),
        (MessageModel, "BROADCASTING CLUSTERING"),
        (
            ConsumeFromWhere,
            "CONSUME_FROM_LAST_OFFSET CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST "
            "CONSUME_FROM_MIN_OFFSET CONSUME_FROM_MAX_OFFSET CONSUME_FROM_FIRST_OFFSET "
            "CONSUME_FROM_TIMESTAMP",
        ),
    ],
)
def test_enumerations_are_in_the_order_of_java(kind: type[ConsumeType], names: str) -> None:
    assert [member.value for member in kind] == names.split()


@pytest.mark.parametrize(
    "member",
    [
        '"consumeType":3',
        '"consumeType":-1',
        '"consumeType":"X"',
        '"messageModel":2',
        '"messageModel":"clustering"',
        '"consumeFromWhere":99999999999',
        '"consumeFromWhere":6',
        '"groupName":""',
        '"subscriptionDataSet":[{"topic":"T","subString":"||"}]',
        '"subscriptionDataSet":[{"topic":5}]',
        '"subscriptionDataSet":5',
    ],
)
def test_consumers_that_do_not_fit_are_refused(member: str) -> None:
    group = "" if "groupName" in member else '"groupName":"g",'
    with pytest.raises(BodyError):
        HeartbeatData.decode(
            b'{"clientID":"c","consumerDataSet":[{%b%b}]}' % (group.encode(), member.encode())
        )


def test_a_heartbeat_without_client_id_is_refused() -> None:
    with pytest.raises(BodyError, match="clientID"):
        HeartbeatData.decode(b"{}")


def test_every_recorded_connection_list_is_read_and_written_with_the_same_meaning() -> None:
    seen = 0
    for exchange, answer in recorded.answers(Code.GET_CONSUMER_CONNECTION_LIST):
        if answer.body:
            consumers = ConsumerConnection.decode(answer.body)
            assert canonical(loads(consumers.encode())) == canonical(loads(answer.body)), exchange
            seen += len(consumers.connections)
    for exchange, answer in recorded.answers(Code.GET_PRODUCER_CONNECTION_LIST):
        if answer.body:
            producers = ProducerConnection.decode(answer.body)
            assert loads(producers.encode()) == loads(answer.body), exchange
            seen += len(producers.connection_set)
    assert seen > 3


def test_consumer_connections_come_back() -> None:
    body = ConsumerConnection(
        [ConnectionInfo("127.0.0.1:5", "c1", "PYTHON", 475)],
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.BROADCASTING,
        ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
        {"T": parse_tags("T", "A || B", 5)},
    )
    assert ConsumerConnection.decode(body.encode()) == body


def test_every_recorded_lock_is_read_and_written_with_the_same_meaning() -> None:
    seen = 0
    for exchange, request in recorded.requests(Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ):
        lock = LockBatchRequestBody.decode(request.body)
        theirs = loads(request.body)
        assert loads(lock.encode()) == {"onlyThisBroker": False} | theirs, exchange
        assert [queue.queue_id for queue in lock.queues] == [q["queueId"] for q in theirs["mqSet"]], exchange
        seen += len(lock.queues)
    for exchange, answer in recorded.answers(Code.LOCK_BATCH_MQ):
        held = LockBatchResponseBody.decode(answer.body)
        assert loads(held.encode()) == loads(answer.body), exchange
        seen += len(held.queues)
    assert seen > 20


def test_locks_hold_core_queues() -> None:
    queues = [MessageQueue("T", "b", 1), MessageQueue("T", "b", 0)]
    assert LockBatchResponseBody(wire_queues(queues)).queues == queues
    assert LockBatchResponseBody(wire_queues(queues[:1])).encode() == (
        b'{"lockOKMQSet":[{"brokerName":"b","queueId":1,"topic":"T"}]}'
    )


def test_the_question_whether_a_filter_is_taken_is_javas() -> None:
    seen = 0
    for exchange, command in recorded.requests(Code.CHECK_CLIENT_CONFIG):
        theirs = CheckClientBody.decode(command.body)
        assert theirs.subscription_data is not None, exchange
        ours = check_client_body(theirs.group, theirs.client_id, theirs.subscription_data.core())
        assert CheckClientBody.decode(ours) == theirs, exchange
        seen += 1
    assert seen > 4


@pytest.mark.proves("client:D-09")
def test_a_filter_by_class_means_every_message() -> None:
    body = b'{"subscriptionData":{"classFilterMode":true,"subString":"org.x.F","subVersion":3,"topic":"T"}}'
    wire = CheckClientBody.decode(body).subscription_data
    assert wire is not None
    assert wire.core() == SubscriptionData("T", "org.x.F", version=3)
    assert wire.core().matches("any tag")


def test_recorded_assignments() -> None:
    found = [Assignments.decode(answer.body).pairs for _, answer in recorded.answers(400)]
    assert found.count([(MessageQueue("Pop55", "broker-a", -1), "POP")]) == 2
    assert found.count(None) == 1
    odd = b'{"messageQueueAssignments":[{},{"messageQueue":{"topic":"T","brokerName":"b","queueId":"1"}}]}'
    assert Assignments.decode(odd).pairs == [(MessageQueue("T", "b", 1), "PULL")]
    with pytest.raises(BodyError):
        Assignments.decode(b'{"messageQueueAssignments":[{"messageQueue":{"topic":"T"}}]}')
