from __future__ import annotations

import pytest
from sqlalchemy import update
from tests.coordinator.services.surveyed import MadeUpSurvey
from tests.coordinator.services.watched import step
from tests.support import about

from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.machine import AlarmState
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import object_use
from sparrowmq.coordinator.records import findings
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.coordinator.services.housekeeping.governance import Governance
from sparrowmq.coordinator.upkeep.landscape import Ends, Use
from sparrowmq.coordinator.upkeep.logs import DAY_MS
from sparrowmq.coordinator.users import people
from sparrowmq.coordinator.users.people import PersonUpdate
from sparrowmq.core.errors import CoordinatorError
from sparrowmq.core.message import MessageQueue

ANN = Actor("ann")


def use(*topics: str, queues: int = 4, **more: object) -> Use:
    ends = {
        name: [Ends(MessageQueue(name, "a", number), 0, 5) for number in range(queues)] for name in topics
    }
    return Use(ends, **more)  # type: ignore[arg-type]


def found(database: Database) -> list[tuple[str, str]]:
    with database.read() as connection:
        rows = findings.search(connection)
        alarms = table.search(connection, [AlarmState.FIRING])
    assert {(row.finding.kind, row.finding.key) for row in rows} == {(one.rule, one.key) for one in alarms}
    return [(row.finding.kind, row.finding.key) for row in rows]


def age(database: Database, days: int) -> None:
    """Make all remembered times this much older."""
    names = ("sent_at", "used_at", "day_at")
    with database.write() as connection:
        connection.execute(
            update(object_use).values({name: object_use.c[name] - days * DAY_MS for name in names})
        )


def test_topic_becomes_unused_and_used_again(database: Database) -> None:
    survey = MadeUpSurvey()
    service = Governance(survey, Channels())
    survey.used = use("T", "busy", readers={"busy": {"g": 1}}, groups={"g": True})
    counts = step(database, service).counts
    assert (counts["topics"], counts["groups"], counts["zombie-topic"]) == (2, 1, 0)
    age(database, 3)
    assert step(database, service).counts["zombie-topic"] == 1
    assert found(database) == [("zombie-topic", "topic T")]
    assert step(database, service, alarms=0).counts["zombie-topic"] == 1
    with database.read() as connection:
        assert table.search(connection, [AlarmState.FIRING]) == []
    survey.used = use("T", "busy", progress={"T": 1})
    step(database, service)
    assert found(database) == []


def test_disabled_or_deleted_owners_are_reported(database: Database) -> None:
    survey = MadeUpSurvey()
    service = Governance(survey, Channels())
    survey.used = use("T", groups={"g": False, "free": False})
    with database.write() as connection:
        for name in ("bob", "eve"):
            people.add(connection, name, "x", PersonUpdate(), ANN)
            people.grant(connection, name, ("topic", "T"), "owner", ANN)
        people.add(connection, "root", "x", PersonUpdate(role="admin"), ANN)
        people.grant(connection, "bob", ("group", "g"), "owner", ANN)
        people.grant(connection, "eve", ("group", "g"), "operator", ANN)
    step(database, service)
    assert found(database) == []
    with database.write() as connection:
        people.edit(connection, "bob", PersonUpdate(enabled=False), ANN)
    step(database, service)
    assert found(database) == [("owner-gone", "group g")]
    with database.write() as connection:
        people.remove(connection, "eve", ANN)
        people.remove(connection, "bob", ANN)
    step(database, service)
    assert found(database) == [("owner-gone", "group g"), ("owner-gone", "topic T")]
    assert step(database, service, need_owner=1).counts["no-owner"] == 1


def test_sizes_are_checked_and_deleted_objects_forgotten(database: Database) -> None:
    survey = MadeUpSurvey()
    service = Governance(survey, Channels())
    survey.used = use("wide", queues=32, readers={"wide": {"g": 1}})
    step(database, service)
    age(database, 1)
    assert step(database, service).counts["over-sized"] == 1
    assert step(database, service).counts["over-sized"] == 1, "the day before counts, a new one has no rate"
    survey.used = use("other")
    step(database, service)
    assert found(database) == []
    with database.read() as connection:
        assert [row.object for row in connection.execute(object_use.select())] == ["other"]


def test_unreadable_objects_keep_their_verdicts(database: Database) -> None:
    survey = MadeUpSurvey()
    service = Governance(survey, Channels())
    survey.used = use("T")
    step(database, service)
    age(database, 9)
    step(database, service)
    survey.used = use("U", failed={"T": "it is ill"})
    assert step(database, service).message == "it is ill"
    assert found(database) == [("zombie-topic", "topic T")]
    survey.used = Use(failed={"T": "it is ill"})
    with pytest.raises(CoordinatorError, check=about(what="topic", value="it is ill")):
        step(database, service)
