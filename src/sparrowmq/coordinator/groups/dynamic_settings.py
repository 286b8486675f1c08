"""Dynamic settings in the database, each change with its audit entry in the same transaction.

The table is the source of truth: the leader reads it, uses it for plans, and sends it to brokers and members.
A group's changes are numbered. Each change locks the group's number first, so concurrent changes are made one
after the other, and a change that names an outdated number is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, delete, func, insert, or_, select, update
from sqlalchemy.dialects import mysql, postgresql, sqlite

from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.tables import group_revision, group_setting
from sparrowmq.coordinator.records.audit import Actor, record
from sparrowmq.core.dynamic_settings import SettingPlace, SettingValue, Value, find, load
from sparrowmq.core.errors import RefusedError, SettingsError
from sparrowmq.core.names import check_group
from sparrowmq.protocol.filter import parse_expression

SETTINGS_MAX: Final = 1000
"""Maximum number of settings of one group: a broker accepts as many pauses."""
UNTIL_MS_MAX: Final = 366 * 86_400_000
EXPIRE_AT_ONCE: Final = 500
ENDED: Final = Actor("time", "its time limit has passed")


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting of a group: who set it and when. `is_over` after its end."""

    group: str
    setting: SettingValue
    changed_by: str
    changed_at: int
    is_over: bool = False


def read(connection: Connection, group: str | None = None, *, over: bool = False) -> list[SettingRow]:
    """The settings of one group or of all; with `over` also expired ones that are not deleted yet.

    Rows unknown to this release are omitted: a newer release set them.
    """
    now = now_ms()
    query = select(group_setting, (group_setting.c.until > now).label("live")).order_by(
        group_setting.c.group_name, group_setting.c.name, group_setting.c.place
    )
    if group is not None:
        query = query.where(group_setting.c.group_name == group)
    if not over:
        query = query.where(or_(group_setting.c.until == 0, group_setting.c.until > now))
    rows = (_row(found) for found in connection.execute(query).mappings())
    return [row for row in rows if row is not None]


def revision(connection: Connection, group: str) -> int:
    """Number of changes of a group."""
    query = select(group_revision.c.revision).where(group_revision.c.group_name == group)
    return int(connection.execute(query).scalar() or 0)


def put(
    connection: Connection,
    group: str,
    name: str,
    place: SettingPlace,
    value: object,
    actor: Actor,
    *,
    for_ms: int = 0,
    expected: int | None = None,
) -> SettingRow:
    """Set a group's dynamic setting in a scope for `for_ms` milliseconds (0: until it is unset).

    `expected` is the revision that the caller has seen. Raises `RefusedError`: 422 with the range, 409 when
    the group was changed since.
    """
    check_group(group)
    checked = _checked(name, place, value)
    if not 0 <= for_ms <= UNTIL_MS_MAX:
        text = f"the duration of {name} must be from 0 (no end) to {UNTIL_MS_MAX} ms, not {for_ms}"
        raise RefusedError(text, status=422, what="duration", value=for_ms, limit=UNTIL_MS_MAX)
    number = next_revision(connection, group, expected)
    _clear_ended(connection, group, name, place, number)
    before = _one(connection, group, name, place)
    if before is None:
        mine = group_setting.c.group_name == group
        count = connection.execute(select(func.count()).select_from(group_setting).where(mine)).scalar_one()
        if count >= SETTINGS_MAX:
            text = f"group {group} has {count} settings, the limit is {SETTINGS_MAX}; unset some first"
            raise RefusedError(text, status=422, what="settings", value=count, limit=SETTINGS_MAX)
    values: dict[str, Any] = {
        "value": SettingValue(name, place, checked).text,
        "reason": actor.reason[:500],
        "until": now_ms() + for_ms if for_ms else 0,
        "changed_by": actor.name[:100],
        "changed_at": now_ms(),
    }
    if before is None:
        connection.execute(
            insert(group_setting).values(group_name=group, name=name, place=str(place), **values)
        )
    else:
        connection.execute(update(group_setting).where(_is(group, name, place)).values(**values))
    after = _one(connection, group, name, place)
    assert after is not None, "it was just written"
    _record(connection, "setting.set", group, number, before, after, actor)
    return after


def remove(
    connection: Connection,
    group: str,
    name: str,
    place: SettingPlace,
    actor: Actor,
    *,
    expected: int | None = None,
) -> None:
    """Unset a dynamic setting. Raises `RefusedError`: 404 when it is not set there, 409 like `put`."""
    check_group(group)
    _known(name)
    number = next_revision(connection, group, expected)
    before = _one(connection, group, name, place)
    if before is None or before.is_over:
        text = f"{name} is not set for {place} of group {group}"
        raise RefusedError(text, status=404, what=name, value=str(place))
    connection.execute(delete(group_setting).where(_is(group, name, place)))
    _record(connection, "setting.unset", group, number, before, None, actor)


