"""`Database`: an engine for SQLite, PostgreSQL or MySQL/MariaDB, with reading and writing transactions.

Calls block; the event loop uses `Database.run`, which runs them in a small thread pool. A writing transaction
takes SQLite's write lock at its beginning, so that it cannot fail midway for lack of it. SQLite does not keep
writers in order: each tries again after up to 100 ms, and new ones get ahead of one that waits. So writers of
one process first wait for each other, without a connection; reads still have one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.faults import explained
from sparrowmq.core.errors import DatabaseBusyError, DatabaseError, SettingsError
from sparrowmq.files import disk

_log = logging.getLogger("sparrowmq.coordinator")
T = TypeVar("T")
BESIDE: Final = ("", "-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite keeps beside a database."""

DRIVERS: Final = {
    "sqlite": "sqlite+pysqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
}
EXTRAS: Final = {"psycopg": "postgres", "pymysql": "mysql"}
CONNECTIONS_MAX: Final = 8
THREADS: Final = 4
"""Threads of `run`, used by the services, which wait for each other rather than for connections."""
WAIT_SECONDS: Final = 5
"""Time limit for a lock, a connection from the pool, or an answer when connecting."""
IDLE_SECONDS: Final = 8
"""The server ends a transaction that is idle for this long: a frozen coordinator must not keep the row of its
lease locked. Shorter than the shortest useful lease, longer than any real transaction."""


class Database:
    """The coordinator's database. `url` is SQLAlchemy's, the driver may be left out:
    `postgresql://me@host/mq`.

    Raises `SettingsError` for an unsupported address; the first transaction connects.
    """

    def __init__(self, url: str, *, idle_seconds: int = IDLE_SECONDS) -> None:
        self._url = _parsed(url)
        self._file = _file_of(self._url)
        self.kind = self._url.get_backend_name()
        # Without the query, which may also contain a password.
        self.where = self._url.set(query={}).render_as_string(hide_password=True)
        self._engine = _engine(self._url, idle_seconds)
        self._turn = threading.Lock() if self.kind == "sqlite" else None
        self._is_private = False
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="sparrow-database")

    def __repr__(self) -> str:
        return f"<Database {self.where}>"

    @property
    def engine(self) -> Engine:
        """SQLAlchemy's engine, for migrations."""
        return self._open()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A read-only transaction. Raises the `DatabaseError` family."""
        with self._faults(), self._open().begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A writing transaction: everything is committed, or nothing. Raises the `DatabaseError` family."""
        with self._writer(), self._faults(), self._open().connect() as connection:
            writing = connection.execution_options(sparrow_write=True)
            with writing.begin():
                yield writing

    async def run(self, work: Callable[[], T]) -> T:
        """Call `work()` on a thread and return its result. Cancelling does not stop the call."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def now(self, connection: Connection) -> int:
        """The database's time."""
        return int(connection.execute(select(now_ms())).scalar_one())

    def close(self) -> None:
        """Close all connections and wait for running calls. Idempotent."""
        self._threads.shutdown(wait=True)
        self._engine.dispose()

    def _open(self) -> Engine:
        """The engine; before first use, a SQLite file is created, or closed to other users."""
        if self._file is not None and not self._is_private:
            self._is_private = keep_private(self._file)
        return self._engine

    @contextmanager
    def _writer(self) -> Iterator[None]:
        """The turn of one writer of this process at a SQLite file."""
        if self._turn is None:
            yield
            return
        if not self._turn.acquire(timeout=WAIT_SECONDS):
            raise DatabaseBusyError(
                f"the coordinator's database {self.where}: other changes of this process did not end within "
                f"{WAIT_SECONDS} s; try again in a moment",
                limit=WAIT_SECONDS,
            )
        try:
            yield
        finally:
            self._turn.release()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, OverflowError, UnicodeEncodeError) as error:
            raise explained(error, self.where) from error


def keep_private(path: Path) -> bool:
    """Make sure that only this user may read a SQLite file and the files beside it, which inherit its
    permissions.

    It contains password hashes and digests of proofs. Returns whether that succeeded; if the file cannot be
    created, SQLite reports the reason.
    """
    try:
        disk.make_private(path)
        opened = [name for name in BESIDE if disk.restrict(path.with_name(path.name + name))]
    except OSError as error:
        _log.debug("%s cannot be made private yet: %s", path, error)
        return False
    if opened:
        names = ", ".join(path.name + name for name in opened)
        _log.warning(
            "%s: other users of this machine could access %s; access is now restricted", path.parent, names
        )
    return True


