"""People whom a login provider vouches for: made at their first login, and known by the provider's subject.

The value stored instead of a password identifies the provider and the subject. So the same name at the
provider gives no access to a user that was created here, or that belongs to another account of the provider.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection, select

from sparrowmq.coordinator.database.tables import person
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.coordinator.users import people, tokens
from sparrowmq.coordinator.users.people import PersonUpdate
from sparrowmq.coordinator.users.tokens import AccessToken
from sparrowmq.core.errors import RefusedError

PREFIX: Final = "oidc:"
"""Prefix of the stored value for such a person; no password hash begins with it."""


@dataclass(frozen=True, slots=True)
class External:
    """A person according to a provider. `credential` begins with `PREFIX` and is unique."""

    name: str
    credential: str = field(repr=False)
    role: str = "viewer"
    email: str = ""


def enter(connection: Connection, who: External, actor: Actor) -> tuple[AccessToken, str]:
    """A session for a person whom a provider has just authenticated; the person is created, or gets the role
    that the provider now reports.

    A changed role ends earlier sessions. Raises `RefusedError` (403) if the name belongs to another person,
    or if the person is disabled.
    """
    query = select(person.c.name, person.c.password_hash, person.c.enabled).where(person.c.name == who.name)
    found = connection.execute(query.with_for_update()).first()
    if found is None:
        change = PersonUpdate(role=who.role, email=who.email)
        people.add(connection, who.name, who.credential, change, actor)
    elif found[0] != who.name or found[1] != who.credential:
        text = (
            f"the name {who.name} belongs to another user, who does not log in with this provider; an "
            f"admin can delete that user"
        )
        raise RefusedError(text, status=403)
    elif not found[2]:
        raise RefusedError(f"{who.name} may not log in; ask an admin", status=403)
    elif str(people.get(connection, who.name).role) != who.role:
        people.edit(connection, who.name, PersonUpdate(role=who.role), actor)
    return tokens.log_in(connection, who.name, actor)
