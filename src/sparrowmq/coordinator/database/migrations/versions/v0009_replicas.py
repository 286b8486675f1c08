"""Groups of brokers with an elected master, and operators' requests for elections.

`coordinator.database.tables` explains the columns.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0009"
down_revision: str | None = "0008"
branch_labels = None
depends_on = None

GROUPS = "replica_group"
WISHES = "replica_wish"


def _text(name: str, chars: int, **options: Any) -> sa.Column[Any]:
    """Compares every character, as in migration 0006."""
    exact = "utf8mb4_nopad_bin" if getattr(op.get_bind().dialect, "is_mariadb", False) else "utf8mb4_0900_bin"
    kind = sa.String(chars).with_variant(mysql.VARCHAR(chars, charset="utf8mb4", collation=exact), "mysql")
    return sa.Column(name, kind, nullable=False, **options)


def _number(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


def upgrade() -> None:
    """Create the tables; those of an interrupted migration are kept."""
    known = sa.inspect(op.get_bind())
    long = sa.Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4"), "mysql")
    if not known.has_table(GROUPS):
        op.create_table(
            GROUPS,
            _text("name", 255, primary_key=True),
            _number("epoch"),
            _number("number"),
            sa.Column("body", long, nullable=False),
            _text("text", 500, server_default=""),
            _number("changed_at"),
            sa.Column("seen", long, nullable=False),
            _number("seen_at"),
            mysql_charset="utf8mb4",
            mysql_engine="InnoDB",
        )
    if not known.has_table(WISHES):
        op.create_table(
            WISHES,
            _text("name", 255, primary_key=True),
            _text("kind", 16),
            _text("target", 255, server_default=""),
            _text("asked_by", 100),
            _text("reason", 500, server_default=""),
            _number("asked_at"),
            mysql_charset="utf8mb4",
            mysql_engine="InnoDB",
        )


def downgrade() -> None:
    """Drop the tables and all their data."""
    known = sa.inspect(op.get_bind())
    for table in (WISHES, GROUPS):
        if known.has_table(table):
            op.drop_table(table)
