"""Writes that run again: what was stored is not stored again, whoever died; in no case is a row lost."""

from __future__ import annotations

import os
import shutil
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
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.write.guarantees import broker_without_states

COUNT = 9000


def frame(spark: SparkSession, count: int = COUNT, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).select(
        F.concat(F.lit("m"), F.col("id")).alias("body"), F.col("id")
    )


def write(rows: DataFrame, to: Topics, topic: str, **options: str) -> None:
    rows.write.format("rocketmq").options(
        nameServer=to.cluster.namesrv, topic=topic, batchBytes="16384", **options
    ).mode("append").save()


EMPTY = "the body has 0 bytes"


def failing(rows: DataFrame, count: int = COUNT) -> DataFrame:
    """The same rows, of which the last ones end the write."""
    return rows.withColumn("body", F.when(F.col("id") < count - 100, F.col("body")).otherwise(F.lit("")))


def stored(topics: Topics, topic: str) -> Counter[str]:
    return Counter(message.body.decode() for message in topics.read(topic))


def once(count: int = COUNT) -> Counter[str]:
    return Counter(numbered(0, count))


def grow(topics: Topics, topic: str, queues: int) -> None:
    """More queues, and clients that know of them."""
    topics.admin.topics.create(topic, queues=queues)


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
    with pytest.raises(PySparkException, match="a later batch of job 'many' was already written"):
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
            admin.topics.create("Killed", queues=4)
        rows = frame(spark, 40_000).select("body").write.format("rocketmq").mode("append")
        rows = rows.options(nameServer=child.nameserver_address, topic="Killed", jobId="killed")
        rows = rows.options(batchBytes="4096", maxInFlight="2")
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
    with pytest.raises(PySparkException, match=EMPTY):
        write(failing(rows).select("body"), topics, topic, **options)
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
    rows = failing(rows, 3000)
    with pytest.raises(PySparkException, match=EMPTY):
        write(rows.coalesce(1).orderBy("id").select("body"), topics, topic, jobId="unkeyed")
    done = stored(topics, topic)
    write(frame(spark, 3000, 1).orderBy(F.desc("id")).select("body"), topics, topic, jobId="unkeyed")
    found = stored(topics, topic)
    assert done and found == once(3000) + done


@pytest.mark.parametrize("reached", [True, False])
def test_a_checkpoint_on_a_file_system_that_only_hadoop_has(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path, reached: bool
) -> None:
    copy = f"{topic}_copy"
    topics.cluster.create_topic(copy, queues=2)
    topics.send(topic, 1000)
    name = topic.partition("_")[0].lower()
    link = f"fs.viewfs.mounttable.{name}.link./lake"
    spark.conf.set(link, f"file:{tmp_path}")
    checkpoint = f"viewfs://{name}/lake/checkpoint"
    given = {link: f"file:{tmp_path}"} if reached else {}
    for _ in range(2):
        writer = (
            stream(spark, topics.options(topic, startingOffsets="earliest"), "body binary, keys string")
            .writeStream.format("rocketmq")
            .options(nameServer=topics.cluster.namesrv, topic=copy, batchBytes="16384", **given)
        )
        run_available(writer, checkpoint)
        assert stored(topics, copy) == once(1000)
        for path in (tmp_path / "checkpoint" / "commits").iterdir():
            path.unlink()  # the driver died before it could say that the batch is done
        if reached:
            grow(topics, copy, 4)
    assert (tmp_path / "checkpoint" / "sparrowmq-queues" / "0.json").exists() == reached


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


def test_tasks_that_share_a_queue_compare_what_is_stored_by_reading_it_back(
    spark: SparkSession, topics: Topics
) -> None:
    topics.cluster.create_topic("Shared", queues=1)

    def write_small(rows: DataFrame) -> None:
        writer = rows.select("body").write.format("rocketmq").mode("append")
        named = {"nameServer": topics.cluster.namesrv, "topic": "Shared", "jobId": "shared"}
        writer.options(**named, batchBytes="1024").save()

    with pytest.raises(PySparkException, match=EMPTY):
        write_small(failing(frame(spark)))
    assert COUNT / 2 < stored(topics, "Shared").total() < COUNT
    write_small(frame(spark))
    assert stored(topics, "Shared") == once()


def test_jobs_by_the_hour_need_no_more_of_a_broker_than_one_job(spark: SparkSession, tmp_path: Path) -> None:
    broker = {"storePathRootDir": str(tmp_path / "store"), "listenPort": "0", "maxProducerStates": "8"}
    child = ChildServers(broker=broker, nameserver={"listenPort": "0"})
    child.start()
    try:
        with mq.Admin(child.nameserver_address) as admin:
            admin.topics.create("Hourly", queues=4)

        def write_hour(job: str, partitions: int) -> None:
            rows = frame(spark, 20_000, partitions).select("body").write.format("rocketmq").mode("append")
            rows.options(nameServer=child.nameserver_address, topic="Hourly", jobId=job).save()

        for hour in range(3):
            write_hour(f"hour-{hour}", 2)
        with pytest.raises(PySparkException, match="maxProducerStates is 8"):
            write_hour("wide", 4)
        with mq.PullConsumer("watch", namesrv=child.nameserver_address) as consumer:
            assert sum(map(consumer.max_offset, consumer.queues("Hourly"))) >= 60_000
    finally:
        child.kill()


