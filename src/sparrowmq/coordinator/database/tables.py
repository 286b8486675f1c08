"""The tables after the newest migration. All times are milliseconds since 1970 by the database's clock."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    true,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

NAME_CHARS: Final = 255
"""Maximum length of a name: topics with `%RETRY%` are the longest that RocketMQ allows."""
VERSION_TABLE: Final = "sparrow_schema"

metadata = MetaData()


def name_type(chars: int = NAME_CHARS) -> TypeEngine[str]:
    """Text that is compared by every character. MySQL's default collations treat `A`, and `a` with a trailing
    blank, as equal to `a`. The migration sets another collation, which has a different name in MariaDB.
    """
    return String(chars).with_variant(mysql.VARCHAR(chars, charset="utf8mb4"), "mysql")


def long_text() -> TypeEngine[str]:
    """Text of any length (MySQL's TEXT ends at 64 KiB)."""
    return Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4"), "mysql")


def _id() -> Column[Any]:
    # SQLite generates ids only in columns declared exactly as INTEGER; with `sqlite_autoincrement` it never
    # reuses an id.
    return Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)


def _name(name: str, chars: int = NAME_CHARS, **options: Any) -> Column[Any]:
    return Column(name, name_type(chars), nullable=False, **options)


def _time(name: str, **options: Any) -> Column[Any]:
    return Column(name, BigInteger, nullable=False, server_default="0", **options)


lease = Table(
    "lease",
    metadata,
    _name("service", 64, primary_key=True),
    _name("owner_id", 32, server_default=""),
    _name("owner_label", 200, server_default=""),
    Column("epoch", BigInteger, nullable=False, server_default="0"),
    _time("acquired_at"),
    _time("renewed_at"),
    _time("expires_at"),
    _name("blocked_owner", 32, server_default=""),
    _time("blocked_until"),
)
"""One row per service: its leader. An empty owner means none; `epoch` only grows."""

service = Table(
    "service",
    metadata,
    _name("name", 64, primary_key=True),
    Column("interval_ms", BigInteger, nullable=False),
    Column("paused", Boolean(create_constraint=False), nullable=False, server_default=false()),
    _name("pause_reason", 500, server_default=""),
    _time("next_due_at"),
    _time("run_asked_at"),
    Column("options", long_text(), nullable=False),
    Column("revision", BigInteger, nullable=False, server_default="0"),
)
"""When each service runs next, and its settings; `options` is a JSON object."""

service_run = Table(
    "service_run",
    metadata,
    _id(),
    _name("service", 64),
    Column("epoch", BigInteger, nullable=False),
    _time("started_at"),
    _time("ended_at"),
    _name("outcome", 16),
    Column("counts", long_text(), nullable=False),
    _name("message", 500, server_default=""),
    Index("ix_service_run_service", "service", "id"),
    sqlite_autoincrement=True,
)

alarm = Table(
    "alarm",
    metadata,
    _id(),
    _name("rule", 64),
    _name("object_key", 600),
    _name("group_name", server_default=""),
    _name("topic", server_default=""),
    _name("state", 16),
    _name("text", 1000),
    _time("since"),
    _time("changed_at"),
    Column("bad_checks", Integer, nullable=False, server_default="0"),
    _time("silenced_until"),
    _time("noticed_at"),
    _name("changed_by", server_default=""),
    UniqueConstraint("rule", "object_key", name="uq_alarm"),
    Index("ix_alarm_state", "state"),
    sqlite_autoincrement=True,
)

notice = Table(
    "notice",
    metadata,
    _id(),
    Column("alarm_id", BigInteger, nullable=False),
    _name("kind", 16),
    _name("channel", 16),
    _name("target", 500),
    Column("body", long_text(), nullable=False),
    _time("created_at"),
    Column("attempts", Integer, nullable=False, server_default="0"),
    _time("next_try_at"),
    _time("ended_at"),
    _name("error", 500, server_default=""),
    Index("ix_notice_due", "ended_at", "next_try_at"),
    sqlite_autoincrement=True,
)
"""Notices to send, written together with the change; `ended_at` 0 means waiting."""

