"""Users in the database: creation, changes, deletion, and permissions. Every change has its audit entry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, delete, func, insert, select, update

from sparrowmq.coordinator.alarms.senders import check_address
from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.tables import object_role, person
from sparrowmq.coordinator.records.audit import Actor, record
from sparrowmq.coordinator.users.revoking import revoke_all
from sparrowmq.coordinator.users.roles import GLOBAL_ROLES, OBJECT_KINDS, OBJECT_ROLES, Role, role_of
from sparrowmq.core.errors import RefusedError, SettingsError
from sparrowmq.core.names import check_group, check_topic

FIRST: Final = "admin"
PEOPLE_MAX: Final = 10_000
OBJECTS_MAX: Final = 10_000
"""Maximum number of objects for which one person may have a role."""
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
class PersonUpdate:
    """Changes of a person; None keeps the value."""

    role: str | None = None
    email: str | None = None
    enabled: bool | None = None
    password_hash: str | None = field(default=None, repr=False)


def get(connection: Connection, name: str, *, lock: bool = False) -> Person:
    """A person. Raises `RefusedError` (404)."""
    query = select(person).where(person.c.name == name)
    found = connection.execute(query.with_for_update() if lock else query).mappings().first()
    if found is None or found["name"] != name:  # some databases treat different names as equal
        raise RefusedError(f"there is no user {name[:64]!r}", status=404, what="user", value=name)
    return _person(found, _objects(connection, name))


def everyone(connection: Connection) -> list[Person]:
    """All people, by name."""
    rows = connection.execute(select(person).order_by(person.c.name).limit(PEOPLE_MAX)).mappings().all()
    return [_person(row, _objects(connection, row["name"])) for row in rows]


def password_hash(connection: Connection, name: str) -> str | None:
    """The stored password hash of an enabled person; None for others."""
    query = select(person.c.name, person.c.password_hash).where(person.c.name == name, person.c.enabled)
    found = connection.execute(query).first()
    return str(found[1]) if found is not None and found[0] == name else None


def add(connection: Connection, name: str, hash_: str, change: PersonUpdate, actor: Actor) -> None:
    """Create a person. Raises `RefusedError`: 409 if the name exists, 422 for an invalid name or role."""
    if not _NAME.fullmatch(name):
        raise RefusedError(
            f"a user's name has at most 64 letters, digits and '_.@-', and begins with a letter or digit: "
            f"{name[:64]!r}",
            status=422,
            what="name",
            value=name,
        )
    role = role_of(change.role or Role.VIEWER, GLOBAL_ROLES)
    email = _email(change.email)
    if connection.execute(select(person.c.name).where(person.c.name == name)).first() is not None:
        raise RefusedError(f"the user {name} already exists", status=409, what="user", value=name)
    if connection.execute(select(func.count()).select_from(person)).scalar_one() >= PEOPLE_MAX:
        raise RefusedError(f"there are {PEOPLE_MAX} users, which is the limit; delete some", status=409)
    values = {"role": str(role), "email": email}
    connection.execute(insert(person).values(name=name, password_hash=hash_, created_at=now_ms(), **values))
    record(connection, actor, "person.add", ("person", name), after=values)


def edit(connection: Connection, name: str, change: PersonUpdate, actor: Actor) -> None:
    """Change a person; a new password, another role or being disabled ends all the person's tokens, and those
    that the person made for others.

    Raises `RefusedError`: 404, 422, and 409 if no administrator of people would be left.
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
        raise RefusedError(f"no change to {name} was requested", status=422, what="change")
    connection.execute(update(person).where(person.c.name == name).values(**values))
    _need_admin(connection)
    if (
        change.password_hash is not None
        or change.enabled is False
        or values.get("role", before.role) != before.role
    ):
        revoke_all(connection, name)
    record(connection, actor, "person.edit", ("person", name), before=was, after=shown)


def remove(connection: Connection, name: str, actor: Actor) -> None:
    """Delete a person with all roles and tokens, including tokens created for others.

    Raises `RefusedError`, 409 for the last administrator of people.
    """
    before = get(connection, name, lock=True)
    revoke_all(connection, name)
    for table, column in (
        (object_role, object_role.c.person),
        (person, person.c.name),
    ):
        connection.execute(delete(table).where(column == name))
    _need_admin(connection)
    objects = [f"{role} of {kind} {object_}" for (kind, object_), role in before.objects.items()]
    was = {"role": str(before.role), "email": before.email, "objects": objects}
    record(connection, actor, "person.delete", ("person", name), before=was)


def grant(connection: Connection, name: str, thing: tuple[str, str], role: str | None, actor: Actor) -> None:
    """Set a person's role for one topic or group, or remove it (None). Raises `RefusedError`, also for an
    invalid name.
    """
    kind, object_ = thing
    _check_object(kind, object_)
    before = get(connection, name, lock=True).objects
    mine = (object_role.c.person == name) & (object_role.c.kind == kind) & (object_role.c.object == object_)
    if role is None and thing not in before:
        text = f"{name} has no role for the {kind} {object_}"
        raise RefusedError(text, status=404, what=kind, value=object_)
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
    """People with a role for one topic or group, by name. Raises `RefusedError`, also for an invalid name."""
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
            f"the kind must be one of {', '.join(OBJECT_KINDS)}, not {kind[:40]!r}",
            status=422,
            what="kind",
            value=kind,
        )
    (check_topic if kind == "topic" else check_group)(name)


def _need_admin(connection: Connection) -> None:
    admins = connection.execute(
        select(func.count()).select_from(person).where(person.c.role == str(Role.ADMIN), person.c.enabled)
    ).scalar_one()
    if not admins:
        text = "that would leave no administrator; make another user admin first"
        raise RefusedError(text, status=409, what="role")


def _email(email: str | None) -> str:
    if not email:
        return ""
    try:
        return check_address(email)
    except SettingsError as error:
        raise RefusedError(str(error), status=422, what="email", value=email) from error


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
