"""`sparrow replicas …` against a coordinator with simulated brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from tests.coordinator.replicas.made_up_brokers import MadeUpBrokers
from tests.coordinator.running import Running, running
from tests.support import sqlite_url, until_sync
from typer.testing import CliRunner

from sparrowmq.cli.main import app
from sparrowmq.coordinator.cluster.fleet import FleetBroker
from sparrowmq.protocol.bodies.replicas import SlaveState

if TYPE_CHECKING:
    from tests.cli.conftest import Outcome

Call = Callable[..., "Outcome"]


@pytest.fixture
def brokers() -> MadeUpBrokers:
    made = MadeUpBrokers()
    made.add("a", "MASTER")
    made.add("b", "SLAVE")
    made.add("c", "SLAVE")
    made.change("c", max_offset=40)
    return made


@pytest.fixture
def server(brokers: MadeUpBrokers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    url = sqlite_url(tmp_path_factory.mktemp("replicas") / "c.db")
    with running(brokers, database_url=url) as found:
        found.cluster.there = [FleetBroker("c", "g", 0, "a"), FleetBroker("c", "g", 1, "b")]
        found.call("POST", "/services/broker-check/run", {})
        found.call("PATCH", "/services/replica-election", {"interval_ms": 1000, "options": {"checks": 1}})
        until_sync(lambda: len(found.get("/brokers")) == 2)
        yield found


@pytest.fixture
def sparrow(server: Running, monkeypatch: pytest.MonkeyPatch) -> Call:
    from tests.cli.conftest import Outcome

    monkeypatch.setenv("SPARROW_COORDINATOR_URL", server.url)
    monkeypatch.setenv("SPARROW_TOKEN", server.token)

    def call(*arguments: str, status: int = 0) -> Outcome:
        result = CliRunner().invoke(app, ["replicas", *arguments], env={"COLUMNS": "200"})
        outcome = Outcome(result.exit_code, result.stdout, result.stderr)
        assert outcome.status == status, f"{outcome}\n{result.exception!r}"
        return outcome

    return call


def group(sparrow: Call) -> dict[str, Any]:
    return dict(sparrow("list", "g", "--json").values[0])


def firing(server: Running) -> set[str]:
    return {one["rule"] for one in server.get("/alarms?state=firing") if one["rule"].startswith("replicas")}


def test_a_person_manages_brokers_elects_and_releases(
    sparrow: Call, server: Running, brokers: MadeUpBrokers
) -> None:
    assert "begin with: sparrow replicas manage" in sparrow("list").out
    assert "there are g" in sparrow("manage", "none", status=1).err
    assert "are not managed" in sparrow("elect", "g", "b", status=1).err
    assert "masters of g are elected from now on" in sparrow("manage", "g", "--reason", "two machines").out
    assert "managed already" in sparrow("manage", "g", status=1).err
    until_sync(lambda: brokers.states["c"].epoch == 1)
    until_sync(lambda: firing(server) == {"replicas-one-copy"})
    brokers.change("a", wanted=["a", "b"], slaves=[SlaveState("b", 100, 0, "store-b")], is_sync=True)
    until_sync(lambda: group(sparrow)["in_sync"] == ["a", "b"])
    until_sync(lambda: firing(server) == set())

    refused = sparrow("elect", "g", "c", status=1).err
    assert "c is not in sync" in refused
    assert "--unclean" in refused
    assert "b will be the master" in sparrow("elect", "g", "b", "--reason", "kernel of a").out
    until_sync(lambda: brokers.states["b"].state == "SERVING")
    until_sync(lambda: brokers.states["a"].role == "SLAVE")
    entries = server.get("/audit?kind=replica-group")
    told = {(one["action"], one["reason"]) for one in entries}
    assert {("replicas.elect", "kernel of a"), ("replicas.elected", "kernel of a")} <= told
    shown = sparrow("list", "g").out
    assert "epoch:     2, master b" in shown
    assert "as master" in shown

    sparrow("release", "g")
    until_sync(lambda: not any(one.is_managed for one in brokers.states.values()))
    until_sync(lambda: server.get("/replica-groups") == [])
    assert brokers.states["b"].role == "MASTER"


def test_losing_messages_takes_a_reason_and_a_yes(
    sparrow: Call, server: Running, brokers: MadeUpBrokers
) -> None:
    sparrow("manage", "g")
    until_sync(lambda: brokers.states["c"].epoch == 1)
    brokers.change("a", is_sync=True)
    until_sync(lambda: group(sparrow)["brokers"][2]["behind"] == 60)
    brokers.down.add("a")
    until_sync(lambda: "replicas-no-master" in firing(server))
    assert "needs --reason" in sparrow("elect", "g", "c", "--unclean", status=1).err
    shown = sparrow("elect", "g", "c", "--unclean", "--reason", "a burnt down").out
    assert "60 bytes, 60 of them acknowledged" in shown
    assert "nothing was changed" in shown
    assert brokers.states["c"].role == "SLAVE"
    sparrow("elect", "g", "c", "--unclean", "--reason", "a burnt down", "--yes")
    until_sync(lambda: brokers.states["c"].role == "MASTER")
    until_sync(lambda: group(sparrow)["in_sync"] == ["c"])
    entries = server.get("/audit?action=replicas.elected-unclean")
    assert [(one["reason"], one["before"]["master"]) for one in entries] == [("a burnt down", "a")]