lag_limit = Table(
    "lag_limit",
    metadata,
    _name("group_name", primary_key=True),
    _name("topic", primary_key=True),
    Column("messages", BigInteger, nullable=False),
    Column("age_ms", BigInteger, nullable=False),
    Column("enabled", Boolean(create_constraint=False), nullable=False, server_default=true()),
)
"""Limits of a group on a topic; the topic `*` stands for all of the group's."""

person = Table(
    "person",
    metadata,
    _name("name", 64, primary_key=True),
    _name("password_hash"),
    _name("role", 16),
    _name("email", server_default=""),
    Column("enabled", Boolean(create_constraint=False), nullable=False, server_default=true()),
    _time("created_at"),
)

object_role = Table(
    "object_role",
    metadata,
    _name("person", 64, primary_key=True),
    _name("kind", 16, primary_key=True),
    _name("object", primary_key=True),
    _name("role", 16),
    Index("ix_object_role_object", "kind", "object"),
)
"""A person's role for one topic or group, in addition to the person's own role."""

token = Table(
    "token",
    metadata,
    _id(),
    _name("person", 64),
    _name("digest", 64),
    _name("label", 100, server_default=""),
    _time("created_at"),
    _time("expires_at"),
    Column("parent", BigInteger, nullable=False, server_default="0"),
    _name("maker", 64, server_default=""),
    UniqueConstraint("digest", name="uq_token_digest"),
    Index("ix_token_person", "person"),
    sqlite_autoincrement=True,
)
"""`parent` is the token with which it was created, and with which it ends; 0 if it was created with a
password.
"""

audit = Table(
    "audit",
    metadata,
    _id(),
    _time("at"),
    _name("actor", 100),
    _name("action", 64),
    _name("kind", 16),
    _name("object", 600),
    Column("before", long_text()),
    Column("after", long_text()),
    _name("reason", 500, server_default=""),
    Column("generation", BigInteger),
    Index("ix_audit_at", "at"),
    Index("ix_audit_actor", "actor", "id"),
    sqlite_autoincrement=True,
)
"""One row for every change a person or a service made, written in the change's own transaction."""

group_revision = Table(
    "group_revision",
    metadata,
    _name("group_name", primary_key=True),
    Column("revision", BigInteger, nullable=False, server_default="0"),
)
"""Counts the changes of a group's settings; each change locks the row."""

group_setting = Table(
    "group_setting",
    metadata,
    _name("group_name", primary_key=True),
    _name("name", 64, primary_key=True),
    _name("place", 440, primary_key=True),
    Column("value", long_text(), nullable=False),
    _name("reason", 500, server_default=""),
    _time("until"),
    _name("changed_by", 100, server_default=""),
    _time("changed_at"),
)
"""A group's dynamic settings: one row per setting and scope; `value` is JSON, `until` 0 means no end."""

group_reset = Table(
    "group_reset",
    metadata,
    _id(),
    _name("group_name"),
    _name("place", 440),
    _name("target", 64),
    _name("state", 16),
    _name("asked_by", 100, server_default=""),
    _name("reason", 500, server_default=""),
    _time("asked_at"),
    _time("ended_at"),
    Column("before", long_text()),
    Column("after", long_text()),
    _name("message", 500, server_default=""),
    Index("ix_group_reset_state", "state", "id"),
    Index("ix_group_reset_group", "group_name", "id"),
    sqlite_autoincrement=True,
)
"""Requested offset resets: carried out by the leader; `before` and `after` are offsets by queue."""
broker_seen = Table(
    "broker_seen",
    metadata,
    _name("broker", primary_key=True),
    Column("broker_id", Integer, primary_key=True, autoincrement=False),
    _name("cluster", server_default=""),
    _name("address", server_default=""),
    _time("first_seen"),
    _time("last_seen"),
    _time("checked_at"),
    _name("error", 500, server_default=""),
    _name("write_error", 500, server_default=""),
)
"""Brokers that were registered and not removed by a user; `error` says why one does not answer."""

drain = Table(
    "drain",
    metadata,
    _name("broker", primary_key=True),
    _name("state", 16),
    Column("permission", Integer, nullable=False, server_default="6"),
    Column("forced", Boolean(create_constraint=False), nullable=False, server_default=false()),
    _name("asked_by", 64, server_default=""),
    _name("reason", 500, server_default=""),
    _time("asked_at"),
    _time("changed_at"),
    _time("measured_at"),
    Column("backlog", long_text(), nullable=False),
    _name("message", 500, server_default=""),
)
"""Brokers that are being drained; `permission` is restored on cancelling, `backlog` is a JSON object."""

