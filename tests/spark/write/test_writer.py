from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.support import Topics, bodies, load, numbered, run_available, stream
from tests.support import about, until_sync

import sparrowmq as mq
from sparrowmq import Message, select_by_hash
from sparrowmq.core.errors import InvalidMessageError
from sparrowmq.spark.write.writer import Sent, _text, _total


def _frame(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).select(
        F.concat(F.lit("m"), F.col("id")).cast("binary").alias("body"), F.col("id")
    )


def _write(frame: DataFrame, to: Topics, **options: str) -> None:
    frame.write.format("rocketmq").options(nameServer=to.cluster.namesrv, **options).mode("append").save()


def test_a_batch_write_sends_all_columns(spark: SparkSession, topics: Topics, topic: str) -> None:
    frame = _frame(spark, 1000).select(
        "body",
        F.lit(topic).alias("topic"),
        F.when(F.col("id") % 2 == 0, "even").alias("tags"),
        F.concat(F.lit("k"), F.col("id")).alias("keys"),
        F.when(F.col("id") % 3 == 0, F.create_map(F.lit("n"), F.col("id").cast("string"))).alias(
            "properties"
        ),
    )
    _write(frame, topics, batchBytes="4096")
    messages = {message.body.decode(): message for message in topics.read(topic)}
    assert sorted(messages, key=lambda text: int(text[1:])) == numbered(0, 1000)
    assert len({message.message_id for message in messages.values()}) == 1000
    for number in range(1000):
        message = messages[f"m{number}"]
        assert message.tags == (None if number % 2 else "even")
        assert message.keys == [f"k{number}"]
        assert message.properties.get("n") == (None if number % 3 else str(number))
        assert len(message.message_id) == 32
    assert {message.queue.queue_id for message in messages.values()} == {0, 1, 2, 3}
    assert bodies(load(spark, topics.options(topic, tags="even"))) == [
        f"m{number}" for number in range(0, 1000, 2)
    ]


