from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.store.log.retention import (
    HOUR_MS,
    NOTHING,
    Hold,
    LogFile,
    RetentionSettings,
    Unread,
    overrun,
    plan,
)

NOW = 1_700_000_000_000
SETTINGS = RetentionSettings()


def files(*ages: float) -> list[LogFile]:
    """Files last written so many hours ago, oldest first."""
    return [LogFile(number << 30, int(NOW - age * HOUR_MS)) for number, age in enumerate(ages)]


def count(
    found: list[LogFile], *, hour: int = 12, used: int = 10, manual: bool = False, **changes: object
) -> int:
    settings = dataclasses.replace(SETTINGS, **changes)
    return plan(settings, found, now_ms=NOW, hour=hour, used_percent=used, manual=manual).files


@pytest.mark.proves("broker:2.7")
def test_expired_files_are_deleted_in_their_hour() -> None:
    found = files(100, 80, 71.9, 80, 0)
    assert count(found) == 0
    assert count(found, hour=4) == 2
    assert count(found, hour=4, reserved_hours=71) == 4
    assert count(found, hour=16, delete_when=frozenset({4, 16})) == 2
    assert plan(SETTINGS, found, now_ms=NOW, hour=12, used_percent=10, manual=False) == NOTHING


@pytest.mark.proves("broker:2.7")
def test_manual_request_or_a_fuller_disk_deletes_at_any_hour() -> None:
    found = files(100, 80, 71.9, 80, 0)
    assert count(found, manual=True) == 2
    assert count(found, used=75) == 0
    assert count(found, used=76) == 2
    assert count(found, used=76, used_max=80) == 0


@pytest.mark.proves("broker:2.7")
def test_full_disk_deletes_files_of_any_age() -> None:
    found = files(100, 80, 2, 1, 0)
    assert count(found, used=85) == 2
    assert count(found, used=86) == 4
    assert count(found, used=86, forcibly=False) == 2
    assert count(found, used=99, forcibly_above=99) == 2
    forced = plan(SETTINGS, found, now_ms=NOW, hour=4, used_percent=91, manual=False)
    assert forced.forced
    assert "91 % full" in forced.reason


@pytest.mark.proves("broker:2.7")
def test_last_file_and_files_beyond_one_pass_stay() -> None:
    assert count(files(*range(200, 100, -1)), hour=4) == 10
    assert count(files(*range(200, 100, -1)), hour=4, batch_max=3) == 3
    assert count(files(500), used=99) == 0
    assert count([], used=99) == 0
    assert count(files(500, 400), used=99) == 1


def test_files_stay_when_the_clock_went_back() -> None:
    assert count(files(-50, -49, 0), hour=4) == 0
    assert count(files(-50, 100, 0), hour=4) == 0


@given(
    st.lists(st.integers(-10, 200), max_size=20),
    st.integers(0, 23),
    st.integers(0, 100),
    st.booleans(),
    st.booleans(),
)
def test_every_plan_follows_the_rules(
    ages: list[int], hour: int, used: int, manual: bool, forcibly: bool
) -> None:
    found = files(*ages)
    settings = dataclasses.replace(SETTINGS, forcibly=forcibly)
    made = plan(settings, found, now_ms=NOW, hour=hour, used_percent=used, manual=manual)
    assert 0 <= made.files <= min(10, max(0, len(found) - 1))
    assert bool(made.files) == bool(made.reason)
    if not (forcibly and used > 85):
        assert not made.forced
        assert all(age >= 72 for age in ages[: made.files])
        assert made.files == 0 or hour == 4 or used > 75 or manual


@pytest.mark.parametrize(
    ("held", "count"), [(None, 4), (4 << 30, 4), (3 << 30, 3), (1 << 30, 1), (1, 0), (0, 0)]
)
def test_held_files_stay_whatever_age_or_disk_usage(held: int | None, count: int) -> None:
    for used in (10, 99):
        found = plan(
            SETTINGS,
            files(100, 90, 80, 79, 0),
            now_ms=NOW,
            hour=4,
            used_percent=used,
            manual=False,
            held=held,
        )
        assert found.files == count


def test_holds_have_limits() -> None:
    hold = Hold(topic="T", group="g", hours=2, size_max=100)
    oldest = Unread(1000, NOW)
    assert overrun(hold, oldest, now_ms=NOW + 2 * HOUR_MS - 1, log_end=1100) == ""
    assert "2 hours" in overrun(hold, oldest, now_ms=NOW + 2 * HOUR_MS, log_end=1100)
    assert "101 bytes" in overrun(hold, oldest, now_ms=NOW, log_end=1101)
    assert overrun(Hold(topic="T", group="g", hours=2), oldest, now_ms=NOW, log_end=2**60) == ""
