"""Settings of groups: dynamic settings, and requested offset resets."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision: str | None = "0001"
branch_labels = None
depends_on = None

TABLES = ("group_revision", "group_setting", "group_reset")


def _text(name: str, chars: int = 255, *, empty: bool = False, key: bool = False) -> sa.Column[Any]:
    kind = sa.String(chars).with_variant(
        mysql.VARCHAR(chars, charset="utf8mb4", collation="utf8mb4_bin"), "mysql"
    )
    return sa.Column(name, kind, nullable=False, primary_key=key, server_default="" if empty else None)


def _long(name: str, *, null: bool = False) -> sa.Column[Any]:
    kind = sa.Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4"), "mysql")
    return sa.Column(name, kind, nullable=null)


def _number(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


def _create(name: str, *columns: Any) -> None:
    if not sa.inspect(op.get_bind()).has_table(name):
        op.create_table(name, *columns, mysql_charset="utf8mb4", mysql_engine="InnoDB")


def _index(name: str, table: str, *columns: str) -> None:
    if name not in {found["name"] for found in sa.inspect(op.get_bind()).get_indexes(table)}:
        op.create_index(name, table, columns)


def upgrade() -> None:
    """Create the tables; those of an interrupted migration are kept."""
    _create("group_revision", _text("group_name", key=True), _number("revision"))
    _create(
        "group_setting",
        _text("group_name", key=True),
        _text("name", 64, key=True),
        _text("place", 440, key=True),
        _long("value"),
        _text("reason", 500, empty=True),
        _number("until"),
        _text("changed_by", 100, empty=True),
        _number("changed_at"),
    )
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    _create(
        "group_reset",
        sa.Column("id", number, primary_key=True, autoincrement=True),
        _text("group_name"),
        _text("place", 440),
        _text("target", 64),
        _text("state", 16),
        _text("asked_by", 100, empty=True),
        _text("reason", 500, empty=True),
        _number("asked_at"),
        _number("ended_at"),
        _long("before", null=True),
        _long("after", null=True),
        _text("message", 500, empty=True),
    )
    _index("ix_group_reset_state", "group_reset", "state", "id")
    _index("ix_group_reset_group", "group_reset", "group_name", "id")


def downgrade() -> None:
    """Drop the tables and all their data."""
    for name in reversed(TABLES):
        op.drop_table(name)
