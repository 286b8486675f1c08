"""The example project of a declarative pipeline, over Spark Connect to the tests' session."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.pages import Page
from tests.spark.declarative import EXAMPLE, Project
from tests.spark.support import Topics

from sparrowmq.spark.write.queue_choice import FOLDER

DATABASE = "declarative"


@pytest.fixture
def database(spark: SparkSession) -> Iterator[str]:
    """A database for the pipeline's tables."""
    spark.sql(f"CREATE DATABASE {DATABASE}")
    yield DATABASE
    spark.sql(f"DROP DATABASE {DATABASE} CASCADE")


def rows(spark: SparkSession, table: str, columns: str = "*") -> list[tuple[object, ...]]:
    """The rows of one of the pipeline's tables, sorted; its files are those of another session."""
    spark.catalog.refreshTable(f"{DATABASE}.{table}")
    found = spark.sql(f"SELECT {columns} FROM {DATABASE}.{table}").collect()
    return sorted((tuple(row) for row in found), key=str)


@pytest.mark.proves("spark:L-01", "spark:L-02", "spark:L-03")
def test_each_run_goes_on_where_the_last_one_ended(
    spark: SparkSession, remote: str, topics: Topics, database: str, tmp_path: Path
) -> None:
    project = Project.copied(tmp_path / "project", topics.cluster.namesrv, database)
    project.create_topics()
    command = (sys.executable, "-m", "pyspark.pipelines.cli", "run")
    for run in (1, 2):
        project.send(20)
        said = project.run(command, SPARK_REMOTE=remote)
        assert "Run is COMPLETED" in said
        assert len(rows(spark, "messages")) == 21 * run
        assert {row[0] for row in rows(spark, "orders", "id")} == set(range(20 * run))
        assert rows(spark, "daily_report", "topic, messages") == [("Orders", 21 * run)]
        assert rows(spark, "sales", "region, orders, amount") == [
            ("eu", 10 * run, 2 * run * 2000.0 + 8 * run * 10.0),
            ("us", 10 * run, 2 * run * 2000.0 + 8 * run * 10.0),
        ]
        assert {row[-2:] for row in rows(spark, "audit")} == {(0, 0)}
        assert project.large() == project.expected_large
    assert list((project.directory / "home" / "storage").rglob(FOLDER)), "the sink knows its checkpoint"


def test_the_pages_name_what_the_project_defines() -> None:
    files = {path.relative_to(EXAMPLE).as_posix() for path in EXAMPLE.rglob("*") if path.is_file()}
    named = {row[0].strip("`") for row in Page(EXAMPLE / "README.md").table("| file |")}
    assert named | {"README.md"} == {name for name in files if "__pycache__" not in name}
