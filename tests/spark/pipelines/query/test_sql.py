"""Topics as tables: live, archived and both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from tests.spark.support import Topics
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.pipelines.archive.archive import ArchiveSettings, archive
from sparrowmq.spark.pipelines.query.sql import (
    SqlSettings,
    dry_run_sql,
    mentioned,
    plan_sql,
    sql,
    tables_of,
)


def test_tables_that_are_named() -> None:
    assert mentioned("select * from orders join `a-b`", ["Orders", "a-b", "Other"]) == ["a-b", "Orders"]
    assert mentioned("select 'Orders'", ["Orders"]) == []
    with pytest.raises(SettingsError, check=about(what="topic", value="Orders", other="orders")):
        mentioned("select * from orders, p", ["Orders", "P", "orders"])


def test_an_archive_or_a_cluster_is_needed() -> None:
    with pytest.raises(SettingsError, check=about(setting="directory", other="live")):
        SqlSettings(live=False)


def test_live_archived_and_both(spark: SparkSession, topics: Topics, topic: str, tmp_path: Path) -> None:
    where, server = tmp_path / "archive", topics.cluster.namesrv
    topics.send(topic, 6)
    archive(spark, ArchiveSettings(directory=where, topics=(topic,), name_server=server))
    topics.send(topic, 4, first=6, tags="TagB")
    query = f"select tags, count(*) as n, min(text) as first from {topic.lower()} group by tags order by tags"

    def rows(settings: SqlSettings) -> list[tuple[object, ...]]:
        assert topic in tables_of(settings)
        return [tuple(row) for row in sql(spark, query, settings).collect()]

    live = [("TagA", 6, "m0"), ("TagB", 4, "m6")]
    assert rows(SqlSettings(name_server=server)) == live
    assert rows(SqlSettings(name_server=server, directory=where)) == live
    assert rows(SqlSettings(directory=where, live=False)) == [("TagA", 6, "m0")]

    def planned(settings: SqlSettings) -> tuple[int | None, list[tuple[str, object]]]:
        plan = plan_sql(query, settings)
        assert str(plan).startswith(f"sql: 1 step, {plan.rows} messages at most\n  1. read {topic}\n")
        return plan.rows, [item for step in plan.steps for item in step.details.items()]

    assert planned(SqlSettings(name_server=server)) == (10, [("live", "10 messages")])
    assert planned(SqlSettings(name_server=server, directory=where)) == (
        10,
        [("archive and live", "10 messages at most")],
    )
    assert planned(SqlSettings(directory=where, live=False)) == (6, [("archive", "6 messages at most")])


def test_a_query_is_looked_over_without_reading(spark: SparkSession, topics: Topics, topic: str) -> None:
    settings = SqlSettings(name_server=topics.cluster.namesrv)
    query = f"select tags, count(*) as n, count(*) as n from {topic} group by tags"
    expected = [("tags", "string"), ("n", "bigint"), ("n", "bigint")]
    tag = "looked-over"
    spark.sparkContext.addJobTag(tag)
    try:
        assert dry_run_sql(spark, query, settings) == expected
        context: Any = spark.sparkContext
        assert list(context._jsc.sc().statusTracker().getJobIdsForTag(tag)) == []
    finally:
        spark.sparkContext.removeJobTag(tag)
    with pytest.raises(AnalysisException, match="nothing"):
        dry_run_sql(spark, f"select nothing from {topic}", settings)
    assert plan_sql("select 1", settings).rows == 0


def test_a_query_has_one_moment(spark: SparkSession, topics: Topics, topic: str, tmp_path: Path) -> None:
    settings = SqlSettings(name_server=topics.cluster.namesrv)
    topics.send(topic, 6)
    one, both = f"select count(*) from {topic}", f"select tags from {topic}"
    frames = [sql(spark, f"select ({one}) as a, ({one} where tags = 'TagA') as b", settings)]
    archive(
        spark,
        ArchiveSettings(directory=tmp_path / "a", topics=(topic,), name_server=topics.cluster.namesrv),
    )
    kept = SqlSettings(name_server=topics.cluster.namesrv, directory=tmp_path / "a")
    frames.append(sql(spark, f"select count(*) from ({both} union all {both})", kept))
    topics.send(topic, 4, first=6)
    assert [tuple(row) for row in frames[0].collect()] == [(6, 6)]
    assert frames[1].collect()[0][0] == 12
    assert sql(spark, one, kept).collect()[0][0] == sql(spark, one, settings).collect()[0][0] == 10
    assert frames[0].collect()[0][0] == 6, "the same when it is read again"


def test_a_view_has_the_moment_of_the_last_query_that_named_its_topic(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    settings = SqlSettings(name_server=topics.cluster.namesrv)
    topics.send(topic, 6)
    sql(spark, f"create or replace temporary view kept as select tags from {topic}", settings)
    try:
        topics.send(topic, 4, first=6)
        assert sql(spark, "select count(*) from kept", settings).collect()[0][0] == 6
        assert sql(spark, f"select count(*) from {topic}", settings).collect()[0][0] == 10
        assert sql(spark, "select count(*) from kept", settings).collect()[0][0] == 10
    finally:
        spark.catalog.dropTempView("kept")


def test_a_topic_without_messages_and_bounds_from_options(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    server, counted = topics.cluster.namesrv, f"select count(*) from {topic}"
    empty = sql(spark, counted, SqlSettings(name_server=server))
    topics.send(topic, 6)
    assert empty.collect()[0][0] == 0
    late = SqlSettings(
        name_server=server,
        options={"StartingTimestamp": str(2**42), "startingOffsetsByTimestampStrategy": "latest"},
    )
    assert sql(spark, counted, late).collect()[0][0] == 0
