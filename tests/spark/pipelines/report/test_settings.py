"""Days of time zones, and what a report can be asked."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from tests.support import about

from sparrowmq.core.errors import InvalidNameError, SettingsError
from sparrowmq.spark.pipelines.report.settings import HOUR_MS, Day, ReportSettings

BERLIN = "Europe/Berlin"
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()


def settings(**values: Any) -> ReportSettings:
    return ReportSettings(**{"directory": "report", "topics": ("T",), **values})


def test_days_are_those_of_the_zone() -> None:
    utc, berlin = Day(date(2026, 11, 21), "UTC"), Day(date(2026, 11, 21), BERLIN)
    assert utc.end - utc.start == 24 * HOUR_MS and utc.hours == 24
    assert utc.start - berlin.start == HOUR_MS
    assert Day.of(utc.start / 1000, "America/New_York").date == date(2026, 11, 20)
    assert str(utc) == "2026-11-21"


@pytest.mark.parametrize(
    ("day", "hours", "names"),
    [
        (date(2026, 3, 29), 23, ("01:00", "03:00")),
        (date(2026, 10, 25), 25, ("01:00", "02:00")),
        (date(2026, 6, 1), 24, ("01:00", "02:00")),
    ],
)
def test_days_on_which_clocks_change(day: date, hours: int, names: tuple[str, str]) -> None:
    berlin = Day(day, BERLIN)
    assert berlin.hours == hours
    assert (berlin.hour_name(1), berlin.hour_name(2)) == names


def test_which_days() -> None:
    assert [str(day) for day in settings().chosen(NOON)] == ["2026-11-20"]
    some = settings(day=date(2026, 11, 21), days=3).chosen(NOON)
    assert [str(day) for day in some] == ["2026-11-19", "2026-11-20", "2026-11-21"]
    with pytest.raises(SettingsError, check=about(setting="day")):
        settings(day=date(2026, 11, 22)).chosen(NOON)
    assert settings(day=date(2026, 11, 22), zone="Pacific/Auckland").chosen(NOON)


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"days": 0}, {"setting": "days", "value": 0}),
        ({"top": 5000}, {"setting": "top", "value": 5000}),
        ({"zone": "Mars/North"}, {"setting": "zone", "value": "Mars/North"}),
        ({"zone": "../etc"}, {"setting": "zone", "value": "../etc"}),
        ({"topics": ()}, {"setting": "topics"}),
        ({"live": False}, {"setting": "archive", "other": "live"}),
    ],
)
def test_what_is_wrong_is_said(values: dict[str, Any], facts: dict[str, object]) -> None:
    with pytest.raises(SettingsError, check=about(**facts)):
        settings(**values)
    with pytest.raises(InvalidNameError):
        settings(groups=("no group",))
