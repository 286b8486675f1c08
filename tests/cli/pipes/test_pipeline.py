"""The frame of the commands: what is asked for is done, and only that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sparrowmq.cli.pipes import pipeline as module
from sparrowmq.cli.pipes.common import Show
from sparrowmq.cli.pipes.pipeline import Pipeline, watching, would
from sparrowmq.cli.pipes.shared import Shared
from sparrowmq.spark.pipelines.common.steps import AT_MOST, Plan


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    found: list[Any] = []
    monkeypatch.setattr(module, "show_plan", lambda plan, as_json: found.append(("plan", plan, as_json)))
    monkeypatch.setattr(module, "run_pipeline", lambda name, _, work: found.append(("run", name, work())))
    monkeypatch.setattr(
        module, "run_read", lambda name, shared, most, work: found.append(("read", most)) or work(None)
    )
    yield found


def made(
    shared: Shared, count: Callable[[Any], Any] = lambda spark: 1234, places: tuple[object, ...] = ()
) -> Pipeline:
    plan = Plan("it", (), 7, AT_MOST)
    return Pipeline(
        name="it", shared=shared, places=places, plan=lambda: plan, dry_run=count, would="would be sent"
    )


def test_what_is_asked_for_is_done(done: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    def ask(shared: Shared, **more: Any) -> None:
        made(shared, **more).carry_out(lambda: "W")  # type: ignore[arg-type,misc,return-value]

    ask(Shared())
    ask(Shared(plan=True, dry_run=True, as_json=True))
    assert done == [("run", "it", "W"), ("plan", made(Shared()).plan(), True)]
    ask(Shared(dry_run=True))
    ask(Shared(dry_run=True, as_json=True))
    ask(Shared(dry_run=True), count=lambda spark: {"stored": 5, "traces": 1000})
    assert done[2:] == [("read", 7)] * 3, "the bar knows how much there is"
    assert capsys.readouterr().out.splitlines() == [
        "1,234 messages at most would be sent",
        '{"pipeline":"it","messages":1234}',
        "5 stored, 1,000 traces at most would be sent",
    ]


def test_guarantees_are_told_before_a_run(done: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    for shared in (Shared(), Shared(dry_run=True)):
        made(shared).carry_out(lambda: "W", lambda: ["once", "in order"])  # type: ignore[arg-type,misc,return-value]
    assert done == [("run", "it", "W"), ("read", 7)]
    assert capsys.readouterr().err.splitlines() == ["once", "in order"]


def test_spark_is_started_before_the_run_only_where_the_plan_needs_it(
    done: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = list[str]()

    @contextmanager
    def session(name: str, *_: Any) -> Iterator[None]:
        started.append(name)
        yield

    monkeypatch.setattr(module, "session", session)
    remote = made(Shared(), places=(None, "s3a://bucket/there"))
    made(Shared(), places=("here", None)).planned()
    remote.carry_out(lambda: "W")  # type: ignore[arg-type,misc,return-value]
    assert not started
    remote.planned()
    assert started == ["it"]
    remote.carry_out(lambda: "W", list)  # type: ignore[arg-type,misc,return-value]
    assert started == ["it"] * 2, "the guarantees follow from the plan"


def test_what_a_read_would_do() -> None:
    assert (would(None), would("/there")) == (
        "would be counted",
        "would be written to /there; nothing is written",
    )


def test_a_run_is_watched_as_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with watching("x", Shared(show=Show.JSON, metrics="127.0.0.1:0")) as watch:
        watch.begin("archive")
    captured = capsys.readouterr()
    assert captured.out.startswith('{"pipeline":"archive"')
    assert captured.err.startswith("metrics at port ")
    with watching("x", Shared(show=Show.NONE)) as watch:
        watch.begin("archive")
    assert capsys.readouterr() == ("", "")
