"""The sides of an audit: ledgers of every kind, and offsets as a window."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.support import Topics

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.offsets import Span
from sparrowmq.spark.pipelines.audit_settings import AuditSettings
from sparrowmq.spark.pipelines.audit_sides import Sides, read_ledger
from sparrowmq.spark.pipelines.watch import Watch


def test_kinds_of_ledgers(spark: SparkSession, tmp_path: Path) -> None:
    lines = tmp_path / "sent.json"
    lines.write_text('{"topic": "T", "id": 7, "time": "1970-01-01T00:00:01.500Z"}\n')
    columns = tmp_path / "sent.parquet"
    spark.createDataFrame([("T", "7", 1500)], "topic string, id string, time bigint").write.parquet(
        str(columns)
    )
    for ledger in (lines, columns):
        settings = AuditSettings(directory=tmp_path, topics=("T",), ledger=str(ledger))
        assert [tuple(row) for row in read_ledger(spark, settings).collect()] == [("T", "7", 1500, True)]
        wrong = replace(settings, ledger_columns={"id": "nullif(topic, 'T')"})
        with pytest.raises(SettingsError, match=r"1 rows of ledger .* have no topic, id or time"):
            read_ledger(spark, wrong)


def test_offsets_are_a_window_of_the_times_of_their_messages(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.send(topic, 8)
    queue, *_ = topics.producer.queues(topic)
    times = [message.store_timestamp for message in topics.read(topic) if message.queue == queue]
    settings = AuditSettings(
        directory=tmp_path,
        topics=(topic,),
        name_server=topics.cluster.namesrv,
        spans=(Span(queue, 0, 2),),
        trace_topic=topic,
        margin_seconds=10,
    )
    now = max(times) + 1000
    with ExitStack() as stack:
        watch = Watch()
        sides = Sides(spark, settings, watch, now, stack, waiting=100)
        assert (sides.window.since, sides.window.until) == (min(times), max(times) + 1)
        assert {row["judged"]: row["count"] for row in sides.stored.groupBy("judged").count().collect()} == {
            True: 2,
            False: 6,
        }
        assert (watch.progress.rows, watch.progress.lag) == (16, 84), "the topic was its own trace topic"
        assert sides.sent is not None and sides.sent.count() == 0
