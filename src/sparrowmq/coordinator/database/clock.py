"""The database's current time in SQL: milliseconds since 1970, which advances even inside a transaction
(pmq:1.6).

`now()` is fixed at the start of a transaction, and MySQL's `NOW()` at the start of a statement: after waiting
for a lock, a lease would be compared with an old time.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class now_ms(FunctionElement[int]):
    """Milliseconds since 1970 by the clock of the database's machine."""

    type = BigInteger()
    inherit_cache = True


@compiles(now_ms, "sqlite")
def _sqlite(element: Any, compiler: Any, **options: Any) -> str:
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"


@compiles(now_ms, "postgresql")
def _postgresql(element: Any, compiler: Any, **options: Any) -> str:
    return "CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) AS BIGINT)"


@compiles(now_ms, "mysql")
@compiles(now_ms, "mariadb")
def _mysql(element: Any, compiler: Any, **options: Any) -> str:
    return "CAST(FLOOR(UNIX_TIMESTAMP(SYSDATE(3)) * 1000) AS SIGNED)"
