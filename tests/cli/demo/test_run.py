"""The demo without Spark: its requirements, its end, and its state after Ctrl-C and failures."""

from __future__ import annotations

import io
import logging
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.support import about

from sparrowmq.cli.base.common import UsageError
from sparrowmq.cli.demo import pipeline
from sparrowmq.cli.demo import run as module
from sparrowmq.cli.demo.run import DemoOptions, DemoWatch, late_interrupt, quiet_signals, run_demo
from sparrowmq.cli.demo.screen import Screen
from sparrowmq.cli.demo.totals import Group
from sparrowmq.cli.demo.workplace import Workplace, prepare
from sparrowmq.core.errors import SparrowError


def options(directory: Path, **changes: Any) -> DemoOptions:
    return DemoOptions(
        **{"rows": 10, "rate": None, "keep": False, "namesrv": None, "directory": directory} | changes
    )


class Traffic:
    """Counters a test moves."""

    def __init__(self) -> None:
        self.sent = self.stored = self.summaries = 0
        self.total: int | None = None
        self.all_sent = threading.Event()
        self.fault: SparrowError | None = None

    def check(self) -> None:
        if self.fault is not None:
            raise self.fault


class Query:
    """A stream that ended by itself."""

    isActive = False

    def exception(self) -> str:
        return "no space left"


@pytest.fixture
def out() -> Console:
    return Console(file=io.StringIO(), width=200)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def watch(out: Console, traffic: Traffic, progress: pipeline.StreamProgress) -> DemoWatch:
    return DemoWatch(traffic, progress, Screen(out))


def processed(progress: pipeline.StreamProgress, flights: int) -> None:
    progress.totals.replace(0, [Group("JFK", "LAX", "Los Angeles", "Delta", 7, flights, flights, 0)])
    progress.processed = flights


def test_it_is_done_when_all_was_sent_and_processed(out: Console) -> None:
    traffic, progress = Traffic(), pipeline.StreamProgress()
    watching = watch(out, traffic, progress)
    with watching._screen:
        assert not watching.done()
        traffic.sent = traffic.stored = 5
        processed(progress, 5)
        assert not watching.done(), "more may be sent"
        traffic.all_sent.set()
        traffic.sent = 6
        assert not watching.done()
        processed(progress, 6)
        assert watching.done()
    first, last = watching.samples[0], watching.samples[-1]
    assert (first.sent, first.processed) == (0, 0)
    assert (last.sent, last.stored, last.processed) == (6, 5, 6)


def test_samples_are_apart(out: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("sparrowmq.cli.demo.run.time.monotonic", lambda: now[0])
    watching = watch(out, Traffic(), pipeline.StreamProgress())
    with watching._screen:
        for step in (0.0, 0.1, 0.1, 0.1, 0.25, 0.01):
            now[0] += step
            watching.sample()
    assert [sample.seconds for sample in watching.samples] == [0.0, 0.3, 0.55]


def test_standing_still_ends_it_with_what_is_missing(out: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("sparrowmq.cli.demo.run.time.monotonic", lambda: now[0])
    traffic, progress = Traffic(), pipeline.StreamProgress()
    watching = watch(out, traffic, progress)
    with watching._screen:
        assert not watching.done()
        for _ in range(3):
            now[0] += module.STALL_SECONDS_MAX - 1
            traffic.sent = traffic.stored = traffic.sent + 1000
            assert not watching.done(), "something moved"
        now[0] += module.STALL_SECONDS_MAX + 1
        with pytest.raises(SparrowError, check=about(what="progress", limit=module.STALL_SECONDS_MAX)):
            watching.done()


def test_faults_of_traffic_and_stream_reach_the_user(out: Console) -> None:
    traffic, progress = Traffic(), pipeline.StreamProgress()
    watching = watch(out, traffic, progress)
    with watching._screen:
        with pytest.raises(SparrowError, check=about(what="stream", value="no space left")):
            module._follow(Query(), watching)
        traffic.fault = SparrowError("the broker is gone", what="broker")
        with pytest.raises(SparrowError, check=about(what="broker")):
            watching.done()
        progress.summaries = 1
        with pytest.raises(SparrowError, check=about(what="broker")):
            module._await_summaries(traffic, progress)


def test_summaries_are_waited_for_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SUMMARY_SECONDS_MAX", 0.01)
    traffic, progress = Traffic(), pipeline.StreamProgress()
    progress.summaries = 3
    module._await_summaries(traffic, progress)
    assert traffic.summaries == 0


def test_an_interrupt_waits_for_the_end_of_a_launch() -> None:
    handler, done = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt), late_interrupt():
        signal.raise_signal(signal.SIGINT)
        done.append("launched")
    assert done == ["launched"]
    assert signal.getsignal(signal.SIGINT) is handler
    with late_interrupt():
        done.append("nothing came")


def test_cleaning_up_is_not_interrupted() -> None:
    handler, done = signal.getsignal(signal.SIGINT), []
    with quiet_signals():
        signal.raise_signal(signal.SIGINT)
        done.append("cleaned")
    assert done == ["cleaned"]
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_missing_extra_is_named_with_the_line_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "pyarrow" else object())
    with pytest.raises(UsageError, check=about(what="pyarrow")):
        module.check_needs()


