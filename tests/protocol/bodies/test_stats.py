"""Tables keyed by queue: recorded answers, key forms, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol import recorded

from sparrowmq.core.errors import BodyError, JavaJsonError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies import ConsumeStats, OffsetWrapper, TopicOffset, TopicStatsTable
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.java_json import loads

QUEUE = MessageQueue("T", "b", 3)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
QUEUES = st.builds(MessageQueue, TEXT, TEXT, st.integers(0, 2**31 - 1))
LONG = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("code", "type_"),
    [(RequestCode.GET_CONSUME_STATS, ConsumeStats), (RequestCode.GET_TOPIC_STATS_INFO, TopicStatsTable)],
)
def test_every_recorded_answer_is_read_and_written_with_the_same_meaning(code: int, type_: Any) -> None:
    seen = 0
    for exchange, answer in recorded.answers(code):
        table = type_.decode(answer.body)
        assert loads(table.encode()) == loads(answer.body), exchange
        assert type_.decode(table.encode()) == table, exchange
        seen += len(table.offset_table)
    assert seen


@given(
    st.dictionaries(QUEUES, st.builds(OffsetWrapper, LONG, LONG, LONG, LONG), max_size=4), st.floats(0, 1e6)
)
def test_consume_stats_come_back(table: dict[MessageQueue, OffsetWrapper], tps: float) -> None:
    assert ConsumeStats.decode(ConsumeStats(table, tps).encode()) == ConsumeStats(table, tps)


@given(st.dictionaries(QUEUES, st.builds(TopicOffset, LONG, LONG, LONG), max_size=4), st.floats(0, 1e6))
def test_topic_stats_come_back(table: dict[MessageQueue, TopicOffset], tps: float) -> None:
    assert TopicStatsTable.decode(TopicStatsTable(table, tps).encode()) == TopicStatsTable(table, tps)


def test_written_with_bare_object_keys() -> None:
    stats = ConsumeStats({QUEUE: OffsetWrapper(10, 7, 1700000000000, 8)}, 1.5)
    assert stats.encode() == (
        b'{"consumeTps":1.5,"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T"}:'
        b'{"brokerOffset":10,"consumerOffset":7,"lastTimestamp":1700000000000,"pullOffset":8}}}'
    )
    topic = TopicStatsTable({QUEUE: TopicOffset(5, 10, 0)})
    assert topic.encode() == (
        b'{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T"}:'
        b'{"lastUpdateTimestamp":5,"maxOffset":10,"minOffset":0}},"topicPutTps":0.0}'
    )


def test_keys_may_be_strings_that_hold_the_object() -> None:
    key = b'{\\"brokerName\\":\\"b\\",\\"queueId\\":3,\\"topic\\":\\"T\\"}'
    text = b'{"offsetTable":{"' + key + b'":{"maxOffset":"4"}}}'
    assert TopicStatsTable.decode(text).offset_table == {QUEUE: TopicOffset(max_offset=4)}


def test_shared_objects_count_as_empty() -> None:
    text = b'{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T"}:{"$ref":"$.offsetTable"}}}'
    assert ConsumeStats.decode(text).offset_table == {QUEUE: OffsetWrapper()}


@pytest.mark.parametrize(
    "text",
    [
        b'{"offsetTable":{"x":{}}}',
        b'{"offsetTable":{5:{}}}',
        b'{"offsetTable":{{"queueId":1}:{}}}',
        b'{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T"}:5}}',
        b'{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T"}:{"maxOffset":"x","consumerOffset":"x"}}}',
        b'{"offsetTable":[]}',
    ],
)
@pytest.mark.parametrize("type_", [ConsumeStats, TopicStatsTable])
def test_tables_that_do_not_fit_are_refused(type_: Any, text: bytes) -> None:
    with pytest.raises((BodyError, JavaJsonError)):
        type_.decode(text)
