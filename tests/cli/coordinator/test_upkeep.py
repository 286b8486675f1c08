"""`sparrow repair` and `sparrow service findings` against a coordinator."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Outcome
from tests.coordinator.running import Running, running
from tests.coordinator.upkeep.lands import broker, group, land, topic
from tests.support import sqlite_url, until_sync
from typer.testing import CliRunner

from sparrowmq.cli.main import app
from sparrowmq.coordinator.upkeep.logs import BrokerLog, CleaningRules, DiskSurvey, LogSample

Call = Callable[..., Outcome]
GIB = 1 << 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(database_url=sqlite_url(tmp_path_factory.mktemp("upkeep") / "c.db")) as found:
        yield found


@pytest.fixture
def sparrow(server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SPARROW_COORDINATOR_URL", server.url)
    monkeypatch.setenv("SPARROW_TOKEN", server.token)

    def call(*arguments: str, status: int = 0) -> Outcome:
        result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
        outcome = Outcome(result.exit_code, result.stdout, result.stderr)
        assert outcome.status == status, f"{outcome}\n{result.exception!r}"
        return outcome

    return call


def test_repairs_are_listed_shown_and_run(server: Running, sparrow: Call) -> None:
    server.survey.land = land(
        broker("a", [topic("T")], [group("g")], {("g", "T", 0): 9}),
        listed={"n1": {"T"}, "n2": set()},
        ends={("T", "a", 0): (0, 5)},
    )
    sparrow("service", "run", "consistency")

    def both() -> list[dict[str, object]]:
        lines = sparrow("service", "findings", "consistency", "--json").out.splitlines()
        return [json.loads(line) for line in lines] if len(lines) == 2 else []

    found = {str(one["kind"]): one for one in until_sync(both)}
    number, other = str(found["offset-beyond"]["id"]), str(found["topic-not-listed"]["id"])
    listed = sparrow("repair", "list").out
    assert "commit offset 5 for g on queue 0 of T on a" in listed
    assert "topic-not-listed" not in listed
    assert json.loads(sparrow("repair", "list", "--json").out)["id"] == int(number)
    assert sparrow("repair", "list", "--kind", "other", "--json").out == ""
    shown = sparrow("repair", "show", number).out
    assert 'now:      {"offset": 9}' in shown
    assert "needs:    edit" in shown
    assert "none; it needs a manual fix" in sparrow("repair", "show", other).out
    assert json.loads(sparrow("repair", "show", number, "--json").out)["repair"]["action"] == "set-offset"
    assert "has no repair" in sparrow("repair", "run", other, status=1).err
    assert sparrow("repair", "run", number, "--reason", "r").out == f"finding {number} repaired\n"
    assert "there is no finding" in sparrow("repair", "run", number, status=1).err
    assert "there is no service 'nothing'" in sparrow("service", "findings", "nothing", status=1).err


def test_forecasts_are_findings_of_their_service(server: Running, sparrow: Call) -> None:
    server.survey.sight = DiskSurvey(
        [BrokerLog("a", "h", CleaningRules(), LogSample(1, 0, 1, 100 * GIB, 5 * GIB))]
    )
    sparrow("service", "run", "capacity")
    text = until_sync(
        lambda: "will refuse messages now" in (it := sparrow("service", "findings", "capacity").out) and it
    )
    assert "disk" in text
