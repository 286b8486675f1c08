"""The commands that read with Spark, in the session of the tests: what they print and write."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.protocol.archives import CLEAN_5, unpacked
from tests.spark.support import Topics
from typer.testing import CliRunner

from sparrowmq.cli.main import app
from sparrowmq.cli.pipes import audit, common, pipeline, sql
from sparrowmq.spark import ArchiveSettings, archive

Command = Callable[..., str]
STORE = str(unpacked(CLEAN_5))


@pytest.fixture
def command(spark: SparkSession, topics: Topics, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs `sparrow …` in the tests' session and gives what it printed."""

    @contextmanager
    def tests_own(*_: Any) -> Iterator[SparkSession]:
        yield spark

    for module in (audit, pipeline, sql):
        monkeypatch.setattr(module, "session", tests_own)
    monkeypatch.setattr(common, "PLAIN_SECONDS", 1e9)  # what is slow says no more than what is fast

    def run(*arguments: str, status: int = 0) -> str:
        environment = {"SPARROW_NAMESRV": topics.cluster.namesrv, "COLUMNS": "200"}
        done = CliRunner().invoke(app, list(arguments), env=environment)
        assert done.exit_code == status, f"{done.output}\n{done.exception!r}"
        return done.output

    return run


def test_a_store_is_counted_or_written(command: Command, tmp_path: Path) -> None:
    plan = command("pipe", "store", STORE, "--plan")
    assert plan.startswith("store: 1 step, about ") and "files: 3 of 3" in plan
    assert command("pipe", "store", STORE, "--dry-run") == "3,626 messages would be counted\n"
    printed = command("pipe", "store", STORE, "FxPlainA", "FxPlainB", "--json")
    rows = {row["topic"]: row for row in map(json.loads, printed.splitlines())}
    assert set(rows) == {"FxPlainA", "FxPlainB"}
    assert all(
        row["messages"] > 100 and row["bytes"] > 0 and row["first"] <= row["last"] for row in rows.values()
    )
    target = tmp_path / "out"
    written = command("pipe", "store", STORE, "FxPlainA", "--to", str(target))
    assert written == f"{rows['FxPlainA']['messages']:,} messages are in {target}\n"
    assert "exists; give another directory" in command("pipe", "store", STORE, "--to", str(target), status=1)
    assert "there is no commit log" in command("pipe", "store", str(tmp_path), status=1)


def test_archived_and_live_from_the_command_line(
    command: Command, spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    where = tmp_path / "archive"
    topics.send(topic, 6)
    archive(spark, ArchiveSettings(directory=where, topics=(topic,), name_server=topics.cluster.namesrv))
    topics.send(topic, 3, first=6)
    assert "history: 2 steps, 9 messages at most" in command("pipe", "history", str(where), "--plan")
    assert command("pipe", "history", str(where), "--dry-run", "--to", str(tmp_path / "out")) == (
        f"9 messages at most would be written to {tmp_path / 'out'}; nothing is written\n"
    )
    assert not (tmp_path / "out").exists()
    counted = json.loads(command("pipe", "history", str(where), "--json"))
    assert (counted["topic"], counted["messages"], counted["bytes"]) == (topic, 9, 18)
    target = tmp_path / "out"
    assert command("pipe", "history", str(where), topic, "--to", str(target)).startswith("9 messages are in")

    query = f"select count(*) as n, max(text) as last from {topic}"
    assert json.loads(command("sql", query, "--json")) == {"n": 9, "last": "m8"}
    assert json.loads(command("sql", query, "--archive", str(where), "--archive-only", "--json"))["n"] == 6
    assert "m8" in command("sql", query, "--archive", str(where))
    assert "live: 9 messages" in command("sql", query, "--plan")
    columns = [json.loads(line) for line in command("sql", query, "--dry-run", "--json").splitlines()]
    assert columns == [{"column": "n", "type": "bigint"}, {"column": "last", "type": "string"}]
    told = command("sql", query, "--progress", "json", "--metrics", "127.0.0.1:0", "--json").splitlines()
    assert any(line.startswith("metrics at port ") for line in told)
    *progress, found = [json.loads(line) for line in told if line.startswith("{")]
    assert found == {"n": 9, "last": "m8"}
    assert (progress[0]["rows"], progress[0]["lag"]) == (0, 9)
    assert (progress[-1]["pipeline"], progress[-1]["rows"], progress[-1]["lag"]) == ("sql", 9, 0)


def test_an_audit_from_the_command_line(command: Command, topics: Topics, topic: str, tmp_path: Path) -> None:
    topics.send(topic, 2)
    ledger = tmp_path / "sent.csv"
    now = int(time.time() * 1000)
    ledger.write_text(f"topic,id,time\n{topic},k0,{now}\n{topic},k1,{now}\n")
    where = tmp_path / "audit"
    run = ["pipe", "audit", topic, "--to", str(where), "--ledger", str(ledger), "--match", "keys"]
    run += ["--ledger-column", "time=time + 0", "--progress", "none"]
    assert command(*run, "--dry-run") == "2 stored to read; nothing is written\n"
    assert not where.exists()
    assert f"verdict: whole; {where}/verdict.json" in command(*run)
    ledger.write_text(ledger.read_text() + f"{topic},k2,{now}\n")
    value = json.loads(command(*run, "--json", status=1))
    assert (value["verdict"], value["findings"]["kinds"]) == ("broken", {"lost": 1})
    assert value == json.loads((where / "verdict.json").read_text())


def test_a_report_from_the_command_line(command: Command, topics: Topics, topic: str, tmp_path: Path) -> None:
    topics.send(topic, 3)
    where = tmp_path / "report"
    run = ("pipe", "report", topic, "--to", str(where), "--day", "today", "--progress", "none")
    assert command(*run, "--dry-run") == "3 messages would be reported on; nothing is written\n"
    assert command(*run).startswith("3 messages in 1 batch, ")
    done = json.loads(command(*run, "--json"))
    assert (done["pipeline"], done["rows"], done["lag"], done["stopped"]) == ("report", 3, 0, False)
    (page,) = where.glob("report-*.html")
    assert topic in page.read_text()


def test_a_replay_from_the_command_line(command: Command, topics: Topics, topic: str, tmp_path: Path) -> None:
    out = f"{topic}_out"
    topics.cluster.create_topic(out, queues=1)
    topics.send(topic, 20)
    home = str(tmp_path / "home")
    asked = ["pipe", "replay", "--range", f"{topic}/broker-a/2=1-4", "--to", out, "--home", home]
    asked += ["--set", "body=concat(text, '!')", "--where", "text <> 'm6'", "--keep-ids", "--no-mark"]
    plan = json.loads(command(*asked, "--plan", "--json"))
    assert (plan["pipeline"], plan["rows"]) == ("replay", 3)
    assert [step["action"] for step in plan["steps"]] == ["read", "take", "change", "send to"]
    assert plan["steps"][-1]["details"]["promise"] == "exactly once"
    assert "3 messages at most would be sent; nothing is sent" in command(*asked, "--dry-run")
    printed = command(*asked, "--progress", "none")
    assert f"{out}: exactly once; messages of one queue keep their order" in printed
    assert "2 messages in 1 batch, 8 bytes" in printed
    found = topics.read(out)
    assert [(one.body, one.properties["n"]) for one in found] == [(b"m10!", "10"), (b"m14!", "14")]
    assert "0 messages in 0 batches" in command(*asked, "--progress", "none")
    assert "contains a replay with tags=''" in command(*asked, "--tags", "x", status=1)
