"""Which driver error becomes which of our errors; `test_connect.py` and `tests/databases` use real ones."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import ArgumentError, DataError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from sparrowmq.coordinator.database.faults import explained, kind_of
from sparrowmq.core.errors import (
    DatabaseBusyError,
    DatabaseError,
    DatabaseFullError,
    DatabaseGoneError,
    DatabaseValueError,
)


class DriverError(Exception):
    """A driver's error; PostgreSQL's has a state of five characters."""

    def __init__(self, *args: object, state: str | None = None) -> None:
        super().__init__(*args)
        self.sqlstate = state


def wrapped(error: Exception, *, gone: bool = False) -> SQLAlchemyError:
    return OperationalError("SELECT 1", {}, error, connection_invalidated=gone)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (wrapped(DriverError("database is locked")), DatabaseBusyError),
        (wrapped(DriverError("database or disk is full")), DatabaseFullError),
        (wrapped(DriverError("disk I/O error")), DatabaseGoneError),
        (wrapped(DriverError("attempt to write a readonly database")), DatabaseGoneError),
        (wrapped(DriverError("no such table: x")), DatabaseError),
        (wrapped(DriverError("disk full", state="53100")), DatabaseFullError),
        (wrapped(DriverError("lock timeout", state="55P03")), DatabaseBusyError),
        (wrapped(DriverError("starting up", state="57P03")), DatabaseGoneError),
        (wrapped(DriverError("connection failure", state="08006")), DatabaseGoneError),
        (wrapped(DriverError("idle in transaction", state="25P03")), DatabaseGoneError),
        (wrapped(DriverError("syntax", state="42601")), DatabaseError),
        (wrapped(DriverError("connection failed: refused")), DatabaseGoneError),
        (wrapped(DriverError("server closed the socket"), gone=True), DatabaseGoneError),
        (wrapped(DriverError(1205, "Lock wait timeout", state="HY000")), DatabaseBusyError),
        (wrapped(DriverError(1114, "The table is full")), DatabaseFullError),
        (wrapped(DriverError(2003, "Can't connect")), DatabaseGoneError),
        (wrapped(DriverError(1064, "syntax")), DatabaseError),
        (DataError("SELECT 1", {}, DriverError("out of range", state="22003")), DatabaseValueError),
        (DataError("SELECT 1", {}, DriverError(1406, "Data too long")), DatabaseValueError),
        (PoolTimeoutError("QueuePool limit"), DatabaseBusyError),
        (ArgumentError("something else"), DatabaseError),
    ],
)
def test_error_kinds_are_mapped(error: SQLAlchemyError, kind: type[DatabaseError]) -> None:
    assert kind_of(error) is kind
    told = explained(error, "postgresql://me:***@host/mq")
    assert type(told) is kind
    assert str(told).startswith("the coordinator's database postgresql://me:***@host/mq: it ")
    assert told.retryable is (kind not in (DatabaseError, DatabaseValueError))


def test_driver_message_becomes_one_short_line() -> None:
    told = str(explained(wrapped(DriverError("a\n  b" + "x" * 1000)), "here"))
    assert "\n" not in told
    assert len(told) < 500
