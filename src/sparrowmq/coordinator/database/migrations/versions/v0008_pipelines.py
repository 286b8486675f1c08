"""Pipelines on Spark: what each reported last."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0008"
down_revision: str | None = "0007"
branch_labels = None
depends_on = None

TABLE = "pipeline"


def _text(name: str, chars: int, **options: Any) -> sa.Column[Any]:
    """Compares every character, as in migration 0006."""
    exact = "utf8mb4_nopad_bin" if getattr(op.get_bind().dialect, "is_mariadb", False) else "utf8mb4_0900_bin"
    kind = sa.String(chars).with_variant(mysql.VARCHAR(chars, charset="utf8mb4", collation=exact), "mysql")
    return sa.Column(name, kind, nullable=False, **options)


def upgrade() -> None:
    """Create the table; that of an interrupted migration is kept."""
    if sa.inspect(op.get_bind()).has_table(TABLE):
        return
    long = sa.Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4"), "mysql")
    op.create_table(
        TABLE,
        _text("name", 100, primary_key=True),
        _text("reported_by", 100),
        _text("run", 64),
        sa.Column("began_at", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("reported_at", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("body", long, nullable=False),
        mysql_charset="utf8mb4",
        mysql_engine="InnoDB",
    )


def downgrade() -> None:
    """Drop the table and all its data."""
    if sa.inspect(op.get_bind()).has_table(TABLE):
        op.drop_table(TABLE)
