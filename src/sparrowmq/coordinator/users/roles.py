"""Roles and what each allows. Pure. Checked on the server for every request, per object (pmq:P3)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from sparrowmq.core.errors import RefusedError


class Role(StrEnum):
    """What a person is: of everything, or of one object."""

    VIEWER = "viewer"
    OWNER = "owner"
    OPERATOR = "operator"
    ADMIN = "admin"


class Right(StrEnum):
    """What is done."""

    READ = "read"
    EDIT = "edit"
    """Change one topic or group, and look after its alarms."""
    OPERATE = "operate"
    """Change how the cluster is watched: services, alarms that are nobody's."""
    ADMINISTER = "administer"
    """People, roles and other people's tokens."""


RANKS: Final = (Role.VIEWER, Role.OWNER, Role.OPERATOR, Role.ADMIN)
NEEDS: Final[Mapping[Right, Role]] = {
    Right.READ: Role.VIEWER,
    Right.EDIT: Role.OWNER,
    Right.OPERATE: Role.OPERATOR,
    Right.ADMINISTER: Role.ADMIN,
}
OBJECT_KINDS: Final = ("topic", "group")
OBJECT_ROLES: Final = (Role.VIEWER, Role.OWNER, Role.OPERATOR)
"""Roles that a person may have for one object; people are administered for everything or not at all."""
GLOBAL_ROLES: Final = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
"""Roles that a person may have for everything; an owner owns something."""

Objects = Mapping[tuple[str, str], Role]


def allowed(role: Role, objects: Objects, right: Right, *things: tuple[str, str]) -> bool:
    """Whether a person with this role, and these for single objects, may do it to any of `things`."""
    needed = RANKS.index(NEEDS[right])
    roles = [role, *(objects[thing] for thing in things if thing in objects)]
    return any(RANKS.index(one) >= needed for one in roles)


def need(person: str, role: Role, objects: Objects, right: Right, *things: tuple[str, str]) -> None:
    """Raise `RefusedError` (403) unless the person may."""
    if not allowed(role, objects, right, *things):
        what = " or ".join(f"the {kind} {name}" for kind, name in things if name) or "this"
        raise RefusedError(f"{person} may not {right} {what}: that needs the role {NEEDS[right]}", status=403)


def role_of(text: str, roles: tuple[Role, ...]) -> Role:
    """The role of a text. Raises `RefusedError` (422) naming those there are."""
    if text not in roles:
        raise RefusedError(f"the role must be one of {', '.join(roles)}, not {text[:40]!r}", status=422)
    return Role(text)
