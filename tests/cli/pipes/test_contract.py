"""The contract with schedulers in docs/scheduling.md: exit statuses, and the fields of JSON lines."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import pytest
import typer
from tests.pages import ROOT, Page
from typer.testing import CliRunner

from sparrowmq.cli.main import app
from sparrowmq.cli.pipes import pipeline as frame
from sparrowmq.cli.pipes.pipeline import Pipeline
from sparrowmq.cli.pipes.shared import Shared, with_options
from sparrowmq.core.errors import SparrowError
from sparrowmq.spark.pipelines.audit.verdict import Status
from sparrowmq.spark.pipelines.common.steps import Plan, Step
from sparrowmq.spark.pipelines.common.watch import Progress, TopicLag, Watch

PAGE = Page(ROOT / "docs" / "scheduling.md")
TYPES = {"string": (str,), "number": (int, float), "list": (list,)}
Work = Callable[[Any, Watch], Progress]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Runs a pipeline of the test's own as `sparrow pipe archive`, with its options, without Spark."""

    @contextmanager
    def no_session(*_: Any) -> Iterator[None]:
        yield None

    monkeypatch.setattr(frame, "session", no_session)

    def done(work: Work, *arguments: str) -> Any:
        @with_options
        def pipeline(topics: list[str] | None = None, *, shared: Shared) -> None:
            """A pipeline."""
            plan = Plan("archive", (Step("read", "T", {"T/b/0": "offsets"}),), 7)
            made = Pipeline(
                name="archive", shared=shared, plan=lambda: plan, dry_run=lambda spark: 0, would="done"
            )
            made.carry_out(work)

        group = typer.Typer()
        group.command("archive")(pipeline)
        monkeypatch.setattr("sparrowmq.cli.pipes.app.registered_commands", group.registered_commands)
        return CliRunner().invoke(app, ["pipe", "archive", *arguments])

    yield done


def works(spark: Any, watch: Watch) -> Progress:
    watch.begin("archive", 10)
    watch.batch(4, 100, 0.5, 6)
    watch.bad(2)
    watch.topics([TopicLag("T", 5, 1.5), TopicLag("U", 1)])
    return watch.progress


def rows_of(heading: str) -> dict[str, list[str]]:
    return {row[0].strip("`"): row[1:] for row in PAGE.table(heading)}


def test_lines_of_progress_have_the_fields_of_the_page(run: Callable[..., Any]) -> None:
    expected = rows_of("| field | type | always |")
    assert list(expected) == [field.name for field in fields(Progress)]
    done = run(works, "--progress", "json", "--json")
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    *progress, result = lines
    assert result.pop("stopped") is False
    assert result == progress[-1], "the result is the last state"
    for line in lines:
        assert set(line) <= set(expected)
        for name, (kind, always, _) in expected.items():
            assert name in line or always == "no", name
            assert isinstance(line.get(name), TYPES[kind]) or name not in line, name
    assert "lag" in progress[0] and not {"bad", "topics"} & progress[0].keys()
    assert progress[-1]["bad"] == 2
    assert progress[-1]["topics"] == [
        {"topic": "T", "messages": 5, "seconds": 1.5},
        {"topic": "U", "messages": 1, "seconds": None},
    ]


def test_a_plan_has_the_fields_of_the_page(run: Callable[..., Any]) -> None:
    done = run(works, "--plan", "--json")
    value = json.loads(done.stdout)
    assert done.exit_code == 0
    assert list(value) == list(rows_of("| field | type | meaning |"))
    assert (value["rows"], list(value["steps"][0])) == (7, ["action", "what", "details"])


def fails(spark: Any, watch: Watch) -> Progress:
    raise SparrowError("no room")


def interrupts(spark: Any, watch: Watch) -> Progress:
    raise KeyboardInterrupt


def test_statuses_are_those_of_the_page(run: Callable[..., Any]) -> None:
    assert list(rows_of("| status | when |")) == ["0", "1", "2", "130", "above 128, or negative"]
    failed = run(fails, "--json")
    assert (failed.exit_code, failed.stdout, failed.stderr) == (1, "", "sparrow: no room\n")
    for arguments in (["--no-such-option"], ["--progress", "loud"]):
        wrong = run(works, *arguments)
        assert (wrong.exit_code, wrong.stdout) == (2, ""), wrong.output
    assert run(interrupts).exit_code == 130
    assert {status.name: int(status) for status in Status} == {"WHOLE": 0, "BROKEN": 1, "NOT_JUDGED": 2}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_for_the_end_and_the_result_says_so(
    run: Callable[..., Any], number: signal.Signals
) -> None:
    def stopped(spark: Any, watch: Watch) -> Progress:
        os.kill(os.getpid(), number)
        while not watch.stopping:  # ends: the handler runs between two steps of Python
            pass
        return works(spark, watch)

    done = run(stopped, "--progress", "none", "--json")
    assert (done.exit_code, json.loads(done.stdout)["stopped"]) == (0, True)


def test_the_page_names_the_pipelines_that_go_this_way() -> None:
    (sentence,) = [
        line for line in PAGE.path.read_text().splitlines() if line.startswith("The result (`--json`)")
    ]
    named = set(re.findall(r"`(\w+)`", sentence)) - {"stopped"}
    folder = ROOT / "src" / "sparrowmq" / "cli" / "pipes"
    own = {
        path.stem
        for path in folder.glob("*.py")
        if re.search(r"(?<!def )(carry_out|run_pipeline)\(", path.read_text())
    }
    assert named == own - {"pipeline"}
