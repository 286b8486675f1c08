"""Samples in the database. `tests/databases` runs the same tests on PostgreSQL and MariaDB."""

from __future__ import annotations

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.services.brokers import history
from sparrowmq.coordinator.upkeep.logs import DAY_MS, HOUR_MS, BrokerLog, CleaningRules, LogSample


def look(at: int, name: str = "a") -> BrokerLog:
    return BrokerLog(name, "h", CleaningRules(), LogSample(at, 1, 2**40, 2**50, 2**49))


def keep(database: Database, *logs: BrokerLog, hours: int = 100) -> int:
    with database.write() as connection:
        return history.keep(connection, logs, hours)


def read(database: Database) -> dict[str, list[LogSample]]:
    with database.read() as connection:
        return history.read(connection)


def test_samples_are_stored_by_broker_in_order(database: Database) -> None:
    for at in (30, 10, 20):
        keep(database, look(at), look(at + 1, "b"))
    found = read(database)
    assert found["a"] == [look(at).now for at in (10, 20, 30)]
    assert [one.at for one in found["b"]] == [11, 21, 31]


def test_old_samples_are_thinned_and_those_of_removed_brokers_deleted(database: Database) -> None:
    with database.write() as connection:
        for quarter in range(16):
            history.keep(connection, [look(quarter * HOUR_MS // 4)], 100)
    keep(database, look(1, "gone"))
    assert keep(database, look(DAY_MS + 2 * HOUR_MS)) == 6
    assert keep(database, look(101 * HOUR_MS)) == 8
    found = read(database)
    assert [one.at // HOUR_MS for one in found["a"]] == [1, 2, 3, 26, 101]
    assert "gone" not in found
