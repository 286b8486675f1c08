"""Migrations up and down. `tests/databases` runs the same tests on PostgreSQL and MariaDB."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import delete, insert, inspect, select, text
from tests.support import about, sqlite_url

from sparrowmq.coordinator.database import migrate
from sparrowmq.coordinator.database.connect import Database
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


def test_upgrade_gives_the_tables_of_this_release(fresh: Database) -> None:
    assert migrate.upgrade(fresh) == migrate.newest()
    migrate.check(fresh)
    assert tables(fresh) == set(metadata.tables)
    with fresh.read() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
        )
        assert compare_metadata(context, metadata) == []


def test_revisions_are_those_of_alembic() -> None:
    scripts = ScriptDirectory(str(migrate.HOME))
    assert migrate.newest() == scripts.get_current_head()
    assert migrate.revisions() == {script.revision for script in scripts.walk_revisions()}


def test_alembic_is_imported_only_to_migrate(fresh: Database, fresh_url: str) -> None:
    """It takes megabytes. A coordinator looks at its tables when it starts, and again and again."""
    migrate.upgrade(fresh)
    program = f"""
import sys
import sparrowmq.coordinator.server
from sparrowmq.coordinator.database import migrate
from sparrowmq.coordinator.database.connect import Database
database = Database({fresh_url!r})
assert migrate.upgrade(database) == migrate.newest()
migrate.check(database)
database.close()
print(sorted({{"alembic", "mako", "pygments"}} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


def test_upgrade_downgrade_and_upgrade_again(fresh: Database) -> None:
    migrate.upgrade(fresh)
    assert migrate.upgrade(fresh) == migrate.newest()
    assert migrate.downgrade(fresh, "base") == "base"
    assert tables(fresh) == set()
    with pytest.raises(DatabaseVersionError, check=about(value=None, limit=migrate.newest())):
        migrate.check(fresh)
    assert migrate.upgrade(fresh) == migrate.newest()


def test_interrupted_upgrade_continues(fresh: Database) -> None:
    """MySQL keeps the tables that were already created."""
    migrate.upgrade(fresh)
    with fresh.write() as connection:
        connection.execute(text(f"DELETE FROM {VERSION_TABLE}"))
        connection.execute(text("DROP TABLE audit"))
        of = f" ON {metadata.tables['alarm'].name}" if fresh.kind == "mysql" else ""
        connection.execute(text(f"DROP INDEX ix_alarm_state{of}"))
    migrate.upgrade(fresh)
    assert tables(fresh) == set(metadata.tables)
    with fresh.read() as connection:
        assert "ix_alarm_state" in {found["name"] for found in inspect(connection).get_indexes("alarm")}


def test_simultaneous_migrations_run_one_after_the_other(fresh_url: str) -> None:
    databases = [Database(fresh_url) for _ in range(3)]
    try:
        with ThreadPoolExecutor(3) as threads:
            assert set(threads.map(migrate.upgrade, databases)) == {migrate.newest()}
    finally:
        for database in databases:
            database.close()


@pytest.mark.parametrize("call", [migrate.check, migrate.upgrade])
def test_database_of_a_newer_release_is_refused_and_unchanged(fresh: Database, call: object) -> None:
    assert callable(call)
    migrate.upgrade(fresh)
    with fresh.write() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(DatabaseVersionError, check=about(value="9999", limit=migrate.newest())):
        call(fresh)
    assert tables(fresh) == set(metadata.tables)


@pytest.mark.parametrize("call", [migrate.check, migrate.upgrade])
def test_database_of_a_development_version_is_refused(fresh: Database, call: object) -> None:
    assert callable(call)
    migrate.upgrade(fresh)
    with fresh.write() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '0005'"))
    with pytest.raises(DatabaseVersionError, check=about(value="0005")) as raised:
        call(fresh)
    assert "empty database" in str(raised.value)


def test_unknown_revision_is_refused_with_the_known_ones(fresh: Database) -> None:
    with pytest.raises(DatabaseVersionError, check=about(value="nonsense", limit=migrate.newest())):
        migrate.upgrade(fresh, "nonsense")


def test_older_tables_are_named(fresh: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    found = migrate.upgrade(fresh)
    monkeypatch.setattr(migrate, "newest", lambda: "0999")
    with pytest.raises(DatabaseVersionError, check=about(value=found, limit="0999")):
        migrate.check(fresh)


COUNTED = [name for name, table in metadata.tables.items() if "id" in table.c]


def row_of(name: str, number: int) -> dict[str, object]:
    """A row of a table, unique where required."""
    found: dict[str, object] = {}
    for column in metadata.tables[name].c:
        if column.name == "id" or column.nullable:
            continue
        kind = column.type.python_type
        found[column.name] = f"x{number}" if kind is str else kind(1)
    return found


def test_tables_with_generated_ids_are_known() -> None:
    assert {"token", "alarm", "audit", "notice", "finding", "managed_plan"} <= set(COUNTED)


def test_no_id_is_given_twice(fresh: Database) -> None:
    """`token delete 5` must not delete a token made after another token 5 was deleted."""
    migrate.upgrade(fresh)
    for name in COUNTED:
        table, ids = metadata.tables[name], []
        for number in range(3):
            with fresh.write() as connection:
                made = connection.execute(insert(table).values(**row_of(name, number)))
                ids.append(made.inserted_primary_key[0])
            with fresh.write() as connection:
                connection.execute(delete(table).where(table.c.id == ids[-1]))
        assert ids[0] < ids[1] < ids[2], name


NAMES = [
    "admin",
    "admin ",
    "admin  ",
    " admin",
    "Admin",
    "caf\u00e9",
    "cafe\u0301",
    "cafe",
    "admin\t",
    "\u00df",
    "ss",
]


def test_names_are_compared_by_every_character(fresh: Database) -> None:
    """Trailing blanks, case and Unicode forms distinguish names, in keys and in searches."""
    migrate.upgrade(fresh)
    person, alarm = metadata.tables["person"], metadata.tables["alarm"]
    with fresh.write() as connection:
        for name in NAMES:
            connection.execute(insert(person).values(name=name, password_hash=name, role="viewer"))
            row = {"rule": "r", "object_key": name, "state": "firing", "text": name}
            connection.execute(insert(alarm).values(**row))
    with fresh.read() as connection:
        for name in NAMES:
            assert list(connection.execute(select(person.c.name).where(person.c.name == name)).scalars()) == [
                name
            ]
            query = select(alarm.c.text).where(alarm.c.object_key == name)
            assert list(connection.execute(query).scalars()) == [name]
