"""`sparrow broker checks|drain|undrain|remove|forget` against a coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from tests.coordinator.running import Running, running
from tests.support import sqlite_url, until_sync
from typer.testing import CliRunner

from sparrowmq.cli.main import app
from sparrowmq.coordinator.cluster.fleet import Backlog, FleetBroker

if TYPE_CHECKING:
    from tests.cli.conftest import Outcome

Call = Callable[..., "Outcome"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(database_url=sqlite_url(tmp_path_factory.mktemp("drains") / "c.db")) as found:
        found.cluster.there = [FleetBroker("c", "a", 0, "h:1"), FleetBroker("c", "b", 1, "h:2", "timed out")]
        found.cluster.left = Backlog({"billing": 2})
        found.call("PATCH", "/services/broker-check", {"interval_ms": 1000, "options": {"settle_seconds": 0}})
        found.call("POST", "/services/broker-check/run", {})
        until_sync(lambda: len(found.get("/brokers")) == 2)
        yield found


@pytest.fixture
def sparrow(server: Running, monkeypatch: pytest.MonkeyPatch) -> Call:
    from tests.cli.conftest import Outcome

    monkeypatch.setenv("SPARROW_COORDINATOR_URL", server.url)
    monkeypatch.setenv("SPARROW_TOKEN", server.token)

    def call(*arguments: str, status: int = 0) -> Outcome:
        result = CliRunner().invoke(app, ["broker", *arguments], env={"COLUMNS": "200"})
        outcome = Outcome(result.exit_code, result.stdout, result.stderr)
        assert outcome.status == status, f"{outcome}\n{result.exception!r}"
        return outcome

    return call


def state(sparrow: Call) -> str:
    return str(sparrow("checks", "a", "--json").values[0]["drain"]["state"])


def test_a_broker_is_emptied_and_removed(sparrow: Call, server: Running) -> None:
    assert "timed out" in sparrow("checks").out
    assert "a will be drained" in sparrow("drain", "a", "--reason", "new disks").out
    until_sync(lambda: state(sparrow) == "draining")
    shown = sparrow("checks", "a").out
    assert "asked by:  admin" in shown
    assert "new disks" in shown
    assert "2 messages that 1 group has not yet read" in shown
    assert "billing" in shown
    assert "not drained: 2 messages" in sparrow("remove", "a", status=1).err
    server.cluster.left = Backlog()
    until_sync(lambda: state(sparrow) == "drained")
    assert "left:      nothing" in sparrow("checks", "a").out
    assert "a will accept messages again" in sparrow("undrain", "a").out
    until_sync(lambda: state(sparrow) == "cancelled")
    sparrow("drain", "a", "--force")
    until_sync(lambda: state(sparrow) == "drained")
    assert "checked once more" in sparrow("remove", "a").out
    until_sync(lambda: state(sparrow) == "removed")
    assert len(sparrow("checks", "--json").values) == 2


def test_a_broker_that_is_gone_is_forgotten(sparrow: Call) -> None:
    assert "b is forgotten" in sparrow("forget", "b", "--reason", "scrapped").out
    assert "there is no broker 'x'" in sparrow("drain", "x", status=1).err
