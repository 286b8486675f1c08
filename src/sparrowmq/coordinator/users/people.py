"""People in the database: made, changed, deleted, and what each may do. Every change has its audit entry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, delete, func, insert, select, update

from sparrowmq.coordinator.alarms.senders import check_address
from sparrowmq.coordinator.audit import Actor, record
from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.tables import object_role, person, token
from sparrowmq.coordinator.users.roles import GLOBAL_ROLES, OBJECT_KINDS, OBJECT_ROLES, Role, role_of
from sparrowmq.core.errors import RefusedError, SettingsError
from sparrowmq.core.names import check_group, check_topic

FIRST: Final = "admin"
PEOPLE_MAX: Final = 10_000
OBJECTS_MAX: Final = 10_000
"""Objects one person may have a role for."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")


@dataclass(frozen=True, slots=True)
class Person:
    """A person. `objects` are roles for single topics and groups, beyond `role`."""

    name: str
    role: Role
    email: str
    enabled: bool
    created_at: int
    objects: Mapping[tuple[str, str], Role] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """What to change of a person; None stays."""

    role: str | None = None
    email: str | None = None
    enabled: bool | None = None
    password_hash: str | None = field(default=None, repr=False)


def get(connection: Connection, name: str, *, lock: bool = False) -> Person:
    """A person. Raises `RefusedError` (404)."""
    query = select(person).where(person.c.name == name)
    found = connection.execute(query.with_for_update() if lock else query).mappings().first()
    if found is None:
        raise RefusedError(f"there is no person {name[:64]!r}", status=404)
    return _person(found, _objects(connection, name))


def everyone(connection: Connection) -> list[Person]:
    """All people, by name."""
    rows = connection.execute(select(person).order_by(person.c.name).limit(PEOPLE_MAX)).mappings().all()
    return [_person(row, _objects(connection, row["name"])) for row in rows]


def password_hash(connection: Connection, name: str) -> str | None:
    """What is stored of an enabled person's password; None for nobody."""
    query = select(person.c.password_hash).where(person.c.name == name, person.c.enabled)
    found: str | None = connection.execute(query).scalar()
    return found


def add(connection: Connection, name: str, hash_: str, change: Change, actor: Actor) -> None:
    """Make a person. Raises `RefusedError`: 409 for one that is there, 422 for a name or role that is
    none.
    """
    if not _NAME.fullmatch(name):
        raise RefusedError(
            f"a person's name has letters, digits and '_.@-', 64 at most, and begins with one of the first: "
            f"{name[:64]!r}",
            status=422,
        )
    role = role_of(change.role or Role.VIEWER, GLOBAL_ROLES)
    email = _email(change.email)
    if connection.execute(select(person.c.name).where(person.c.name == name)).first() is not None:
        raise RefusedError(f"there is a person {name} already", status=409)
    if connection.execute(select(func.count()).select_from(person)).scalar_one() >= PEOPLE_MAX:
        raise RefusedError(f"there are {PEOPLE_MAX} people, which is the limit; delete some", status=409)
    values = {"role": str(role), "email": email}
    connection.execute(insert(person).values(name=name, password_hash=hash_, created_at=now_ms(), **values))
    record(connection, actor, "person.add", ("person", name), after=values)


def edit(connection: Connection, name: str, change: Change, actor: Actor) -> None:
    """Change a person; a new password or being disabled ends all the person's tokens.

    Raises `RefusedError`: 404, 422, and 409 when nobody would be left who administers people.
    """
    before = get(connection, name, lock=True)
    values: dict[str, Any] = {}
    if change.role is not None:
        values["role"] = str(role_of(change.role, GLOBAL_ROLES))
    if change.email is not None:
        values["email"] = _email(change.email)
    if change.enabled is not None:
        values["enabled"] = change.enabled
    was = {key: str(getattr(before, key)) if key == "role" else getattr(before, key) for key in values}
    shown = dict(values)
    if change.password_hash is not None:
        values["password_hash"] = change.password_hash
        shown["password"] = "changed"
    if not values:
        raise RefusedError(f"nothing to change of {name} was given", status=422)
    connection.execute(update(person).where(person.c.name == name).values(**values))
    _need_admin(connection)
    if change.password_hash is not None or change.enabled is False:
        connection.execute(delete(token).where(token.c.person == name))
    record(connection, actor, "person.edit", ("person", name), before=was, after=shown)