def test_sharding_keys_and_named_queues_choose_the_queue_and_keep_order(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    queues = topics.producer.queues(topic)
    frame = (
        _frame(spark, 900, partitions=1)
        .withColumn("sharding_key", F.concat(F.lit("key"), F.col("id") % 3))
        .withColumn("broker", F.when(F.col("id") % 9 == 0, queues[0].broker_name))
        .withColumn("queue_id", F.when(F.col("id") % 9 == 0, 2).cast("int"))
        .drop("id")
    )
    _write(frame, topics, topic=topic, batchBytes="1024", maxInFlight="16")
    messages = topics.read(topic)
    assert len(messages) == 900
    for queue in queues:
        numbers = [int(message.body[1:]) for message in messages if message.queue == queue]
        assert numbers == sorted(numbers)
    for message in messages:
        number = int(message.body[1:])
        key = f"key{number % 3}"
        by_key = select_by_hash(queues, Message(topic, b""), key)
        assert message.queue == (queues[2] if number % 9 == 0 else by_key)
        assert message.properties["__SHARDINGKEY"] == key


def test_rows_of_one_kafka_key_go_to_one_queue_in_order(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    frame = (
        _frame(spark, 400, partitions=8)
        .select(
            F.col("id"),
            F.col("body").alias("value"),
            F.concat(F.lit("key"), F.col("id") % 5).cast("binary").alias("key"),
        )
        .repartition(4, "key")
        .sortWithinPartitions("id")
        .drop("id")
    )
    _write(frame, topics, topic=topic, batchBytes="1024", maxInFlight="16")
    messages = topics.read(topic)
    assert len(messages) == 400
    for key in range(5):
        of_key = [message for message in messages if message.properties["__SHARDINGKEY"] == f"key{key}"]
        of_key.sort(key=lambda message: message.queue_offset)
        assert [int(message.body[1:]) for message in of_key] == list(range(key, 400, 5))
        assert len({message.queue for message in of_key}) == 1
        assert not any(message.keys for message in of_key)


def test_a_key_that_is_no_text_is_an_error() -> None:
    batch = pa.RecordBatch.from_pydict({"key": pa.array([b"a", b"\xff"])})
    with pytest.raises(InvalidMessageError, check=about(part="key")):
        _text(batch, "key")


def test_ids_that_rows_bring_along_are_kept(spark: SparkSession, topics: Topics, topic: str) -> None:
    frame = _frame(spark, 60).select(
        "body", F.when(F.col("id") < 40, F.concat(F.lit("ID"), F.col("id"))).alias("msg_id")
    )
    _write(frame, topics, topic=topic, rateLimit="1000000")
    found = {message.body.decode(): message.message_id for message in topics.read(topic)}
    assert {body: found[body] for body in numbered(0, 40)} == {f"m{n}": f"ID{n}" for n in range(40)}
    made = [found[body] for body in numbered(40, 60)]
    assert {len(one) for one in made} == {32}
    assert len(set(made)) == 20


def test_strings_are_bodies_and_many_topics_are_served(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    other = f"{topic}_other"
    topics.cluster.create_topic(other, queues=2)
    frame = _frame(spark, 50).select(
        F.col("body").cast("string").alias("value"),
        F.col("id").cast("string").alias("keys"),
        F.when(F.col("id") < 20, topic).otherwise(other).alias("topic"),
    )
    _write(frame, topics)
    assert bodies(load(spark, topics.options(topic))) == numbered(0, 20)
    assert bodies(load(spark, topics.options(other))) == numbered(20, 50)


def test_a_stream_is_copied_to_another_topic(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str, tmp_path: Path
) -> None:
    copy = f"{topic}_copy"
    topics.cluster.create_topic(copy, queues=4)
    topics.send(topic, 100)
    options = topics.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger="60")
    writer = (
        stream(spark, options, "body binary, keys string, tags string, queue_id int, broker string")
        .writeStream.format("rocketmq")
        .options(nameServer=topics.cluster.namesrv, topic=copy)
    )
    run_available(writer, checkpoint)
    topics.send(topic, 20, first=100)
    run_available(writer, checkpoint)
    sent = {message.body: message for message in topics.read(topic)}
    copied = topics.read(copy)
    assert len(copied) == 120
    for message in copied:
        original = sent[message.body]
        assert (message.keys, message.tags) == (original.keys, original.tags)
        assert (message.queue.queue_id, message.queue_offset) == (
            original.queue.queue_id,
            original.queue_offset,
        )


def test_sql_inserts_through_a_view(spark: SparkSession, topics: Topics, topic: str) -> None:
    out = f"{topic}_out"
    topics.cluster.create_topic(out, queues=1)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW sink (body STRING) USING rocketmq "
        f"OPTIONS (nameServer '{topics.cluster.namesrv}', subscribe '{topic}', topic '{out}')"
    )
    spark.sql("INSERT INTO sink VALUES ('m0'), ('m1')")
    assert bodies(load(spark, topics.options(out))) == numbered(0, 2)


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        (["body"], {}, "needs the option topic or a column topic"),
        (["id"], {"topic": "t"}, "column 'id' is unknown to the rocketmq sink"),
        (["body"], {"topic": "t", "topics": "x"}, "did you mean topic?"),
        (["body"], {"topic": "a b"}, "option topic='a b'"),
    ],
)
def test_frames_and_options_that_do_not_fit_are_told_before_any_task(
    spark: SparkSession, topics: Topics, columns: list[str], options: dict[str, str], text: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        _write(_frame(spark, 5).select(*columns), topics, **options)
    assert text in str(caught.value)


def test_a_topic_cannot_be_overwritten(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    options = {"nameServer": topics.cluster.namesrv, "topic": topic}
    frame = _frame(spark, 5).select("body")
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        frame.write.format("rocketmq").options(**options).mode("overwrite").save()
    counts = (
        stream(spark, topics.options(topic))
        .groupBy("tags")
        .count()
        .selectExpr("cast(count as string) AS body")
    )
    writer = counts.writeStream.format("rocketmq").options(**options).outputMode("complete")
    with pytest.raises(StreamingQueryException, match="a topic cannot be overwritten"):
        run_available(writer, checkpoint)


def test_rows_that_cannot_be_sent_fail_with_their_row(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    frame = _frame(spark, 5, partitions=1)
    empty = frame.select(F.when(F.col("id") < 3, F.col("body")).otherwise(F.lit(b"")).alias("body"))
    with pytest.raises(PySparkException, match="row 3: the body has 0 bytes"):
        _write(empty, topics, topic=topic)
    reserved = frame.select("body", F.create_map(F.lit("TAGS"), F.lit("x")).alias("properties"))
    with pytest.raises(PySparkException, match="row 0: the property name 'TAGS' is reserved by RocketMQ"):
        _write(reserved, topics, topic=topic)


def test_rows_for_later_come_later_and_keep_their_ids(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    later = (
        _frame(spark, 40, partitions=1)
        .withColumn("delay_level", F.when(F.col("id") % 4 == 0, 1).cast("int"))
        .withColumn("deliver_at", F.when(F.col("id") % 4 == 1, F.expr("now() + INTERVAL 1 SECOND")))
        .withColumn("tags", F.lit("later"))
        .withColumn("sharding_key", F.concat(F.lit("key"), F.col("id") % 4))
    )
    broken = later.withColumn("body", F.when(F.col("id") < 39, F.col("body")).otherwise(F.lit(b"")))
    options = {"topic": topic, "jobId": "later", "maxInFlight": "1"}
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        with pytest.raises(PySparkException, match="the body has 0 bytes"):
            _write(broken.drop("id"), topics, **options)  # once rows of earlier Arrow batches are stored
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    for _ in range(2):
        _write(later.drop("id"), topics, **options)  # the second finds the job done
    found: list[mq.ReceivedMessage] = []

    def all_there() -> bool:
        found[:] = topics.read(topic)
        counts = Counter(message.body.decode() for message in found)
        return len(counts) == 40 and all(counts[f"m{number}"] > 1 for number in range(20) if number % 4 < 2)

    until_sync(all_there)
    counts = Counter(message.body.decode() for message in found)
    assert [counts[f"m{number}"] for number in range(40) if number % 4 > 1] == [1] * 20, "rows for now"
    assert len({message.message_id for message in found}) == 40, "a row has its id in every try"
    queues = topics.producer.queues(topic)
    for message in found:
        key = f"key{int(message.body[1:]) % 4}"
        assert message.queue == select_by_hash(queues, Message(topic, b""), key)
        assert (message.tags, message.properties["__SHARDINGKEY"]) == ("later", key)


def test_an_empty_frame_sends_nothing(spark: SparkSession, topics: Topics, topic: str) -> None:
    _write(_frame(spark, 0).select("body"), topics, topic=topic)
    assert topics.read(topic) == []


def test_totals_are_summed_over_tasks() -> None:
    assert _total([Sent({"a": 1, "b": 2}), None, Sent({"a": 4})]) == "5 messages to a, 2 messages to b"
    assert _total([None]) == "no messages"
