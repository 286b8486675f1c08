"""Roles and what each allows. Pure. Checked on the server for every request, per object (pmq:P3)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from sparrowmq.core.errors import RefusedError


class Role(StrEnum):
    """A person's role, for everything or for one object."""

    VIEWER = "viewer"
    OWNER = "owner"
    OPERATOR = "operator"
    ADMIN = "admin"


class RoleRight(StrEnum):
    """Permissions."""

    READ = "read"
    EDIT = "edit"
    """Change one topic or group, and handle its alarms."""
    OPERATE = "operate"
    """Change how the cluster is monitored: services, and alarms without an object's owner."""
    ADMINISTER = "administer"
    """Manage people, roles and other people's tokens."""


RANKS: Final = (Role.VIEWER, Role.OWNER, Role.OPERATOR, Role.ADMIN)
NEEDS: Final[Mapping[RoleRight, Role]] = {
    RoleRight.READ: Role.VIEWER,
    RoleRight.EDIT: Role.OWNER,
    RoleRight.OPERATE: Role.OPERATOR,
    RoleRight.ADMINISTER: Role.ADMIN,
}
OBJECT_KINDS: Final = ("topic", "group")
OBJECT_ROLES: Final = (Role.VIEWER, Role.OWNER, Role.OPERATOR)
"""Roles for one object; people can only be administered globally."""
GLOBAL_ROLES: Final = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
"""Roles for everything; an owner always owns an object."""

Objects = Mapping[tuple[str, str], Role]


def allowed(role: Role, objects: Objects, right: RoleRight, *things: tuple[str, str]) -> bool:
    """Whether a person with this role, and these for single objects, has the permission for any of
    `things`.
    """
    needed = RANKS.index(NEEDS[right])
    roles = [role, *(objects[thing] for thing in things if thing in objects)]
    return any(RANKS.index(one) >= needed for one in roles)


def need(person: str, role: Role, objects: Objects, right: RoleRight, *things: tuple[str, str]) -> None:
    """Raise `RefusedError` (403) unless the person has the permission."""
    if not allowed(role, objects, right, *things):
        what = " or ".join(f"the {kind} {name}" for kind, name in things if name) or "this"
        raise RefusedError(
            f"{person} may not {right} {what}: this requires the role {NEEDS[right]}",
            status=403,
            what=what,
            value=person,
            limit=NEEDS[right],
        )


def role_of(text: str, roles: tuple[Role, ...]) -> Role:
    """The role named by a text. Raises `RefusedError` (422) naming the valid ones."""
    if text not in roles:
        told = f"the role must be one of {', '.join(roles)}, not {text[:40]!r}"
        raise RefusedError(told, status=422, what="role", value=text)
    return Role(text)
