from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.spark.support import Topics, bodies, load, numbered
from tests.support import until_sync

from sparrowmq.columnar.schema import DEFAULT_COLUMNS


def test_a_batch_read_gives_every_message_with_all_columns(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    topics.send(topic, 1000)
    frame = load(spark, topics.options(topic))
    assert frame.columns == list(DEFAULT_COLUMNS)
    rows = frame.orderBy("queue_id", "queue_offset").collect()
    assert [(row.queue_id, row.queue_offset) for row in rows] == [
        (q, o) for q in range(4) for o in range(250)
    ]
    sent = {message.message_id: message for message in topics.read(topic)}
    for row in rows:
        message = sent[row.msg_id]
        assert (row.topic, row.broker, row.tags, row["keys"]) == (
            topic,
            message.queue.broker_name,
            "TagA",
            message.keys[0],
        )
        assert (row.queue_id, row.queue_offset) == (message.queue.queue_id, message.queue_offset)
        assert row.properties["n"] == str(row.queue_offset * 4 + row.queue_id)
        assert bytes(row.body) == message.body == b"m%d" % (row.queue_offset * 4 + row.queue_id)
        assert row.reconsume_times == 0
        stored = row.store_timestamp.astimezone(UTC)
        assert stored == datetime.fromtimestamp(message.store_timestamp / 1000, UTC)
        assert before <= row.born_timestamp.astimezone(UTC) <= stored + timedelta(seconds=1)


def test_a_frame_is_a_snapshot_and_ranges_are_exact(spark: SparkSession, topics: Topics, topic: str) -> None:
    topics.send(topic, 40)
    frame = load(spark, topics.options(topic))
    assert frame.count() == 40
    topics.send(topic, 40, first=40)
    assert frame.count() == 40
    assert bodies(load(spark, topics.options(topic))) == numbered(0, 80)
    broker = topics.consumer.queues(topic)[0].broker_name
    places = '{"%s": {"%s": {"0": %d, "1": %d, "2": -2, "3": -1}}}'
    ranged = topics.options(
        topic,
        startingOffsets=places % (topic, broker, 5, 20),
        endingOffsets=places.replace("-2", "10") % (topic, broker, 15, -1),
    )
    found = sorted((row.queue_id, row.queue_offset) for row in load(spark, ranged).collect())
    assert found == [(0, offset) for offset in range(5, 15)] + [(2, offset) for offset in range(10)]
    assigned = {"nameServer": topics.cluster.namesrv, "assign": json.dumps({topic: {broker: [3]}})}
    assert {row.queue_id for row in load(spark, assigned).collect()} == {3}


def test_a_users_schema_chooses_columns(spark: SparkSession, topics: Topics, topic: str) -> None:
    topics.send(topic, 300)
    frame = load(spark, topics.options(topic), "queue_offset bigint, body binary, flag int")
    assert frame.columns == ["queue_offset", "body", "flag"]
    assert bodies(frame) == numbered(0, 300)
    assert {row.flag for row in frame.collect()} == {0}
    less = load(spark, topics.options(topic, includeProperties="false", includeBody="false"))
    assert less.columns == list(DEFAULT_COLUMNS[:-2])
    assert less.count() == 300


def test_tags_are_filtered(spark: SparkSession, topics: Topics, topic: str) -> None:
    topics.send(topic, 20, tags="TagA")
    topics.send(topic, 20, first=20, tags="TagB")
    topics.send(topic, 20, first=40, tags="TagC")
    frame = load(spark, topics.options(topic, tags="TagA || TagC"), "body binary")
    assert bodies(frame) == numbered(0, 20) + numbered(40, 60)


def test_sql92_is_filtered_by_the_broker(spark: SparkSession, topics: Topics, topic: str) -> None:
    topics.send(topic, 100)
    topics.send(topic, 100, first=100, tags="TagB")
    sql = "n >= 95 AND TAGS = 'TagA' OR n BETWEEN 120 AND 129"
    frame = load(spark, topics.options(topic, sql92=sql, minPartitions="3"), "body binary, tags string")
    assert bodies(frame) == numbered(95, 100) + numbered(120, 130)
    with pytest.raises(
        PySparkException, match=r"option sql92='n >=': .*It must be a condition on properties"
    ):
        load(spark, topics.options(topic, sql92="n >=")).count()


def test_filters_of_a_query_prune_what_is_read(spark: SparkSession, topics: Topics, topic: str) -> None:
    setting = "spark.sql.python.filterPushdown.enabled"
    topics.send(topic, 400)
    options, columns = topics.options(topic, maxRecordsPerPartition="10"), "queue_id int, queue_offset bigint"
    cut = load(spark, options, columns).where("queue_id = 2 AND queue_offset BETWEEN 15 AND 34")
    expected = [(2, offset) for offset in range(15, 35)]
    assert spark.conf.get(setting) == "true"
    assert cut.rdd.getNumPartitions() == 2
    assert sorted(map(tuple, cut.collect())) == expected
    fixed = load(spark, {**options, "pushFilters": "false"}, columns)
    fixed = fixed.where("queue_id = 2 AND queue_offset BETWEEN 15 AND 34")
    assert fixed.rdd.getNumPartitions() == 40
    assert sorted(map(tuple, fixed.collect())) == expected
    spark.conf.set(setting, "false")
    try:
        cut = load(spark, options, columns).where("queue_id = 2 AND queue_offset BETWEEN 15 AND 34")
        assert cut.rdd.getNumPartitions() == 40
        assert sorted(map(tuple, cut.collect())) == expected
    finally:
        spark.conf.set(setting, "true")


def test_filters_on_topic_and_store_time_are_exact(spark: SparkSession, topics: Topics, topic: str) -> None:
    topics.send(topic, 8)
    first = max(message.store_timestamp for message in topics.read(topic))
    until_sync(lambda: time.time() * 1000 > first + 5)
    topics.send(topic, 8, first=8)
    frame = load(spark, {**topics.options(topic), "subscribe": f"{topic},{topic}"})
    moment = f"timestamp_millis({first})"
    assert bodies(frame.where(f"store_timestamp > {moment}")) == numbered(8, 16)
    assert bodies(frame.where(f"store_timestamp <= {moment} AND topic = '{topic}'")) == numbered(0, 8)
    assert frame.where(f"store_timestamp > {moment} + INTERVAL 1 HOUR").count() == 0
    assert frame.where("topic = 'another'").count() == 0


def test_times_per_queue_say_where_to_begin_and_end(spark: SparkSession, topics: Topics, topic: str) -> None:
    topics.send(topic, 8)
    first = max(message.store_timestamp for message in topics.read(topic))
    until_sync(lambda: time.time() * 1000 > first + 5)
    topics.send(topic, 8, first=8)
    broker = topics.consumer.queues(topic)[0].broker_name
    times = json.dumps({topic: {broker: dict.fromkeys("0123", first + 1)}})
    assert bodies(load(spark, topics.options(topic, startingOffsetsByTimestamp=times))) == numbered(8, 16)
    assert bodies(load(spark, topics.options(topic, endingOffsetsByTimestamp=times))) == numbered(0, 8)
    for name, expected in (("startingTimestamp", numbered(8, 16)), ("endingTimestamp", numbered(0, 8))):
        assert bodies(load(spark, topics.options(topic, **{name: str(first + 1)}))) == expected


def test_partitions_follow_the_options(spark: SparkSession, topics: Topics, topic: str) -> None:
    topics.send(topic, 1000)
    assert load(spark, topics.options(topic)).rdd.getNumPartitions() == 1
    split = load(spark, topics.options(topic, minPartitions="6", prefetchBatches="0"))
    assert split.rdd.getNumPartitions() == 6
    assert bodies(split) == numbered(0, 1000)
    assert load(spark, topics.options(topic, maxRecordsPerPartition="100")).rdd.getNumPartitions() == 12


def test_an_empty_topic_and_an_early_stop(spark: SparkSession, topics: Topics, topic: str) -> None:
    assert load(spark, topics.options(topic)).count() == 0
    topics.send(topic, 2000)
    assert len(load(spark, topics.options(topic, batchRows="100")).limit(3).collect()) == 3


def test_sql_reads_through_a_view_and_a_pattern(spark: SparkSession, topics: Topics, topic: str) -> None:
    topics.send(topic, 12)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW v USING rocketmq OPTIONS (nameServer '{topics.cluster.namesrv}', "
        f"subscribePattern '{topic[:-1]}.')"
    )
    rows = spark.sql("SELECT queue_id, count(*) AS n FROM v GROUP BY queue_id ORDER BY queue_id").collect()
    assert [tuple(row) for row in rows] == [(0, 3), (1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "NoSuchTopic"}, "no broker serves topic 'NoSuchTopic'"),
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"startingOffsets": "latest"}, "would read nothing"),
        ({"startingOffsets": '{"x": {"b": {"0": 1}}}'}, "has no offset for"),
        ({"batchRows": "5"}, "option batchRows='5': must be a whole number from 100 to 100000"),
    ],
)
def test_wrong_options_say_what_is_wrong(
    spark: SparkSession, topics: Topics, topic: str, options: dict[str, str], text: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        load(spark, topics.options(topic) | options).collect()
    assert text in str(caught.value)


def test_wrong_schemas_say_what_is_wrong(spark: SparkSession, topics: Topics, topic: str) -> None:
    for schema, text in (
        ("offset bigint", "column 'offset'"),
        ("queue_id bigint", "has type bigint; it must be int"),
    ):
        with pytest.raises(PySparkException, match=text):
            load(spark, topics.options(topic), schema).collect()


def test_lost_messages_fail_the_job_unless_they_may_be_lost(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    topics.send(topic, 40)
    frame = load(spark, topics.options(topic))
    careless = load(spark, topics.options(topic, failOnDataLoss="false"))
    assert frame.rdd.getNumPartitions() == careless.rdd.getNumPartitions() == 1
    topics.admin.topics.delete(topic)
    topics.cluster.create_topic(topic, queues=4)
    topics.send(topic, 8)
    with pytest.raises(PySparkException, match=r"cannot be read, the queue ends at .* failOnDataLoss=false"):
        frame.collect()
    assert bodies(careless) == numbered(0, 8)
