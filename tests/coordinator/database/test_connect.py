from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import event, insert, select, text
from tests.support import about, run, sqlite_url

from sparrowmq.coordinator.database import connect
from sparrowmq.coordinator.database.connect import CONNECTIONS_MAX, Database
from sparrowmq.coordinator.database.tables import lease
from sparrowmq.core.errors import (
    DatabaseBusyError,
    DatabaseError,
    DatabaseFullError,
    DatabaseGoneError,
    SettingsError,
)


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("sqlite:////tmp/x.db", "sqlite+pysqlite"),
        ("postgresql://me:secret@host/mq", "postgresql+psycopg"),
        ("postgres://me:secret@host/mq", "postgresql+psycopg"),
        ("mysql://me:secret@host/mq", "mysql+pymysql"),
        ("mariadb://me:secret@host/mq", "mysql+pymysql"),
        ("postgresql://host/mq?user=me&password=secret", "postgresql+psycopg"),
    ],
)
def test_driver_need_not_be_named_and_the_password_is_never_shown(url: str, driver: str) -> None:
    database = Database(url)
    try:
        assert database.where.startswith(driver)
        assert "secret" not in repr(database)
    finally:
        database.close()


@pytest.mark.parametrize(
    ("url", "value"),
    [("oracle://x", "oracle"), ("no address", None)],
)
def test_other_addresses_are_refused(url: str, value: str | None) -> None:
    with pytest.raises(SettingsError, check=about(setting="databaseUrl", value=value)):
        Database(url)


def test_error_for_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(DatabaseError, check=about(what="postgres")):
        Database("postgresql://me@host/mq")


def test_time_advances_inside_a_transaction(database: Database) -> None:
    with database.read() as connection:
        first = database.now(connection)
        assert abs(first - time.time() * 1000) < 60_000
        while database.now(connection) == first:
            pass


def test_transaction_is_stored_completely_or_not_at_all(database: Database) -> None:
    def add(name: str) -> None:
        with database.write() as connection:
            connection.execute(insert(lease).values(service=name))
            assert name != "b"

    add("a")
    with pytest.raises(AssertionError):
        add("b")
    with database.read() as connection:
        assert list(connection.execute(select(lease.c.service)).scalars()) == ["a"]


def test_readers_do_not_wait_for_a_writer(database: Database) -> None:
    with database.write() as writing:
        writing.execute(insert(lease).values(service="a"))
        with database.read() as reading:
            assert reading.execute(select(lease.c.service)).all() == []


def test_locked_database_is_reported(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    path = database.engine.url.database
    assert path is not None
    monkeypatch.setattr(connect, "WAIT_SECONDS", 0.05)
    other, impatient = sqlite3.connect(path), Database(f"sqlite:///{path}")
    other.execute("BEGIN IMMEDIATE")
    try:
        with (
            pytest.raises(DatabaseBusyError, check=about(retryable=True, limit=None)),
            impatient.write(),
        ):
            pass
    finally:
        other.close()
        impatient.close()


def test_writers_of_one_sqlite_file_wait_without_a_connection(tmp_path: Path) -> None:
    """SQLite lets new writers get ahead of those that wait, and reads need connections, too."""
    database = Database(sqlite_url(tmp_path / "c.db"))
    begun = threading.Semaphore(0)
    opened: list[object] = []
    event.listen(database.engine, "checkout", lambda *given: opened.append(given))

    def write() -> None:
        begun.release()
        with database.write() as connection:
            connection.execute(text("SELECT 1"))

    with ThreadPoolExecutor(2 * CONNECTIONS_MAX) as threads:
        with database.write():
            waiting = [threads.submit(write) for _ in range(2 * CONNECTIONS_MAX)]
            for _ in waiting:
                assert begun.acquire(timeout=10)
            for _ in range(CONNECTIONS_MAX):
                with database.read() as connection:
                    connection.execute(text("SELECT 1"))
            assert len(opened) == 1 + CONNECTIONS_MAX
        for one in waiting:
            one.result(10)
    database.close()


def test_writer_whose_turn_does_not_come_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "WAIT_SECONDS", 0)
    database = Database(sqlite_url(tmp_path / "c.db"))
    with (
        database.write(),
        pytest.raises(DatabaseBusyError, check=about(limit=0)),
        database.write(),
    ):
        pass
    database.close()


def test_full_database_is_reported_and_stores_nothing(database: Database) -> None:
    with database.read() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()

    def fill() -> None:
        with database.write() as connection:
            connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 2}")
            for number in range(10_000):
                connection.execute(insert(lease).values(service=f"{number:060}"))

    with pytest.raises(DatabaseFullError):
        fill()
    with database.read() as connection:
        assert connection.execute(select(lease)).all() == []


def test_missing_database_is_reported(tmp_path: Path) -> None:
    database = Database(sqlite_url(tmp_path / "no" / "such" / "folder.db"))
    try:
        with pytest.raises(DatabaseGoneError), database.read():
            pass
    finally:
        database.close()


def test_error_for_an_invalid_database_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"something else entirely, and long enough to be looked at as a header" * 20)
    database = Database(sqlite_url(path))
    try:
        with pytest.raises(DatabaseError, match="file is not a database"), database.read():
            pass
    finally:
        database.close()


def test_invalid_statement_is_not_treated_as_temporary_error(database: Database) -> None:
    with (
        pytest.raises(DatabaseError, match="rejected the statement") as caught,
        database.read() as connection,
    ):
        connection.execute(text("SELECT nonsense"))
    assert not caught.value.retryable


def test_calls_do_not_block_the_loop(database: Database) -> None:
    async def main() -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        assert await database.run(lambda: time.sleep(0.05) or "done") == "done"
        counting.cancel()
        assert turns > 10

    run(main())


def test_start_without_the_coordinator_loads_none_of_it() -> None:
    """The broker's process stays as small as before."""
    code = (
        "import sys, sparrowmq.runtime.process, sparrowmq.cli.main\n"
        "found = [n for n in sys.modules if n.split('.')[0] in ('sqlalchemy', 'fastapi', 'uvicorn')"
        " or n.startswith('sparrowmq.coordinator')]\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
