"""The tables of the first release.

Development versions had nine migrations. A database that has seen them all has the same tables and the number
of the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0009"
down_revision: str | None = None
branch_labels = None
depends_on = None

Parts = tuple[Any, ...]
"""Columns, constraints and indexes of a table."""


class _Index:
    def __init__(self, name: str, *columns: str) -> None:
        self.name = name
        self.columns = columns


def _text(name: str, chars: int = 255, *, empty: bool = False, key: bool = False) -> sa.Column[Any]:
    """Text that is compared by every character, including trailing blanks."""
    exact = "utf8mb4_nopad_bin" if getattr(op.get_bind().dialect, "is_mariadb", False) else "utf8mb4_0900_bin"
    kind = sa.String(chars).with_variant(mysql.VARCHAR(chars, charset="utf8mb4", collation=exact), "mysql")
    return sa.Column(name, kind, nullable=False, primary_key=key, server_default="" if empty else None)


def _long(name: str, *, null: bool = False) -> sa.Column[Any]:
    return sa.Column(
        name, sa.Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4"), "mysql"), nullable=null
    )


def _blob(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql"), nullable=False)


def _number(
    name: str, *, default: str | None = "0", key: bool = False, kind: Any = sa.BigInteger
) -> sa.Column[Any]:
    if key:
        return sa.Column(name, kind, primary_key=True, autoincrement=False)
    return sa.Column(name, kind, nullable=False, server_default=default)


def _count(name: str, *, default: str | None = "0", key: bool = False) -> sa.Column[Any]:
    return _number(name, default=default, key=key, kind=sa.Integer)


def _flag(name: str, default: bool) -> sa.Column[Any]:
    value = sa.true() if default else sa.false()
    return sa.Column(name, sa.Boolean(create_constraint=False), nullable=False, server_default=value)


def _id() -> sa.Column[Any]:
    kind = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    return sa.Column("id", kind, primary_key=True, autoincrement=True)


def _tables() -> Iterator[tuple[str, Parts]]:
    yield from _services()
    yield from _alarms()
    yield from _users()
    yield from _settings()
    yield from _managed_groups()
    yield from _managed_queues()
    yield from _brokers()
    yield from _use()
    yield from _findings()
    yield from _history()
    yield from _reports()


def _services() -> Iterator[tuple[str, Parts]]:
    yield (
        "lease",
        (
            _text("service", 64, key=True),
            _text("owner_id", 32, empty=True),
            _text("owner_label", 200, empty=True),
            _number("epoch"),
            _number("acquired_at"),
            _number("renewed_at"),
            _number("expires_at"),
            _text("blocked_owner", 32, empty=True),
            _number("blocked_until"),
        ),
    )
    yield (
        "service",
        (
            _text("name", 64, key=True),
            _number("interval_ms", default=None),
            _flag("paused", False),
            _text("pause_reason", 500, empty=True),
            _number("next_due_at"),
            _number("run_asked_at"),
            _long("options"),
            _number("revision"),
        ),
    )
    yield (
        "service_run",
        (
            _id(),
            _text("service", 64),
            _number("epoch", default=None),
            _number("started_at"),
            _number("ended_at"),
            _text("outcome", 16),
            _long("counts"),
            _text("message", 500, empty=True),
            _Index("ix_service_run_service", "service", "id"),
        ),
    )
    yield "secret", (_text("name", 64, key=True), _text("value", 64, empty=True))


def _alarms() -> Iterator[tuple[str, Parts]]:
    yield (
        "alarm",
        (
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
            _Index("ix_alarm_state", "state"),
        ),
    )
    yield (
        "notice",
        (
            _id(),
            _number("alarm_id", default=None),
            _text("kind", 16),
            _text("channel", 16),
            _text("target", 500),
            _long("body"),
            _number("created_at"),
            _count("attempts"),
            _number("next_try_at"),
            _number("ended_at"),
            _text("error", 500, empty=True),
            _Index("ix_notice_due", "ended_at", "next_try_at"),
        ),
    )
    yield (
        "lag_limit",
        (
            _text("group_name", key=True),
            _text("topic", key=True),
            _number("messages", default=None),
            _number("age_ms", default=None),
            _flag("enabled", True),
        ),
    )


def _users() -> Iterator[tuple[str, Parts]]:
    yield (
        "person",
        (
            _text("name", 64, key=True),
            _text("password_hash"),
            _text("role", 16),
            _text("email", empty=True),
            _flag("enabled", True),
            _number("created_at"),
        ),
    )
    yield (
        "object_role",
        (
            _text("person", 64, key=True),
            _text("kind", 16, key=True),
            _text("object", key=True),
            _text("role", 16),
            _Index("ix_object_role_object", "kind", "object"),
        ),
    )
    yield (
        "token",
        (
            _id(),
            _text("person", 64),
            _text("digest", 64),
            _text("label", 100, empty=True),
            _number("created_at"),
            _number("expires_at"),
            _number("parent"),
            _text("maker", 64, empty=True),
            sa.UniqueConstraint("digest", name="uq_token_digest"),
            _Index("ix_token_person", "person"),
        ),
    )
    yield (
        "audit",
        (
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
            _Index("ix_audit_actor", "actor", "id"),
            _Index("ix_audit_at", "at"),
        ),
    )


def _settings() -> Iterator[tuple[str, Parts]]:
    yield "group_revision", (_text("group_name", key=True), _number("revision"))
    yield (
        "group_setting",
        (
            _text("group_name", key=True),
            _text("name", 64, key=True),
            _text("place", 440, key=True),
            _long("value"),
            _text("reason", 500, empty=True),
            _number("until"),
            _text("changed_by", 100, empty=True),
            _number("changed_at"),
        ),
    )
    yield (
        "group_reset",
        (
            _id(),
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
            _Index("ix_group_reset_group", "group_name", "id"),
            _Index("ix_group_reset_state", "state", "id"),
        ),
    )


def _managed_groups() -> Iterator[tuple[str, Parts]]:
    yield (
        "managed_group",
        (
            _text("name", key=True),
            _number("epoch"),
            _number("generation"),
            _flag("settled", True),
            _number("lease_ms"),
            _number("released"),
            _number("lease_over"),
            _number("drained_too_long"),
            _number("late"),
            _number("planned_at"),
            _long("seen"),
            _number("seen_at"),
            _text("problem", 500, empty=True),
        ),
    )
    yield (
        "managed_member",
        (
            _text("group_name", key=True),
            _text("member", key=True),
            _text("client_id", empty=True),
            _text("address", 64, empty=True),
            _text("version", 64, empty=True),
            _number("seniority"),
            _number("joined_at"),
            _long("topics"),
            _text("standing", 16, empty=True),
            _text("reason", 500, empty=True),
            _text("proof", 64, empty=True),
        ),
    )


def _managed_queues() -> Iterator[tuple[str, Parts]]:
    yield (
        "managed_queue",
        (
            _text("group_name", key=True),
            _text("topic", key=True),
            _text("broker", 128, key=True),
            _count("queue_id", key=True),
            _text("owner", empty=True),
            _number("generation"),
            _text("phase", 16, empty=True),
            _text("target", empty=True),
            _text("why", 1000, empty=True),
            _number("since"),
        ),
    )
    yield (
        "managed_plan",
        (
            _id(),
            _text("group_name", empty=True),
            _number("generation"),
            _number("epoch"),
            _number("made_at"),
            _number("in_force_at"),
            _number("members"),
            _number("queues"),
            _number("moved"),
            _text("cause", 500, empty=True),
            _long("moves"),
            _Index("ix_managed_plan_group", "group_name", "id"),
            _Index("ix_managed_plan_made", "made_at"),
        ),
    )


def _brokers() -> Iterator[tuple[str, Parts]]:
    yield (
        "broker_seen",
        (
            _text("broker", key=True),
            _count("broker_id", key=True),
            _text("cluster", empty=True),
            _text("address", empty=True),
            _number("first_seen"),
            _number("last_seen"),
            _number("checked_at"),
            _text("error", 500, empty=True),
            _text("write_error", 500, empty=True),
        ),
    )
    yield (
        "drain",
        (
            _text("broker", key=True),
            _text("state", 16),
            _count("permission", default="6"),
            _flag("forced", False),
            _text("asked_by", 64, empty=True),
            _text("reason", 500, empty=True),
            _number("asked_at"),
            _number("changed_at"),
            _number("measured_at"),
            _long("backlog"),
            _text("message", 500, empty=True),
        ),
    )
    yield (
        "log_sample",
        (
            _id(),
            _text("broker"),
            _number("at"),
            _number("log_min", default=None),
            _number("log_max", default=None),
            _number("total", default=None),
            _number("free", default=None),
            _Index("ix_log_sample_broker", "broker", "at"),
        ),
    )


def _use() -> Iterator[tuple[str, Parts]]:
    yield (
        "member_seen",
        (
            _text("group_name", key=True),
            _text("client_id", key=True),
            _text("address", 200, empty=True),
            _text("language", 32, empty=True),
            _count("version"),
            _number("first_seen"),
            _number("last_seen"),
        ),
    )
    yield (
        "growth",
        (
            _text("rule", 64, key=True),
            _text("object_key", key=True),
            _number("base", default=None),
            _number("value", default=None),
            _number("grown_at"),
        ),
    )
    yield (
        "object_use",
        (
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
            _number("day_rate", default="-1"),
            _flag("owned", False),
        ),
    )


def _findings() -> Iterator[tuple[str, Parts]]:
    yield (
        "finding",
        (
            _id(),
            _text("service", 64),
            _text("kind", 64),
            _text("object_key", 600),
            _text("group_name", empty=True),
            _text("topic", empty=True),
            _text("text", 1000),
            _long("body"),
            _number("first_at"),
            _number("seen_at"),
            _number("repairing_at"),
            sa.UniqueConstraint("service", "kind", "object_key", name="uq_finding"),
        ),
    )


def _history() -> Iterator[tuple[str, Parts]]:
    yield (
        "history_series",
        (
            _count("number", key=True),
            _text("figure", 16),
            _text("name", 600),
            _number("seen_at"),
            sa.UniqueConstraint("figure", "name", name="uq_history_series"),
        ),
    )
    yield (
        "history_block",
        (_count("grain", key=True), _number("begin_at", key=True), _count("shard", key=True), _blob("data")),
    )


def _reports() -> Iterator[tuple[str, Parts]]:
    yield (
        "pipeline",
        (
            _text("name", 100, key=True),
            _text("reported_by", 100),
            _text("run", 64),
            _number("began_at"),
            _number("reported_at"),
            _long("body"),
        ),
    )
    yield (
        "replica_group",
        (
            _text("name", key=True),
            _number("epoch"),
            _number("number"),
            _long("body"),
            _text("text", 500, empty=True),
            _number("changed_at"),
            _long("seen"),
            _number("seen_at"),
        ),
    )
    yield (
        "replica_wish",
        (
            _text("name", key=True),
            _text("kind", 16),
            _text("target", empty=True),
            _text("asked_by", 100),
            _text("reason", 500, empty=True),
            _number("asked_at"),
        ),
    )


def upgrade() -> None:
    """Create the tables. MySQL and MariaDB keep those of an interrupted migration; the next attempt continues
    from there.
    """
    known = sa.inspect(op.get_bind())
    there = set(known.get_table_names())
    for name, parts in _tables():
        if name not in there:
            _create(name, [part for part in parts if not isinstance(part, _Index)])
        indexed = {found["name"] for found in known.get_indexes(name)} if name in there else ()
        for part in parts:
            if isinstance(part, _Index) and part.name not in indexed:
                op.create_index(part.name, name, part.columns)


def _create(name: str, parts: list[Any]) -> None:
    counted = any(isinstance(part, sa.Column) and part.autoincrement is True for part in parts)
    # SQLite reuses the id of a deleted row otherwise.
    counting: dict[str, Any] = {"sqlite_autoincrement": True} if counted else {}
    op.create_table(name, *parts, mysql_charset="utf8mb4", mysql_engine="InnoDB", **counting)


def downgrade() -> None:
    """Drop the tables and all their data."""
    there = set(sa.inspect(op.get_bind()).get_table_names())
    for name, _ in _tables():
        if name in there:
            op.drop_table(name)
