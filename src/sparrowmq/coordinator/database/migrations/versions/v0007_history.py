"""Figures over time: the series, and their packed values."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0007"
down_revision: str | None = "0006"
branch_labels = None
depends_on = None

TABLES = ("history_series", "history_block")


def _text(name: str, chars: int) -> sa.Column[Any]:
    """Compares every character, as in migration 0006."""
    exact = "utf8mb4_nopad_bin" if getattr(op.get_bind().dialect, "is_mariadb", False) else "utf8mb4_0900_bin"
    kind = sa.String(chars).with_variant(mysql.VARCHAR(chars, charset="utf8mb4", collation=exact), "mysql")
    return sa.Column(name, kind, nullable=False)


def _key(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, primary_key=True, autoincrement=False, nullable=False)


def _create(name: str, *columns: Any) -> None:
    if not sa.inspect(op.get_bind()).has_table(name):
        op.create_table(name, *columns, mysql_charset="utf8mb4", mysql_engine="InnoDB")


def upgrade() -> None:
    """Create the tables; those of an interrupted migration are kept."""
    _create(
        "history_series",
        _key("number", sa.Integer),
        _text("figure", 16),
        _text("name", 600),
        sa.Column("seen_at", sa.BigInteger, nullable=False, server_default="0"),
        sa.UniqueConstraint("figure", "name", name="uq_history_series"),
    )
    _create(
        "history_block",
        _key("grain", sa.Integer),
        _key("begin_at", sa.BigInteger),
        _key("shard", sa.Integer),
        sa.Column("data", sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql"), nullable=False),
    )


def downgrade() -> None:
    """Drop the tables and all their data."""
    for name in reversed(TABLES):
        if sa.inspect(op.get_bind()).has_table(name):
            op.drop_table(name)
