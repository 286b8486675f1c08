"""Options for spans, and what a cluster holds."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.spark.support import Topics
from tests.support import about

import sparrowmq as mq
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.pipelines.common import reading

SPANS = st.dictionaries(
    st.builds(MessageQueue, st.sampled_from(["T", "U"]), st.sampled_from(["a", "b"]), st.integers(0, 9)),
    st.tuples(st.integers(0, 50), st.integers(0, 50)),
    min_size=1,
    max_size=8,
)


@given(SPANS)
def test_assigned_options_say_exactly_these_spans(found: dict[MessageQueue, tuple[int, int]]) -> None:
    spans = [Span(queue, start, start + length) for queue, (start, length) in found.items()]
    options = reading.assigned({"nameServer": "h:1", "Subscribe": "X"}, spans)
    parsed = ReadOptions.parse(options, "batch", {})
    assert set(parsed.assign) == set(found)
    assert parsed.starting_offsets == {span.queue: span.start for span in spans}
    assert parsed.ending_offsets == {span.queue: span.end for span in spans}


def test_a_queue_occurs_once_in_a_read() -> None:
    queue = MessageQueue("T", "a", 0)
    with pytest.raises(AssertionError, match="each queue once"):
        reading.assigned({}, [Span(queue, 0, 1), Span(queue, 2, 3)])


def test_filters_are_known_in_any_case() -> None:
    assert reading.is_filtered({"TAGS": "a"}) and reading.is_filtered({"sql92": "a > 1"})
    assert not reading.is_filtered({"batchRows": "100"})


def test_what_a_cluster_holds(topics: Topics, topic: str) -> None:
    topics.send(topic, 6)
    options = topics.options(topic)
    held = reading.queues_of(options)
    assert set(held.firsts.values()) == {0}
    assert sorted(held.ends.values()) == [1, 1, 2, 2]
    assert reading.spans_of(options) == sorted(Span(queue, 0, end) for queue, end in held.ends.items())
    (broker,) = {queue.broker_name for queue in held.ends}
    place = json.dumps({topic: {broker: {str(queue.queue_id): 1 for queue in held.ends}}})
    assert sum(map(len, reading.spans_of({**options, "startingOffsets": place}))) == 2


def test_brokers_hold_messages_of_all_topics_for_a_group(topics: Topics, topic: str) -> None:
    topics.cluster.create_topic(f"{topic}_too", queues=1)
    options = {"nameServer": topics.cluster.namesrv, "subscribePattern": f"{topic}.*"}
    group = f"G_{topic}"
    reading.prepare(options, group)
    assert topics.admin.groups.config(group)
    wanted = {topic, f"{topic}_too"}
    assert reading.hold(options, group, 5) == {(name, "broker-a") for name in wanted}
    found = [hold for hold in topics.admin.holds.list() if hold.group == group]
    assert {(hold.topic, hold.hours) for hold in found} == {(name, 5) for name in wanted}


def test_json_is_read_in_the_zone_of_the_session(spark: SparkSession, topics: Topics, topic: str) -> None:
    topics.producer.send(mq.Message(topic, b'{"t":"2024-05-01T12:00:00.1234567"}'))
    options = topics.options(topic, bodyFormat="json", bodySchema="t timestamp")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        found = reading.batch(spark, options).selectExpr("cast(body.t as string)", "unix_micros(body.t)")
        assert tuple(found.collect()[0]) == ("2024-05-01 12:00:00.123456", 1714544100123456)
        fixed = reading.batch(spark, {**options, "TimeZone": "+02:00"}).selectExpr("unix_micros(body.t)")
        assert fixed.collect()[0][0] == 1714557600123456
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert "timeZone" not in reading.in_zone({"bodyFormat": "avro"}, spark)
    with pytest.raises(SettingsError, check=about(setting="timeZone", value="Nowhere")):
        ReadOptions.parse({**options, "timeZone": "Nowhere"}, "batch", {})
