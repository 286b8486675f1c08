"""Live knobs in the database: what is set of groups, each change with its audit entry in its transaction.

The table is the truth: the leader reads it, plans by it, and brings it to brokers and members. A group's
changes are numbered; each locks the group's number first, so two people at once come one after the other,
and one who says which number it started from is refused when it is not the last any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, delete, func, insert, or_, select, update
from sqlalchemy.dialects import mysql, postgresql, sqlite

from sparrowmq.coordinator.audit import Actor, record
from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.tables import group_revision, group_setting
from sparrowmq.core.errors import RefusedError, SettingsError
from sparrowmq.core.knobs import Place, Setting, Value, find, load
from sparrowmq.core.names import check_group
from sparrowmq.protocol.filter import parse_expression

SETTINGS_MAX: Final = 1000
"""Settings of one group: a broker takes as many pauses."""
UNTIL_MS_MAX: Final = 366 * 86_400_000
EXPIRE_AT_ONCE: Final = 500
ENDED: Final = Actor("time", "its time is over")


@dataclass(frozen=True, slots=True)
class Row:
    """What is set of a group, by whom and when. `is_over` once its time has come."""

    group: str
    setting: Setting
    changed_by: str
    changed_at: int
    is_over: bool = False


def read(connection: Connection, group: str | None = None, *, over: bool = False) -> list[Row]:
    """What is set, of one group or of all; with `over` also what has ended and is not cleared away.

    Rows that this release does not know are left out: a newer one set them.
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
    """How many changes a group has had."""
    query = select(group_revision.c.revision).where(group_revision.c.group_name == group)
    return int(connection.execute(query).scalar() or 0)


