"""`sparrow history` against a coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Outcome
from tests.coordinator.running import Running, running
from tests.support import sqlite_url
from typer.testing import CliRunner

from sparrowmq.cli.main import app
from sparrowmq.coordinator.history import store
from sparrowmq.coordinator.history.grains import MINUTES, Figure, Series


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(database_url=sqlite_url(tmp_path_factory.mktemp("history") / "c.db")) as found:
        database = found.coordinator._database
        assert database is not None
        lag, queue = Series(Figure.GROUP_LAG, "billing"), Series(Figure.QUEUE_LAG, "billing Orders/a/0")
        with database.write() as connection:
            known = store.series(connection)
            known |= store.add(connection, known, [lag, queue], database.now(connection), 100)
            slot = MINUTES.slot(database.now(connection))
            values = {slot - back: float(back) for back in range(2, 40)}
            store.put(connection, MINUTES, {known[lag]: values, known[queue]: values})
        yield found


def sparrow(server: Running, *arguments: str, status: int = 0) -> Outcome:
    given = {"SPARROW_COORDINATOR_URL": server.url, "SPARROW_TOKEN": server.token, "COLUMNS": "200"}
    result = CliRunner().invoke(app, list(arguments), env=given)
    assert result.exit_code == status, f"{result.stdout}{result.stderr}{result.exception!r}"
    return Outcome(result.exit_code, result.stdout, result.stderr)


def test_rows_are_times_and_unknown_values_are_question_marks(server: Running) -> None:
    lines = sparrow(server, "history", "group", "billing", "--range", "24h", "--rows", "144").lines
    assert [one.strip() for one in lines[0].split("  ") if one.strip()] == [
        "until", "lag billing", "age s", "lag Orders/a/0",
    ]  # fmt: skip
    rows = [one.split() for one in lines[2:]]
    assert len(rows) == 144
    assert rows[0][2:] == ["?", "?", "?"]
    assert rows[-2][2:] == ["20", "?", "20"], "the peak of ten minutes"


def test_json_has_every_step(server: Running) -> None:
    (found,) = sparrow(server, "history", "group", "billing", "--range", "24h", "--json").values
    assert [len(one["values"]) for one in found["series"]] == [1440] * 3


def test_the_cluster_has_no_name_and_the_others_have_one(server: Running) -> None:
    assert sparrow(server, "history").lines
    for wrong in (("history", "group"), ("history", "cluster", "c")):
        assert "cluster takes no name" in sparrow(server, *wrong, status=1).err


def test_a_service_that_is_none_is_named(server: Running, tmp_path: Path) -> None:
    assert "there is no service 'x'" in sparrow(server, "history", "service", "x", status=1).err
