"""Managed groups: members, owners of queues with reasons, plans, and secrets."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0004"
down_revision: str | None = "0003"
branch_labels = None
depends_on = None

TABLES = ("managed_group", "managed_member", "managed_queue", "managed_plan", "secret")


def _text(name: str, chars: int = 255, *, key: bool = False) -> sa.Column[Any]:
    kind = sa.String(chars).with_variant(
        mysql.VARCHAR(chars, charset="utf8mb4", collation="utf8mb4_bin"), "mysql"
    )
    return sa.Column(name, kind, nullable=False, primary_key=key, server_default=None if key else "")


def _long(name: str) -> sa.Column[Any]:
    kind = sa.Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4"), "mysql")
    return sa.Column(name, kind, nullable=False)


def _number(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


def _create(name: str, *columns: Any) -> None:
    if not sa.inspect(op.get_bind()).has_table(name):
        op.create_table(name, *columns, mysql_charset="utf8mb4", mysql_engine="InnoDB")


def upgrade() -> None:
    """Create the tables; those of an interrupted migration are kept."""
    _create(
        "managed_group",
        _text("name", key=True),
        _number("epoch"),
        _number("generation"),
        sa.Column("settled", sa.Boolean(create_constraint=False), nullable=False, server_default=sa.true()),
        _number("lease_ms"),
        _number("released"),
        _number("lease_over"),
        _number("drained_too_long"),
        _number("late"),
        _number("planned_at"),
        _long("seen"),
        _number("seen_at"),
        _text("problem", 500),
    )
    _create(
        "managed_member",
        _text("group_name", key=True),
        _text("member", key=True),
        _text("client_id"),
        _text("address", 64),
        _text("version", 64),
        _number("seniority"),
        _number("joined_at"),
        _long("topics"),
        _text("standing", 16),
        _text("reason", 500),
    )
    _create(
        "managed_queue",
        _text("group_name", key=True),
        _text("topic", key=True),
        _text("broker", 128, key=True),
        sa.Column("queue_id", sa.Integer, nullable=False, primary_key=True, autoincrement=False),
        _text("owner"),
        _number("generation"),
        _text("phase", 16),
        _text("target"),
        _text("why", 1000),
        _number("since"),
    )
    _plans()
    _create("secret", _text("name", 64, key=True), _text("value", 64))


def _plans() -> None:
    _create(
        "managed_plan",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True
        ),
        _text("group_name"),
        _number("generation"),
        _number("epoch"),
        _number("made_at"),
        _number("in_force_at"),
        _number("members"),
        _number("queues"),
        _number("moved"),
        _text("cause", 500),
        _long("moves"),
    )
    for name, columns in (
        ("ix_managed_plan_group", ("group_name", "id")),
        ("ix_managed_plan_made", ("made_at",)),
    ):
        if name not in {found["name"] for found in sa.inspect(op.get_bind()).get_indexes("managed_plan")}:
            op.create_index(name, "managed_plan", columns)


def downgrade() -> None:
    """Drop the tables: brokers keep the grants, everything else is lost."""
    for name in reversed(TABLES):
        if sa.inspect(op.get_bind()).has_table(name):
            op.drop_table(name)
