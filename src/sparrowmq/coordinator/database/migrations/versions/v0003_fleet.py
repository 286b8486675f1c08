"""Known and drained brokers, known members, growing counters."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision: str | None = "0002"
branch_labels = None
depends_on = None

TABLES = ("broker_seen", "drain", "member_seen", "growth")


def _text(name: str, chars: int = 255, *, empty: bool = True, key: bool = False) -> sa.Column[Any]:
    kind = sa.String(chars).with_variant(
        mysql.VARCHAR(chars, charset="utf8mb4", collation="utf8mb4_bin"), "mysql"
    )
    default = "" if empty and not key else None
    return sa.Column(name, kind, nullable=False, primary_key=key, server_default=default)


def _number(name: str, *, zero: bool = True) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0" if zero else None)


def _count(name: str, default: str = "0") -> sa.Column[Any]:
    return sa.Column(name, sa.Integer, nullable=False, server_default=default)


def _create(name: str, *columns: Any) -> None:
    if not sa.inspect(op.get_bind()).has_table(name):
        op.create_table(name, *columns, mysql_charset="utf8mb4", mysql_engine="InnoDB")


def upgrade() -> None:
    """Create the tables that do not exist yet."""
    _create(
        "broker_seen",
        _text("broker", key=True),
        sa.Column("broker_id", sa.Integer, primary_key=True, autoincrement=False),
        _text("cluster"),
        _text("address"),
        _number("first_seen"),
        _number("last_seen"),
        _number("checked_at"),
        _text("error", 500),
        _text("write_error", 500),
    )
    _create(
        "drain",
        _text("broker", key=True),
        _text("state", 16, empty=False),
        _count("permission", "6"),
        sa.Column("forced", sa.Boolean(create_constraint=False), nullable=False, server_default=sa.false()),
        _text("asked_by", 64),
        _text("reason", 500),
        _number("asked_at"),
        _number("changed_at"),
        _number("measured_at"),
        sa.Column(
            "backlog",
            sa.Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4"), "mysql"),
            nullable=False,
        ),
        _text("message", 500),
    )
    _create(
        "member_seen",
        _text("group_name", key=True),
        _text("client_id", key=True),
        _text("address", 200),
        _text("language", 32),
        _count("version"),
        _number("first_seen"),
        _number("last_seen"),
    )
    _create(
        "growth",
        _text("rule", 64, key=True),
        _text("object_key", key=True),
        _number("base", zero=False),
        _number("value", zero=False),
        _number("grown_at"),
    )


def downgrade() -> None:
    """Drop the tables."""
    there = sa.inspect(op.get_bind()).get_table_names()
    for name in TABLES:
        if name in there:
            op.drop_table(name)