def _file_of(url: URL) -> Path | None:
    name = url.database if url.get_backend_name() == "sqlite" else None
    return Path(name) if name and not name.startswith("file:") else None


def _parsed(url: str) -> URL:
    try:
        found = make_url(url)
    except (ArgumentError, ValueError):
        raise SettingsError(
            "databaseUrl is not an address; write for example postgresql://user:password@host/database",
            "databaseUrl",
        ) from None
    backend = found.get_backend_name()
    if backend not in DRIVERS:
        raise SettingsError(
            f"databaseUrl starts with {backend}://; it must be one of {', '.join(sorted(DRIVERS))}",
            "databaseUrl",
            backend,
        )
    if backend == "sqlite" and found.database in (None, "", ":memory:"):
        raise SettingsError(
            "databaseUrl does not name a file; write for example sqlite:////var/lib/coordinator.db",
            "databaseUrl",
        )
    return found.set(drivername=DRIVERS[backend]) if "+" not in found.drivername else found


def _engine(url: URL, idle_seconds: int) -> Engine:
    options: dict[str, Any] = {"pool_size": CONNECTIONS_MAX, "max_overflow": 0, "pool_timeout": WAIT_SECONDS}
    backend = url.get_backend_name()
    if backend == "sqlite":
        options["connect_args"] = {"timeout": WAIT_SECONDS, "check_same_thread": False}
    else:
        options |= {"pool_pre_ping": True, "isolation_level": "READ COMMITTED"}
        options["connect_args"] = _postgresql(idle_seconds) if backend == "postgresql" else _mysql()
    try:
        engine = create_engine(url, **options)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        extra = EXTRAS.get(getattr(error, "name", "") or "", "coordinator")
        raise DatabaseError(
            f"{url.drivername} is not installed; type: pip install 'sparrowmq[{extra}]'",
            what=extra,
        ) from error
    if backend == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    elif backend == "postgresql":
        event.listen(engine, "do_connect", partial(_connect_postgresql, 2 * WAIT_SECONDS + 1))
    else:
        event.listen(engine, "connect", partial(_prepare_mysql, idle_seconds))
    return engine


def _postgresql(idle_seconds: int) -> dict[str, Any]:
    milliseconds = {
        "lock_timeout": WAIT_SECONDS * 1000,
        "statement_timeout": 2 * WAIT_SECONDS * 1000,
        "idle_in_transaction_session_timeout": idle_seconds * 1000,
    }
    settings = " ".join(f"-c {name}={value}" for name, value in milliseconds.items())
    return {
        "connect_timeout": WAIT_SECONDS,
        "options": settings,
        "application_name": "sparrow-coordinator",
        # A server that is cut off does not answer: without these settings a call would wait for hours.
        "tcp_user_timeout": 2 * WAIT_SECONDS * 1000,
        "keepalives_idle": WAIT_SECONDS,
        "keepalives_interval": 2,
        "keepalives_count": 3,
    }


def _connect_postgresql(
    seconds: float, dialect: Any, record: Any, arguments: Any, named: dict[str, Any]
) -> Any:
    from sparrowmq.coordinator.database.patience import patient

    return patient(seconds)(*arguments, **named)


def _mysql() -> dict[str, Any]:
    waits = 2 * WAIT_SECONDS
    return {
        "connect_timeout": WAIT_SECONDS,
        "read_timeout": waits,
        "write_timeout": waits,
        "charset": "utf8mb4",
        "init_command": f"SET SESSION innodb_lock_wait_timeout={WAIT_SECONDS}",
    }


def _prepare_mysql(idle_seconds: int, connection: Any, record: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        mariadb = "mariadb" in str(cursor.fetchone()[0]).lower()
        # MySQL can end an idle session, but not only its transaction: the pool reconnects.
        name = "idle_transaction_timeout" if mariadb else "wait_timeout"
        cursor.execute(f"SET SESSION {name}={idle_seconds}")
    connection.commit()


def _prepare_sqlite(connection: Any, record: Any) -> None:
    connection.isolation_level = (
        None  # transactions begin where `_begin_sqlite` says, not where the driver would begin them
    )
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("sparrow_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
