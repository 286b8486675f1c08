"""Thousands of rows in one statement: writing them one at a time would block the database, and the leases,
for long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, bindparam, delete, insert, update

Rows = Sequence[Mapping[str, Any]]
"""Values by column, the same columns in each."""


def insert_all(connection: Connection, table: Table, rows: Rows, **same: Any) -> None:
    """Insert all rows; `same` are values of the database for every row, like its time."""
    if rows:
        connection.execute(insert(table).values(**same), rows)


def update_all(connection: Connection, table: Table, keys: Sequence[str], rows: Rows, **same: Any) -> None:
    """Update the rows identified by `keys`, columns that each row has besides its new values."""
    if rows:
        mine = [table.c[key] == bindparam(f"key_{key}") for key in keys]
        connection.execute(update(table).where(*mine).values(**same), [_named(row, keys) for row in rows])


def delete_all(connection: Connection, table: Table, keys: Sequence[str], rows: Rows) -> None:
    """Delete the rows that have these values of `keys`."""
    if rows:
        mine = [table.c[key] == bindparam(f"key_{key}") for key in keys]
        connection.execute(delete(table).where(*mine), [_named(row, keys) for row in rows])


def _named(row: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {f"key_{name}" if name in keys else name: value for name, value in row.items()}
