"""Findings in the database. `tests/databases` runs the same tests on PostgreSQL and MariaDB."""

from __future__ import annotations

import pytest
from sqlalchemy import update
from tests.support import about

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import finding as finding_table
from sparrowmq.coordinator.records import findings
from sparrowmq.coordinator.records.findings import Finding, Repair
from sparrowmq.core.errors import RefusedError

REPAIR = Repair("set-offset", {"group": "g", "offset": 5}, {"offset": 9})
ONE = Finding("beyond", "g t", "g is beyond", "g", "t", {"n": 1.5}, REPAIR)
TWO = Finding("missing", "h b", "h is missing", "h")


def replace(database: Database, *found: Finding, **options: object) -> dict[str, int]:
    with database.write() as connection:
        return findings.replace(connection, "s", found, **options)  # type: ignore[arg-type]


def rows(database: Database, **wanted: object) -> list[findings.FindingRow]:
    with database.read() as connection:
        return findings.search(connection, **wanted)  # type: ignore[arg-type]


def test_repeated_finding_keeps_its_number_and_a_resolved_one_is_deleted(database: Database) -> None:
    assert replace(database, ONE, TWO) == {"seen": 2, "new": 2, "gone": 0}
    before = rows(database)
    assert [row.finding for row in before] == [ONE, TWO]
    newer = Finding("beyond", "g t", "g is further beyond", "g", "t")
    assert replace(database, newer) == {"seen": 1, "new": 0, "gone": 1}
    (after,) = rows(database)
    assert (after.id, after.first_at, after.finding) == (before[0].id, before[0].first_at, newer)
    assert after.seen_at >= before[0].seen_at


def test_findings_belong_to_their_service_and_are_searched_by_kind_and_repair(database: Database) -> None:
    replace(database, ONE, TWO)
    with database.write() as connection:
        findings.replace(connection, "other", [ONE])
    assert [row.service for row in rows(database)] == ["s", "s", "other"]
    assert [row.finding for row in rows(database, service="s", kind="missing")] == [TWO]
    assert [row.service for row in rows(database, repairs=True)] == ["s", "other"]
    assert rows(database, kind="' OR 1=1 --") == []
    replace(database)
    assert [row.service for row in rows(database)] == ["other"]


def test_findings_that_could_not_be_checked_are_kept(database: Database) -> None:
    replace(database, ONE, TWO)
    assert replace(database, unknown={"g"}) == {"seen": 0, "new": 0, "gone": 1}
    assert replace(database, partial=True)["gone"] == 0
    assert [row.finding for row in rows(database)] == [ONE]


def test_texts_and_numbers_have_limits(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "FINDINGS_MAX", 3)
    long = [Finding("k", f"{number} " + "x" * 700, "y" * 2000) for number in range(5)]
    assert replace(database, *long)["new"] == 3
    assert replace(database, *long) == {"seen": 5, "new": 0, "gone": 0}
    assert {(len(row.finding.key), len(row.finding.text)) for row in rows(database)} == {(600, 1000)}


def test_one_repair_runs_at_a_time_and_a_dead_one_does_not_block(database: Database) -> None:
    replace(database, ONE)
    number = rows(database)[0].id
    with database.write() as connection:
        assert findings.begin_repair(connection, number).finding == ONE
        with pytest.raises(RefusedError, check=about(status=409, value=number)):
            findings.begin_repair(connection, number)
        findings.end_repair(connection, number, done=False)
        findings.begin_repair(connection, number)
    with database.write() as connection:
        long_ago = finding_table.c.repairing_at - findings.REPAIR_MS_MAX
        connection.execute(update(finding_table).values(repairing_at=long_ago))
        findings.begin_repair(connection, number)
        findings.end_repair(connection, number, done=True)
        with pytest.raises(RefusedError, check=about(status=404, what="finding", value=number)):
            findings.one(connection, number)