def put(
    connection: Connection,
    group: str,
    name: str,
    place: Place,
    value: object,
    actor: Actor,
    *,
    for_ms: int = 0,
    expected: int | None = None,
) -> Row:
    """Set a knob of a group at a place, for `for_ms` milliseconds (0: until it is unset).

    `expected` is the revision that the caller has seen. Raises `RefusedError`: 422 with the range, 409 when
    the group was changed since.
    """
    check_group(group)
    checked = _checked(name, place, value)
    if not 0 <= for_ms <= UNTIL_MS_MAX:
        text = f"the time that {name} counts must be from 0 (no end) to {UNTIL_MS_MAX} ms, not {for_ms}"
        raise RefusedError(text, status=422)
    number = next_revision(connection, group, expected)
    _clear_ended(connection, group, name, place, number)
    before = _one(connection, group, name, place)
    if before is None:
        mine = group_setting.c.group_name == group
        count = connection.execute(select(func.count()).select_from(group_setting).where(mine)).scalar_one()
        if count >= SETTINGS_MAX:
            text = f"group {group} has {count} settings, the limit is {SETTINGS_MAX}; unset some first"
            raise RefusedError(text, status=422)
    values: dict[str, Any] = {
        "value": Setting(name, place, checked).text,
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
    _record(connection, "knob.set", group, number, before, after, actor)
    return after


def remove(
    connection: Connection, group: str, name: str, place: Place, actor: Actor, *, expected: int | None = None
) -> None:
    """Unset a knob. Raises `RefusedError`: 404 when it is not set there, 409 as `put`."""
    check_group(group)
    _known(name)
    number = next_revision(connection, group, expected)
    before = _one(connection, group, name, place)
    if before is None or before.is_over:
        raise RefusedError(f"{name} is not set for {place} of group {group}", status=404)
    connection.execute(delete(group_setting).where(_is(group, name, place)))
    _record(connection, "knob.unset", group, number, before, None, actor)


def expire(connection: Connection, actor: Actor) -> int:
    """Clear away what has ended, each with an audit entry; how many."""
    ended = select(group_setting).where(group_setting.c.until > 0, group_setting.c.until <= now_ms())
    count = 0
    for row in connection.execute(ended.limit(EXPIRE_AT_ONCE)).mappings().all():
        group, number = row["group_name"], next_revision(connection, row["group_name"], None)
        mine = [group_setting.c[name] == row[name] for name in ("group_name", "name", "place", "until")]
        if connection.execute(delete(group_setting).where(*mine)).rowcount:  # else it was set anew meanwhile
            _record(connection, "knob.expire", group, number, _row(row), None, actor)
            count += 1
    return count


def _clear_ended(connection: Connection, group: str, name: str, place: Place, number: int) -> None:
    """Clear a value away whose time has come before the leader did, with the entry that says so."""
    before = _one(connection, group, name, place)
    if before is not None and before.is_over:
        connection.execute(delete(group_setting).where(_is(group, name, place)))
        _record(connection, "knob.expire", group, number, before, None, ENDED)


def _known(name: str) -> None:
    try:
        find(name)
    except SettingsError as error:
        raise RefusedError(str(error), status=404) from None


def _checked(name: str, place: Place, value: object) -> Value:
    _known(name)
    knob = find(name)
    try:
        knob.check_place(place)
        checked = knob.check(value)
    except SettingsError as error:
        raise RefusedError(str(error), status=422) from None
    if name == "tags":
        parse_expression(place.topic, str(checked), 0)
    return checked


def next_revision(connection: Connection, group: str, expected: int | None) -> int:
    """Lock the group's number and count it up; gives the new one. Raises `RefusedError` (409) unless it was
    `expected`.
    """
    mine = group_revision.c.group_name == group
    query = select(group_revision.c.revision).where(mine).with_for_update()
    found = connection.execute(query).scalar()
    if found is None:
        _first_row(connection, group)
        found = connection.execute(query).scalar_one()
    if expected is not None and found != expected:
        raise RefusedError(
            f"group {group} was changed meanwhile: it is at revision {found}, you saw {expected}; look again",
            status=409,
        )
    connection.execute(update(group_revision).where(mine).values(revision=found + 1))
    return int(found) + 1


def _first_row(connection: Connection, group: str) -> None:
    """Make a group's row, unless somebody else is faster, who is waited for.

    A refused insert would leave a shared lock in MySQL, and two of those wait for each other.
    """
    kind = connection.dialect.name
    if kind in ("mysql", "mariadb"):
        row = mysql.insert(group_revision).values(group_name=group)
        connection.execute(row.on_duplicate_key_update(group_name=group))
    else:
        make = postgresql.insert if kind == "postgresql" else sqlite.insert
        connection.execute(make(group_revision).values(group_name=group).on_conflict_do_nothing())


def _is(group: str, name: str, place: Place) -> Any:
    return (
        (group_setting.c.group_name == group)
        & (group_setting.c.name == name)
        & (group_setting.c.place == str(place))
    )


def _one(connection: Connection, group: str, name: str, place: Place) -> Row | None:
    live = or_(group_setting.c.until == 0, group_setting.c.until > now_ms()).label("live")
    query = select(group_setting, live).where(_is(group, name, place))
    found = connection.execute(query).mappings().first()
    return None if found is None else _row(found)


def _row(found: Any) -> Row | None:
    try:
        value = load(found["name"], found["value"])
        place = Place.parse(found["place"])
    except SettingsError:
        return None
    setting = Setting(found["name"], place, value, found["until"], found["reason"])
    is_over = bool(found["until"]) and not found.get("live", True)
    return Row(found["group_name"], setting, found["changed_by"], found["changed_at"], is_over)


def _record(
    connection: Connection,
    action: str,
    group: str,
    number: int,
    before: Row | None,
    after: Row | None,
    actor: Actor,
) -> None:
    was, becomes = (_shown(row) for row in (before, after))
    by = Actor(actor.name, actor.reason, number)
    record(connection, by, action, ("group", group), before=was, after=becomes)


def _shown(row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    one = row.setting
    shown: dict[str, Any] = {"knob": one.name, "place": str(one.place), "value": one.value}
    return shown | ({"until": one.until} if one.until else {})
