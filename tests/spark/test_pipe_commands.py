"""The commands that read with Spark, in the session of the tests: what they print and write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.protocol.archives import CLEAN_5, unpacked
from tests.spark.support import Topics
from typer.testing import CliRunner

from sparrowmq.cli import sql
from sparrowmq.cli.main import app
from sparrowmq.cli.pipes import history, store
from sparrowmq.spark import ArchiveSettings, archive

Command = Callable[..., str]
STORE = str(unpacked(CLEAN_5))


@pytest.fixture
def command(spark: SparkSession, topics: Topics, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs `sparrow …` in the tests' session and gives what it printed."""

    @contextmanager
    def shared(*_: Any) -> Iterator[SparkSession]:
        yield spark

    for module in (history, store, sql):
        monkeypatch.setattr(module, "session", shared)

    def run(*arguments: str, status: int = 0) -> str:
        environment = {"SPARROW_NAMESRV": topics.cluster.namesrv, "COLUMNS": "200"}
        done = CliRunner().invoke(app, list(arguments), env=environment)
        assert done.exit_code == status, f"{done.output}\n{done.exception!r}"
        return done.output

    return run


def test_a_store_is_counted_or_written(command: Command, tmp_path: Path) -> None:
    printed = command("pipe", "store", STORE, "FxPlainA", "FxPlainB", "--json")
    rows = {row["topic"]: row for row in map(json.loads, printed.splitlines())}
    assert set(rows) == {"FxPlainA", "FxPlainB"}
    assert all(
        row["messages"] > 100 and row["bytes"] > 0 and row["first"] <= row["last"] for row in rows.values()
    )
    target = tmp_path / "out"
    written = command("pipe", "store", STORE, "FxPlainA", "--to", str(target))
    assert written == f"{rows['FxPlainA']['messages']:,} messages are in {target}\n"
    assert "exists; give another place" in command("pipe", "store", STORE, "--to", str(target), status=1)
    assert "there is no commit log" in command("pipe", "store", str(tmp_path), status=1)


def test_archived_and_live_from_the_command_line(
    command: Command, spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    where = tmp_path / "archive"
    topics.send(topic, 6)
    archive(spark, ArchiveSettings(directory=where, topics=(topic,), name_server=topics.cluster.namesrv))
    topics.send(topic, 3, first=6)
    assert "3 messages wait" in command("pipe", "history", str(where), "--plan")
    counted = json.loads(command("pipe", "history", str(where), "--json"))
    assert (counted["topic"], counted["messages"], counted["bytes"]) == (topic, 9, 18)
    target = tmp_path / "out"
    assert command("pipe", "history", str(where), topic, "--to", str(target)).startswith("9 messages are in")

    query = f"select count(*) as n, max(text) as last from {topic}"
    assert json.loads(command("sql", query, "--json")) == {"n": 9, "last": "m8"}
    assert json.loads(command("sql", query, "--archive", str(where), "--archive-only", "--json"))["n"] == 6
    assert "m8" in command("sql", query, "--archive", str(where))
