"""The services' rows. `tests/databases` runs the same tests on PostgreSQL and MariaDB."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update
from tests.support import about

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import service
from sparrowmq.coordinator.leases import table as leases
from sparrowmq.coordinator.leases.rules import Owner
from sparrowmq.coordinator.records import audit
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.coordinator.services.base import board
from sparrowmq.coordinator.services.base.schedule import RunOutcome, RunReport, ServiceKind, ServiceOption
from sparrowmq.core.errors import RefusedError

KIND = ServiceKind(
    "x", "X", 60_000, 1_000, 10.0, (ServiceOption("days", 30, 1, 100, ""), ServiceOption("size", 5, 0, 9, ""))
)
OTHER = ServiceKind("y", "Y", 5_000, 1_000, 10.0)
ANN = Actor("ann", "because")


@pytest.fixture(autouse=True)
def rows(database: Database) -> None:
    board.ensure(database, (KIND, OTHER))


def settings(database: Database, kind: ServiceKind = KIND) -> board.ServiceSettings:
    with database.read() as connection:
        return board.settings(connection, kind)


def change(database: Database, call: Any, *arguments: Any) -> None:
    with database.write() as connection:
        call(connection, KIND, *arguments, ANN)


def entries(database: Database) -> list[audit.AuditEntry]:
    with database.read() as connection:
        return list(reversed(audit.search(connection, audit.Search())))


def run_once(database: Database, epoch: int = 1, message: str = "") -> None:
    with database.write() as connection:
        seen = board.settings(connection, KIND)
        ended = (RunOutcome.DONE, RunReport({"n": 2}, message))
        board.add_run(connection, KIND, seen, epoch, seen.now, ended)


@pytest.mark.proves("pmq:2")
def test_new_service_is_due_at_once_with_its_defaults(database: Database) -> None:
    found = settings(database)
    assert (found.plan.interval_ms, found.plan.paused, found.plan.next_due_at) == (60_000, False, 0)
    assert found.options == {"days": 30, "size": 5}
    board.ensure(database, (KIND,))
    assert entries(database) == []


def test_every_change_applies_and_is_audited(database: Database) -> None:
    change(database, board.set_interval, 5_000)
    change(database, board.set_options, {"days": 7})
    change(database, board.set_paused, True)
    found = settings(database)
    assert (found.plan.interval_ms, found.options["days"], found.options["size"]) == (5_000, 7, 5)
    assert (found.plan.paused, found.pause_reason) == (True, "because")
    change(database, board.set_paused, False)
    change(database, board.ask_run)
    found = settings(database)
    assert (found.plan.paused, found.pause_reason) == (False, "")
    assert found.plan.run_asked_at > 0
    told = [(one.actor, one.action, one.before, one.after, one.reason) for one in entries(database)]
    assert told == [
        ("ann", "service.interval", {"interval_ms": 60_000}, {"interval_ms": 5_000}, "because"),
        ("ann", "service.options", {"days": 30}, {"days": 7}, "because"),
        ("ann", "service.pause", {"paused": False}, {"paused": True}, "because"),
        ("ann", "service.resume", {"paused": True}, {"paused": False}, "because"),
        ("ann", "service.run", None, None, "because"),
    ]
    assert settings(database, OTHER).plan.interval_ms == 5_000


@pytest.mark.parametrize(
    ("call", "arguments", "status"),
    [
        (board.set_interval, (10,), 422),
        (board.set_options, ({"days": 0},), 422),
        (board.set_paused, (False,), 409),
    ],
)
def test_refused_change_changes_nothing(
    database: Database, call: Any, arguments: tuple[Any, ...], status: int
) -> None:
    before = settings(database)
    with pytest.raises(RefusedError) as caught:
        change(database, call, *arguments)
    assert caught.value.status == status
    after = settings(database)
    assert (after.plan, after.options) == (before.plan, before.options)
    assert entries(database) == []


def test_values_of_another_release_count_as_unset(database: Database) -> None:
    with database.write() as connection:
        connection.execute(
            update(service).values(interval_ms=1, options='{"days": 999, "gone": 1, "size": 3}')
        )
    found = settings(database)
    assert found.options == {"days": 30, "size": 3}
    assert found.plan.interval_ms == 1_000


def test_service_without_a_row_is_named(database: Database) -> None:
    with (
        pytest.raises(RefusedError, check=about(status=404, what="service", value="z")),
        database.read() as connection,
    ):
        board.settings(connection, ServiceKind("z", "Z", 1, 1, 1.0))


@pytest.mark.proves("pmq:2")
def test_run_is_recorded_and_schedules_the_next(database: Database) -> None:
    run_once(database, 4, "m" * 900)
    with database.read() as connection:
        (run,) = board.runs(connection, "x")
        assert board.runs(connection, "y") == []
    assert (run.epoch, run.outcome, run.counts, len(run.message)) == (4, "done", {"n": 2}, 500)
    assert settings(database).plan.next_due_at == run.ended_at + 60_000


def test_run_requested_during_a_run_still_happens(database: Database) -> None:
    change(database, board.ask_run)
    with database.write() as connection:
        seen = board.settings(connection, KIND)
        board.ask_run(connection, KIND, ANN)
        connection.execute(update(service).where(service.c.name == "x").values(run_asked_at=seen.now + 5))
        board.add_run(connection, KIND, seen, 1, seen.now, (RunOutcome.DONE, RunReport()))
    assert settings(database).plan.run_asked_at > 0
    run_once(database)
    assert settings(database).plan.run_asked_at == 0


def test_old_runs_are_deleted_and_the_newest_stay(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(board, "RUNS_KEPT", 3)
    for epoch in range(1, 6):
        run_once(database, epoch)
    with database.write() as connection:
        assert board.delete_old_runs(connection, "x") == 2
        assert board.delete_old_runs(connection, "x") == 0
        assert [run.epoch for run in board.runs(connection, "x")] == [5, 4, 3]


@pytest.mark.proves("pmq:1.4")
def test_handover_is_audited_and_needs_a_leader(database: Database) -> None:
    with pytest.raises(RefusedError, check=about(status=409, what="leader", value="x")):
        change(database, board.hand_over, 1_000)
    with database.write() as connection:
        leases.claim(connection, "x", Owner("a", "one"), 60_000)
    change(database, board.hand_over, 1_000)
    (entry,) = entries(database)
    assert (entry.action, entry.before) == ("service.hand-over", {"leader": "one", "epoch": 1})
    with database.read() as connection:
        found = leases.row(connection, "x")
    assert found is not None
    assert (found.live, found.epoch) == (False, 2)