@pytest.mark.parametrize("again", [1, 3])
def test_rows_with_keys_are_stored_once_however_they_are_divided(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path, again: int
) -> None:
    options = {"jobId": f"divided-{again}", "planLocation": str(tmp_path), "idempotenceKey": "id"}
    rows = frame(spark)
    with pytest.raises(PySparkException, match=EMPTY):
        write(failing(rows).repartition(2, "id"), topics, topic, **options)
    assert 0 < stored(topics, topic).total() < COUNT
    write(rows.repartition(again, "id"), topics, topic, **options)
    assert stored(topics, topic) == once()
    ids = [message.message_id for message in topics.read(topic)]
    assert len(set(ids)) == COUNT
    shutil.rmtree(tmp_path / f"divided-{again}" / "done")
    topics.admin.topics.delete(topic)
    until_sync(lambda: topic not in topics.admin.topics.list())
    topics.cluster.create_topic(topic, queues=4)
    write(rows, topics, topic, **options)
    assert stored(topics, topic) == once(), "the topic was made anew"


@pytest.mark.parametrize("planned", [True, False])
def test_a_job_that_is_done_leaves_nothing_at_the_brokers_and_stores_nothing_more(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path, planned: bool
) -> None:
    options = {"jobId": f"done-{planned}"} | ({"planLocation": str(tmp_path)} if planned else {})
    (broker,) = {queue.broker_name for queue in topics.producer.queues(topic)}

    def states() -> int:
        return int(topics.admin.brokers.info(broker)["producerStates"])

    before = states()
    with pytest.raises(PySparkException, match=EMPTY):
        write(failing(frame(spark)).select("body"), topics, topic, **options)
    assert states() > before, "an interrupted job is remembered"
    for partitions in (2, 3, 1):
        write(frame(spark, COUNT, partitions).select("body"), topics, topic, **options)
        assert stored(topics, topic) == once() and states() == before
    with pytest.raises(
        PySparkException, match=f"with {COUNT} rows; this run has 10 rows .* Nothing was stored"
    ):
        write(frame(spark, 10).select("body"), topics, topic, **options)
    assert stored(topics, topic) == once()


def test_a_job_that_is_done_is_stored_again_where_its_rows_are_gone(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """The record in `planLocation` outlives the topic, and does not speak of another one."""
    options = {"jobId": "gone", "planLocation": str(tmp_path)}
    rows = frame(spark, 500, 1).select("body")
    write(rows, topics, topic, **options)
    topics.admin.topics.delete(topic)
    until_sync(lambda: topic not in topics.admin.topics.list())
    topics.cluster.create_topic(topic, queues=4)
    for _ in range(2):
        write(rows, topics, topic, **options)
        assert stored(topics, topic) == once(500)
    topics.cluster.create_topic(f"{topic}_other", queues=1)
    with pytest.raises(PySparkException, match=r"was written to topic .* give another jobId"):
        write(rows, topics, f"{topic}_other", **options)


@pytest.mark.parametrize("again", [1, 3])
def test_a_stream_of_rows_with_keys_is_stored_once_however_it_is_divided(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str, again: int
) -> None:
    copy = f"{topic}_copy"
    topics.cluster.create_topic(copy, queues=2)
    topics.send(topic, 3000)

    def run(partitions: int) -> None:
        read = stream(spark, topics.options(topic, startingOffsets="earliest"), "body binary, keys string")
        writer = read.repartition(partitions, "keys").writeStream.format("rocketmq")
        named = {"nameServer": topics.cluster.namesrv, "topic": copy, "idempotenceKey": "keys"}
        run_available(writer.options(**named), checkpoint)

    run(2)
    for _ in range(2):
        for path in (Path(checkpoint) / "commits").iterdir():
            path.unlink()
        run(again)
        assert stored(topics, copy) == once(3000)
    topics.send(topic, 100, first=3000)
    run(again)
    assert stored(topics, copy) == once(3100)


def test_a_stream_that_starts_again_on_other_cores_or_settings_stores_its_batch_once(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    copy = f"{topic}_copy"
    topics.cluster.create_topic(copy, queues=2)
    topics.send(topic, 3000)
    for partitions in ({"minPartitions": "3"}, {"maxPartitions": "1"}, {"maxRecordsPerPartition": "100"}):
        read = stream(spark, topics.options(topic, startingOffsets="earliest", **partitions), "body binary")
        writer = read.writeStream.format("rocketmq").options(nameServer=topics.cluster.namesrv, topic=copy)
        run_available(writer, checkpoint)
        assert stored(topics, copy) == once(3000)
        for path in (Path(checkpoint) / "commits").iterdir():
            path.unlink()


@pytest.mark.parametrize("options", [{}, {"jobId": "off", "delivery": "atLeastOnce"}])
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
        ({"jobId": "j", "delivery": "exactlyOnce"}, "identify rows with option idempotenceKey"),
        ({"jobId": "j", "planLocation": "nowhere:/x"}, "is not a directory that Arrow can access"),
    ],
)
def test_wrong_options_are_told_before_any_task(
    spark: SparkSession, topics: Topics, topic: str, options: dict[str, str], text: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        write(frame(spark, 5).select("body"), topics, topic, **options)
    assert text in str(caught.value)
    assert not stored(topics, topic)