def expire(connection: Connection, actor: Actor) -> int:
    """Delete expired settings, each with an audit entry; returns how many."""
    ended = select(group_setting).where(group_setting.c.until > 0, group_setting.c.until <= now_ms())
    count = 0
    for row in connection.execute(ended.limit(EXPIRE_AT_ONCE)).mappings().all():
        group, number = row["group_name"], next_revision(connection, row["group_name"], None)
        mine = [group_setting.c[name] == row[name] for name in ("group_name", "name", "place", "until")]
        # otherwise it was set again in the meantime
        if connection.execute(delete(group_setting).where(*mine)).rowcount:
            _record(connection, "setting.expire", group, number, _row(row), None, actor)
            count += 1
    return count


def _clear_ended(connection: Connection, group: str, name: str, place: SettingPlace, number: int) -> None:
    """Delete an expired value before the leader does, with an audit entry."""
    before = _one(connection, group, name, place)
    if before is not None and before.is_over:
        connection.execute(delete(group_setting).where(_is(group, name, place)))
        _record(connection, "setting.expire", group, number, before, None, ENDED)


def _known(name: str) -> None:
    try:
        find(name)
    except SettingsError as error:
        raise RefusedError(str(error), status=404, what=name) from None


def _checked(name: str, place: SettingPlace, value: object) -> Value:
    _known(name)
    setting = find(name)
    try:
        setting.check_place(place)
        checked = setting.check(value)
    except SettingsError as error:
        limit = error.limit or error.other
        raise RefusedError(str(error), status=422, what=name, value=value, limit=limit) from None
    if name == "tags":
        parse_expression(place.topic, str(checked), 0)
    return checked


def next_revision(connection: Connection, group: str, expected: int | None) -> int:
    """Lock the group's number and increment it; returns the new one. Raises `RefusedError` (409) unless it
    was `expected`.
    """
    mine = group_revision.c.group_name == group
    query = select(group_revision.c.revision).where(mine).with_for_update()
    found = connection.execute(query).scalar()
    if found is None:
        _first_row(connection, group)
        found = connection.execute(query).scalar_one()
    if expected is not None and found != expected:
        raise RefusedError(
            f"group {group} has changed in the meantime: it is at revision {found}, you saw {expected}; "
            f"reload and try again",
            status=409,
            what="revision",
            value=found,
        )
    connection.execute(update(group_revision).where(mine).values(revision=found + 1))
    return int(found) + 1


def _first_row(connection: Connection, group: str) -> None:
    """Insert a group's row, or wait for a concurrent insert.

    A refused insert would leave a shared lock in MySQL, and two of these would wait for each other.
    """
    kind = connection.dialect.name
    if kind in ("mysql", "mariadb"):
        row = mysql.insert(group_revision).values(group_name=group)
        connection.execute(row.on_duplicate_key_update(group_name=group))
    else:
        make = postgresql.insert if kind == "postgresql" else sqlite.insert
        connection.execute(make(group_revision).values(group_name=group).on_conflict_do_nothing())


def _is(group: str, name: str, place: SettingPlace) -> Any:
    return (
        (group_setting.c.group_name == group)
        & (group_setting.c.name == name)
        & (group_setting.c.place == str(place))
    )


def _one(connection: Connection, group: str, name: str, place: SettingPlace) -> SettingRow | None:
    live = or_(group_setting.c.until == 0, group_setting.c.until > now_ms()).label("live")
    query = select(group_setting, live).where(_is(group, name, place))
    found = connection.execute(query).mappings().first()
    return None if found is None else _row(found)


def _row(found: Any) -> SettingRow | None:
    try:
        value = load(found["name"], found["value"])
        place = SettingPlace.parse(found["place"])
    except SettingsError:
        return None
    setting = SettingValue(found["name"], place, value, found["until"], found["reason"])
    is_over = bool(found["until"]) and not found.get("live", True)
    return SettingRow(found["group_name"], setting, found["changed_by"], found["changed_at"], is_over)


def _record(
    connection: Connection,
    action: str,
    group: str,
    number: int,
    before: SettingRow | None,
    after: SettingRow | None,
    actor: Actor,
) -> None:
    was, becomes = (_shown(row) for row in (before, after))
    by = Actor(actor.name, actor.reason, number)
    record(connection, by, action, ("group", group), before=was, after=becomes)


def _shown(row: SettingRow | None) -> dict[str, Any] | None:
    if row is None:
        return None
    one = row.setting
    shown: dict[str, Any] = {"knob": one.name, "place": str(one.place), "value": one.value}
    return shown | ({"until": one.until} if one.until else {})
