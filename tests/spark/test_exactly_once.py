"""Writes that run again: what was stored is not stored again, whoever died; in no case is a row lost."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.support import QUERY_SECONDS, Topics, numbered, run_available, stream
from tests.support import free_port, until_sync

import sparrowmq as mq
from sparrowmq.runtime.child import ChildServers
from sparrowmq.spark.delivery import broker_without_states
from sparrowmq.spark.options import WriteOptions

COUNT = 9000


def frame(spark: SparkSession, count: int = COUNT, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).select(
        F.concat(F.lit("m"), F.col("id")).alias("body"), F.col("id")
    )


def write(rows: DataFrame, to: Topics, topic: str, **options: str) -> None:
    rows.write.format("rocketmq").options(
        nameServer=to.cluster.namesrv, topic=topic, batchBytes="16384", **options
    ).mode("append").save()


def stored(topics: Topics, topic: str) -> Counter[str]:
    return Counter(message.body.decode() for message in topics.read(topic))


def once(count: int = COUNT) -> Counter[str]:
    return Counter(numbered(0, count))


def grow(topics: Topics, topic: str, queues: int) -> None:
    """More queues, and clients that know of them."""
    topics.admin.create_topic(topic, queues=queues)


def dying(marker: Path, after: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows as they are; the first worker that passed `after` of them on is killed."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        passed = 0
        for batch in batches:
            for start in range(0, batch.num_rows, 500):
                part = batch.slice(start, 500)
                yield part
                passed += part.num_rows
                if passed >= after and not marker.exists():
                    marker.touch()
                    os.kill(os.getpid(), signal.SIGKILL)

    return work


def test_a_batch_with_a_job_id_is_stored_once_however_often_it_runs(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    rows = frame(spark).select("body")
    named = {"nameServer": topics.cluster.namesrv, "topic": topic, "jobId": "nightly-1"}
    assert broker_without_states(WriteOptions.parse(named, {})) == ""
    write(rows, topics, topic, jobId="nightly-1")
    first = topics.read(topic)
    write(rows, topics, topic, jobId="nightly-1")
    again = topics.read(topic)
    assert [message.message_id for message in again] == [message.message_id for message in first]
    assert Counter(message.body.decode() for message in again) == once()
    assert len({message.message_id for message in again}) == COUNT
    assert len({message.queue for message in again}) == 4
    write(rows, topics, topic, jobId="nightly-2")
    assert stored(topics, topic).total() == 2 * COUNT, "another job"


def test_the_batches_of_one_job_are_told_apart(spark: SparkSession, topics: Topics, topic: str) -> None:
    rows = frame(spark, 100, 1).select("body")
    for batch in ("0", "0", "7", "7"):
        write(rows, topics, topic, jobId="many", jobBatch=batch)
    assert set(stored(topics, topic).values()) == {2}
    with pytest.raises(PySparkException, match="epoch"):
        write(rows, topics, topic, jobId="many", jobBatch="6")


def test_a_worker_that_is_killed_in_mid_write_leaves_no_row_twice(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    kill = dying(tmp_path / "killed", 2500)
    rows = frame(spark, partitions=1).select("body").mapInArrow(kill, "body string")
    write(rows, topics, topic, jobId="killed")
    assert (tmp_path / "killed").exists()
    assert stored(topics, topic) == once()


def test_a_broker_that_is_killed_in_mid_write_leaves_no_row_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    ports = str(free_port()), str(free_port())

    def start() -> ChildServers:
        broker = {"storePathRootDir": str(tmp_path / "store"), "listenPort": ports[0]}
        child = ChildServers(broker=broker, nameserver={"listenPort": ports[1]})
        child.start()
        return child

    child = start()
    try:
        with mq.Admin(child.nameserver_address) as admin:
            admin.create_topic("Killed", queues=4)
        rows = frame(spark, 40_000).select("body").write.format("rocketmq").mode("append")
        rows = rows.options(nameServer=child.nameserver_address, topic="Killed", jobId="killed")
        rows = rows.options(batchBytes="4096", maxInFlight="2", retries="100")
        with mq.PullConsumer("watch", namesrv=child.nameserver_address) as consumer:
            queues = consumer.queues("Killed")
            stored = 0

            def kill_and_start() -> ChildServers:
                nonlocal stored
                until_sync(lambda: sum(map(consumer.max_offset, queues)) > 2000, QUERY_SECONDS)
                stored = sum(map(consumer.max_offset, queues))
                child.kill()
                return start()

            with ThreadPoolExecutor(1) as pool:
                killing = pool.submit(kill_and_start)
                rows.save()
                child = killing.result(QUERY_SECONDS)
            assert 2000 < stored < 40_000, "killed in mid-write"
            found = Counter(body for queue in queues for body in bodies_in(consumer, queue))
        assert found == once(40_000)
    finally:
        child.kill()


def bodies_in(consumer: mq.PullConsumer, queue: mq.MessageQueue) -> Iterator[str]:
    """The bodies of a queue."""
    offset, end = 0, consumer.max_offset(queue)
    while offset < end:
        result = consumer.pull(queue, offset)
        yield from (message.body.decode() for message in result.messages)
        offset = result.next_offset


def test_a_job_goes_on_with_its_queues_when_the_topic_gets_more(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    options = {"jobId": "grown", "planLocation": str(tmp_path / "plans")}
    rows = frame(spark)
    failing = rows.select(F.when(F.col("id") < COUNT - 100, F.col("body")).otherwise(F.lit("")).alias("body"))
    with pytest.raises(PySparkException, match="the body has 0 bytes"):
        write(failing, topics, topic, **options)
    grow(topics, topic, 8)
    write(rows.select("body"), topics, topic, **options)
    assert stored(topics, topic) == once()
    assert {message.queue.queue_id for message in topics.read(topic)} == {0, 1, 2, 3}


def test_rows_in_another_order_are_never_lost_and_with_a_key_not_doubled(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    rows = frame(spark, 3000)
    shuffled = [rows.repartition(2, "id").sortWithinPartitions(order) for order in ("id", F.desc("id"))]
    for one in shuffled:
        write(one, topics, topic, jobId="keyed", idempotenceKey="id")
    assert stored(topics, topic) == once(3000)
    for one in shuffled:
        write(one.select("body"), topics, topic, jobId="unkeyed")
    found = stored(topics, topic)
    assert set(found) == set(once(3000)) and min(found.values()) >= 2


def test_a_stream_batch_that_runs_again_is_stored_once(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    copy = f"{topic}_copy"
    topics.cluster.create_topic(copy, queues=2)
    topics.send(topic, 3000)
    writer = (
        stream(spark, topics.options(topic, startingOffsets="earliest"), "body binary, keys string")
        .writeStream.format("rocketmq")
        .options(nameServer=topics.cluster.namesrv, topic=copy, batchBytes="16384")
    )
    run_available(writer, checkpoint)
    assert stored(topics, copy) == once(3000)
    for path in (Path(checkpoint) / "commits").iterdir():
        path.unlink()  # the driver died before it could say that the batch is done
    grow(topics, copy, 4)
    run_available(writer, checkpoint)
    assert stored(topics, copy) == once(3000)
    topics.send(topic, 1000, first=3000)
    run_available(writer, checkpoint)
    assert stored(topics, copy) == once(4000)
    kept = sorted(path.name for path in (Path(checkpoint) / "sparrowmq-queues").iterdir())
    assert kept[0] == "0.json"


@pytest.mark.parametrize("options", [{}, {"jobId": "off", "idempotent": "false"}])
def test_without_numbers_a_batch_is_at_least_once(
    spark: SparkSession, topics: Topics, topic: str, options: dict[str, str]
) -> None:
    rows = frame(spark, 50).select("body")
    for _ in range(2):
        write(rows, topics, topic, **options)
    assert set(stored(topics, topic).values()) == {2}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"jobId": "a b"}, "option jobId='a b'"),
        ({"jobId": "j", "idempotenceKey": "nokey"}, "the frame has no such column"),
        ({"jobId": "j", "planLocation": "nowhere:/x"}, "is no directory that Arrow can reach"),
    ],
)
def test_wrong_options_are_told_before_any_task(
    spark: SparkSession, topics: Topics, topic: str, options: dict[str, str], text: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        write(frame(spark, 5).select("body"), topics, topic, **options)
    assert text in str(caught.value)
    assert not stored(topics, topic)
