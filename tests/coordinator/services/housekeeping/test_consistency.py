from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.coordinator.services.surveyed import MadeUpSurvey
from tests.coordinator.services.watched import step
from tests.coordinator.upkeep.lands import broker, group, land, topic
from tests.support import about

from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.machine import AlarmState
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.records import findings
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.coordinator.services.groups import limits
from sparrowmq.coordinator.services.groups.limits import Limit
from sparrowmq.coordinator.services.housekeeping.consistency import RULE, Consistency
from sparrowmq.coordinator.upkeep import consistency_rules
from sparrowmq.coordinator.users import people
from sparrowmq.coordinator.users.people import PersonUpdate
from sparrowmq.core.errors import CoordinatorError

GOOD = land(broker("a", [topic("T")], [group("g")]), broker("b", [topic("T")], [group("g")]))
BAD = land(broker("a", [topic("T")], [group("g")]), broker("b", [topic("T", 2)], [group("g")]))


def kinds(database: Database) -> list[str]:
    with database.read() as connection:
        return [row.finding.kind for row in findings.search(connection, repairs=True)]


def firing(database: Database) -> list[tuple[str, str]]:
    with database.read() as connection:
        return [(row.key, row.topic) for row in table.search(connection, [AlarmState.FIRING], rule=RULE)]


def test_finding_is_shown_at_once_and_fires_at_the_second_check(database: Database) -> None:
    survey = MadeUpSurvey()
    service = Consistency(survey, Channels())
    survey.land = GOOD
    assert step(database, service).counts == {
        "brokers": 2, "failed": 0, "seen": 0, "new": 0, "gone": 0, "fired": 0, "resolved": 0,
    }  # fmt: skip
    survey.land = BAD
    assert step(database, service).counts["new"] == 1
    assert (kinds(database), firing(database)) == (["topic-differs"], [])
    step(database, service)
    assert firing(database) == [("topic-differs T", "T")]
    survey.land = GOOD
    assert step(database, service).counts["resolved"] == 1
    assert (kinds(database), firing(database)) == ([], [])


def test_tables_are_compared_in_a_thread(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of thousands of groups take 50 ms and more."""
    look, threads = consistency_rules.look, list[int]()

    def noted(*given: Any) -> Sequence[findings.Finding]:
        threads.append(threading.get_ident())
        return look(*given)

    monkeypatch.setattr(consistency_rules, "look", noted)
    survey = MadeUpSurvey()
    survey.land = GOOD
    step(database, Consistency(survey, Channels()), checks=1)
    assert threads and threading.get_ident() not in threads


def test_nothing_counts_as_resolved_while_a_broker_fails(database: Database) -> None:
    survey = MadeUpSurvey()
    service = Consistency(survey, Channels())
    survey.land = BAD
    step(database, service, checks=1)
    survey.land = replace(BAD, brokers=BAD.brokers[:1], failed={"b": "it is ill"})
    report = step(database, service, checks=1)
    assert (report.message, report.counts["failed"]) == ("it is ill", 1)
    assert (kinds(database), firing(database)) == (["topic-differs"], [("topic-differs T", "T")])
    survey.land = land(failed={"a": "it is ill"})
    with pytest.raises(CoordinatorError, check=about(what="broker", value="it is ill")):
        step(database, service)


def test_many_queues_of_a_group_are_one_alarm_or_none(database: Database) -> None:
    survey = MadeUpSurvey()
    service = Consistency(survey, Channels())
    survey.land = land(
        broker("a", [topic("T")], [group("g")], {("g", "T", number): 1 for number in range(8)}),
        ends={("T", "a", number): (5, 9) for number in range(8)},
    )
    assert step(database, service, checks=1, alarms=0).counts["new"] == 8
    assert firing(database) == []
    assert step(database, service, checks=1).counts["fired"] == 1
    with database.read() as connection:
        (row,) = table.search(connection, [AlarmState.FIRING])
    assert (row.key, row.group) == ("offset-below g T", "g")
    assert row.text.startswith("g on queue 0 of T on a: 4 messages were deleted")
    assert row.text.endswith("; and 7 more")


def test_database_is_compared_too(database: Database) -> None:
    survey = MadeUpSurvey()
    survey.land = GOOD
    with database.write() as connection:
        people.add(connection, "bob", "x", PersonUpdate(), Actor("ann"))
        for name in ("T", "gone"):
            people.grant(connection, "bob", ("topic", name), "owner", Actor("ann"))
        limits.put(connection, "left", "*", Limit(1, 1), Actor("ann"))
    step(database, Consistency(survey, Channels()))
    assert kinds(database) == ["role-of-nothing", "limit-of-nothing"]
