"""Reports of a run to a coordinator: sent by a thread, and never in the way of the run."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest
from tests.support import until_sync

from sparrowmq.cli.pipes import pipeline
from sparrowmq.cli.pipes.common import Show
from sparrowmq.cli.pipes.pipeline import watching
from sparrowmq.cli.pipes.reporting import Reporter, report_of, reporting
from sparrowmq.cli.pipes.shared import Shared
from sparrowmq.core.errors import RefusedError
from sparrowmq.spark.pipelines.common.watch import Progress, TopicLag, Watch


class Sent:
    """What a coordinator got."""

    def __init__(self, fails: int = 0) -> None:
        self.reports: list[Mapping[str, Any]] = []
        self.tries, self._fails = 0, fails

    def __call__(self, report: Mapping[str, Any]) -> None:
        self.tries += 1
        if self.tries <= self._fails:
            raise RefusedError("who are you?", status=401)
        self.reports.append(report)


def test_progress_is_sent_again_and_again_and_its_end_too() -> None:
    sent = Sent()
    reporter = Reporter(sent, every=0.01)
    watch = Watch(reporter)
    with reporting(reporter, watch):
        watch.begin("mirror", 10)
        watch.topics([TopicLag("T", 4, 1.5)])
        watch.batch(6, 100, 0.5)
        until_sync(lambda: len(sent.reports) > 2)
    last = sent.reports[-1]
    assert (last["kind"], last["rows"], last["bytes"], last["lag"]) == ("mirror", 6, 100, 4)
    assert last["topics"] == [{"topic": "T", "messages": 4, "seconds": 1.5}]
    assert last["state"] == "done" and {one["state"] for one in sent.reports[:-1]} == {"running"}
    assert len({one["run"] for one in sent.reports}) == 1


def test_a_run_that_fails_or_is_stopped_says_so() -> None:
    sent = Sent()
    reporter = Reporter(sent, every=60)
    with pytest.raises(ValueError), reporting(reporter, Watch(reporter)):
        reporter(Progress("archive"))
        raise ValueError("no disk\n" + "x" * 1000)
    assert sent.reports[-1]["state"] == "failed"
    assert sent.reports[-1]["error"].startswith("no disk\\n") and len(sent.reports[-1]["error"]) == 500
    for error in (None, KeyboardInterrupt()):
        reporter = Reporter(sent, every=60)
        watch = Watch(reporter)
        try:
            with reporting(reporter, watch):
                watch.begin("archive")
                watch.stop()
                if error is not None:
                    raise error
        except KeyboardInterrupt:
            pass
        assert sent.reports[-1]["state"] == "stopped"


def test_a_coordinator_that_refuses_is_told_of_once_and_does_not_end_the_run() -> None:
    sent, said = Sent(fails=3), list[str]()
    reporter = Reporter(sent, every=0.01, tell=said.append)
    with reporting(reporter, Watch(reporter)):
        reporter(Progress("archive"))
        until_sync(lambda: sent.reports)
    assert said == ["the coordinator does not take this run's progress: who are you?"]


def test_a_hung_coordinator_blocks_no_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrowmq.cli.pipes.reporting.END_SECONDS", 0.01)
    gone = threading.Event()
    reporter = Reporter(lambda report: gone.wait(60) and None, every=0.01)
    reporter(Progress("archive", rows=1))
    with reporting(reporter, Watch(reporter)):
        reporter(Progress("archive", rows=2))
    gone.set()


def test_nothing_is_sent_before_the_run_has_a_name_and_topics_have_a_limit() -> None:
    sent = Sent()
    with reporting(reporter := Reporter(sent, every=0.001), Watch(reporter)):
        reporter(Progress(""))
    assert sent.reports == []
    lags = tuple(TopicLag(f"T{number:03}", number) for number in range(150))
    topics = report_of(Progress("mirror", topics=lags))["topics"]
    assert len(topics) == 100 and topics[0]["topic"] == "T149"


def test_the_option_makes_a_report_with_the_command_s_name(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[tuple[Any, ...]]()
    monkeypatch.setattr("sparrowmq.cli.pipes.reporting.call", lambda *given: calls.append(given))
    for name, path in ((None, "/pipelines/archive"), ("of-orders", "/pipelines/of-orders")):
        with watching("archive", Shared(show=Show.NONE, report_to="http://c:1", report_as=name)) as watch:
            watch.begin("archive")
        assert calls[-1][:3] == ("http://c:1", "PUT", path) and calls[-1][3]["state"] == "done"
    assert vars(pipeline)["Reporter"] is Reporter
