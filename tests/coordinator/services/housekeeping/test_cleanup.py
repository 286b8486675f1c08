from __future__ import annotations

import pytest
from sqlalchemy import delete, insert, update
from tests.coordinator.services.watched import step

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import audit as audit_table
from sparrowmq.coordinator.database.tables import token
from sparrowmq.coordinator.records import audit
from sparrowmq.coordinator.records.audit import Actor, Search, record
from sparrowmq.coordinator.services.housekeeping import cleanup
from sparrowmq.coordinator.services.housekeeping.cleanup import DAY_MS, Cleanup


def entries(database: Database) -> list[audit.AuditEntry]:
    with database.read() as connection:
        return audit.search(connection, Search(count=500))


def fill(database: Database, old: int, young: int) -> None:
    with database.write() as connection:
        for _ in range(old + young):
            record(connection, Actor("ann"), "x", ("service", "s"))
        ids = [entry.id for entry in reversed(audit.search(connection, Search(count=500)))]
        past = database.now(connection) - 31 * DAY_MS
        connection.execute(update(audit_table).where(audit_table.c.id.in_(ids[:old])).values(at=past))
        connection.execute(
            delete(audit_table).where(audit_table.c.id == ids[old // 2])
        )  # a hole among the ids


@pytest.mark.proves("pmq:T7")
def test_old_entries_are_deleted_by_time_in_batches_despite_gaps(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "BATCH", 3)
    fill(database, 11, 4)
    assert step(database, Cleanup(("audit-cleanup",))).counts == {
        "audit": 10, "notices": 0, "tokens": 0, "plans": 0, "resets": 0, "runs": 0,
    }  # fmt: skip
    last, *others = entries(database)
    assert len(others) == 4
    assert (last.actor, last.after) == ("service:audit-cleanup", {"deleted": 10, "keep_days": 30})


def test_retention_is_configurable(database: Database) -> None:
    fill(database, 5, 1)
    assert step(database, Cleanup(()), keep_days=60).counts["audit"] == 0
    assert step(database, Cleanup(()), keep_days=30).counts["audit"] == 4


def test_expired_tokens_are_deleted(database: Database) -> None:
    with database.write() as connection:
        for number, ends in enumerate((1, 2**50)):
            connection.execute(
                insert(token).values(person="p", digest=str(number), created_at=0, expires_at=ends)
            )
    assert step(database, Cleanup(())).counts["tokens"] == 1
