"""Snapshots of groups and what a day's are worth."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
from pyspark.sql import SparkSession
from tests.spark.support import Topics

from sparrowmq.spark.pipelines.common import reading
from sparrowmq.spark.pipelines.report import snapshots
from sparrowmq.spark.pipelines.report.settings import HOUR_MS, Day, ReportSettings

DAY = Day(date(2026, 11, 20), "UTC")


def test_a_snapshot(topics: Topics, topic: str, tmp_path: Path) -> None:
    topics.send(topic, 8)
    queues = topics.producer.queues(topic)
    for group, offsets in (("reported", (2, 1, 0)), ("reporting", (2, 0))):
        topics.admin.groups.create(group)
        for queue, offset in zip(queues, offsets, strict=False):
            topics.admin.groups.commit(group, queue, offset)
    settings = ReportSettings(directory=tmp_path, topics=(topic,), name_server=topics.cluster.namesrv)
    now = DAY.start / 1000 + 60
    path = snapshots.take_snapshot(settings, now)
    assert path == tmp_path / "snapshots" / "date=2026-11-20" / f"{int(now * 1000)}.parquet"
    rows = {(row["group"], row["queue_id"]): row for row in parquet.read_table(path).to_pylist()}
    assert {row["end_offset"] for row in rows.values()} == {2}
    assert {row["topic"] for row in rows.values()} == {topic}
    stored = {message.queue: message for message in topics.read(topic) if message.queue_offset == 1}
    second = queues[1]
    assert rows["reported", queues[0].queue_id]["waits_since"] is None
    assert rows["reported", second.queue_id]["waits_since"] == stored[second].store_timestamp
    assert rows["reporting", second.queue_id]["waits_since"] <= stored[second].store_timestamp
    only = ReportSettings(
        directory=tmp_path, topics=(topic,), groups=("reporting",), name_server=topics.cluster.namesrv
    )
    names = parquet.read_table(snapshots.take_snapshot(only, now + 1))["group"].to_pylist()
    assert set(names) == {"reporting"}


def test_store_times(topics: Topics, topic: str) -> None:
    topics.send(topic, 4)
    places = dict.fromkeys(topics.producer.queues(topic), 0)
    first, *_ = places
    options = topics.options(topic)
    found = reading.store_times(options, {**places, first: 1})
    assert first not in found and set(found) == set(places) - {first}
    times = {message.queue: message.store_timestamp for message in topics.read(topic)}
    assert all(times[queue] == at for queue, at in found.items())


def snapshot(at: int, committed: int, *, end: int = 100, queue: int = 0, since: int | None = None) -> Any:
    return (
        DAY.start + at,
        "g",
        "T",
        "b",
        queue,
        committed,
        end,
        None if since is None else DAY.start + since,
    )


def test_a_day_by_its_snapshots(spark: SparkSession) -> None:
    hour = HOUR_MS
    rows = [
        snapshot(-hour, 1),
        snapshot(hour, 10, since=0),
        snapshot(hour, 20, queue=1),
        snapshot(2 * hour, 50, since=hour),
        snapshot(2 * hour, 100, queue=1),
        snapshot(25 * hour, 100),
    ]
    found = spark.createDataFrame(rows, snapshots.DDL)
    seen = {row["at"].timestamp(): row for row in snapshots.progress(found, DAY).collect()}
    first, second = (seen[(DAY.start + at) / 1000] for at in (hour, 2 * hour))
    assert len(seen) == 2
    assert (first["lag_messages"], first["lag_seconds"]) == (170, 3600.0)
    assert (second["lag_messages"], second["lag_seconds"], second["committed"]) == (50, 3600.0, 150)
    (last,) = snapshots.closing(found, DAY).collect()
    assert (last["group"], last["topic"], last["lag_messages"], last["consumed"]) == ("g", "T", 50, 120)
    assert last["as_of"].timestamp() * 1000 == DAY.start + 2 * hour
    after = snapshots.closing(found.where(f"at < {DAY.start} or at >= {DAY.end}"), DAY).collect()
    assert [(row["lag_messages"], row["lag_seconds"], row["consumed"]) for row in after] == [(0, 0.0, None)]


def test_without_snapshots(spark: SparkSession, tmp_path: Path) -> None:
    assert snapshots.read_snapshots(spark, tmp_path, [DAY]).count() == 0


def test_what_came_back(topics: Topics, topic: str) -> None:
    reader = "spark_tests_reader"
    topics.admin.groups.create(reader)
    topics.send(topic, 1)
    (message,) = topics.read(topic)
    today = Day.of(message.store_timestamp / 1000, "UTC")
    before = snapshots.returned(topics.options(topic), [reader, "nobody"], today)
    topics.consumer.send_back(message, delay_level=-1)
    after = snapshots.returned(topics.options(topic), [reader, "nobody"], today)
    assert after[reader][1] == before[reader][1] + 1 and after["nobody"] == (0, 0)
