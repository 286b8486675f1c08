"""The sides of an audit: ledgers of every kind, and offsets as a window."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import time

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.support import Topics
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.audit.frames import AuditRun, Frames
from sparrowmq.spark.pipelines.audit.sent import read_ledger
from sparrowmq.spark.pipelines.audit.settings import AuditSettings
from sparrowmq.spark.pipelines.audit.sides import read_sides
from sparrowmq.spark.pipelines.common.watch import Watch


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
        with pytest.raises(SettingsError, check=about(setting="ledger_columns", value=1)):
            read_ledger(spark, wrong)


def test_ids_of_a_ledger_are_text_and_columns_are_found_by_their_header(
    spark: SparkSession, tmp_path: Path
) -> None:
    ids = ["000123", "12E5", "2.50", "+491701", "true", "2026-01-02", "21602730330000060100100000358582"]
    folder = tmp_path / "a b.csv"
    folder.mkdir()
    (folder / "one.csv").write_text("topic,id,time\n" + "".join(f"T,{one},1500\n" for one in ids[:4]))
    (folder / "two [2].csv").write_text(
        "id,time,more,topic\n" + "".join(f"{one},1500,x,T\n" for one in ids[4:])
    )
    (folder / "three.csv").write_text("topic,id,time\nT,last,1970-01-01T00:00:01.5Z\n")
    settings = AuditSettings(directory=tmp_path, topics=("T",), ledger=str(folder))
    rows = read_ledger(spark, settings).collect()
    assert {tuple(row) for row in rows} == {("T", one, 1500, True) for one in [*ids, "last"]}

    lines = tmp_path / "sent.json"
    lines.write_text(
        f'{{"topic": "T", "id": {ids[-1]}, "time": 1500}}\n{{"topic": "T", "id": 2.50, "time": 1500}}\n'
    )
    rows = read_ledger(spark, replace(settings, ledger=str(lines))).collect()
    assert {row["id"] for row in rows} == {ids[-1], "2.50"}


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
    watch = Watch()
    with Frames(watch, waiting=100) as frames:
        sides = read_sides(AuditRun(spark, settings, frames, now))
        assert (sides.window.since, sides.window.until) == (min(times), max(times) + 1)
        judged = sides.stored.rows.groupBy("judged").count().collect()
        assert {row["judged"]: row["count"] for row in judged} == {True: 2, False: 6}
        assert (watch.progress.rows, watch.progress.lag) == (16, 84), "the topic was its own trace topic"
        assert sides.sent.rows is not None and sides.sent.rows.count() == 0


def test_messages_are_read_after_the_traces(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """The other way round, a message that is sent meanwhile would be traced and not stored: lost."""

    class Meanwhile(Frames):
        reads = 0

        def read(self, messages: DataFrame) -> DataFrame:
            kept = super().read(messages)
            if not self.reads:
                topics.send(topic, 3)
            self.reads += 1
            return kept

    topics.send(topic, 2)
    now = int(time() * 1000)
    settings = AuditSettings(
        directory=tmp_path, topics=(topic,), name_server=topics.cluster.namesrv, trace_topic=topic
    )
    with Meanwhile(Watch()) as frames:
        sides = read_sides(AuditRun(spark, settings, frames, now))
        assert (frames.reads, sides.stored.rows.count()) == (2, 5)