member_seen = Table(
    "member_seen",
    metadata,
    _name("group_name", primary_key=True),
    _name("client_id", primary_key=True),
    _name("address", 200, server_default=""),
    _name("language", 32, server_default=""),
    Column("version", Integer, nullable=False, server_default="0"),
    _time("first_seen"),
    _time("last_seen"),
)
"""Members of groups that were online and have not been removed yet."""

growth = Table(
    "growth",
    metadata,
    _name("rule", 64, primary_key=True),
    _name("object_key", primary_key=True),
    Column("base", BigInteger, nullable=False),
    Column("value", BigInteger, nullable=False),
    _time("grown_at"),
)
"""Counters that rules watch: value before the last growth, current value, and when it last grew."""

managed_group = Table(
    "managed_group",
    metadata,
    _name("name", primary_key=True),
    Column("epoch", BigInteger, nullable=False, server_default="0"),
    Column("generation", BigInteger, nullable=False, server_default="0"),
    Column("settled", Boolean(create_constraint=False), nullable=False, server_default=true()),
    Column("lease_ms", BigInteger, nullable=False, server_default="0"),
    Column("released", BigInteger, nullable=False, server_default="0"),
    Column("lease_over", BigInteger, nullable=False, server_default="0"),
    Column("drained_too_long", BigInteger, nullable=False, server_default="0"),
    Column("late", BigInteger, nullable=False, server_default="0"),
    _time("planned_at"),
    Column("seen", long_text(), nullable=False),
    _time("seen_at"),
    _name("problem", 500, server_default=""),
)
"""A group that is planned. `seen` is a JSON object of the members' reports, as known to the leader at
`seen_at`: written periodically, not for each report. `lease_ms` is the longest lease that may still run.
"""

managed_member = Table(
    "managed_member",
    metadata,
    _name("group_name", primary_key=True),
    _name("member", primary_key=True),
    _name("client_id", server_default=""),
    _name("address", 64, server_default=""),
    _name("version", 64, server_default=""),
    Column("seniority", BigInteger, nullable=False, server_default="0"),
    _time("joined_at"),
    Column("topics", long_text(), nullable=False),
    _name("standing", 16, server_default=""),
    _name("reason", 500, server_default=""),
    _name("proof", 64, server_default=""),
)
"""A member of a group; one that left or timed out has no row. `proof` is the digest of the proof of its
identity.
"""

managed_queue = Table(
    "managed_queue",
    metadata,
    _name("group_name", primary_key=True),
    _name("topic", primary_key=True),
    _name("broker", 128, primary_key=True),
    Column("queue_id", Integer, primary_key=True, autoincrement=False, nullable=False),
    _name("owner", server_default=""),
    Column("generation", BigInteger, nullable=False, server_default="0"),
    _name("phase", 16, server_default=""),
    _name("target", server_default=""),
    _name("why", 1000, server_default=""),
    _time("since"),
)
"""The owner of a queue and since when, its phase on the way to `target`, and the reason for the target."""

managed_plan = Table(
    "managed_plan",
    metadata,
    _id(),
    _name("group_name", server_default=""),
    Column("generation", BigInteger, nullable=False, server_default="0"),
    Column("epoch", BigInteger, nullable=False, server_default="0"),
    _time("made_at"),
    _time("in_force_at"),
    Column("members", BigInteger, nullable=False, server_default="0"),
    Column("queues", BigInteger, nullable=False, server_default="0"),
    Column("moved", BigInteger, nullable=False, server_default="0"),
    _name("cause", 500, server_default=""),
    Column("moves", long_text(), nullable=False),
    Index("ix_managed_plan_group", "group_name", "id"),
    Index("ix_managed_plan_made", "made_at"),
    sqlite_autoincrement=True,
)
"""A plan; `in_force_at` is 0 until it is in force. The audit clean-up deletes old ones."""

secret = Table(
    "secret",
    metadata,
    _name("name", 64, primary_key=True),
    _name("value", 64, server_default=""),
)
"""Secrets of coordinators; unused in this release."""

