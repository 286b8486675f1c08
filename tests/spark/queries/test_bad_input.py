"""What stops a query, and what it then says; what goes on all the same."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.crash.faults import mounted
from tests.spark.support import (
    QUERY_SECONDS,
    Collected,
    Topics,
    bodies,
    load,
    numbered,
    run_available,
    stored_offsets,
    stream,
    wait_for_rows,
)
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.core.message import BODY_BYTES_MAX

QUEUES_MANY = 10_000
ROOT = Path(__file__).resolve().parents[3]


def test_an_empty_topic_makes_an_empty_stream(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    collected = Collected()
    options = topics.options(topic, startingOffsets="earliest")
    run_available(stream(spark, options).writeStream.foreachBatch(collected), checkpoint)
    topics.send(topic, 4)
    run_available(stream(spark, options).writeStream.foreachBatch(collected), checkpoint)
    assert collected.texts == numbered(0, 4)


def test_the_largest_bodies_are_read(spark: SparkSession, topics: Topics, topic: str) -> None:
    body = os.urandom(BODY_BYTES_MAX - 64)
    settings = mq.ProducerSettings(namesrv=topics.cluster.namesrv, compress_over=2**30)
    with mq.Producer("large", settings=settings) as producer:
        queue = producer.queues(topic)[0]
        for _ in range(3):
            producer.send(mq.Message(topic, body), queue=queue)
    rows = load(spark, topics.options(topic), "queue_offset bigint, body binary").collect()
    assert [row.queue_offset for row in rows] == [0, 1, 2]
    assert all(bytes(row.body) == body for row in rows)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "NoSuchTopic"}, "no broker serves topic 'NoSuchTopic'; create it first"),
        (
            {"startingOffset": "earliest"},
            "option startingoffset='earliest' is unknown .* did you mean startingOff",
        ),
        ({"kafka.bootstrap.servers": "a:1"}, "is an option of the Kafka source; use nameServer"),
        ({"secretKey": "s3cret"}, "option accessKey is missing"),
    ],
)
def test_streams_with_wrong_options_do_not_start(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str, options: dict[str, str], text: str
) -> None:
    with pytest.raises(PySparkException, match=text) as caught:
        frame = stream(spark, topics.options(topic) | {"fetchOffset.numRetries": "0"} | options)
        run_available(frame.writeStream.foreachBatch(Collected()), checkpoint)
    assert "s3cret" not in str(caught.value)


def test_offsets_outside_the_log_are_told(spark: SparkSession, topics: Topics, topic: str) -> None:
    topics.send(topic, 8)
    broker = topics.consumer.queues(topic)[0].broker_name
    for name in ("startingOffsets", "endingOffsets"):
        beyond = json.dumps({topic: {broker: {"0": 0, "1": 3, "2": 0, "3": 0}}})
        with pytest.raises(
            PySparkException, match=rf"option {name} gives offset 3 .* ends at 2; it must be 0 to 2"
        ):
            load(spark, topics.options(topic, **{name: beyond})).count()


def test_a_topic_deleted_under_a_query_ends_it_if_messages_are_unread(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    topics.send(topic, 8)
    options = topics.options(
        topic, startingOffsets="earliest", maxOffsetsPerTrigger="4", discoveryIntervalMs="50"
    )
    collected = Collected()

    def write(frame: DataFrame, batch: int) -> None:
        collected(frame, batch)
        topics.admin.topics.delete(topic)

    query = (
        stream(spark, options)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    try:
        with pytest.raises(StreamingQueryException, match=f"{topic}.*failOnDataLoss=false"):
            query.awaitTermination(QUERY_SECONDS)
    finally:
        query.stop()
    assert len(collected.texts) == 4


def test_a_topic_that_was_read_to_its_end_may_be_deleted_and_others_are_read_on(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    other = f"{topic}-other"
    topics.cluster.create_topic(other, queues=2)
    topics.send(topic, 8)
    topics.send(other, 4, first=8)
    options = {
        "nameServer": topics.cluster.namesrv,
        "subscribePattern": f"{topic}.*",
        "startingOffsets": "earliest",
    }
    assert _run(stream(spark, options), checkpoint).texts == numbered(0, 12)
    topics.admin.topics.delete(topic)
    until_sync(lambda: topic not in topics.admin.topics.list())
    topics.send(other, 4, first=12)
    assert _run(stream(spark, options), checkpoint).texts == numbered(12, 16)


def test_a_topic_that_gets_fewer_queues_is_read_to_its_end(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    """SparrowMQ's brokers serve bulk reads of queues that left the topic."""
    topics.send(topic, 16)
    options = topics.options(topic, startingOffsets="earliest")
    assert _run(stream(spark, options), checkpoint).texts == numbered(0, 16)
    topics.send(topic, 16, first=16)
    topics.admin.topics.create(topic, queues=2, force=True)
    assert _run(stream(spark, options), checkpoint).texts == numbered(16, 32)
    rows = spark.read.format("rocketmq").options(**options).load().collect()
    assert sorted(bytes(row["body"]) for row in rows) == sorted(text.encode() for text in numbered(0, 32))
    assert _run(stream(spark, options), f"{checkpoint}-new").texts == numbered(0, 32)


