"""The last reports of pipelines: the owner of a name, silent pipelines, and their maximum number."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update
from tests.support import about

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import pipeline
from sparrowmq.coordinator.records import audit, pipelines
from sparrowmq.coordinator.records.audit import Actor, Search
from sparrowmq.coordinator.records.pipelines import DAY_MS, KEPT_MS, SILENT_MS, PipelineRow
from sparrowmq.core.errors import RefusedError

ANN, BOB = Actor("ann"), Actor("bob")


def put(database: Database, name: str = "m", actor: Actor = ANN, run: str = "1", **more: Any) -> PipelineRow:
    any_of = bool(more.pop("for_any", False))
    with database.write() as connection:
        progress = {"kind": "mirror", "state": "running", "rows": 1} | more
        return pipelines.put(connection, actor, name, run, progress, for_any=any_of)


def back(database: Database, milliseconds: int, name: str = "m") -> None:
    with database.write() as connection:
        moved = {"reported_at": pipeline.c.reported_at - milliseconds}
        connection.execute(update(pipeline).where(pipeline.c.name == name).values(**moved))


def names(database: Database) -> list[tuple[str, str]]:
    with database.read() as connection:
        return [(one.name, one.state) for one in pipelines.every(connection)]


def test_last_report_counts_and_only_a_new_name_is_audited(database: Database) -> None:
    first = put(database)
    again = put(database, rows=7)
    assert (again.progress["rows"], again.began_at) == (7, first.began_at)
    back(database, 5000)
    assert put(database, run="2").began_at >= first.began_at
    with database.read() as connection:
        assert [one.action for one in audit.search(connection, Search())] == ["pipeline.add"]
    with database.write() as connection:
        pipelines.forget(connection, ANN, "m", for_any=False)
    assert names(database) == []
    with database.read() as connection:
        assert audit.search(connection, Search())[0].action == "pipeline.forget"
        with pytest.raises(RefusedError, check=about(status=404, what="pipeline", value="m")):
            pipelines.one(connection, "m")


def test_run_without_reports_is_silent_unless_it_ended(database: Database) -> None:
    put(database)
    put(database, "ended", state="failed", error="no disk")
    back(database, SILENT_MS + 1000)
    back(database, SILENT_MS + 1000, "ended")
    assert names(database) == [("ended", "failed"), ("m", "silent")]
    put(database)
    assert names(database) == [("ended", "failed"), ("m", "running")]


def test_name_belongs_to_its_first_reporter(database: Database) -> None:
    put(database)
    with pytest.raises(RefusedError, check=about(status=403, what="m", value="ann")):
        put(database, actor=BOB)
    assert put(database, actor=BOB, for_any=True).reported_by == "ann"
    with database.write() as connection, pytest.raises(RefusedError, check=about(status=403, value="ann")):
        pipelines.forget(connection, BOB, "m", for_any=False)


def test_number_of_pipelines_is_limited_and_old_ones_are_replaced(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines, "PIPELINES_OF_ONE_MAX", 2)
    monkeypatch.setattr(pipelines, "PIPELINES_MAX", 3)
    put(database, "a")
    put(database, "b")
    with pytest.raises(RefusedError, check=about(status=409, limit=2)):
        put(database, "c")
    put(database, "c", BOB)
    with pytest.raises(RefusedError, check=about(status=409, limit=3)):
        put(database, "d", BOB)
    put(database, "a")  # one that is there needs no place
    back(database, DAY_MS + 1000, "a")
    put(database, "d", BOB)
    assert [name for name, _ in names(database)] == ["b", "c", "d"]
    back(database, KEPT_MS + 1000, "b")
    put(database, "e")
    assert [name for name, _ in names(database)] == ["c", "d", "e"]
