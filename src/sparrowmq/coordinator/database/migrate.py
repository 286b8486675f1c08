"""Migration of a database to this release's tables, and back: Alembic's migrations, run under a lock.

Coordinators that start at the same time migrate one after the other. A database of a newer release is refused
and not changed. Alembic takes megabytes of memory, so it is imported only when there is something to migrate.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, column, inspect, select, table, text
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


@cache
def revisions() -> frozenset[str]:
    """The revisions that this release can migrate: those in the names of the migrations' files."""
    return frozenset(path.stem[1:5] for path in (HOME / "versions").glob("v*.py"))


def newest() -> str:
    """The revision of this release's tables."""
    return max(revisions())


def current(connection: Connection) -> str | None:
    """The revision of the database; None if it has no tables."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found = connection.execute(select(column("version_num")).select_from(table(VERSION_TABLE))).scalar()
    return None if found is None else str(found)


def check(database: Database) -> None:
    """Raise `DatabaseVersionError` unless the database has exactly this release's tables."""
    with database.read() as connection:
        found = current(connection)
    if found != newest():
        raise _different(database, found)


def upgrade(database: Database, revision: str = HEAD) -> str:
    """Migrate up to `revision`; returns the resulting revision. Does nothing if the database already has it.

    Raises `DatabaseVersionError` for a database of a newer release.
    """
    if revision == HEAD:
        with database.read() as connection:
            if current(connection) == newest():
                return newest()
    return _migrate(database, revision, down=False)


def downgrade(database: Database, revision: str) -> str:
    """Migrate down to `revision` (`base`: no tables at all); data of newer tables is lost."""
    return _migrate(database, revision, down=True)


def _migrate(database: Database, revision: str, *, down: bool) -> str:
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(HOME).replace("%", "%%"))
    with _writing(database) as connection, _alone(connection, database):
        found = current(connection)
        if found is not None and found not in revisions():
            raise _different(database, found)
        config.attributes["connection"] = connection
        try:
            (command.downgrade if down else command.upgrade)(config, revision)
        except CommandError as error:
            raise DatabaseVersionError(
                f"there is no revision {revision!r}: {error}; known: {sorted(revisions())}",
                value=revision,
                limit=newest(),
            ) from error
        except SQLAlchemyError as error:
            raise explained(error, database.where) from error
        return current(connection) or BASE


def _different(database: Database, found: str | None) -> DatabaseVersionError:
    if found is None:
        text = f"the database {database.where} has no tables yet; type: sparrow coordinator migrate"
    elif found < min(revisions()):
        text = (
            f"the database {database.where} has tables of a development version, revision {found}; releases "
            f"begin at revision {min(revisions())}. Start the coordinator with an empty database"
        )
    elif found < newest():
        text = (
            f"the database {database.where} has tables of revision {found}, this release needs {newest()}; "
            f"type: sparrow coordinator migrate"
        )
    else:
        text = (
            f"the database {database.where} has tables of revision {found}, from a newer SparrowMQ; this one "
            f"knows revisions up to {newest()}. Start the newer release, or use it to migrate down: sparrow "
            f"coordinator migrate --to {newest()}"
        )
    return DatabaseVersionError(text, value=found, limit=newest())


@contextmanager
def _writing(database: Database) -> Iterator[Connection]:
    if database.kind == "sqlite":
        with database.write() as connection:
            yield connection
        return
    # Alembic starts its own transaction where the database can roll back changes of tables.
    with database.engine.connect() as connection:
        try:
            yield connection
            connection.commit()
        except SQLAlchemyError as error:
            raise explained(error, database.where) from error


@contextmanager
def _alone(connection: Connection, database: Database) -> Iterator[None]:
    """Lock out migrations by other coordinators; SQLite's transaction does that already."""
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
            f"another coordinator has been migrating {database.where} for {LOCK_SECONDS} s; try again later"
        )
    try:
        yield
    finally:
        connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": LOCK_NAME})
