"""A day's report of messages that are known: every figure, twice the same, on the page as well."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession
from tests.spark.support import Topics

import sparrowmq as mq
from sparrowmq.spark.cluster.faults import DataLossError
from sparrowmq.spark.pipelines.archive.archive import ArchiveSettings, archive
from sparrowmq.spark.pipelines.common.watch import Progress, Watch
from sparrowmq.spark.pipelines.query import stored
from sparrowmq.spark.pipelines.report import report as pipeline
from sparrowmq.spark.pipelines.report.report import TABLES, dry_run_report, page_path, plan_report, report
from sparrowmq.spark.pipelines.report.settings import Day, ReportSettings


@pytest.fixture
def settings(topics: Topics, topic: str, tmp_path: Path) -> ReportSettings:
    """Ten messages: sizes 1 to 10, key `a` in eight of them, nine in one queue."""
    queues = topics.producer.queues(topic)
    for number in range(10):
        keys = ["a", f"k{number}"] if number < 8 else []
        message = mq.Message(topic, b"x" * (number + 1), tags="even" if number % 2 == 0 else None, keys=keys)
        topics.producer.send(message, queue=queues[0 if number else 1])
    topics.admin.groups.create("reported")
    topics.admin.groups.commit("reported", queues[0], 4)
    today = datetime.now(UTC).date()
    return ReportSettings(
        directory=tmp_path / "report", topics=(topic,), day=today, name_server=topics.cluster.namesrv
    )


def rows(settings: ReportSettings, name: str) -> list[dict[str, Any]]:
    """A table of the day, as its files say."""
    (where,) = (Path(settings.directory) / name).iterdir()
    assert where.name == f"date={settings.day}"
    found = parquet.read_table(where).to_pylist()
    return [{key: value for key, value in row.items() if key not in ("date",)} for row in found]


def every(settings: ReportSettings) -> dict[str, list[dict[str, Any]]]:
    return {name: rows(settings, name) for name in TABLES}


def test_a_day(spark: SparkSession, topics: Topics, topic: str, settings: ReportSettings) -> None:
    seen: list[Progress] = []
    assert plan_report(settings).rows == 10
    assert dry_run_report(spark, settings) == 10
    assert not Path(settings.directory).exists()
    done = report(spark, settings, Watch(seen.append))
    assert (done.batches, done.rows, done.lag) == (1, 10, 0) and done.size > 0
    found = every(settings)
    (one,) = found["topics"]
    assert {name: one[name] for name in ("topic", "messages", "bytes", "queues", "born_earlier")} == {
        "topic": topic, "messages": 10, "bytes": 55, "queues": 2, "born_earlier": 0,
    }  # fmt: skip
    assert (one["size_p50"], one["size_p95"], one["size_p99"], one["size_max"]) == (5, 10, 10, 10)
    assert (one["queue_skew"], one["top_key_share"]) == (1.8, 0.8)
    assert (one["distinct_keys"], one["without_key"]) == (9, 2)
    assert one["stored_bytes"] > 10 * 91
    assert sum(row["messages"] for row in found["hours"]) == 10
    assert {row["size_to"]: row["messages"] for row in found["sizes"]} == {1: 1, 2: 1, 4: 2, 8: 4, 16: 2}
    shares = [
        (row["messages"], row["share"], row["first_offset"], row["last_offset"]) for row in found["queues"]
    ]
    assert sorted(shares) == [(1, 0.1, 0, 0), (9, 0.9, 0, 8)]
    assert [(row["key"], row["messages"], row["rank"]) for row in found["keys"]][:2] == [
        ("a", 8, 1), ("k0", 1, 2),
    ]  # fmt: skip
    assert [(row["tag"], row["share"]) for row in found["tags"]] == [("even", 0.5), (None, 0.5)]
    assert [(row["host"], row["messages"]) for row in found["producers"]] == [("127.0.0.1", 10)]
    (group,) = found["groups"]
    assert (group["group"], group["lag_messages"], group["committed"]) == ("reported", 6, 4)
    assert group["lag_seconds"] > 0 and group["retries"] == group["dead_letters"] == 0
    assert len(found["progress"]) == 1
    page = page_path(settings, Day(settings.day, "UTC")).read_text() if settings.day else ""
    assert topic in page and "the day is not over" in page and "reported" in page
    assert sorted(path.name for path in Path(settings.directory).iterdir()) == sorted(
        [*TABLES, "lock", "snapshots", f"report-{settings.day}.html"]
    )

    again = replace(settings, top=3)
    report(spark, again, Watch())
    twice = every(settings)
    same = ("topics", "hours", "sizes", "queues", "tags", "producers")
    assert {name: twice[name] for name in same} == {name: found[name] for name in same}
    assert twice["keys"] == found["keys"][:3] and len(twice["progress"]) == 2


def test_archived_and_live(
    spark: SparkSession, topics: Topics, topic: str, settings: ReportSettings, tmp_path: Path
) -> None:
    where = tmp_path / "archive"
    archive(spark, ArchiveSettings(directory=where, topics=(topic,), name_server=settings.name_server))
    topics.send(topic, 2)
    both = replace(settings, archive=where)
    assert dry_run_report(spark, both) == 12
    alone = replace(both, live=False)
    report(spark, alone)
    (one,) = rows(alone, "topics")
    assert (one["messages"], one["stored_bytes"]) == (10, None), "the archive did not keep store_size"
    assert rows(alone, "groups") == rows(alone, "progress") == []
    assert not (Path(settings.directory) / "snapshots").exists()
    assert settings.day is not None
    assert "No groups were recorded" in page_path(alone, Day(settings.day, "UTC")).read_text()


def test_days_that_are_not_whole(
    spark: SparkSession, settings: ReportSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "_live_gaps", lambda *_: ["some were deleted"])
    assert "may be incomplete: some were deleted" in str(plan_report(settings))
    with pytest.raises(DataLossError, match="cannot be reported completely: some were deleted"):
        report(spark, settings)


def test_a_stop_comes_between_days(
    spark: SparkSession, settings: ReportSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "_live_gaps", lambda *_: ["some were deleted"])
    watch = Watch(lambda progress: watch.stop() if progress.batches else None)
    done = report(spark, replace(settings, days=2, partial=True), watch)
    assert (done.pipeline, done.batches) == (pipeline.NAME, 1) and done.lag
    assert settings.day is not None
    yesterday = Day(settings.day - timedelta(days=1), "UTC")
    assert "some were deleted" in page_path(settings, yesterday).read_text()
