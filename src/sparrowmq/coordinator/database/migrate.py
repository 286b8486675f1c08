"""Bringing a database to this release's tables, and back: Alembic's migrations, run under a lock.

Coordinators that start at the same time migrate one after the other. A database of a newer release is
refused, not touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import SQLAlchemyError

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.faults import explained
from sparrowmq.coordinator.database.tables import VERSION_TABLE
from sparrowmq.core.errors import DatabaseBusyError, DatabaseVersionError

HOME: Final = Path(__file__).parent / "migrations"
LOCK_SECONDS: Final = 30
LOCK_NAME: Final = "sparrowmq-migration"
LOCK_NUMBER: Final = 0x5350_4152
BASE: Final = "base"
HEAD: Final = "head"


def newest() -> str:
    """The revision this release's tables have."""
    found = ScriptDirectory(str(HOME)).get_current_head()
    assert found is not None
    return found


def current(connection: Connection) -> str | None:
    """The revision the database has; None for one without tables."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return MigrationContext.configure(
        connection, opts={"version_table": VERSION_TABLE}
    ).get_current_revision()


def check(database: Database) -> None:
    """Raise `DatabaseVersionError` unless the database has exactly this release's tables."""
    with database.read() as connection:
        found = current(connection)
    if found != newest():
        raise DatabaseVersionError(_different(database, found))


def upgrade(database: Database, revision: str = HEAD) -> str:
    """Migrate up to `revision`; gives the revision it has then. One that is there already is fine.

    Raises `DatabaseVersionError` for a database of a newer release.
    """
    return _migrate(database, revision, down=False)


def downgrade(database: Database, revision: str) -> str:
    """Migrate down to `revision` (`base`: no tables at all); what newer tables held is lost."""
    return _migrate(database, revision, down=True)


def _migrate(database: Database, revision: str, *, down: bool) -> str:
    config = Config()
    config.set_main_option("script_location", str(HOME).replace("%", "%%"))
    with _writing(database) as connection, _alone(connection, database):
        found = current(connection)
        known = {script.revision for script in ScriptDirectory(str(HOME)).walk_revisions()}
        if found is not None and found not in known:
            raise DatabaseVersionError(_different(database, found))
        config.attributes["connection"] = connection
        try:
            (command.downgrade if down else command.upgrade)(config, revision)
        except CommandError as error:
            raise DatabaseVersionError(
                f"there is no revision {revision!r}: {error}; known: {sorted(known)}"
            ) from error
        except SQLAlchemyError as error:
            raise explained(error, database.where) from error
        return current(connection) or BASE


def _different(database: Database, found: str | None) -> str:
    if found is None:
        return f"the database {database.where} has no tables yet; type: sparrow coordinator migrate"
    if found < newest():
        return (
            f"the database {database.where} has the tables {found}, this release needs {newest()}; "
            "type: sparrow coordinator migrate"
        )
    return (
        f"the database {database.where} has the tables {found} of a newer SparrowMQ; this one knows them up "
        f"to {newest()}. Start the newer release, or let it migrate down: sparrow coordinator migrate --to "
        f"{newest()}"
    )


@contextmanager
def _writing(database: Database) -> Iterator[Connection]:
    if database.kind == "sqlite":
        with database.write() as connection:
            yield connection
        return
    # Alembic makes its own transaction where the database can take back what changes tables.
    with database.engine.connect() as connection:
        try:
            yield connection
            connection.commit()
        except SQLAlchemyError as error:
            raise explained(error, database.where) from error


@contextmanager
def _alone(connection: Connection, database: Database) -> Iterator[None]:
    """Keep other coordinators from migrating; SQLite's transaction does that by itself."""
    if database.kind == "sqlite":
        yield
        return
    if database.kind == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = {LOCK_SECONDS * 1000}"))
        connection.execute(text(f"SET LOCAL statement_timeout = {2 * LOCK_SECONDS * 1000}"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_NUMBER})
        yield
        return
    got = connection.execute(
        text("SELECT GET_LOCK(:name, :wait)"), {"name": LOCK_NAME, "wait": LOCK_SECONDS}
    ).scalar()
    if got != 1:
        raise DatabaseBusyError(
            f"another coordinator has migrated {database.where} for {LOCK_SECONDS} s; try again"
        )
    try:
        yield
    finally:
        connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": LOCK_NAME})