def remove(connection: Connection, name: str, actor: Actor) -> None:
    """Delete a person with roles and tokens. Raises `RefusedError`, 409 for the last who administers
    people.
    """
    before = get(connection, name, lock=True)
    for table, column in (
        (token, token.c.person),
        (object_role, object_role.c.person),
        (person, person.c.name),
    ):
        connection.execute(delete(table).where(column == name))
    _need_admin(connection)
    objects = [f"{role} of {kind} {object_}" for (kind, object_), role in before.objects.items()]
    was = {"role": str(before.role), "email": before.email, "objects": objects}
    record(connection, actor, "person.delete", ("person", name), before=was)


def grant(connection: Connection, name: str, thing: tuple[str, str], role: str | None, actor: Actor) -> None:
    """Give a person a role for one topic or group, or take it away (None). Raises `RefusedError` or for its
    name.
    """
    kind, object_ = thing
    _check_object(kind, object_)
    before = get(connection, name, lock=True).objects
    mine = (object_role.c.person == name) & (object_role.c.kind == kind) & (object_role.c.object == object_)
    if role is None and thing not in before:
        raise RefusedError(f"{name} has no role for the {kind} {object_}", status=404)
    connection.execute(delete(object_role).where(mine))
    after = None
    if role is not None:
        if thing not in before and len(before) >= OBJECTS_MAX:
            raise RefusedError(f"{name} has roles for {OBJECTS_MAX} objects, which is the limit", status=409)
        after = {"person": name, "role": str(role_of(role, OBJECT_ROLES))}
        connection.execute(insert(object_role).values(kind=kind, object=object_, **after))
    was = {"person": name, "role": str(before[thing])} if thing in before else None
    record(connection, actor, "grant" if role else "revoke", thing, before=was, after=after)


def having(connection: Connection, thing: tuple[str, str]) -> list[tuple[Person, Role]]:
    """People with a role for one topic or group, by name. Raises `RefusedError` or for its name."""
    kind, object_ = thing
    _check_object(kind, object_)
    query = select(person).join(object_role, object_role.c.person == person.c.name)
    mine = (object_role.c.kind == kind) & (object_role.c.object == object_)
    rows = connection.execute(query.where(mine).order_by(person.c.name).limit(PEOPLE_MAX)).mappings().all()
    found = [_person(row, _objects(connection, row["name"])) for row in rows]
    return [(one, one.objects[thing]) for one in found]


def _check_object(kind: str, name: str) -> None:
    if kind not in OBJECT_KINDS:
        raise RefusedError(
            f"the kind must be one of {', '.join(OBJECT_KINDS)}, not {kind[:40]!r}", status=422
        )
    (check_topic if kind == "topic" else check_group)(name)


def _need_admin(connection: Connection) -> None:
    admins = connection.execute(
        select(func.count()).select_from(person).where(person.c.role == str(Role.ADMIN), person.c.enabled)
    ).scalar_one()
    if not admins:
        raise RefusedError(
            "that would leave nobody who administers people; make another admin first", status=409
        )


def _email(email: str | None) -> str:
    if not email:
        return ""
    try:
        return check_address(email)
    except SettingsError as error:
        raise RefusedError(str(error), status=422) from error


def _objects(connection: Connection, name: str) -> dict[tuple[str, str], Role]:
    query = (
        select(object_role)
        .where(object_role.c.person == name)
        .order_by(object_role.c.kind, object_role.c.object)
    )
    return {(row["kind"], row["object"]): Role(row["role"]) for row in connection.execute(query).mappings()}


def _person(row: Any, objects: dict[tuple[str, str], Role]) -> Person:
    return Person(
        row["name"], Role(row["role"]), row["email"], bool(row["enabled"]), row["created_at"], objects
    )
