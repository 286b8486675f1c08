from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.coordinator.upkeep.logs import (
    DAY_MS,
    HOUR_MS,
    BrokerLog,
    CleaningRules,
    Held,
    LogSample,
    about_when,
    complete,
    local_hour,
    position_at,
    rate,
    spare,
    time_at,
)


def sample(at: int, log_max: int, log_min: int = 0) -> LogSample:
    return LogSample(at, log_min, log_max, 1000, 500)


THREE = [sample(100, 1000), sample(200, 3000), sample(400, 3000)]


@pytest.mark.parametrize(
    ("at", "position"), [(99, None), (100, 1000), (150, 2000), (200, 3000), (300, 3000), (999, 3000)]
)
def test_positions_between_samples_are_interpolated(at: int, position: int | None) -> None:
    assert position_at(THREE, at) == position


@pytest.mark.parametrize(
    ("position", "at_latest", "about"),
    [(1000, None, None), (1001, 200, 100), (2000, 200, 150), (3000, 200, 200), (3001, None, None)],
)
def test_position_was_reached_at_the_latest_at_the_next_sample(
    position: int, at_latest: int | None, about: int | None
) -> None:
    assert (time_at(THREE, position), about_when(THREE, position)) == (at_latest, about)
    assert time_at([], position) is None


def test_log_is_known_from_its_oldest_message_to_its_last_sample() -> None:
    log = BrokerLog("b", "h", CleaningRules(), sample(900, 9000, 2000), earliest_ms=50)
    assert complete(log, [sample(500, 6000, 1000), sample(300, 5000)]) == [
        LogSample(50, 2000, 2000, 1000, 500),
        sample(300, 5000),
        sample(500, 6000, 1000),
        sample(900, 9000, 2000),
    ]
    assert complete(log, [sample(950, 9000)])[-1] == sample(950, 9000), "a sample of the future is the last"
    fresh = BrokerLog("b", "h", CleaningRules(), sample(900, 700))
    assert complete(fresh, [sample(300, 5000), sample(800, 600)]) == [sample(800, 600), sample(900, 700)]


def test_growth_is_computed_from_the_samples_since() -> None:
    hours = [sample(n * HOUR_MS, n * 100) for n in range(5)]
    assert rate(hours, 0) == 100
    assert rate([*hours, sample(5 * HOUR_MS, 1400)], 4 * HOUR_MS) == 1000
    assert rate(hours, 4 * HOUR_MS) == rate(hours[:1], 0) == rate([], 0) == 0


@given(st.lists(st.integers(0, 20 * DAY_MS), max_size=60), st.integers(24, 400))
def test_samples_are_kept_for_a_day_and_before_it_one_per_hour(times: list[int], keep_hours: int) -> None:
    now = 20 * DAY_MS
    gone = set(spare(list(enumerate(times)), now, keep_hours))
    kept = [at for number, at in enumerate(times) if number not in gone]
    assert all(at >= now - keep_hours * HOUR_MS for at in kept)
    assert sorted(at for at in times if at >= now - DAY_MS) == sorted(at for at in kept if at >= now - DAY_MS)
    older = [at // HOUR_MS for at in kept if at < now - DAY_MS]
    assert len(older) == len(set(older))
    assert set(older) == {at // HOUR_MS for at in times if now - keep_hours * HOUR_MS <= at < now - DAY_MS}


def test_holds_count_until_they_expire() -> None:
    log = BrokerLog(
        "b",
        "h",
        CleaningRules(),
        sample(1, 1),
        holds=(Held("t", "g", 40, ends_ms=100), Held("u", "g", 20, ends_ms=60)),
    )
    assert [log.held_ms(at) for at in (50, 60, 99, 100)] == [20, 40, 40, None]


def test_hours_are_local() -> None:
    assert local_hour(0) == time.localtime(0).tm_hour
