from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.spark.support import (
    QUERY_SECONDS,
    Collected,
    Topics,
    numbered,
    run_available,
    stored_offsets,
    stream,
    wait_for_rows,
)
from tests.support import until_sync

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.cluster.faults import DataLossError
from sparrowmq.spark.metrics.progress import lag
from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.read.stream import RocketMQStreamReader
from sparrowmq.testing import LocalCluster


def _committed(topics: Topics, topic: str, group: str) -> int:
    found = topics.admin.groups.progress(group, topic)
    return sum(max(0, progress.consumer_offset) for progress in found)


def test_available_now_keeps_limits_and_goes_on_from_its_checkpoint(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    topics.send(topic, 100)
    options = topics.options(
        topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="40",
        minOffsetsPerTrigger="30",
        groupId="spark_stream",
    )
    collected = Collected()
    query = run_available(stream(spark, options).writeStream.foreachBatch(collected), checkpoint)
    assert collected.texts == numbered(0, 100)
    assert collected.sizes == [40, 40, 20]
    progress = query.recentProgress[-1]
    assert progress.sources[0].numInputRows == 20
    assert lag(progress) == 0
    assert lag(query.recentProgress[0]) == 60
    assert _committed(topics, topic, "spark_stream") == 80, "the last batch is committed with the next one"
    topics.send(topic, 25, first=100)
    run_available(stream(spark, options).writeStream.foreachBatch(collected), checkpoint)
    assert collected.texts == numbered(0, 125)
    assert collected.sizes == [40, 40, 20, 25]
    assert _committed(topics, topic, "spark_stream") == 100


def test_with_a_filter_limits_count_offsets_and_batches_count_rows(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    topics.send(topic, 100)
    options = topics.options(
        topic, startingOffsets="earliest", maxOffsetsPerTrigger="40", sql92="n >= 70", pollIntervalMs="0"
    )
    collected = Collected()
    run_available(stream(spark, options).writeStream.foreachBatch(collected), checkpoint)
    assert collected.texts == numbered(70, 100)
    ends = [offset["queues"][topic] for offset in stored_offsets(checkpoint)]
    assert [sum(sum(queues.values()) for queues in end.values()) for end in ends] == [40, 80, 100]


def test_new_topics_and_queues_are_read_while_the_query_runs(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    topics.send(topic, 8)
    options = {
        "nameServer": topics.cluster.namesrv,
        "subscribePattern": f"{topic}.*",
        "startingOffsets": "earliest",
        "discoveryIntervalMs": "100",
    }
    collected = Collected()
    frame = stream(spark, options, "topic string, body binary")
    query = frame.writeStream.foreachBatch(collected).option("checkpointLocation", checkpoint).start()
    try:
        wait_for_rows(collected, 8, query)
        topics.cluster.create_topic(f"{topic}-new", queues=2)
        topics.send(f"{topic}-new", 8, first=8)
        wait_for_rows(collected, 16, query)
        topics.admin.topics.create(topic, queues=6)
        with Topics(topics.cluster) as fresh:  # whose route is
            fresh.send(topic, 12, first=16)
        wait_for_rows(collected, 28, query)
    finally:
        query.stop()
    assert collected.texts == numbered(0, 28)


def test_a_running_query_follows_the_topic_without_empty_batches(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    topics.send(topic, 10)
    collected = Collected()
    frame = stream(spark, topics.options(topic, maxBytesPerTrigger="1000000"), "queue_id int, body binary")
    query = frame.writeStream.foreachBatch(collected).option("checkpointLocation", checkpoint).start()
    try:
        until_sync(lambda: query.lastProgress is not None, QUERY_SECONDS)
        topics.send(topic, 20, first=10)
        wait_for_rows(collected, 20, query)
        topics.send(topic, 20, first=30)
        wait_for_rows(collected, 40, query)
        batches = len(stored_offsets(checkpoint))
        topics.cluster.restart_broker()
        topics.send(topic, 4, first=50)
        wait_for_rows(collected, 44, query)
        assert collected.texts == numbered(10, 54)
        assert len(stored_offsets(checkpoint)) <= batches + 4
    finally:
        query.stop()


@pytest.mark.proves("spark:S-20")
def test_a_minimum_number_of_messages_is_awaited_for_a_limited_time(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    options = topics.options(
        topic, startingOffsets="earliest", minOffsetsPerTrigger="10", pollIntervalMs="10"
    )
    collected = Collected()

    def start(delay: str) -> StreamingQuery:
        frame = stream(spark, {**options, "maxTriggerDelay": delay})
        return frame.writeStream.foreachBatch(collected).option("checkpointLocation", checkpoint).start()

    topics.send(topic, 3)
    query = start("15m")
    try:
        wait_for_rows(collected, 3, query)
        topics.send(topic, 4, first=3)
        topics.send(topic, 6, first=7)
        wait_for_rows(collected, 13, query)
        until_sync((Path(checkpoint) / "commits" / "1").exists, QUERY_SECONDS)
    finally:
        query.stop()
    assert collected.sizes == [3, 10]
    query = start("100ms")
    try:
        for first in (13, 15):
            topics.send(topic, 2, first=first)
            wait_for_rows(collected, first + 2, query)
    finally:
        query.stop()
    assert collected.texts == numbered(0, 17)


def test_a_failed_first_batch_is_read_again_from_where_it_began(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    topics.send(topic, 40)
    queues = topics.consumer.queues(topic)
    group = mover(topics, topic, queues, 2)
    options = topics.options(topic, startingOffsets="group", groupId=group)
    collected = Collected()
    collected.fail = True
    with pytest.raises(StreamingQueryException, match="failing on purpose"):
        run_available(stream(spark, options).writeStream.foreachBatch(collected), checkpoint)
    mover(topics, topic, queues, 7)
    collected.fail = False
    run_available(stream(spark, options).writeStream.foreachBatch(collected), checkpoint)
    assert collected.texts == numbered(8, 40)
    first, *_ = stored_offsets(checkpoint)
    assert set(json.dumps(first["from"]).split(": ")[-1]) <= set("2}")


def mover(topics: Topics, topic: str, queues: list[MessageQueue], offset: int) -> str:
    """A group that has read up to `offset` in each queue."""
    import sparrowmq as mq

    group = f"mover_{topic}"[:60]
    with mq.PullConsumer(group, namesrv=topics.cluster.namesrv) as consumer:
        for queue in queues:
            consumer.pull(queue, 0)  # the first pull makes the group
            consumer.commit(queue, offset)
    return group


def test_lost_messages_end_the_query_unless_they_may_be_lost(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    topics.send(topic, 40)
    options = topics.options(topic, startingOffsets="earliest")
    collected = Collected()
    run_available(stream(spark, options).writeStream.foreachBatch(collected), checkpoint)
    topics.admin.topics.delete(topic)
    topics.cluster.create_topic(topic, queues=4)
    topics.send(topic, 4, first=40)
    with pytest.raises(StreamingQueryException, match=r"its broker lost messages.*failOnDataLoss=false"):
        run_available(stream(spark, options).writeStream.foreachBatch(collected), checkpoint)
    careless = options | {"failOnDataLoss": "false"}
    run_available(stream(spark, careless).writeStream.foreachBatch(collected), checkpoint)
    assert collected.texts == numbered(0, 44), "the new topic from its beginning"
    topics.send(topic, 40, first=44)
    run_available(stream(spark, careless).writeStream.foreachBatch(collected), checkpoint)
    assert collected.texts == numbered(0, 84)
    topics.admin.topics.delete(topic)
    topics.cluster.create_topic(topic, queues=4)
    run_available(stream(spark, careless).writeStream.foreachBatch(collected), checkpoint)
    topics.send(topic, 200, first=84)
    run_available(stream(spark, options).writeStream.foreachBatch(collected), checkpoint)
    assert collected.texts == numbered(0, 284), "an empty one is noted, too"


def test_a_log_that_lost_its_end_and_has_grown_again_ends_the_query_unless_messages_may_be_lost(
    spark: SparkSession, tmp_path: Path, checkpoint: str
) -> None:
    store, copy = tmp_path / "store", tmp_path / "copy"
    with LocalCluster(store) as cluster, Topics(cluster) as topics:
        cluster.create_topic("Cut", queues=2)
        topics.send("Cut", 20)
        cluster.stop_broker()
        shutil.copytree(store, copy)
        cluster.start_broker()
        topics.send("Cut", 10, first=20)
        options = topics.options("Cut", startingOffsets="earliest")
        collected = Collected()
        run_available(stream(spark, options).writeStream.foreachBatch(collected), checkpoint)
        assert collected.texts == numbered(0, 30)
        cluster.stop_broker()
        shutil.rmtree(store)
        shutil.move(copy, store)
        cluster.start_broker()
        topics.send("Cut", 20, first=100)
        with pytest.raises(StreamingQueryException, match=r"stored other messages.*failOnDataLoss=false"):
            run_available(stream(spark, options).writeStream.foreachBatch(collected), checkpoint)
        careless = options | {"failOnDataLoss": "false"}
        run_available(stream(spark, careless).writeStream.foreachBatch(collected), checkpoint)
        assert collected.texts == numbered(0, 30) + numbered(110, 120)
        topics.send("Cut", 4, first=120)
        run_available(stream(spark, options).writeStream.foreachBatch(collected), checkpoint)
        assert collected.texts == numbered(0, 30) + numbered(110, 124)


def test_wrong_options_end_the_query_with_their_error(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    frame = stream(spark, topics.options(topic, endingOffsets="latest"))
    with pytest.raises(
        StreamingQueryException, match="option endingOffsets='latest' is for batch reads only"
    ):
        run_available(frame.writeStream.format("noop"), checkpoint)


def test_once_ignores_limits(spark: SparkSession, topics: Topics, topic: str, checkpoint: str) -> None:
    topics.send(topic, 50)
    options = topics.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger="7")
    collected = Collected()
    query = (
        stream(spark, options)
        .writeStream.foreachBatch(collected)
        .option("checkpointLocation", checkpoint)
        .trigger(once=True)
        .start()
    )
    assert query.awaitTermination(QUERY_SECONDS)
    assert collected.sizes == [50]


def _reader(topics: Topics, topic: str, **more: str) -> RocketMQStreamReader:
    from pyspark.sql.types import BinaryType, StructField, StructType

    options = ReadOptions.parse(topics.options(topic, **more), "stream", {})
    return RocketMQStreamReader(options, StructType([StructField("body", BinaryType())]))


def test_spark_before_4_2_gets_offsets_without_limits(topics: Topics, topic: str) -> None:
    topics.send(topic, 8)
    new = _reader(topics, topic, pollIntervalMs="0")
    first = new.latestOffset()
    assert first == new.initialOffset() | {}
    topics.send(topic, 8, first=8)
    until_sync(lambda: new.latestOffset() != first)  # what is known is believed for as long as asking took
    second = new.latestOffset()
    [partition] = new.partitions(first, second)
    assert sum(batch.num_rows for batch in new.read(partition)) == 8
    assert new.latestOffset() == second
    restarted = _reader(topics, topic, pollIntervalMs="0")
    assert restarted.partitions(second, second) == []
    topics.send(topic, 4, first=16)
    until_sync(lambda: restarted.latestOffset() != second)
    third = restarted.latestOffset()
    [partition] = restarted.partitions(second, third)
    assert sum(batch.num_rows for batch in restarted.read(partition)) == 4


def test_plans_commit_nothing_and_batches_that_are_done_do(topics: Topics, topic: str) -> None:
    topics.send(topic, 8)
    reader = _reader(topics, topic, startingOffsets="earliest", groupId=f"g_{topic}"[:60], pollIntervalMs="0")
    end = reader.latestOffset(reader.initialOffset(), None)
    topics.send(topic, 8, first=8)
    until_sync(lambda: reader.latestOffset(end, None) != end)
    assert _committed(topics, topic, f"g_{topic}"[:60]) == 0
    reader.commit(end)
    assert _committed(topics, topic, f"g_{topic}"[:60]) == 8


def test_plans_depend_on_nothing_but_offsets(topics: Topics, topic: str) -> None:
    topics.send(topic, 40)
    reader = _reader(topics, topic, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)
    planned = reader.partitions(start, end)
    topics.send(topic, 40, first=40)
    assert _reader(topics, topic, startingOffsets="latest").partitions(start, end) == planned
    assert _reader(topics, topic, minPartitions="4").partitions(start, end) == planned
    assert reader.reportLatestOffset() == {"queues": end["queues"]}


def test_a_batch_that_runs_again_leaves_out_a_topic_that_was_made_again(topics: Topics, topic: str) -> None:
    topics.send(topic, 400)
    asked = {"startingOffsets": "earliest", "failOnDataLoss": "false", "maxRecordsPerPartition": "90"}
    reader = _reader(topics, topic, **asked)
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)
    planned = reader.partitions(start, end)
    topics.admin.topics.delete(topic)
    until_sync(lambda: topic not in topics.admin.topics.list())
    topics.cluster.create_topic(topic, queues=4)
    topics.send(topic, 40, first=400)
    restarted = _reader(topics, topic, **asked)
    for _ in range(2):  # Spark may ask twice
        again = restarted.partitions(start, end)
        assert len(again) == len(planned), "tasks keep their places, rows are named by them"
        assert [list(restarted.read(one)) for one in again] == [[]] * len(again)
    later = restarted.latestOffset(end, None)
    rows = [row for one in restarted.partitions(end, later) for row in restarted.read(one)]
    assert sum(batch.num_rows for batch in rows) == 40
    with pytest.raises(DataLossError, match="deleted and recreated"):
        _reader(topics, topic, startingOffsets="earliest").partitions(start, end)


def test_what_was_planned_is_read_after_the_topic_was_shrunk(topics: Topics, topic: str) -> None:
    topics.send(topic, 40)
    reader = _reader(topics, topic, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)
    planned = reader.partitions(start, end)
    topics.admin.topics.create(topic, queues=2, force=True)
    for _ in range(2):  # a task may be tried again
        assert sum(batch.num_rows for one in planned for batch in reader.read(one)) == 40


def test_a_batch_that_runs_again_has_its_tasks_whatever_is_planned_now(
    topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.send(topic, 40)
    monkeypatch.setattr("sparrowmq.spark.offsets.planning.MESSAGES_PER_TASK", 1)
    reader = _reader(topics, topic, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)
    planned = reader.partitions(start, end)
    assert len(planned) > 1
    monkeypatch.setattr("sparrowmq.spark.offsets.planning.MESSAGES_PER_TASK", 1_000)
    restarted = _reader(topics, topic, startingOffsets="earliest", maxRecordsPerPartition="3")
    assert restarted.partitions(start, end) == planned
    topics.send(topic, 40, first=40)
    until_sync(lambda: restarted.latestOffset(end, None) != end)
    later = restarted.latestOffset(end, None)
    assert len(restarted.partitions(end, later)) >= 12, "the next batch is laid out as the options say now"
