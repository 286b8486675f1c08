"""Leases, services and their runs, alarms and notices, people and tokens, audit."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision: str | None = None
branch_labels = None
depends_on = None

TABLES = (
    "lease",
    "service",
    "service_run",
    "alarm",
    "notice",
    "lag_limit",
    "person",
    "object_role",
    "token",
    "audit",
)


def _text(name: str, chars: int = 255, *, empty: bool = False, key: bool = False) -> sa.Column[Any]:
    kind = sa.String(chars).with_variant(
        mysql.VARCHAR(chars, charset="utf8mb4", collation="utf8mb4_bin"), "mysql"
    )
    return sa.Column(name, kind, nullable=False, primary_key=key, server_default="" if empty else None)


def _long(name: str, *, null: bool = False) -> sa.Column[Any]:
    kind = sa.Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4"), "mysql")
    return sa.Column(name, kind, nullable=null)


def _number(name: str, *, zero: bool = True) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0" if zero else None)


def _count(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Integer, nullable=False, server_default="0")


def _flag(name: str, default: bool) -> sa.Column[Any]:
    value = sa.true() if default else sa.false()
    return sa.Column(name, sa.Boolean(create_constraint=False), nullable=False, server_default=value)


def _id() -> sa.Column[Any]:
    kind = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    return sa.Column("id", kind, primary_key=True, autoincrement=True)


def _create(name: str, *columns: Any) -> None:
    if not sa.inspect(op.get_bind()).has_table(name):
        op.create_table(name, *columns, mysql_charset="utf8mb4", mysql_engine="InnoDB")


def _index(name: str, table: str, *columns: str) -> None:
    if name not in {found["name"] for found in sa.inspect(op.get_bind()).get_indexes(table)}:
        op.create_index(name, table, columns)


def upgrade() -> None:
    """Create the tables; MySQL keeps those of an interrupted migration, and the next attempt continues from
    there."""
    _services()
    _alarms()
    _people()
    _index("ix_service_run_service", "service_run", "service", "id")
    _index("ix_alarm_state", "alarm", "state")
    _index("ix_notice_due", "notice", "ended_at", "next_try_at")
    _index("ix_object_role_object", "object_role", "kind", "object")
    _index("ix_token_person", "token", "person")
    _index("ix_audit_at", "audit", "at")
    _index("ix_audit_actor", "audit", "actor", "id")


def _services() -> None:
    _create(
        "lease",
        _text("service", 64, key=True),
        _text("owner_id", 32, empty=True),
        _text("owner_label", 200, empty=True),
        _number("epoch"),
        _number("acquired_at"),
        _number("renewed_at"),
        _number("expires_at"),
        _text("blocked_owner", 32, empty=True),
        _number("blocked_until"),
    )
    _create(
        "service",
        _text("name", 64, key=True),
        _number("interval_ms", zero=False),
        _flag("paused", False),
        _text("pause_reason", 500, empty=True),
        _number("next_due_at"),
        _number("run_asked_at"),
        _long("options"),
        _number("revision"),
    )
    _create(
        "service_run",
        _id(),
        _text("service", 64),
        _number("epoch", zero=False),
        _number("started_at"),
        _number("ended_at"),
        _text("outcome", 16),
        _long("counts"),
        _text("message", 500, empty=True),
    )


def _alarms() -> None:
    _create(
        "alarm",
        _id(),
        _text("rule", 64),
        _text("object_key", 600),
        _text("group_name", empty=True),
        _text("topic", empty=True),
        _text("state", 16),
        _text("text", 1000),
        _number("since"),
        _number("changed_at"),
        _count("bad_checks"),
        _number("silenced_until"),
        _number("noticed_at"),
        _text("changed_by", empty=True),
        sa.UniqueConstraint("rule", "object_key", name="uq_alarm"),
    )
    _create(
        "notice",
        _id(),
        _number("alarm_id", zero=False),
        _text("kind", 16),
        _text("channel", 16),
        _text("target", 500),
        _long("body"),
        _number("created_at"),
        _count("attempts"),
        _number("next_try_at"),
        _number("ended_at"),
        _text("error", 500, empty=True),
    )
    _create(
        "lag_limit",
        _text("group_name", key=True),
        _text("topic", key=True),
        _number("messages", zero=False),
        _number("age_ms", zero=False),
        _flag("enabled", True),
    )


def _people() -> None:
    _create(
        "person",
        _text("name", 64, key=True),
        _text("password_hash"),
        _text("role", 16),
        _text("email", empty=True),
        _flag("enabled", True),
        _number("created_at"),
    )
    _create(
        "object_role",
        _text("person", 64, key=True),
        _text("kind", 16, key=True),
        _text("object", key=True),
        _text("role", 16),
    )
    _create(
        "token",
        _id(),
        _text("person", 64),
        _text("digest", 64),
        _text("label", 100, empty=True),
        _number("created_at"),
        _number("expires_at"),
        sa.UniqueConstraint("digest", name="uq_token_digest"),
    )
    _create(
        "audit",
        _id(),
        _number("at"),
        _text("actor", 100),
        _text("action", 64),
        _text("kind", 16),
        _text("object", 600),
        _long("before", null=True),
        _long("after", null=True),
        _text("reason", 500, empty=True),
        sa.Column("generation", sa.BigInteger, nullable=True),
    )


def downgrade() -> None:
    """Drop the tables and all their data."""
    for name in reversed(TABLES):
        if sa.inspect(op.get_bind()).has_table(name):
            op.drop_table(name)
