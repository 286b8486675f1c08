"""Database errors that say what is wrong and what to do.

They are mapped in one place, because each database has its own codes: PostgreSQL's SQLSTATE, MySQL's numbers,
SQLite's messages.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy.exc import DataError, DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from sparrowmq.core.errors import (
    DatabaseBusyError,
    DatabaseError,
    DatabaseFullError,
    DatabaseGoneError,
    DatabaseValueError,
)

_SQLITE: Final = (
    ("database is locked", DatabaseBusyError),
    ("database table is locked", DatabaseBusyError),
    ("database or disk is full", DatabaseFullError),
    ("unable to open database file", DatabaseGoneError),
    ("disk I/O error", DatabaseGoneError),
    ("readonly database", DatabaseGoneError),
)
_SQLSTATES: Final[dict[str, type[DatabaseError]]] = {
    "53100": DatabaseFullError,
    "55P03": DatabaseBusyError,
    "40P01": DatabaseBusyError,
    "40001": DatabaseBusyError,
    "57014": DatabaseBusyError,
    "53300": DatabaseBusyError,
    "25P03": DatabaseGoneError,
}
_SQLSTATE_CLASSES: Final[dict[str, type[DatabaseError]]] = {"08": DatabaseGoneError, "57": DatabaseGoneError}
_MYSQL: Final[dict[int, type[DatabaseError]]] = {
    **dict.fromkeys((1205, 1213, 1040, 1969), DatabaseBusyError),
    **dict.fromkeys((1021, 1114, 1041, 28), DatabaseFullError),
    **dict.fromkeys((1053, 1927, 2002, 2003, 2006, 2013, 2055, 4031), DatabaseGoneError),
}
_NEXT: Final[dict[type[DatabaseError], str]] = {
    DatabaseBusyError: "it is locked or has no free connection; try again in a moment",
    DatabaseFullError: "it is full, and this change was not saved; free space on its disk",
    DatabaseGoneError: "it cannot be reached; check that it is running and that the address is correct",
    DatabaseValueError: "it rejected a value; give a shorter one without special characters",
    DatabaseError: "it rejected the statement",
}


def kind_of(error: SQLAlchemyError) -> type[DatabaseError]:
    """The class of our error."""
    if isinstance(error, PoolTimeoutError):
        return DatabaseBusyError
    if not isinstance(error, DBAPIError):
        return DatabaseError
    if isinstance(error, DataError):
        return DatabaseValueError
    original = error.orig
    text, number = str(original), original.args[0] if original is not None and original.args else None
    if isinstance(number, int):
        return _MYSQL.get(number, DatabaseError)
    state = getattr(original, "sqlstate", None)
    if isinstance(state, str):
        return _SQLSTATES.get(state) or _SQLSTATE_CLASSES.get(state[:2], DatabaseError)
    for words, kind in _SQLITE:
        if words in text:
            return kind
    # psycopg has no SQLSTATE if no server answered.
    if error.connection_invalidated or (
        isinstance(error, OperationalError | InterfaceError) and "connect" in text.lower()
    ):
        return DatabaseGoneError
    return DatabaseError


def explained(error: SQLAlchemyError | ValueError | OverflowError, where: str) -> DatabaseError:
    """The error to raise instead; `where` is the database's address without its password.

    Other exceptions than SQLAlchemyError are values that a driver could not encode.
    """
    kind = kind_of(error) if isinstance(error, SQLAlchemyError) else DatabaseValueError
    original = getattr(error, "orig", None) or error
    said = " ".join(str(original).split())[:300]
    return kind(f"the coordinator's database {where}: {_NEXT[kind]} ({said})")
