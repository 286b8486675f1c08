"""Findings and data of services: samples of brokers' logs, findings, and when topics were last used."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0005"
down_revision: str | None = "0004"
branch_labels = None
depends_on = None

TABLES = ("log_sample", "finding", "object_use")


def _text(name: str, chars: int = 255, *, empty: bool = False, key: bool = False) -> sa.Column[Any]:
    kind = sa.String(chars).with_variant(
        mysql.VARCHAR(chars, charset="utf8mb4", collation="utf8mb4_bin"), "mysql"
    )
    return sa.Column(name, kind, nullable=False, primary_key=key, server_default="" if empty else None)


def _number(name: str, *, zero: bool = True) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0" if zero else None)


def _id() -> sa.Column[Any]:
    kind = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    return sa.Column("id", kind, primary_key=True, autoincrement=True)


def _create(name: str, *columns: Any) -> None:
    if not sa.inspect(op.get_bind()).has_table(name):
        op.create_table(name, *columns, mysql_charset="utf8mb4", mysql_engine="InnoDB")


def upgrade() -> None:
    """Create the tables; those of an interrupted migration are kept."""
    sizes = (_number(name, zero=False) for name in ("log_min", "log_max", "total", "free"))
    _create("log_sample", _id(), _text("broker"), _number("at"), *sizes)
    known = {found["name"] for found in sa.inspect(op.get_bind()).get_indexes("log_sample")}
    if "ix_log_sample_broker" not in known:
        op.create_index("ix_log_sample_broker", "log_sample", ("broker", "at"))
    _create(
        "finding",
        _id(),
        _text("service", 64),
        _text("kind", 64),
        _text("object_key", 600),
        _text("group_name", empty=True),
        _text("topic", empty=True),
        _text("text", 1000),
        sa.Column(
            "body", sa.Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4"), "mysql"), nullable=False
        ),
        _number("first_at"),
        _number("seen_at"),
        _number("repairing_at"),
        sa.UniqueConstraint("service", "kind", "object_key", name="uq_finding"),
    )
    _create(
        "object_use",
        _text("kind", 16, key=True),
        _text("object", key=True),
        _number("first_at"),
        _number("seen_at"),
        _number("sent"),
        _number("consumed"),
        _number("sent_at"),
        _number("used_at"),
        _number("day_at"),
        _number("day_sent"),
        sa.Column("day_rate", sa.BigInteger, nullable=False, server_default="-1"),
        sa.Column("owned", sa.Boolean(create_constraint=False), nullable=False, server_default=sa.false()),
    )


def downgrade() -> None:
    """Drop the tables and all their data."""
    for name in reversed(TABLES):
        if sa.inspect(op.get_bind()).has_table(name):
            op.drop_table(name)
