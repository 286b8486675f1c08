"""Alarms in the database: results of checks become states, and every change writes its notices and audit
entry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from sparrowmq.coordinator.alarms import machine
from sparrowmq.coordinator.alarms.machine import Alarm, AlarmPolicy, AlarmState
from sparrowmq.coordinator.alarms.outbox import Channels, post
from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.tables import NAME_CHARS
from sparrowmq.coordinator.database.tables import alarm as alarm_table
from sparrowmq.coordinator.database.texts import fitting, key_of
from sparrowmq.coordinator.records.audit import Actor, record
from sparrowmq.core.errors import RefusedError

TEXT_CHARS: Final = 1000
ALARMS_MAX: Final = 200
"""Maximum number of separate alarms per rule; the others are counted in one additional alarm."""
MORE: Final = "(more)"
"""The key of that additional alarm."""
PAGE_MAX: Final = 1000
SILENCE_MS_MAX: Final = 30 * 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Condition:
    """A problem that a rule found. `key` identifies it within its rule; `text` describes it for people."""

    key: str
    text: str
    group: str = ""
    topic: str = ""


@dataclass(frozen=True, slots=True)
class AlarmRow:
    """One alarm, for display."""

    id: int
    rule: str
    key: str
    group: str
    topic: str
    text: str
    alarm: Alarm
    changed_by: str


@dataclass(frozen=True, slots=True)
class AlarmCheck:
    """Result of one check of a rule. Alarms of `unknown` groups keep their state, because these could not be
    checked; if the check is `partial`, all alarms do.
    """

    rule: str
    policy: AlarmPolicy
    conditions: tuple[Condition, ...]
    unknown: Collection[str] = ()
    partial: bool = False


def observe(connection: Connection, check: AlarmCheck, actor: Actor, channels: Channels) -> dict[str, int]:
    """Update the alarms of a rule with the result of a check; returns how many fire, are new and were
    resolved.
    """
    now = int(connection.execute(select(now_ms())).scalar_one())
    known = {row.key: row for row in _rows(connection, alarm_table.c.rule == check.rule, lock=True)}
    found = {key_of(one.key): one for one in check.conditions}
    counts = {"seen": len(found), "fired": 0, "resolved": 0}
    for key, condition in _told_singly(check.rule, found, known).items():
        row = known.pop(key, None)
        before = row.alarm if row else Alarm()
        after, kind = machine.seen(before, now, check.policy)
        row = _keep(connection, check.rule, (key, condition), row, after)
        counts["fired"] += kind == AlarmState.FIRING
        _tell(connection, row, before, kind, actor, channels)
    for row in known.values():
        untold = row.alarm.state is AlarmState.RESOLVED or row.key in found
        if untold or check.partial or row.group in check.unknown:
            continue
        after, kind = machine.gone(row.alarm, now, check.policy.calm_checks)
        counts["resolved"] += kind == AlarmState.RESOLVED
        before = row.alarm
        who = row.changed_by if after.state is before.state else actor.name
        row = _store(connection, row, after, who)
        _tell(connection, row, before, kind, actor, channels)
    return counts


def _told_singly(
    rule: str, found: dict[str, Condition], known: Mapping[str, AlarmRow]
) -> dict[str, Condition]:
    """At most `ALARMS_MAX` conditions, existing alarms first, and the number of omitted ones: if a broker
    with thousands of queues is lost, thousands of mails would not help.
    """
    if len(found) <= ALARMS_MAX:
        return found
    order = sorted(found, key=lambda key: key not in known or known[key].alarm.state is AlarmState.RESOLVED)
    count = len(found) - ALARMS_MAX
    text = f"{count} more alarms of the rule {rule} are not reported individually; the first of them: "
    more = Condition(MORE, text + found[order[ALARMS_MAX]].text)
    return {key: found[key] for key in order[:ALARMS_MAX]} | {MORE: more}


def acknowledge(connection: Connection, alarm_id: int, actor: Actor, channels: Channels) -> AlarmRow:
    """Acknowledge an alarm. Raises `RefusedError`: 404 if it does not exist, 409 in the wrong state."""
    row, now = _one(connection, alarm_id)
    return _by_person(connection, row, machine.acknowledge(row.alarm, now), actor, channels)


def silence(
    connection: Connection, alarm_id: int, minutes: int, actor: Actor, channels: Channels
) -> AlarmRow:
    """Suppress reminders for some minutes. Raises `RefusedError`, 422 for a time out of range."""
    if not 1 <= minutes <= SILENCE_MS_MAX // 60_000:
        raise RefusedError(
            f"an alarm can be silenced for 1 to {SILENCE_MS_MAX // 60_000} minutes, not {minutes}", status=422
        )
    row, now = _one(connection, alarm_id)
    return _by_person(
        connection, row, machine.silence(row.alarm, now, now + minutes * 60_000), actor, channels
    )


def wake(connection: Connection, alarm_id: int, actor: Actor, channels: Channels) -> AlarmRow:
    """End a silence early. Raises `RefusedError`."""
    row, now = _one(connection, alarm_id)
    return _by_person(connection, row, machine.wake(row.alarm, now), actor, channels)


def one(connection: Connection, alarm_id: int) -> AlarmRow:
    """An alarm. Raises `RefusedError` (404)."""
    found = next(iter(_rows(connection, alarm_table.c.id == alarm_id)), None)
    if found is None:
        raise RefusedError(f"there is no alarm {alarm_id}", status=404)
    return found


def search(
    connection: Connection, states: Iterable[AlarmState], *, rule: str = "", group: str = ""
) -> list[AlarmRow]:
    """Alarms in any of the states, the latest change first, at most `PAGE_MAX`."""
    where: ColumnElement[bool] = alarm_table.c.state.in_([str(state) for state in states])
    if rule:
        where &= alarm_table.c.rule == rule
    if group:
        where &= alarm_table.c.group_name == group
    return _rows(connection, where)


def delete_resolved(connection: Connection, at: int, limit: int) -> int:
    """Delete up to `limit` alarms that were resolved before `at`; returns how many."""
    old = (alarm_table.c.state == str(AlarmState.RESOLVED)) & (alarm_table.c.changed_at < at)
    ids = list(connection.execute(select(alarm_table.c.id).where(old).limit(limit)).scalars())
    if ids:
        connection.execute(delete(alarm_table).where(alarm_table.c.id.in_(ids)))
    return len(ids)


def _one(connection: Connection, alarm_id: int) -> tuple[AlarmRow, int]:
    found = _rows(connection, alarm_table.c.id == alarm_id, lock=True)
    if not found:
        raise RefusedError(f"there is no alarm {alarm_id}", status=404)
    return found[0], int(connection.execute(select(now_ms())).scalar_one())


def _by_person(
    connection: Connection, row: AlarmRow, result: tuple[Alarm, str | None], actor: Actor, channels: Channels
) -> AlarmRow:
    after, kind = result
    stored = _store(connection, row, after, actor.name)
    # A longer silence changes no state and sends no notice, but it is a user's action.
    _tell(connection, stored, row.alarm, kind, actor, channels, always=True)
    return stored


def _rows(connection: Connection, where: Any, *, lock: bool = False) -> list[AlarmRow]:
    query = (
        select(alarm_table).where(where).order_by(alarm_table.c.changed_at.desc(), alarm_table.c.id.desc())
    )
    query = query.with_for_update() if lock else query.limit(PAGE_MAX)
    return [_row(found) for found in connection.execute(query).mappings()]


def _row(found: Any) -> AlarmRow:
    state = Alarm(
        AlarmState(found["state"]),
        found["since"],
        found["changed_at"],
        found["bad_checks"],
        found["silenced_until"],
        found["noticed_at"],
    )
    return AlarmRow(
        found["id"],
        found["rule"],
        found["object_key"],
        found["group_name"],
        found["topic"],
        found["text"],
        state,
        found["changed_by"],
    )


def _values(alarm: Alarm) -> dict[str, Any]:
    return {
        "state": str(alarm.state),
        "since": alarm.since,
        "changed_at": alarm.changed_at,
        "bad_checks": alarm.bad_checks,
        "silenced_until": alarm.silenced_until,
        "noticed_at": alarm.noticed_at,
    }


def _keep(
    connection: Connection, rule: str, found: tuple[str, Condition], row: AlarmRow | None, after: Alarm
) -> AlarmRow:
    key, seen = found
    text, group, topic = (
        fitting(seen.text, TEXT_CHARS),
        fitting(seen.group, NAME_CHARS),
        fitting(seen.topic, NAME_CHARS),
    )
    if row is not None:
        changed_by = row.changed_by if row.alarm.state is after.state else ""
        values = {**_values(after), "text": text, "changed_by": changed_by}
        connection.execute(update(alarm_table).where(alarm_table.c.id == row.id).values(**values))
        return AlarmRow(row.id, rule, key, row.group, row.topic, text, after, changed_by)
    values = {
        "rule": rule,
        "object_key": key,
        "group_name": group,
        "topic": topic,
        "text": text,
    }
    made = connection.execute(insert(alarm_table).values(**values, **_values(after)))
    (number,) = made.inserted_primary_key or (0,)
    return AlarmRow(number, rule, key, group, topic, text, after, "")


def _store(connection: Connection, row: AlarmRow, after: Alarm, changed_by: str) -> AlarmRow:
    connection.execute(
        update(alarm_table).where(alarm_table.c.id == row.id).values(**_values(after), changed_by=changed_by)
    )
    return AlarmRow(row.id, row.rule, row.key, row.group, row.topic, row.text, after, changed_by)


def _tell(
    connection: Connection,
    row: AlarmRow,
    before: Alarm,
    kind: str | None,
    actor: Actor,
    channels: Channels,
    *,
    always: bool = False,
) -> None:
    if before.state is not row.alarm.state or always:
        record(
            connection,
            actor,
            f"alarm.{row.alarm.state}",
            ("alarm", f"{row.rule} {row.key}"),
            before={"state": str(before.state)},
            after={
                "state": str(row.alarm.state),
                "silenced_until": row.alarm.silenced_until,
                "text": row.text,
            },
        )
    if kind is not None:
        post(connection, channels, row.id, kind, _body(row, kind, actor))


def _body(row: AlarmRow, kind: str, actor: Actor) -> dict[str, Any]:
    return {
        "kind": kind,
        "alarm": row.id,
        "rule": row.rule,
        "object": row.key,
        "group": row.group,
        "topic": row.topic,
        "text": row.text,
        "since_ms": row.alarm.since,
        "at_ms": row.alarm.noticed_at,
        "by": actor.name,
        "reason": actor.reason,
    }
