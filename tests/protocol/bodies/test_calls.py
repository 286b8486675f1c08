"""Bodies of calls to clients and of questions about groups: recorded ones, other peers' forms."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol import recorded

from sparrowmq.core.errors import BodyError, JavaJsonError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies import (
    BrokerConsumeStats,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumerStatusBody,
    ConsumeStats,
    ConsumeStatus,
    ConsumeTimeSpans,
    CorrectionOffsets,
    GroupForbidden,
    GroupSubscription,
    OffsetWrapper,
    ProcessQueueInfo,
    ProducerTable,
    ResetOffsetBody,
    SubscriptionGroupList,
    time_span,
)
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.java_json import loads

QUEUE = MessageQueue("T", "b", 3)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
TABLES = st.dictionaries(
    st.builds(MessageQueue, TEXT, TEXT, st.integers(0, 99)), st.integers(-1, 2**62), max_size=3
)


@pytest.mark.parametrize(
    ("code", "type_"),
    [
        (Code.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetBody),
        (Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ConsumerStatusBody),
        (Code.GET_CONSUMER_STATUS_FROM_CLIENT, ConsumerStatusBody),
        (Code.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyResult),
        (Code.GET_ALL_PRODUCER_INFO, ProducerTable),
        (Code.QUERY_CORRECTION_OFFSET, CorrectionOffsets),
        (Code.UPDATE_AND_GET_GROUP_FORBIDDEN, GroupForbidden),
    ],
)
def test_every_recorded_answer_is_read_and_written_with_the_same_meaning(code: Code, type_: Any) -> None:
    seen = 0
    for exchange, answer in recorded.answers(code):
        if answer.body:
            assert loads(type_.decode(answer.body).encode()) == loads(answer.body), exchange
            seen += 1
    assert seen


def test_recorded_running_infos_are_read() -> None:
    seen = 0
    for exchange, answer in recorded.answers(Code.GET_CONSUMER_RUNNING_INFO):
        if not answer.body or exchange.body_dropped:
            continue
        info = ConsumerRunningInfo.decode(answer.body)
        written = loads(info.encode())
        wanted = loads(answer.body) | {"mqPopTable": {}, "userConsumerInfo": {}}
        for table in written["subscriptionSet"], wanted["subscriptionSet"]:
            table.sort(key=lambda one: one["topic"])
        assert written == wanted, exchange
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert info.queues
        seen += 1
    assert seen


def test_recorded_pushes_of_a_reset_are_read() -> None:
    for exchange, request in recorded.requests(Code.RESET_CONSUMER_CLIENT_OFFSET):
        table = ResetOffsetBody.decode(request.body).offset_table
        assert {queue.topic for queue in table} == {request.ext["topic"]}, exchange


def test_recorded_time_spans_and_group_lists_are_read() -> None:
    for _, answer in recorded.answers(Code.QUERY_CONSUME_TIME_SPAN):
        spans = ConsumeTimeSpans.decode(answer.body).consume_time_span_set
        assert spans and all(one.min_time_stamp <= one.max_time_stamp for one in spans)
    for _, request in recorded.requests(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST):
        names = [one.group_name for one in SubscriptionGroupList.decode(request.body).group_config_list]
        assert names == ["ListGA", "ListGB"]


@given(TABLES)
def test_resets_come_back_in_both_forms(table: dict[MessageQueue, int]) -> None:
    body = ResetOffsetBody(table)
    assert ResetOffsetBody.decode(body.encode()) == body
    assert ResetOffsetBody.decode(body.encode(as_list=True)) == body


@given(TABLES, st.dictionaries(TEXT, TABLES, max_size=2))
def test_statuses_come_back(
    queues: dict[MessageQueue, int], clients: dict[str, dict[MessageQueue, int]]
) -> None:
    body = ConsumerStatusBody(queues, clients)
    assert ConsumerStatusBody.decode(body.encode()) == body


def test_running_info_has_stacks_and_accepts_the_go_client() -> None:
    info = ConsumerRunningInfo(
        {"PROP_CONSUMEORDERLY": "false"},
        (SubscriptionData("T", "A", frozenset({"A"}), 7),),
        {QUEUE: ProcessQueueInfo(cached_msg_count=3, dropped=True)},
        {"T": ConsumeStatus(consume_ok_tps=1.5)},
        "main: waiting",
    )
    assert ConsumerRunningInfo.decode(info.encode()) == info
    go = info.encode().replace(b'"droped"', b'"dropped"')
    assert ConsumerRunningInfo.decode(go) == info


def test_results_as_go_numbers_them() -> None:
    assert ConsumeMessageDirectlyResult.decode(b'{"consumeResult":1}').consume_result == "CR_LATER"
    assert ConsumeMessageDirectlyResult.decode(b'{"consumeResult":9}').consume_result == "9"


def test_correction_offsets_have_bare_keys() -> None:
    assert CorrectionOffsets({0: 5, 1: 2}).encode() == b'{"correctionOffsets":{0:5,1:2}}'


def test_a_group_without_subscription_leaves_it_out() -> None:
    assert GroupSubscription("g", "T").encode() == b'{"group":"g","topic":"T"}'
    full = loads(GroupSubscription("g", "T", SubscriptionData("T", "*", version=5)).encode())
    assert full["subscriptionData"]["subVersion"] == 5


def test_consume_stats_of_a_broker_add_up() -> None:
    stats = ConsumeStats({QUEUE: OffsetWrapper(10, 4, 0, 6)})
    body = BrokerConsumeStats("127.0.0.1:1", {"g": [stats], "idle": []})
    assert BrokerConsumeStats.decode(body.encode()) == body
    value = loads(body.encode())
    assert value["brokerAddr"] == "127.0.0.1:1"
    assert (value["totalDiff"], value["totalInflightDiff"]) == (6, 2)
    assert [list(one) for one in value["consumeStatsList"]] == [["g"], ["idle"]]


def test_time_spans_are_written() -> None:
    (row,) = loads(ConsumeTimeSpans([time_span(QUEUE, 1, 3, 2, 9)]).encode())["consumeTimeSpanSet"]
    assert row["messageQueue"] == {"brokerName": "b", "queueId": 3, "topic": "T"}
    assert [row[name] for name in ("minTimeStamp", "maxTimeStamp", "consumeTimeStamp", "delayTime")] == [
        1,
        3,
        2,
        9,
    ]


NONSENSE = b'{"offsetTable":7,"messageQueueTable":7,"mqTable":7,"consumeStatsList":[7]}'


@pytest.mark.parametrize(
    "type_", [ResetOffsetBody, ConsumerStatusBody, ConsumerRunningInfo, BrokerConsumeStats]
)
@pytest.mark.parametrize("data", [b"", b"{", b"[1]", NONSENSE])
def test_nonsense_is_refused(type_: Any, data: bytes) -> None:
    with pytest.raises((JavaJsonError, BodyError)):
        type_.decode(data)
