"""`Database`: an engine for SQLite, PostgreSQL or MySQL/MariaDB, with reading and writing transactions.

Calls block; the event loop reaches them through `Database.run`, on a pool of few threads. A transaction that
writes takes SQLite's one write lock at its beginning, so that it never fails half-way for want of it.
"""

from __future__ import annotations

import asyncio
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
from sparrowmq.core.errors import DatabaseError, SettingsError

T = TypeVar("T")

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
"""Threads of `run`: the services', which wait for each other rather than for connections."""
WAIT_SECONDS: Final = 5
"""How long a call waits for a lock, a connection from the pool, or an answer to connecting."""
IDLE_SECONDS: Final = 8
"""A transaction that stands still so long is ended by the server: a frozen coordinator must not keep the
row of its lease locked. Below the shortest useful lease, above any transaction's real length."""


class Database:
    """The coordinator's database. `url` is SQLAlchemy's, the driver may be left out:
    `postgresql://me@host/mq`.

    Raises `SettingsError` for an address of another kind; nothing is connected before the first transaction.
    """

    def __init__(self, url: str, *, idle_seconds: int = IDLE_SECONDS) -> None:
        self._url = _parsed(url)
        self.kind = self._url.get_backend_name()
        self.where = self._url.render_as_string(hide_password=True)
        self._engine = _engine(self._url, idle_seconds)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="sparrow-database")

    def __repr__(self) -> str:
        return f"<Database {self.where}>"

    @property
    def engine(self) -> Engine:
        """SQLAlchemy's engine, for migrations."""
        return self._engine

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads. Raises the `DatabaseError` family."""
        with self._faults(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that writes: all of it is kept, or nothing. Raises the `DatabaseError` family."""
        with self._faults(), self._engine.connect() as connection:
            writing = connection.execution_options(sparrow_write=True)
            with writing.begin():
                yield writing

    async def run(self, work: Callable[[], T]) -> T:
        """What `work()` gives, called on a thread. Cancelling leaves the call to end by itself."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def now(self, connection: Connection) -> int:
        """The database's time."""
        return int(connection.execute(select(now_ms())).scalar_one())

    def close(self) -> None:
        """End all connections and wait for calls that run. Idempotent."""
        self._threads.shutdown(wait=True)
        self._engine.dispose()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, OverflowError, UnicodeEncodeError) as error:
            raise explained(error, self.where) from error


def sqlite_url(path: Path) -> str:
    """The address of a SQLite file."""
    return f"sqlite:///{path.absolute()}"


def _parsed(url: str) -> URL:
    try:
        found = make_url(url)
    except (ArgumentError, ValueError):
        raise SettingsError(
            "databaseUrl is not an address; write for example postgresql://user:password@host/database"
        ) from None
    backend = found.get_backend_name()
    if backend not in DRIVERS:
        raise SettingsError(
            f"databaseUrl starts with {backend}://; it must be one of {', '.join(sorted(DRIVERS))}"
        )
    if backend == "sqlite" and found.database in (None, "", ":memory:"):
        raise SettingsError("databaseUrl names no file; write for example sqlite:////var/lib/coordinator.db")
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
            f"{url.drivername} is not installed; type: pip install 'sparrowmq[{extra}]'"
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
        # A server that is cut off says nothing: without these a call would wait for hours.
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
        # MySQL can end a session that stands still, not a transaction alone: the pool connects again.
        name = "idle_transaction_timeout" if mariadb else "wait_timeout"
        cursor.execute(f"SET SESSION {name}={idle_seconds}")
    connection.commit()


def _prepare_sqlite(connection: Any, record: Any) -> None:
    connection.isolation_level = (
        None  # transactions begin where `_begin_sqlite` says, not where the driver guesses
    )
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("sparrow_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
