"""Lag limits of groups and topics, set by users; each change has its audit entry."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import Connection, delete, insert, select, update

from sparrowmq.coordinator.database.tables import lag_limit
from sparrowmq.coordinator.records.audit import Actor, record
from sparrowmq.core.errors import RefusedError
from sparrowmq.core.names import check_group, check_topic

ALL_TOPICS: Final = "*"
MESSAGES_MAX: Final = 10**12
AGE_MS_MAX: Final = 365 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Limit:
    """Maximum unread messages, and maximum age of the oldest in milliseconds; 0 is no limit. Without
    `enabled`, no alarms.
    """

    messages: int
    age_ms: int
    enabled: bool = True


Limits = dict[tuple[str, str], Limit]


def limit_of(limits: Limits, group: str, topic: str, default: Limit) -> Limit:
    """The effective limit: the topic's, else the group's, else the default."""
    return limits.get((group, topic)) or limits.get((group, ALL_TOPICS)) or default


def read(connection: Connection) -> Limits:
    """All limits, by group and topic."""
    query = select(lag_limit).order_by(lag_limit.c.group_name, lag_limit.c.topic)
    return {
        (row["group_name"], row["topic"]): Limit(row["messages"], row["age_ms"], bool(row["enabled"]))
        for row in connection.execute(query).mappings()
    }


def put(connection: Connection, group: str, topic: str, limit: Limit, actor: Actor) -> None:
    """Set a limit; the topic `*` stands for all of the group's. Raises `RefusedError` (422) with the
    range.
    """
    check_group(group)
    if topic != ALL_TOPICS:
        check_topic(topic)
    for name, value, high in (
        ("messages", limit.messages, MESSAGES_MAX),
        ("age_ms", limit.age_ms, AGE_MS_MAX),
    ):
        if not 0 <= value <= high:
            text = f"{name} of {group} must be from 0 to {high}, not {value}"
            raise RefusedError(text, status=422, what=name, value=value, limit=high)
    before = _one(connection, group, topic)
    mine = (lag_limit.c.group_name == group) & (lag_limit.c.topic == topic)
    if before is None:
        connection.execute(insert(lag_limit).values(group_name=group, topic=topic, **asdict(limit)))
    else:
        connection.execute(update(lag_limit).where(mine).values(**asdict(limit)))
    _record(connection, group, topic, before, limit, actor)


def remove(connection: Connection, group: str, topic: str, actor: Actor) -> None:
    """Delete a limit. Raises `RefusedError` (404) when it does not exist."""
    before = _one(connection, group, topic)
    if before is None:
        text = f"the group {group} has no limit set on {topic}"
        raise RefusedError(text, status=404, what="limit", value=(group, topic))
    connection.execute(delete(lag_limit).where(lag_limit.c.group_name == group, lag_limit.c.topic == topic))
    _record(connection, group, topic, before, None, actor)


def _one(connection: Connection, group: str, topic: str) -> Limit | None:
    query = select(lag_limit).where(lag_limit.c.group_name == group, lag_limit.c.topic == topic)
    row = connection.execute(query.with_for_update()).mappings().first()
    return None if row is None else Limit(row["messages"], row["age_ms"], bool(row["enabled"]))


def _record(
    connection: Connection, group: str, topic: str, before: Limit | None, after: Limit | None, actor: Actor
) -> None:
    was, becomes = (None if limit is None else {**asdict(limit), "topic": topic} for limit in (before, after))
    record(connection, actor, "limit", ("group", group), before=was, after=becomes)
