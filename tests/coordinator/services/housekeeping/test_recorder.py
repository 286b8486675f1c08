"""The service `history`. `tests/databases` runs the same tests on PostgreSQL and MariaDB."""

from __future__ import annotations

import math

import pytest
from sqlalchemy import insert
from tests.coordinator.services.flowing import MadeUpFlow, at, look, queue
from tests.coordinator.services.watched import step
from tests.support import about

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import service_run
from sparrowmq.coordinator.history import store
from sparrowmq.coordinator.history.grains import DAY_MS, MINUTES, QUARTERS, SECONDS, Figure, Grain, Series
from sparrowmq.coordinator.services.housekeeping import recorder
from sparrowmq.coordinator.services.housekeeping.recorder import Recorder, _kept, _Standing
from sparrowmq.core.errors import NoRouteError

LAG = Series(Figure.GROUP_LAG, "g")
NOW = 1000 * DAY_MS + 7 * 60_000


class Rounds:
    """Rounds of one leader, at times of the database's clock that the test sets."""

    def __init__(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self.database = database
        self.standing = _Standing(1)
        self.patch = monkeypatch

    def __call__(self, now: int, value: float | None, series_max: int = 100) -> dict[str, int]:
        from sqlalchemy import literal

        self.patch.setattr(recorder, "now_ms", lambda: literal(now))
        figures = {} if value is None else {LAG: value}
        with self.database.write() as connection:
            self.standing, counts = _kept(connection, self.standing, figures, series_max)
        return counts

    def values(self, grain: Grain, now: int) -> list[float]:
        with self.database.read() as connection:
            number = store.numbers(connection, [LAG])[LAG]
            return list(store.read(connection, grain, [number], now)[number])


@pytest.fixture
def rounds(database: Database, monkeypatch: pytest.MonkeyPatch) -> Rounds:
    return Rounds(database, monkeypatch)


def test_late_round_fills_the_steps_since_the_last_up_to_a_limit(rounds: Rounds) -> None:
    rounds(NOW, 1.0)
    rounds(NOW + 21_000, 2.0)
    rounds(NOW + 90_000, 3.0)
    found = rounds.values(SECONDS, NOW + 100_000)
    assert found[-10:-7] == [1.0, 2.0, 2.0]
    assert all(math.isnan(value) for value in found[-7:-3])
    assert found[-3:] == [3.0, 3.0, 3.0]


def test_minutes_and_quarters_are_computed_when_they_are_over(rounds: Rounds) -> None:
    for tick in range(6 * 20):
        rounds(NOW + tick * 10_000, float(tick))
    now = NOW + 20 * 60_000
    rounds(now, None)
    minutes = rounds.values(MINUTES, now)
    assert minutes[-20:] == [float(6 * minute + 5) for minute in range(20)]
    assert math.isnan(minutes[-21])
    assert rounds.values(QUARTERS, now)[-1] == 47.0, "until the quarter's end at 8 minutes"


def test_new_leader_computes_what_the_last_one_left(rounds: Rounds) -> None:
    for tick in range(6):
        rounds(NOW + tick * 10_000, 5.0)
    rounds.standing = _Standing(2)
    rounds(NOW + 4 * 60_000, None)
    assert rounds.values(MINUTES, NOW + 4 * 60_000)[-4] == 5.0


def test_series_beyond_the_bound_are_counted_and_omitted(rounds: Rounds, database: Database) -> None:
    with database.write() as connection:
        store.add(connection, {}, [Series(Figure.GROUP_LAG, "other")], NOW, 100)
    assert rounds(NOW, 1.0, series_max=1) == {
        "figures": 0,
        "left out": 1,
        "blocks deleted": 0,
        "series deleted": 0,
    }


def test_step_keeps_its_samples_and_reads_what_it_does_not_know(database: Database) -> None:
    flow = MadeUpFlow()
    flow.looks = [look(100.0, {"g": [at(queue(), 10, 4)]})]
    flow.stored = {queue(): 40_000}
    report = step(database, Recorder(flow))
    assert flow.asked == [(queue(), 4)]
    assert report.counts["figures"] == 3
    with database.read() as connection:
        numbers = store.series(connection)
        last = store.latest(connection, SECONDS, numbers.values(), database.now(connection), 5)
    assert {one: last[number] for one, number in numbers.items()} == {
        LAG: 6.0,
        Series(Figure.GROUP_AGE, "g"): 60.0,
        Series(Figure.QUEUE_LAG, "g T/a/0"): 6.0,
    }


def test_runs_of_services_are_recorded_even_without_answers(database: Database) -> None:
    flow = MadeUpFlow()
    flow.fails = NoRouteError("no name server")
    service = Recorder(flow)
    with pytest.raises(NoRouteError, check=about(args=("no name server",))):
        step(database, service)
    assert service._standing.run == 0
    with database.write() as connection:
        for outcome in ("done", "failed"):
            run = {"service": "lag-alarm", "epoch": 1, "started_at": 1000, "ended_at": 3500}
            connection.execute(insert(service_run).values(**run, outcome=outcome, counts="{}"))
        _kept(connection, service._standing, {}, 100)
        numbers = store.series(connection)
        last = store.latest(connection, SECONDS, numbers.values(), database.now(connection), 5)
    assert {one.figure.value: last[number] for one, number in numbers.items()} == {
        "service-took": 2.5,
        "service-failed": 1.0,
    }
