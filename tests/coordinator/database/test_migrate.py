"""Migrations up and down. `tests/databases` runs the same tests on PostgreSQL and MariaDB."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from sparrowmq.coordinator.database import migrate
from sparrowmq.coordinator.database.connect import Database, sqlite_url
from sparrowmq.coordinator.database.tables import VERSION_TABLE, metadata
from sparrowmq.core.errors import DatabaseVersionError


@pytest.fixture
def fresh_url(tmp_path: Path) -> str:
    return sqlite_url(tmp_path / "fresh.db")


@pytest.fixture
def fresh(fresh_url: str) -> Iterator[Database]:
    database = Database(fresh_url)
    yield database
    database.close()


def tables(database: Database) -> set[str]:
    with database.read() as connection:
        return set(inspect(connection).get_table_names()) - {VERSION_TABLE}


def test_up_gives_the_tables_this_release_writes(fresh: Database) -> None:
    assert migrate.upgrade(fresh) == migrate.newest()
    migrate.check(fresh)
    assert tables(fresh) == set(metadata.tables)
    with fresh.read() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
        )
        assert compare_metadata(context, metadata) == []


def test_up_and_down_and_up_again(fresh: Database) -> None:
    migrate.upgrade(fresh)
    assert migrate.upgrade(fresh) == migrate.newest()
    assert migrate.downgrade(fresh, "base") == "base"
    assert tables(fresh) == set()
    with pytest.raises(DatabaseVersionError, match="has no tables yet; type: sparrow coordinator migrate"):
        migrate.check(fresh)
    assert migrate.upgrade(fresh) == migrate.newest()


def test_an_upgrade_that_broke_off_goes_on(fresh: Database) -> None:
    """MySQL keeps the tables that were made before."""
    migrate.upgrade(fresh)
    with fresh.write() as connection:
        connection.execute(text(f"DELETE FROM {VERSION_TABLE}"))
        connection.execute(text("DROP TABLE audit"))
    migrate.upgrade(fresh)
    assert tables(fresh) == set(metadata.tables)


def test_several_at_once_migrate_one_after_the_other(fresh_url: str) -> None:
    databases = [Database(fresh_url) for _ in range(3)]
    try:
        with ThreadPoolExecutor(3) as threads:
            assert set(threads.map(migrate.upgrade, databases)) == {migrate.newest()}
    finally:
        for database in databases:
            database.close()


@pytest.mark.parametrize("call", [migrate.check, migrate.upgrade])
def test_a_database_of_a_newer_release_is_refused_and_left_as_it_is(fresh: Database, call: object) -> None:
    assert callable(call)
    migrate.upgrade(fresh)
    with fresh.write() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(
        DatabaseVersionError, match="has the tables 9999 of a newer SparrowMQ; this one knows"
    ):
        call(fresh)
    assert tables(fresh) == set(metadata.tables)


def test_a_revision_that_is_none_is_refused_with_those_there_are(fresh: Database) -> None:
    with pytest.raises(DatabaseVersionError, match=r"there is no revision 'nonsense'.*known:"):
        migrate.upgrade(fresh, "nonsense")


def test_older_tables_are_named(fresh: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    migrate.upgrade(fresh)
    monkeypatch.setattr(migrate, "newest", lambda: "0999")
    with pytest.raises(DatabaseVersionError, match=r"has the tables \d{4}, this release needs 0999"):
        migrate.check(fresh)