def test_a_cluster_that_is_given_is_used(tmp_path: Path) -> None:
    place = Workplace(tmp_path, tmp_path, tmp_path)
    with module.cluster(options(tmp_path, namesrv="10.0.0.1:9876"), place) as namesrv:
        assert namesrv == "10.0.0.1:9876"


def test_a_cluster_of_its_own_ends_with_the_block(tmp_path: Path) -> None:
    import sparrowmq as mq

    place = prepare(tmp_path)
    try:
        with module.cluster(options(tmp_path), place) as namesrv, mq.Admin(namesrv=namesrv) as admin:
            (broker,) = admin.brokers.list()
            assert broker.error is None
            assert place.store.is_dir()
        with pytest.raises(SparrowError), mq.Admin(namesrv=namesrv) as admin:
            admin.topics.list()
    finally:
        place.finish(keep=False)


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """A demo whose needs are there; handlers of signals and filters of logs are put back."""
    monkeypatch.setattr(module, "check_needs", lambda: tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    handlers = {handler: list(handler.filters) for handler in logging.getLogger().handlers}
    yield monkeypatch
    signal.signal(signal.SIGTERM, before)
    for handler, filters in handlers.items():
        handler.filters[:] = filters


def test_a_demo_that_fails_keeps_its_logs(staged: pytest.MonkeyPatch, out: Console, tmp_path: Path) -> None:
    def fail(given: DemoOptions, console: Console, place: Workplace, data: Path) -> None:
        place.spark_log.write_text("why")
        raise RuntimeError("no luck")

    staged.setattr(module, "_run_through", fail)
    with pytest.raises(SparrowError, check=lambda error: str(error.__cause__) == "no luck") as caught:
        run_demo(options(tmp_path), out)
    saved = Path(str(caught.value).rsplit("logs: ", 1)[1])
    assert (saved / "spark.log").read_text() == "why"
    assert [path for path in tmp_path.iterdir() if path.name.startswith("run-")] == []


def test_a_demo_that_is_stopped_leaves_nothing(
    staged: pytest.MonkeyPatch, out: Console, tmp_path: Path
) -> None:
    def stop(given: DemoOptions, console: Console, place: Workplace, data: Path) -> None:
        raise KeyboardInterrupt

    staged.setattr(module, "_run_through", stop)
    with pytest.raises(KeyboardInterrupt):
        run_demo(options(tmp_path), out)
    assert list(tmp_path.iterdir()) == []
    assert text_of(out) == "stopped\n"


def test_log_records_of_a_killed_jvm_are_not_shown() -> None:
    def record(name: str) -> logging.LogRecord:
        return logging.LogRecord(name, logging.ERROR, "", 0, "text", None, None)

    assert [module._is_ours(record(name)) for name in ("root", "py4j.clientserver", "sparrowmq.client")] == [
        False,
        False,
        True,
    ]
