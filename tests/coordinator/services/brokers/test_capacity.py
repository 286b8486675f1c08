from __future__ import annotations

from typing import Any

import pytest
from tests.coordinator.services.surveyed import MadeUpSurvey
from tests.coordinator.services.watched import step
from tests.support import about

from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.machine import AlarmState
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.records import findings
from sparrowmq.coordinator.services.brokers import history
from sparrowmq.coordinator.services.brokers.capacity import KIND, Capacity, conditions, forecasts, found
from sparrowmq.coordinator.upkeep.logs import HOUR_MS, BrokerLog, CleaningRules, DiskSurvey, LogSample
from sparrowmq.core.errors import CoordinatorError

NOW = 1000 * 24 * HOUR_MS
GIB = 1 << 30
RULES = CleaningRules(reserved_hours=10_000)


def log(
    free: int, *, at: int = NOW, end: int = 40 * GIB, name: str = "a", total: int = 100 * GIB
) -> BrokerLog:
    return BrokerLog(name, "h", RULES, LogSample(at, 0, end, total, free))


def firing(database: Database) -> list[str]:
    with database.read() as connection:
        return [row.text for row in table.search(connection, [AlarmState.FIRING])]


@pytest.mark.proves("pmq:T4")
@pytest.mark.parametrize(("free", "fires"), [(0, True), (14 * GIB, True), (15 * GIB, False)])
def test_full_disk_fires_at_once(free: int, fires: bool) -> None:
    (disk,) = forecasts(DiskSurvey([log(free)]), {}, KIND.defaults())
    assert bool(conditions([disk], 24)) is fires


def test_disk_that_fills_within_the_forecast_fires() -> None:
    kept = {"a": [LogSample(NOW - HOUR_MS, 0, 39 * GIB, 100 * GIB, 36 * GIB)]}
    options = KIND.defaults() | {"overhead_percent": 0}
    (disk,) = forecasts(DiskSurvey([log(35 * GIB)]), kept, options)
    assert (disk.early_in, disk.full_in, disk.first) == (21, 26, 21)
    assert conditions([disk], 20) == []
    (one,) = conditions([disk], 21)
    assert one.text == (
        "the disk of a on h: messages will be deleted before their retention time in 21 hours and it will "
        "refuse messages "
        "in 26 hours unless space is freed; the log grows by 1.0 GiB an hour, 35.0 GiB is free"
    )
    shown = found(disk)
    assert (shown.key, shown.numbers["full_in"], shown.numbers["first_in"]) == ("h a", 26, 21)


def test_unlimited_disk_is_reported_so() -> None:
    (disk,) = forecasts(DiskSurvey([log(90 * GIB)]), {}, KIND.defaults())
    assert (
        found(disk).text
        == "the disk of a on h: enough for 30 days; the log grows by 0 B an hour, 90.0 GiB is free"
    )


def test_samples_are_stored_and_the_alarm_fires_and_ends(database: Database) -> None:
    survey = MadeUpSurvey()
    service = Capacity(survey, Channels())
    survey.sight = DiskSurvey([log(90 * GIB, at=NOW - HOUR_MS, end=39 * GIB)])
    assert step(database, service, checks=1).counts["fired"] == 0
    survey.sight = DiskSurvey([log(20 * GIB)])
    report = step(database, service, checks=1)
    assert (report.counts["disks"], report.counts["fired"], report.counts["untold"]) == (1, 1, 0)
    assert "the log grows by 1.0 GiB an hour" in firing(database)[0]
    with database.read() as connection:
        assert len(history.read(connection)["a"]) == 2
        assert [row.finding.kind for row in findings.search(connection)] == ["disk"]
    survey.sight = DiskSurvey([log(90 * GIB, at=NOW + 30 * HOUR_MS)])
    assert step(database, service, checks=1).counts["resolved"] == 1


def test_failing_broker_ends_no_alarm_and_one_without_a_size_is_counted(database: Database) -> None:
    survey = MadeUpSurvey()
    service = Capacity(survey, Channels())
    survey.sight = DiskSurvey([log(0)])
    step(database, service, checks=1)
    silent: dict[str, Any] = {"total": 0, "name": "b"}
    survey.sight = DiskSurvey([log(0, **silent)], {"a": "it is ill"})
    report = step(database, service, checks=1)
    assert (report.message, report.counts["untold"], report.counts["resolved"]) == ("it is ill", 1, 0)
    assert len(firing(database)) == 1
    with database.read() as connection:
        assert len(findings.search(connection)) == 1
    survey.sight = DiskSurvey((), {"a": "it is ill"})
    with pytest.raises(CoordinatorError, check=about(what="broker", value="it is ill")):
        step(database, service)
