"""How far a read is: what its tasks have read, while it runs and at its end."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.support import Topics, load
from tests.support import about

from sparrowmq.spark.pipelines.common.task_progress import LOOK_SECONDS, followed
from sparrowmq.spark.pipelines.common.watch import Progress, Watch


def test_a_read_is_counted_while_it_runs_and_exactly_at_its_end(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.send(topic, 60)
    load(spark, topics.options(topic)).count()  # of another query: not counted
    told, half = list[Progress](), threading.Event()

    def report(progress: Progress) -> None:
        told.append(progress)
        if 0 < progress.rows < 60:
            half.set()

    watch = Watch(report)
    watch.begin("read", 60)
    gate = tmp_path / "gate"

    def slow(index: int, rows: object) -> object:
        from time import sleep

        kept = list(rows)  # type: ignore[call-overload]
        while index and not gate.exists():  # one task ends, the other waits to be seen
            sleep(0.02)
        return iter(kept)

    frame = load(spark, topics.options(topic, maxPartitions="2"), "queue_id int")
    opener = threading.Thread(target=lambda: half.wait(60) and gate.touch())
    opener.start()
    with followed(spark, watch, 60):
        found = frame.rdd.mapPartitionsWithIndex(slow).count()  # type: ignore[arg-type]
    opener.join()
    assert found == 60
    rows = [one.rows for one in told]
    assert rows == sorted(rows), "it never goes back"
    assert half.is_set()
    assert all(one.rows + (one.lag or 0) == 60 for one in told)
    assert (watch.progress.rows, watch.progress.lag, watch.progress.batches) == (60, 0, 0)
    assert list(spark.sparkContext.getJobTags()) == []


def test_what_is_not_known_before_is_known_at_the_end(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    topics.send(topic, 12)
    watch = Watch()
    watch.begin("read")
    with followed(spark, watch, None):
        assert load(spark, topics.options(topic)).groupBy("tags").count().collect()[0]["count"] == 12
    assert (watch.progress.rows, watch.progress.lag) == (12, 0)


def test_a_report_that_fails_ends_the_read_and_an_error_stays_what_it_is(spark: SparkSession) -> None:
    def full(progress: Progress) -> None:
        raise OSError("disk full")

    waited = threading.Event()
    with pytest.raises(OSError, check=about(args=("disk full",))), followed(spark, Watch(full), 5):
        spark.range(3).count()
        waited.wait(3 * LOOK_SECONDS)
    watch = Watch()
    with pytest.raises(ValueError, check=about(args=("mine",))), followed(spark, watch, 5):
        raise ValueError("mine")
    assert watch.progress.lag != 0, "nothing is said to be done"
    assert list(spark.sparkContext.getJobTags()) == []
