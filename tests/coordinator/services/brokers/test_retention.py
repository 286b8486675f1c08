from __future__ import annotations

from dataclasses import replace

import pytest
from tests.coordinator.services.surveyed import MadeUpSurvey
from tests.coordinator.services.watched import step
from tests.support import about

from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.machine import AlarmState
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.records import findings
from sparrowmq.coordinator.services.brokers import history, retention
from sparrowmq.coordinator.services.brokers.retention import Retention, cuts, losses
from sparrowmq.coordinator.upkeep.cleaning import Cut
from sparrowmq.coordinator.upkeep.landscape import Loss
from sparrowmq.coordinator.upkeep.logs import (
    HOUR_MS,
    BrokerLog,
    CleaningRules,
    DiskSurvey,
    Held,
    LogSample,
    local_hour,
)
from sparrowmq.core.errors import CoordinatorError

NOW = 1000 * 24 * HOUR_MS
ALWAYS = frozenset(range(24))
RULES = CleaningRules(reserved_hours=10, delete_hours=ALWAYS, file_bytes=100)


def log(
    begin: int = 0, *, at: int = NOW, end: int = 1000, name: str = "a", rules: CleaningRules = RULES
) -> BrokerLog:
    return BrokerLog(name, "h", rules, LogSample(at, begin, end, 1000, 900))


def grown(database: Database, *names: str) -> None:
    """A log that grows by 100 bytes an hour for ten hours."""
    with database.write() as connection:
        for hour in range(11):
            logs = [log(at=NOW - (20 - hour) * HOUR_MS, end=hour * 100, name=name) for name in names]
            history.keep(connection, logs, 1000)


def firing(database: Database, rule: str) -> list[str]:
    with database.read() as connection:
        return [row.text for row in table.search(connection, [AlarmState.FIRING], rule=rule)]


def test_messages_soon_to_be_lost_are_reported_by_group_and_topic_with_the_first_cleaning() -> None:
    cut_of = {"a": Cut(NOW + 5 * HOUR_MS, 1), "b": Cut(NOW + 2 * HOUR_MS, 1)}
    lost = [Loss("g", "T", "a", 30), Loss("g", "T", "b", 12), Loss("h", "T", "a", 1), Loss("g", "T", "c", 9)]
    two = losses(lost, cut_of, NOW)
    assert [(one.key, one.group, one.topic, one.numbers["messages"]) for one in two] == [
        ("g T", "g", "T", 42),
        ("h T", "h", "T", 1),
    ]
    assert two[0].text == (
        "the group g is about to lose 42 unread messages of the topic T in 2 hours, when a, b cleans"
    )
    assert "within the hour" in losses(lost, {"a": Cut(NOW + 5, 1)}, NOW)[0].text


def test_only_masters_that_clean_soon_are_queried() -> None:
    history_ = {name: [log(at=NOW - 20 * HOUR_MS, end=0).now] for name in ("a", "a#1", "b")}
    late = replace(RULES, delete_hours=frozenset({(local_hour(NOW) + 6) % 24}))
    sight = DiskSurvey([log(), log(name="a#1"), log(name="b", rules=late)])
    assert set(cuts(sight, history_, 24)) == {"a", "b"}
    assert set(cuts(sight, history_, 5)) == {"a"}


@pytest.mark.proves("pmq:2")
def test_lagging_group_is_warned_before_the_cleaning(database: Database) -> None:
    survey = MadeUpSurvey()
    service = Retention(survey, Channels())
    grown(database, "a")
    survey.sight = DiskSurvey([log()])
    survey.lost = [Loss("g", "T", "a", 7)]
    report = step(database, service)
    assert survey.cuts == {"a": NOW - 10 * HOUR_MS}, "all that is written will be 10 hours old in this hour"
    assert report.counts["messages"] == 7
    (text,) = firing(database, retention.LOSS)
    assert text.startswith("the group g is about to lose 7 unread messages of the topic T within the hour")
    survey.lost, survey.unread = [], {"g": "it is ill"}
    step(database, service)
    assert len(firing(database, retention.LOSS)) == 1, "nobody could look at the group"
    survey.unread = {}
    step(database, service)
    assert firing(database, retention.LOSS) == []
    with database.read() as connection:
        assert findings.search(connection) == []


def test_held_topics_lose_nothing(database: Database) -> None:
    survey = MadeUpSurvey()
    grown(database, "a")
    hold = Held("T", "g", NOW - 15 * HOUR_MS, ends_ms=NOW * 2)
    survey.sight = DiskSurvey([replace(log(), holds=(hold,))])
    step(database, Retention(survey, Channels()))
    assert survey.cuts == {"a": NOW - 15 * HOUR_MS}


def test_broker_that_did_not_clean_is_named_until_it_did(database: Database) -> None:
    survey = MadeUpSurvey()
    service = Retention(survey, Channels())
    grown(database, "a")
    survey.sight = DiskSurvey([log()])
    step(database, service)
    (text,) = firing(database, retention.OVERDUE)
    assert text.startswith("a keeps 100 bytes of log that expired 9 hours ago and should have been deleted")
    assert "fileReservedTime=10" in text
    survey.sight = DiskSurvey((), {"a": "it is ill"})
    with pytest.raises(CoordinatorError, check=about(what="broker", value="it is ill")):
        step(database, service)
    survey.sight = DiskSurvey([log(name="b")], {"a": "it is ill"})
    step(database, service)
    assert len(firing(database, retention.OVERDUE)) == 1
    survey.sight = DiskSurvey([log(900)])
    step(database, service)
    assert firing(database, retention.OVERDUE) == []


def test_broker_configured_to_clean_in_quiet_hours_is_named(database: Database) -> None:
    survey = MadeUpSurvey()
    survey.sight = DiskSurvey([log()])
    service = Retention(survey, Channels())
    step(database, service)
    assert firing(database, retention.QUIET) == []
    step(database, service, quiet_from=8, quiet_to=10)
    assert firing(database, retention.QUIET) == ["a: deleteWhen=08;09 is in the quiet hours from 8 to 10"]
    step(database, service)
    assert firing(database, retention.QUIET) == []