log_sample = Table(
    "log_sample",
    metadata,
    _id(),
    _name("broker"),
    _time("at"),
    Column("log_min", BigInteger, nullable=False),
    Column("log_max", BigInteger, nullable=False),
    Column("total", BigInteger, nullable=False),
    Column("free", BigInteger, nullable=False),
    Index("ix_log_sample_broker", "broker", "at"),
    sqlite_autoincrement=True,
)
"""Begin and end of a broker's log, and bytes of its disk; thinned to one row per hour after a day."""

finding = Table(
    "finding",
    metadata,
    _id(),
    _name("service", 64),
    _name("kind", 64),
    _name("object_key", 600),
    _name("group_name", server_default=""),
    _name("topic", server_default=""),
    _name("text", 1000),
    Column("body", long_text(), nullable=False),
    _time("first_at"),
    _time("seen_at"),
    _time("repairing_at"),
    UniqueConstraint("service", "kind", "object_key", name="uq_finding"),
    sqlite_autoincrement=True,
)
"""Findings of a service at its last run; `body` is JSON: numbers to show, and the proposed repair."""

object_use = Table(
    "object_use",
    metadata,
    _name("kind", 16, primary_key=True),
    _name("object", primary_key=True),
    _time("first_at"),
    _time("seen_at"),
    Column("sent", BigInteger, nullable=False, server_default="0"),
    Column("consumed", BigInteger, nullable=False, server_default="0"),
    _time("sent_at"),
    _time("used_at"),
    _time("day_at"),
    Column("day_sent", BigInteger, nullable=False, server_default="0"),
    Column("day_rate", BigInteger, nullable=False, server_default="-1"),
    Column("owned", Boolean(create_constraint=False), nullable=False, server_default=false()),
)
"""Since when a topic or group is known, when it was last sent to and used, and whether it ever had an owner.

`day_sent` is the number sent until `day_at`, about a day ago, and `day_rate` the number on the day before
(-1: unknown).
"""

history_series = Table(
    "history_series",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False, nullable=False),
    _name("figure", 16),
    _name("name", 600),
    _time("seen_at"),
    UniqueConstraint("figure", "name", name="uq_history_series"),
)
"""Series of charts, one row per line: the figure and its object."""

history_block = Table(
    "history_block",
    metadata,
    Column("grain", Integer, primary_key=True, autoincrement=False, nullable=False),
    Column("begin_at", BigInteger, primary_key=True, autoincrement=False, nullable=False),
    Column("shard", Integer, primary_key=True, autoincrement=False, nullable=False),
    Column("data", LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql"), nullable=False),
)
"""Values of 64 series from `begin_at` on, packed (history/blocks.py); `grain` is the resolution. Bounded: the
service `history` deletes values when the retention of their grain ends.
"""

pipeline = Table(
    "pipeline",
    metadata,
    _name("name", 100, primary_key=True),
    _name("reported_by", 100),
    _name("run", 64),
    _time("began_at"),
    _time("reported_at"),
    Column("body", long_text(), nullable=False),
)
"""What each pipeline on Spark reported last: its progress as JSON, of the run that began at `began_at`.
Bounded in rows and age (records/pipelines.py).
"""

replica_group = Table(
    "replica_group",
    metadata,
    _name("name", primary_key=True),
    Column("epoch", BigInteger, nullable=False, server_default="0"),
    Column("number", BigInteger, nullable=False, server_default="0"),
    Column("body", long_text(), nullable=False),
    _name("text", 500, server_default=""),
    _time("changed_at"),
    Column("seen", long_text(), nullable=False),
    _time("seen_at"),
)
"""Groups of brokers whose master the service `replica-election` chooses. `body` is JSON: master, in-sync set
and members. `number` counts the changes of the in-sync set, `text` describes the last change. `seen` is JSON:
the brokers' last answers.
"""

replica_wish = Table(
    "replica_wish",
    metadata,
    _name("name", primary_key=True),
    _name("kind", 16),
    _name("target", server_default=""),
    _name("asked_by", 100),
    _name("reason", 500, server_default=""),
    _time("asked_at"),
)
"""An operator's request for a group of brokers, such as an election; deleted when it is done."""
