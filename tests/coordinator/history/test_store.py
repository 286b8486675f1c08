"""The tables of recorded figures. `tests/databases` runs the same tests on PostgreSQL and MariaDB."""

from __future__ import annotations

import math

from sqlalchemy import func, select

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import history_block
from sparrowmq.coordinator.history import store
from sparrowmq.coordinator.history.grains import DAY_MS, HOUR_MS, MINUTES, QUARTERS, SECONDS, Figure, Series

NOW = 1000 * DAY_MS
LAG = Series(Figure.GROUP_LAG, "billing")
RATE = Series(Figure.TOPIC_IN, "Orders")


def begun(database: Database, *some: Series, limit: int = 1000) -> dict[Series, int]:
    with database.write() as connection:
        known = store.series(connection)
        return known | store.add(connection, known, set(some) - known.keys(), NOW, limit)


def test_series_get_the_lowest_free_numbers_up_to_the_limit(database: Database) -> None:
    first = begun(database, LAG, RATE)
    assert sorted(first.values()) == [0, 1]
    third = Series(Figure.GROUP_LAG, "third")
    assert third not in begun(database, third, limit=2)
    assert begun(database, third)[third] == 2
    with database.read() as connection:
        assert store.series(connection) == begun(database)
        assert store.numbers(connection, [LAG, Series(Figure.TOPIC_IN, "billing")]) == {LAG: first[LAG]}


def test_names_are_distinguished_by_every_character(database: Database) -> None:
    some = [Series(Figure.GROUP_LAG, name) for name in ("a", "A", "a ")]
    assert len(set(begun(database, *some).values())) == 3
    with database.read() as connection:
        assert store.numbers(connection, some[:1]).keys() == set(some[:1])


def test_series_are_found_by_a_prefix_of_their_names(database: Database) -> None:
    begun(database, *(Series(Figure.QUEUE_LAG, name) for name in ("g_ T/a/0", "g_ T/a/1", "gx T/a/0")), LAG)
    with database.read() as connection:
        assert list(store.named(connection, Figure.QUEUE_LAG, "g_ ")) == ["g_ T/a/0", "g_ T/a/1"]
        assert list(store.named(connection, Figure.GROUP_LAG)) == ["billing"]


def test_values_are_returned_in_order_and_unknown_ones_are_gaps(database: Database) -> None:
    number = begun(database, LAG)[LAG]
    slot = SECONDS.slot(NOW)
    with database.write() as connection:
        store.put(connection, SECONDS, {number: {slot - 1: 7.0, slot - 61: 5.0}})
        store.put(connection, SECONDS, {number: {slot - 3: 6.0}})
        found = store.read(connection, SECONDS, [number, 999], NOW)
    assert len(found[number]) == len(found[999]) == 360
    assert {place: value for place, value in enumerate(found[number]) if value == value} == {
        299: 5.0,
        357: 6.0,
        359: 7.0,
    }
    assert all(math.isnan(value) for value in found[999])


def test_coarse_step_is_computed_from_the_fine_ones(database: Database) -> None:
    known = begun(database, LAG, RATE)
    minute = MINUTES.slot(NOW)
    values = {minute * 6 - 6 + step: float(step) for step in range(6)}
    with database.write() as connection:
        store.put(connection, SECONDS, {known[LAG]: values, known[RATE]: values})
        store.fold(connection, SECONDS, MINUTES, range(minute - 2, minute), known)
        store.fold(connection, MINUTES, QUARTERS, range(QUARTERS.slot(NOW) - 1, QUARTERS.slot(NOW)), known)
        minutes = store.read(connection, MINUTES, known.values(), NOW)
        quarters = store.read(connection, QUARTERS, known.values(), NOW)
    assert minutes[known[LAG]][-1] == quarters[known[LAG]][-1] == 5.0
    assert minutes[known[RATE]][-1] == quarters[known[RATE]][-1] == 2.5
    assert math.isnan(minutes[known[LAG]][-2]) and math.isnan(quarters[known[LAG]][-2])


def test_last_known_value_is_found_within_a_few_steps(database: Database) -> None:
    known = begun(database, LAG, RATE)
    slot = SECONDS.slot(NOW)
    with database.write() as connection:
        store.put(
            connection, SECONDS, {known[LAG]: {slot - 2: 3.0, slot - 4: 9.0}, known[RATE]: {slot - 9: 1.0}}
        )
        assert store.latest(connection, SECONDS, known.values(), NOW, 5) == {known[LAG]: 3.0}


def test_expired_values_are_deleted_and_their_number_is_free_again(database: Database) -> None:
    known = begun(database, LAG)
    with database.write() as connection:
        for grain in (SECONDS, MINUTES, QUARTERS):
            first = grain.slot(NOW - grain.keep_ms)
            store.put(connection, grain, {known[LAG]: {first: 1.0, first - grain.points - 1: 1.0}})
        assert store.forget(connection, NOW) == {"blocks deleted": 3, "series deleted": 0}
        assert store.size(connection)[:2] == (1, 3)
        assert store.forget(connection, NOW + 31 * DAY_MS + 1)["series deleted"] == 1
        assert store.forget(connection, NOW + 40 * DAY_MS)["blocks deleted"] == 0
        assert connection.execute(select(func.count()).select_from(history_block)).scalar_one() == 0
    assert begun(database, RATE)[RATE] == 0


def test_unexpired_values_stay(database: Database) -> None:
    known = begun(database, LAG)
    with database.write() as connection:
        store.seen(connection, known.values(), NOW + 31 * DAY_MS)
        assert store.forget(connection, NOW + 32 * DAY_MS)["series deleted"] == 0


def test_round_is_one_row_per_64_series_not_per_value(database: Database) -> None:
    known = begun(database, *(Series(Figure.TOPIC_IN, f"T{number}") for number in range(130)))
    with database.write() as connection:
        for step in range(3):
            slot = SECONDS.slot(NOW - HOUR_MS // 2) // 60 * 60 + step
            store.put(connection, SECONDS, {number: {slot: 1.0} for number in known.values()})
        assert store.size(connection)[:2] == (130, 3)
