"""Pipelines on Spark in the console: their reports are shown, and hostile reports are escaped or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.console.furnished import ODD
from tests.console.site import Reader, Site
from tests.console.test_pages import read
from typer.testing import CliRunner

from sparrowmq.cli.main import app
from sparrowmq.cli.pipes.common import Show
from sparrowmq.cli.pipes.pipeline import watching
from sparrowmq.cli.pipes.reporting import report_of
from sparrowmq.cli.pipes.shared import Shared
from sparrowmq.spark.pipelines.common.watch import Progress, TopicLag


def report(console: Site, name: str, reader: Reader | None = None, **values: Any) -> int:
    """Report as a user; the status."""
    lags = (TopicLag(ODD.topic, 3, 61.0), TopicLag("Other", 4, 2.0))
    done = Progress("mirror", batches=2, rows=100, size=2048, lag=7, batch_seconds=0.5, topics=lags)
    body = {**report_of(done), "run": "1", "state": "running"} | values
    token = (reader or console.admin).cookies["sparrow_session"]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    found = Reader(console.address).ask(
        "PUT", f"/api/v1/pipelines/{name}", json.dumps(body).encode(), headers
    )
    return found.status


def test_pipeline_is_shown_with_progress_and_lag(console: Site, admin: Reader, viewer: Reader) -> None:
    assert "No pipeline has reported" in viewer.page("/pipelines").part("pipelines")
    assert report(console, "orders-mirror", viewer) == 200, "any user's token is enough"
    shown = viewer.page("/pipelines").part("pipelines")
    assert "orders-mirror mirror running 7" in shown and "1 min 1 s" in shown and "viewer" in shown
    page = viewer.page("/pipelines/orders-mirror")
    read(page)
    assert "2.0" in page.part("pipeline") and "500" in page.part("pipeline")
    assert f"{ODD.topic} 3" in page.part("waits")
    assert report(console, "orders-mirror", viewer, state="failed", error=ODD.markup) == 200
    page = viewer.page("/pipelines/orders-mirror")
    read(page)
    assert "failed" in page.part("pipeline") and "alert(1)" in page.part("pipeline")
    assert "/forget" not in page.text

    assert viewer.change("/pipelines/orders-mirror/forget").status == 303, "who reported it may delete it"
    assert admin.get("/pipelines/orders-mirror/forget").status == 404
    (entry,) = json.loads(console.call("GET", "/audit?action=pipeline.forget&object=orders-mirror").text)
    assert (entry["actor"], entry["reason"], entry["object"]) == ("viewer", "agreed", "orders-mirror")


def test_only_operators_report_for_others(console: Site, admin: Reader, viewer: Reader) -> None:
    assert report(console, "admins") == 200
    assert report(console, "admins", viewer, rows=1) == 403
    assert viewer.change("/pipelines/admins/forget").status == 403
    assert report(console, "viewers", viewer) == 200
    assert report(console, "viewers") == 200
    for name in ("admins", "viewers"):
        assert admin.change(f"/pipelines/{name}/forget").status == 303


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": -1}, {"rows": 1 << 63}, {"rows": "many"}, {"lag": 1.5}, {"batch_seconds": float("inf")},
        {"state": "great"}, {"kind": ""}, {"kind": "x" * 33}, {"run": ""}, {"error": "x" * 501},
        {"topics": [{"topic": "T", "messages": 1}] * 101}, {"topics": [{"topic": "T" * 256, "messages": 1}]},
        {"topics": [{"topic": "T", "messages": 1, "seconds": -1}]}, {"unknown": 1},
    ],
)  # fmt: skip
def test_invalid_reports_are_refused(console: Site, wrong: dict[str, Any]) -> None:
    assert report(console, "wrong", **wrong) in (400, 422)
    assert console.call("GET", "/pipelines/wrong").status == 404


@pytest.mark.parametrize("name", ["a%20b", "a%2Fb", "%3Cscript%3E", "x" * 101, "%E2%80%AE"])
def test_invalid_names_are_refused(console: Site, name: str) -> None:
    assert report(console, name) in (404, 422)
    assert console.call("GET", "/pipelines").text.count('"name"') == 0


def test_run_reports_to_a_coordinator_and_commands_show_it(
    console: Site, admin: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = console.started.url
    monkeypatch.setenv("SPARROW_TOKEN", admin.cookies["sparrow_session"])
    run = Shared(show=Show.NONE, report_to=url, report_as="from-a-run")
    with watching("archive", run) as watch:
        watch.begin("archive", 9)
        watch.batch(9, 90, 0.1, 0)
    shown = CliRunner().invoke(app, ["pipe", "status", "--coordinator", url])
    assert shown.exit_code == 0, shown.output
    assert shown.output.splitlines()[-1].split()[:4] == ["from-a-run", "archive", "done", "9"]
    one = CliRunner().invoke(app, ["pipe", "status", "from-a-run", "--coordinator", url, "--json"])
    assert json.loads(one.output)["bytes"] == 90
    gone = CliRunner().invoke(app, ["pipe", "forget", "from-a-run", "--coordinator", url, "--reason", "over"])
    assert gone.output.strip() == "pipeline from-a-run forgotten"
    assert console.call("GET", "/pipelines/from-a-run").status == 404
