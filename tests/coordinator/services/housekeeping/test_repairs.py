"""Repairs on a fake cluster: executed, audited, and refused when something changed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.coordinator.services.surveyed import MadeUpSurvey
from tests.coordinator.upkeep.lands import broker, group, land, topic
from tests.support import about

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.records import audit, findings
from sparrowmq.coordinator.records.audit import Actor, AuditEntry, Search
from sparrowmq.coordinator.records.findings import Finding
from sparrowmq.coordinator.services.groups import limits
from sparrowmq.coordinator.services.groups.limits import Limit
from sparrowmq.coordinator.services.housekeeping import repairs
from sparrowmq.coordinator.upkeep.consistency_rules import look
from sparrowmq.coordinator.upkeep.landscape import Landscape
from sparrowmq.coordinator.users import people
from sparrowmq.coordinator.users.people import PersonUpdate
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import BrokerError, RefusedError

ANN = Actor("ann", "it hurts")

DIFFERS = land(broker("a", [topic("T", 8)], []), broker("b", [topic("T", 4)], []))
MISSING = land(broker("a", [], [group("g")]), broker("b", [], []))
UNKNOWN = land(broker("a", [], []), listed={"n1": {"gone"}})
LEFT = land(broker("a", [topic("T")], [], {("g", "gone", 0): 5, ("g", "T", 0): 1}))
BEYOND = land(broker("a", [topic("T")], [group("g")], {("g", "T", 0): 9}), ends={("T", "a", 0): (0, 5)})


def found(database: Database, seen: Landscape, **rows: Any) -> int:
    """The number of the first finding of a landscape, stored as by the service."""
    with database.write() as connection:
        findings.replace(connection, "consistency", look(seen, **rows))
        return findings.search(connection)[0].id


def run(database: Database, survey: MadeUpSurvey, number: int) -> Mapping[str, Any]:
    return asyncio.run(repairs.run(database, survey, number, ANN, lambda connection: None))


def entries(database: Database) -> list[AuditEntry]:
    with database.read() as connection:
        return audit.search(connection, Search())[::-1]


@pytest.mark.parametrize(
    ("seen", "call", "thing", "after"),
    [
        (DIFFERS, "put_topic", ("topic", "T"), ("config", "readQueueNums", 8)),
        (MISSING, "put_group", ("group", "g"), ("config", "groupName", "g")),
        (UNKNOWN, "unlist_topic", ("topic", "gone"), ("listed", None, [])),
        (LEFT, "clear_topic", ("topic", "gone"), ("offsets", None, {})),
        (BEYOND, "set_offset", ("group", "g"), ("offset", None, 5)),
    ],
    ids=["topic", "group", "unlist", "clear", "offset"],
)
def test_repair_runs_once_and_is_audited_before_and_after(
    database: Database,
    seen: Landscape,
    call: str,
    thing: tuple[str, str],
    after: tuple[str, str | None, object],
) -> None:
    survey = MadeUpSurvey()
    survey.land = seen
    number = found(database, replace(seen, listed=seen.listed if call == "unlist_topic" else {}))
    done = run(database, survey, number)
    name, member, value = after
    assert (done["after"][name][member] if member else done["after"][name]) == value
    assert survey.done == [call]
    begin, end = entries(database)
    assert (begin.action, end.action, begin.actor, end.reason) == (
        "repair.begin",
        "repair.done",
        "ann",
        "it hurts",
    )
    assert (begin.kind, begin.object) == (end.kind, end.object) == thing
    assert (begin.before, end.before, end.after) == (done["before"], done["before"], done["after"])
    assert begin.after["finding"] == number
    with pytest.raises(RefusedError, check=about(status=404, what="finding", value=number)):
        run(database, survey, number)
    assert [one for one in look(survey.land) if one.kind != "topic-not-listed" and one.repair] == []


@pytest.mark.parametrize(
    ("seen", "now", "what"),
    [
        (BEYOND, land(broker("a", [topic("T")], [], {("g", "T", 0): 7})), "finding"),
        (BEYOND, land(failed={"a": "it is ill"}), "broker"),
        (BEYOND, land(), "broker"),
        (UNKNOWN, land(broker("b", [topic("gone")], [])), "topic"),
        (LEFT, land(broker("a", [topic("gone")], [])), "topic"),
    ],
)
def test_changed_finding_is_not_repaired(
    database: Database, seen: Landscape, now: Landscape, what: str
) -> None:
    survey = MadeUpSurvey()
    number = found(database, seen)
    survey.land = now
    with pytest.raises(RefusedError, check=about(status=409, what=what)):
        run(database, survey, number)
    assert (survey.done, entries(database)) == ([], [])


def test_refusing_or_ineffective_broker_is_reported_and_may_be_tried_again(database: Database) -> None:
    survey = MadeUpSurvey()
    survey.land = BEYOND
    number = found(database, BEYOND)
    survey.refuses = BrokerError(1, "no", address="a", request="commit")
    with pytest.raises(RefusedError, check=about(status=502, what="finding", __cause__=survey.refuses)):
        run(database, survey, number)
    survey.refuses, survey.deaf = None, True
    with pytest.raises(RefusedError, check=about(status=502, what="repair")):
        run(database, survey, number)
    survey.deaf = False
    assert run(database, survey, number)["after"] == {"offset": 5}
    assert [one.action for one in entries(database)] == [
        "repair.begin", "repair.failed", "repair.begin", "repair.failed", "repair.begin", "repair.done",
    ]  # fmt: skip


def test_rows_about_missing_objects_are_deleted_in_one_transaction(database: Database) -> None:
    with database.write() as connection:
        people.add(connection, "bob", "x", PersonUpdate(), Actor("ann"))
        people.grant(connection, "bob", ("topic", "old"), "owner", Actor("ann"))
        limits.put(connection, "left", "*", Limit(1, 1), Actor("ann"))
    before, survey = len(entries(database)), MadeUpSurvey()
    number = found(database, land(), roles={("topic", "old", "bob")}, limits={("left", "*")})
    run(database, survey, number)
    with database.read() as connection:
        (left,) = findings.search(connection)
        assert people.get(connection, "bob").objects == {}
    run(database, survey, left.id)
    with database.read() as connection:
        assert limits.read(connection) == {}
        assert findings.search(connection) == []
    assert [(one.action, one.reason) for one in entries(database)[before:]] == [
        ("revoke", "it hurts"),
        ("limit", "it hurts"),
    ]


def test_impossible_deletion_leaves_the_finding(database: Database) -> None:
    number = found(database, land(), limits={("left", "*")})
    with pytest.raises(RefusedError, check=about(status=404, what="limit")):
        run(database, MadeUpSurvey(), number)
    with database.read() as connection:
        assert findings.one(connection, number).repairing_at == 0


def test_every_action_names_its_right_and_its_effect(database: Database) -> None:
    rows: dict[str, Any] = {"roles": {("group", "left", "bob")}, "limits": {("left", "*")}}
    with database.write() as connection:
        for index, seen in enumerate((DIFFERS, MISSING, UNKNOWN, LEFT, BEYOND, land())):
            findings.replace(connection, f"s{index}", look(seen, **(rows if index == 5 else {})))
        proposed = [row for row in findings.search(connection) if row.finding.repair]
    needs = {row.finding.repair.action: repairs.needs(row) for row in proposed if row.finding.repair}
    assert needs == {
        "set-topic": (RoleRight.EDIT, [("topic", "T")]),
        "set-group": (RoleRight.EDIT, [("group", "g")]),
        "unlist-topic": (RoleRight.OPERATE, [("topic", "gone")]),
        "clear-topic": (RoleRight.OPERATE, [("topic", "gone")]),
        "set-offset": (RoleRight.EDIT, [("group", "g")]),
        "drop-role": (RoleRight.ADMINISTER, [("group", "left")]),
        "drop-limit": (RoleRight.EDIT, [("group", "left")]),
    }
    assert set(needs) == set(repairs.ACTIONS)
    words = [repairs.words(row.finding.repair) for row in proposed if row.finding.repair]
    assert "commit offset 5 for g on queue 0 of T on a" in words
    assert "delete all offsets of the topic gone on a" in words


def test_finding_without_a_repair_is_left_to_users(database: Database) -> None:
    with database.write() as connection:
        findings.replace(connection, "s", [Finding("k", "x", "n2 does not list T")])
        row = findings.search(connection)[0]
    with pytest.raises(RefusedError, check=about(status=409, what="repair")):
        repairs.needs(row)
