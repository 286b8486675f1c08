"""Tokens in the database: the holder acts as the user it was made for, until it expires or is revoked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, and_, delete, func, insert, not_, select

from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.tables import person, token
from sparrowmq.coordinator.records.audit import Actor, record
from sparrowmq.coordinator.users import people
from sparrowmq.coordinator.users.passwords import TOKEN_PREFIX, digest, new_token
from sparrowmq.coordinator.users.people import Person
from sparrowmq.coordinator.users.revoking import revoke_where
from sparrowmq.core.errors import RefusedError

LOGIN_HOURS: Final = 12
DAYS: Final = 30
DAYS_MAX: Final = 366
TOKENS_MAX: Final = 100
"""Maximum number of tokens of one person, and of logins besides. A further token is refused; a further login
ends the oldest, because somebody who is refused could not log in to end any.
"""
LABEL_CHARS_MAX: Final = 100
LOGIN: Final = "login"
LOGIN_MS: Final = LOGIN_HOURS * 3_600_000
_IS_LOGIN: Final = and_(
    token.c.label == LOGIN, token.c.parent == 0, token.c.expires_at - token.c.created_at == LOGIN_MS
)
"""No other token lives as long: people give whole days."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token for display, without its secret."""

    id: int
    person: str
    label: str
    created_at: int
    expires_at: int
    maker: str


def log_in(connection: Connection, name: str, actor: Actor) -> tuple[AccessToken, str]:
    """A new token for a person who has just been authenticated; of too many logins, the oldest ends.

    Raises `RefusedError` (404) for an unknown person.
    """
    people.get(connection, name, lock=True)
    lives = (token.c.person == name, token.c.expires_at > now_ms(), _IS_LOGIN)
    logins = list(connection.execute(select(token.c.id).where(*lives).order_by(token.c.id)).scalars())
    for number in logins[: max(0, len(logins) - TOKENS_MAX + 1)]:
        revoke(connection, number, actor)
    return _make(connection, name, LOGIN, LOGIN_MS, actor)


def make(
    connection: Connection,
    name: str,
    label: str,
    lifetime_ms: int | None,
    actor: Actor,
    *,
    parent: AccessToken | None = None,
) -> tuple[AccessToken, str]:
    """A new token, and its text, which is stored nowhere and shown this once.

    One that is made from another, `parent`, ends with that at the latest, and goes with it; one that a
    password makes has none. Without lifetime it ends with its parent, or after `DAYS`.

    Raises `RefusedError`: 422 for a lifetime or label out of range, 403 for one that would outlive its
    parent, 409 when the person has too many.
    """
    if lifetime_ms is not None and not 60_000 <= lifetime_ms <= DAYS_MAX * 86_400_000:
        raise RefusedError(
            f"the lifetime of a token must be 1 minute to {DAYS_MAX} days, not "
            f"{lifetime_ms / 86_400_000:g} days",
            status=422,
            what="lifetime",
            value=lifetime_ms,
        )
    if len(label) > LABEL_CHARS_MAX:
        raise RefusedError(
            f"a label must have at most {LABEL_CHARS_MAX} characters, not {len(label)}",
            status=422,
            what="label",
            limit=LABEL_CHARS_MAX,
        )
    people.get(connection, name, lock=True)
    held = select(func.count()).where(token.c.person == name, token.c.expires_at > now_ms(), not_(_IS_LOGIN))
    if connection.execute(held).scalar_one() >= TOKENS_MAX:
        text = f"{name} has {TOKENS_MAX} tokens, which is the limit; delete some"
        raise RefusedError(text, status=409, limit=TOKENS_MAX)
    return _make(connection, name, label, lifetime_ms, actor, parent=parent)


def _make(
    connection: Connection,
    name: str,
    label: str,
    lifetime_ms: int | None,
    actor: Actor,
    *,
    parent: AccessToken | None = None,
) -> tuple[AccessToken, str]:
    text, now = new_token(), int(connection.execute(select(now_ms())).scalar_one())
    ends, maker = _end(now, lifetime_ms, parent), parent.person if parent else actor.name
    connection.execute(delete(token).where(token.c.person == name, token.c.expires_at <= now))
    made = connection.execute(
        insert(token).values(
            person=name,
            digest=digest(text),
            label=label,
            created_at=now,
            expires_at=ends,
            parent=parent.id if parent else 0,
            maker=maker,
        )
    )
    (number,) = made.inserted_primary_key or (0,)
    found = AccessToken(number, name, label, now, ends, maker)
    after = {"id": number, "label": label, "expires_at": found.expires_at}
    record(connection, actor, "token.add", ("person", name), after=after)
    return found, text


def holder(connection: Connection, text: str) -> tuple[Person, AccessToken]:
    """The owner of a token. Raises `RefusedError` (401) if it is unknown or has ended, or its owner is
    disabled.
    """
    query = (
        select(token)
        .join(person, person.c.name == token.c.person)
        .where(token.c.digest == digest(text), token.c.expires_at > now_ms(), person.c.enabled)
    )
    row = connection.execute(query).mappings().first() if text.startswith(TOKEN_PREFIX) else None
    if row is None:
        raise RefusedError("the token is unknown or has expired; type: sparrow login", status=401)
    return people.get(connection, row["person"]), _token(row)


def of(connection: Connection, name: str) -> list[AccessToken]:
    """A person's tokens, the oldest first."""
    query = select(token).where(token.c.person == name).order_by(token.c.id)
    return [_token(row) for row in connection.execute(query).mappings()]


def find(connection: Connection, number: int) -> AccessToken:
    """A token. Raises `RefusedError` (404)."""
    row = connection.execute(select(token).where(token.c.id == number)).mappings().first()
    if row is None:
        raise RefusedError(f"there is no token {number}", status=404, what="token", value=number)
    return _token(row)


def revoke(connection: Connection, number: int, actor: Actor) -> None:
    """Revoke a token and those created from it. Raises `RefusedError` (404)."""
    found = find(connection, number)
    revoke_where(connection, token.c.id == number)
    before = {"id": number, "label": found.label}
    record(connection, actor, "token.delete", ("person", found.person), before=before)


def delete_before(connection: Connection, at: int, limit: int) -> int:
    """Delete up to `limit` tokens that ended before `at`; returns how many."""
    ids = list(connection.execute(select(token.c.id).where(token.c.expires_at < at).limit(limit)).scalars())
    if ids:
        connection.execute(delete(token).where(token.c.id.in_(ids)))
    return len(ids)


def _end(now: int, lifetime_ms: int | None, parent: AccessToken | None) -> int:
    usual = now + DAYS * 86_400_000
    if parent is None:
        return usual if lifetime_ms is None else now + lifetime_ms
    if lifetime_ms is None:
        return min(usual, parent.expires_at)
    if now + lifetime_ms > parent.expires_at:
        hours = (parent.expires_at - now) / 3_600_000
        raise RefusedError(
            f"a token that is made without the password expires with the token it is made from, in "
            f"{hours:.1f} h; give the password for a longer one",
            status=403,
        )
    return now + lifetime_ms


def _token(row: Any) -> AccessToken:
    return AccessToken(
        row["id"], row["person"], row["label"], row["created_at"], row["expires_at"], row["maker"]
    )