def _run(frame: DataFrame, checkpoint: str) -> Collected:
    collected = Collected()
    run_available(frame.writeStream.foreachBatch(collected), checkpoint)
    return collected


def test_a_checkpoint_of_another_topic_or_from_the_future_is_refused(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    topics.send(topic, 8)
    options = topics.options(topic, startingOffsets="earliest")
    _run(stream(spark, options), checkpoint)
    topics.cluster.create_topic(f"{topic}-b", queues=1)
    other = options | {"subscribe": f"{topic}-b"}
    with pytest.raises(
        StreamingQueryException, match=f"the checkpoint is of {topic}, .* another checkpointLocat"
    ):
        _run(stream(spark, other), checkpoint)
    ahead, later = f"{checkpoint}-ahead", f"{checkpoint}-later"
    for copy in (ahead, later):
        shutil.copytree(checkpoint, copy)
        file = Path(copy) / "offsets" / "0"
        *head, text = file.read_text().splitlines()
        offset = json.loads(text)
        if copy == ahead:
            [queues] = offset["queues"][topic].values()
            queues.update(dict.fromkeys(queues, 1000))
        else:
            offset["epoch"] = 2
        file.write_text("\n".join([*head, json.dumps(offset, sort_keys=True)]))
        (Path(copy) / "offsets" / ".0.crc").unlink(missing_ok=True)
    with pytest.raises(
        StreamingQueryException, match=r"ends at 2: its broker lost messages.*start with a new checkpoint"
    ):
        _run(stream(spark, options), ahead)
    with pytest.raises(StreamingQueryException, match="contains 'epoch', written by a later release"):
        _run(stream(spark, options), later)


def test_a_body_that_cannot_be_opened_holds_a_stream_up_until_it_may_be_passed(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparrowmq.client.send.sender.compress", lambda body, kind, level: b"shut")
    settings = mq.ProducerSettings(namesrv=topics.cluster.namesrv, compress_over=100)
    with mq.Producer("poison", settings=settings) as producer:
        queue = producer.queues(topic)[0]
        for body in (b"m0", b"x" * 200, b"m2"):
            producer.send(mq.Message(topic, body), queue=queue)
    options = topics.options(topic, startingOffsets="earliest")
    with pytest.raises(
        StreamingQueryException,
        match=rf"queue {topic}/.*the body at offset 1 cannot be decompressed.*PERMISSIVE",
    ):
        _run(stream(spark, options), checkpoint)
    seen: list[tuple[int, bytes | None]] = []

    def see(batch: DataFrame, batch_id: int) -> None:
        seen.extend((row.queue_offset, row.body) for row in batch.select("queue_offset", "body").collect())

    frame = stream(spark, {**options, "mode": "PERMISSIVE"})
    run_available(frame.writeStream.foreachBatch(see), checkpoint)
    assert sorted(seen) == [(0, b"m0"), (1, None), (2, b"m2")]


def test_ten_thousand_queues_are_read(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    wide = f"{topic}-wide"
    topics.admin.topics.create(wide, queues=QUEUES_MANY)
    queues = topics.producer.queues(wide)
    for number, queue in enumerate((queues[0], queues[4_711], queues[-1])):
        topics.producer.send(mq.Message(wide, b"m%d" % number), queue=queue)
    options = topics.options(wide, startingOffsets="earliest")
    assert load(spark, options, "queue_id int").count() == 3
    assert _run(stream(spark, options), checkpoint).texts == numbered(0, 3)


def test_of_two_queries_on_one_checkpoint_one_goes_on(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    topics.send(topic, 8)
    frame = stream(spark, topics.options(topic, startingOffsets="earliest"))
    first, second = Collected(), Collected()
    running = frame.writeStream.foreachBatch(first).option("checkpointLocation", checkpoint).start()
    try:
        wait_for_rows(first, 8, running)
        until_sync((Path(checkpoint) / "commits" / "0").exists, QUERY_SECONDS)  # else it would run again
        following = frame.writeStream.foreachBatch(second).option("checkpointLocation", checkpoint).start()
        try:
            assert running.awaitTermination(QUERY_SECONDS)
            topics.send(topic, 8, first=8)
            wait_for_rows(second, 8, following)
        finally:
            following.stop()
    finally:
        running.stop()
    assert first.texts + second.texts == numbered(0, 16)


@pytest.fixture
def rival(topics: Topics, topic: str, checkpoint: str) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts another driver, a process of its own, on the checkpoint; it has ended afterwards."""
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.spark.rival_child", topics.cluster.namesrv, topic, checkpoint]
        started.append(
            subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        return started[0]

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_of_two_drivers_on_one_checkpoint_the_later_one_ends_with_an_error(
    spark: SparkSession,
    topics: Topics,
    topic: str,
    checkpoint: str,
    rival: Callable[[], subprocess.Popen[str]],
) -> None:
    topics.send(topic, 8)
    mine = Collected()
    frame = stream(spark, topics.options(topic, startingOffsets="earliest"))
    running = frame.writeStream.foreachBatch(mine).option("checkpointLocation", checkpoint).start()
    try:
        wait_for_rows(mine, 8, running)
        until_sync((Path(checkpoint) / "commits" / "0").exists, QUERY_SECONDS)
        other = rival()
        assert other.stdout is not None and other.stdin is not None
        assert json.loads(other.stdout.readline()) == {"ready": True}
        topics.send(topic, 8, first=8)  # both want to write down batch 1
        said = json.loads(other.stdout.readline())
        assert "CONCURRENT_STREAM_LOG_UPDATE" in said["error"], said
        assert other.wait(QUERY_SECONDS) == 0
        topics.send(topic, 8, first=16)
        wait_for_rows(mine, 24, running)
        assert mine.texts == numbered(0, 24)
    finally:
        running.stop()


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory that takes next to nothing: a small file system, or one without leave to write."""
    directory = tmp_path / "small"
    with mounted(directory) as done:
        if done:
            (directory / "filler").write_bytes(b"\0" * (shutil.disk_usage(directory).free - 8192))
        else:
            directory.chmod(0o500)
        yield directory


def test_a_full_disk_at_the_sink_ends_the_query_and_nothing_is_lost(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str, full_disk: Path
) -> None:
    topics.send(topic, 2000)
    frame = stream(spark, topics.options(topic, startingOffsets="earliest"))
    out = full_disk / "out"

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.mode("overwrite").parquet(f"{out}/batch={batch_id:08d}")

    with pytest.raises(StreamingQueryException, match=r"(?i)no space left|permission denied|mkdirs failed"):
        run_available(frame.writeStream.foreachBatch(write), checkpoint)
    full_disk.chmod(0o700)
    (full_disk / "filler").unlink(missing_ok=True)
    run_available(frame.writeStream.foreachBatch(write), checkpoint)
    assert bodies(spark.read.parquet(str(out))) == numbered(0, 2000)
    assert len(stored_offsets(checkpoint)) == 1
