"""Our Spark source and sink on Apache's servers: batch, stream up to now, write, replay, mirror both ways."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaDriver, Received

import sparrowmq as mq
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import Message
from sparrowmq.spark import MirrorSettings, ReplaySettings, mirror, plan_mirror, replay
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.pipelines.mirror.rows import CHAIN
from sparrowmq.spark.pipelines.replay.directory import Place, ReplayDirectory
from sparrowmq.spark.pipelines.replay.replay import promises
from sparrowmq.spark.write.guarantees import broker_without_states
from sparrowmq.testing import LocalCluster

pytestmark = [pytest.mark.interop, pytest.mark.spark]

QUERY_SECONDS_MAX = 60


def _messages(topic: str, first: int, last: int) -> list[Message]:
    return [
        Message(topic, f"body {n} ü".encode(), tags=f"t{n % 3}", keys=[f"k{n}"], properties={"n": str(n)})
        for n in range(first, last)
    ]


def _expect_row(row: Row, stored: Received) -> None:
    assert (row.topic, row.broker, row.queue_id) == (stored.topic, stored.broker, stored.queue_id)
    assert (row.queue_offset, row.msg_id) == (stored.queue_offset, stored.msg_id)
    assert (row.tags, row["keys"], bytes(row.body)) == (stored.tags, stored.keys, stored.body)
    assert row.properties["n"] == stored.properties["n"]
    assert int(row.store_timestamp.timestamp() * 1000) == stored.store_timestamp
    assert int(row.born_timestamp.timestamp() * 1000) == stored.born_timestamp


def _in_order(rows: DataFrame) -> list[Row]:
    return sorted(rows.collect(), key=lambda row: (row.broker, row.queue_id, row.queue_offset))


def test_a_batch_read_gives_every_message(
    spark: SparkSession, apache: ApacheCluster, driver: JavaDriver, name: str
) -> None:
    driver.admin(apache.namesrv).create_topic(apache.broker_address, name, 3)
    with driver.producer(apache.namesrv, f"{name}_p") as producer:
        producer.send(_messages(name, 0, 400), "async")
        producer.send(_messages(name, 400, 450), "batch")
    options = {"nameServer": apache.namesrv, "subscribe": name}
    rows = _in_order(spark.read.format("rocketmq").options(**options).load())
    stored = driver.dump(apache.namesrv, name)
    assert len(rows) == len(stored) == 450
    for row, message in zip(rows, stored, strict=True):
        _expect_row(row, message)


def _stream_to(spark: SparkSession, namesrv: str, topic: str, directory: Path) -> None:
    options = {"nameServer": namesrv, "subscribe": topic, "startingOffsets": "earliest"}
    query = (
        spark.readStream.format("rocketmq")
        .options(**options)
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(directory / "out"))
    )
    try:
        assert query.awaitTermination(QUERY_SECONDS_MAX)
    finally:
        query.stop()


def test_streams_up_to_now_join_without_gap_or_overlap(
    spark: SparkSession, apache: ApacheCluster, driver: JavaDriver, name: str, tmp_path: Path
) -> None:
    driver.admin(apache.namesrv).create_topic(apache.broker_address, name, 2)
    with driver.producer(apache.namesrv, f"{name}_p") as producer:
        for first in (0, 100):
            producer.send(_messages(name, first, first + 100), "async")
            _stream_to(spark, apache.namesrv, name, tmp_path)
    numbers = [row.properties["n"] for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert Counter(numbers) == {str(number): 1 for number in range(200)}


def test_rows_are_written_for_java_to_read(
    spark: SparkSession, apache: ApacheCluster, driver: JavaDriver, name: str
) -> None:
    driver.admin(apache.namesrv).create_topic(apache.broker_address, name, 2)
    values = [(f"größe {n}".encode(), f"t{n % 2}", f"k{n}", {"n": str(n)}) for n in range(100)]
    frame = spark.createDataFrame(
        values, "body binary, tags string, keys string, properties map<string,string>"
    )
    before = time.time()
    frame.write.format("rocketmq").options(nameServer=apache.namesrv, topic=name).mode("append").save()
    stored = driver.dump(apache.namesrv, name)
    found = [(m.body, m.tags, m.keys, m.user_properties) for m in stored]
    assert sorted(found, key=lambda row: row[0]) == sorted(values, key=lambda row: row[0])
    assert all(message.born_timestamp / 1000 >= before - 0.002 for message in stored)
    assert len({message.msg_id for message in stored}) == 100


def test_a_job_that_runs_again_is_written_again_and_was_announced_so(
    spark: SparkSession, apache: ApacheCluster, driver: JavaDriver, name: str
) -> None:
    driver.admin(apache.namesrv).create_topic(apache.broker_address, name, 2)
    options = {"nameServer": apache.namesrv, "topic": name, "jobId": "nightly"}
    assert broker_without_states(WriteOptions.parse(options, {})) == "broker-a"
    rows = spark.range(0, 50, 1, 1).selectExpr("concat('row ', id) AS body")
    for _ in range(2):
        rows.write.format("rocketmq").options(**options).mode("append").save()
    stored = Counter(message.msg_id for message in driver.dump(apache.namesrv, name))
    assert len(stored) == 50
    assert set(stored.values()) == {2}  # ids are the same, so that readers can drop what they know


def test_filters_and_times_are_apaches_to_judge(
    spark: SparkSession, apache: ApacheCluster, driver: JavaDriver, name: str
) -> None:
    driver.admin(apache.namesrv).create_topic(apache.broker_address, name, 2)
    with driver.producer(apache.namesrv, f"{name}_p") as producer:
        producer.send(_messages(name, 0, 100), "async")
    stored = driver.dump(apache.namesrv, name)
    options = {"nameServer": apache.namesrv, "subscribe": name}

    def numbers(**more: str) -> list[int]:
        rows = spark.read.format("rocketmq").options(**options, **more).load().collect()
        return sorted(int(row.properties["n"]) for row in rows)

    assert numbers(sql92="n >= 90 AND TAGS = 't0'") == [90, 93, 96, 99]
    last = max(message.store_timestamp for message in stored)
    earlier = sorted(int(m.properties["n"]) for m in stored if m.store_timestamp < last)
    assert numbers(endingTimestamp=str(last)) == earlier
    with pytest.raises(PySparkException, match=r"option sql92='n >': .*It must be a condition on properties"):
        numbers(sql92="n >")
    frame = spark.read.format("rocketmq").options(**options).load()
    recent = frame.where(F.expr(f"store_timestamp >= timestamp_millis({last})"))
    assert recent.count() == sum(message.store_timestamp >= last for message in stored)


@pytest.mark.parametrize("target", ["apache", "ours"])
def test_a_replay_that_dies_after_a_part_was_sent_does_not_send_it_again(
    spark: SparkSession,
    apache: ApacheCluster,
    ours: LocalCluster,
    driver: JavaDriver,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
) -> None:
    again = f"{name}_again"
    admin = driver.admin(apache.namesrv)
    admin.create_topic(apache.broker_address, name, 2)
    if target == "apache":
        admin.create_topic(apache.broker_address, again, 2)
    else:
        ours.create_topic(again, queues=2)
    with driver.producer(apache.namesrv, f"{name}_p") as producer:
        producer.send(_messages(name, 0, 60), "async")
    namesrv = apache.namesrv if target == "apache" else ours.namesrv
    settings = ReplaySettings(
        home=tmp_path / "replay",
        to=again,
        topics=(name,),
        name_server=apache.namesrv,
        to_name_server=namesrv,
        sql92="n >= 20",
        batch_rows=30,
        ids="keep",
    )
    promise = "at least once: broker broker-a does not support" if target == "apache" else "exactly once;"
    assert f"{again}: {promise}" in promises(settings)[0]
    save = ReplayDirectory.save

    def dying(home: ReplayDirectory, place: Place) -> None:
        if place.parts == 1:
            raise SettingsError("died")
        save(home, place)

    monkeypatch.setattr(ReplayDirectory, "save", dying)
    with pytest.raises(SettingsError, match="died"):
        replay(spark, settings)
    first = driver.dump(namesrv, again)
    monkeypatch.setattr(ReplayDirectory, "save", save)
    replay(spark, settings)
    stored, sources = driver.dump(namesrv, again), driver.dump(apache.namesrv, name)
    wanted = {one.body: one for one in sources if int(one.properties["n"]) >= 20}
    copies = Counter(one.body for one in stored)
    assert 0 < len(first) < 40
    assert copies == Counter(list(wanted)), "the plan of the part says that it was sent"
    for one in stored:
        old = wanted[one.body]
        assert (one.tags, one.keys, one.msg_id) == (old.tags, old.keys, old.msg_id)
        assert one.properties["SPARROW_ORIGIN"] == f"{name}/broker-a/{old.queue_id}/{old.queue_offset}"
    for queue_id in range(2):
        mine = [one.body for one in stored if one.queue_id == queue_id]
        there = [one.body for one in sources if one.queue_id == queue_id and one.body in wanted]
        assert list(dict.fromkeys(mine)) == there, "a queue keeps its order"


# Mirrors


def _as_sent(found: list[Received]) -> list[tuple[object, ...]]:
    ordered = sorted(found, key=lambda one: (one.queue_id, one.queue_offset))
    return [
        (one.queue_id, one.queue_offset, one.msg_id, one.body, one.tags, one.keys, one.properties["n"])
        for one in ordered
    ]


@pytest.mark.parametrize("way", ["from Apache's", "to Apache's"])
def test_a_mirror_brings_a_topic_and_a_group(
    spark: SparkSession,
    apache: ApacheCluster,
    ours: LocalCluster,
    driver: JavaDriver,
    name: str,
    way: str,
    tmp_path: Path,
) -> None:
    names = {"apache": apache.namesrv, "ours": ours.namesrv}
    source, target = ("apache", "ours") if way == "from Apache's" else ("ours", "apache")
    settings = MirrorSettings(
        directory=tmp_path / "mirror",
        source=source,
        target=target,
        name_server=names[source],
        target_name_server=names[target],
        topics=(name,),
        groups=(f"{name}_g",),
    )
    with mq.Admin(names[source]) as admin, mq.Admin(names[target]) as there:
        queues = admin.topics.create(name, queues=2).subscribe_queues(name)
        with driver.producer(names[source], f"{name}_p") as producer:
            producer.send(_messages(name, 0, 200), "async")
            promise = "exactly once" if target == "ours" else "at least once, with stable message ids"
            assert promise in str(plan_mirror(settings))
            assert mirror(spark, settings).rows == 200
            producer.send(_messages(name, 200, 250), "async")
        admin.groups.create(f"{name}_g")
        places = {queue: 10 + 25 * queue.queue_id for queue in queues}
        for queue, offset in places.items():
            admin.groups.commit(f"{name}_g", queue, offset)
        assert mirror(spark, settings).rows == 50
        found = {
            queue: there.groups.committed(f"{name}_g", queue)
            for queue in there.topics.create(name, queues=2).subscribe_queues(name)
        }
    assert {queue.queue_id: offset for queue, offset in found.items()} == {
        queue.queue_id: offset for queue, offset in places.items()
    }
    stored = driver.dump(names[target], name)
    assert _as_sent(stored) == _as_sent(driver.dump(names[source], name))
    assert {message.properties[CHAIN] for message in stored} == {source}
