"""Tokens in the database: who holds one is the person it was made for, until it ends or is taken back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, delete, func, insert, select

from sparrowmq.coordinator.audit import Actor, record
from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.tables import person, token
from sparrowmq.coordinator.users import people
from sparrowmq.coordinator.users.passwords import TOKEN_PREFIX, digest, new_token
from sparrowmq.coordinator.users.people import Person
from sparrowmq.core.errors import RefusedError

LOGIN_HOURS: Final = 12
DAYS_MAX: Final = 366
TOKENS_MAX: Final = 100
"""Tokens one person may have, logins among them."""
LABEL_CHARS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is shown: everything but itself."""

    id: int
    person: str
    label: str
    created_at: int
    expires_at: int


def make(connection: Connection, name: str, label: str, lifetime_ms: int, actor: Actor) -> tuple[Token, str]:
    """A new token, and its text, which is stored nowhere and shown this once.

    Raises `RefusedError`: 422 for a lifetime or label out of range, 409 when the person has too many.
    """
    if not 60_000 <= lifetime_ms <= DAYS_MAX * 86_400_000:
        raise RefusedError(
            f"a token lives from 1 minute to {DAYS_MAX} days, not {lifetime_ms} ms", status=422
        )
    if len(label) > LABEL_CHARS_MAX:
        raise RefusedError(f"a label has at most {LABEL_CHARS_MAX} characters, not {len(label)}", status=422)
    people.get(connection, name, lock=True)
    text, now = new_token(), int(connection.execute(select(now_ms())).scalar_one())
    connection.execute(delete(token).where(token.c.person == name, token.c.expires_at <= now))
    if connection.execute(select(func.count()).where(token.c.person == name)).scalar_one() >= TOKENS_MAX:
        raise RefusedError(f"{name} has {TOKENS_MAX} tokens, which is the limit; delete some", status=409)
    made = connection.execute(
        insert(token).values(
            person=name, digest=digest(text), label=label, created_at=now, expires_at=now + lifetime_ms
        )
    )
    (number,) = made.inserted_primary_key or (0,)
    found = Token(number, name, label, now, now + lifetime_ms)
    after = {"id": number, "label": label, "expires_at": found.expires_at}
    record(connection, actor, "token.add", ("person", name), after=after)
    return found, text


def holder(connection: Connection, text: str) -> tuple[Person, Token]:
    """Who a token is. Raises `RefusedError` (401) for one that is unknown, ended, or of somebody disabled."""
    query = (
        select(token)
        .join(person, person.c.name == token.c.person)
        .where(token.c.digest == digest(text), token.c.expires_at > now_ms(), person.c.enabled)
    )
    row = connection.execute(query).mappings().first() if text.startswith(TOKEN_PREFIX) else None
    if row is None:
        raise RefusedError("the token is not known or has ended; type: sparrow login", status=401)
    return people.get(connection, row["person"]), _token(row)


def of(connection: Connection, name: str) -> list[Token]:
    """A person's tokens, the oldest first."""
    query = select(token).where(token.c.person == name).order_by(token.c.id)
    return [_token(row) for row in connection.execute(query).mappings()]


def find(connection: Connection, number: int) -> Token:
    """A token. Raises `RefusedError` (404)."""
    row = connection.execute(select(token).where(token.c.id == number)).mappings().first()
    if row is None:
        raise RefusedError(f"there is no token {number}", status=404)
    return _token(row)


def revoke(connection: Connection, number: int, actor: Actor) -> None:
    """Take a token back. Raises `RefusedError` (404)."""
    found = find(connection, number)
    connection.execute(delete(token).where(token.c.id == number))
    before = {"id": number, "label": found.label}
    record(connection, actor, "token.delete", ("person", found.person), before=before)


def delete_before(connection: Connection, at: int, limit: int) -> int:
    """Delete up to `limit` tokens that ended before `at`; gives how many."""
    ids = list(connection.execute(select(token.c.id).where(token.c.expires_at < at).limit(limit)).scalars())
    if ids:
        connection.execute(delete(token).where(token.c.id.in_(ids)))
    return len(ids)


def _token(row: Any) -> Token:
    return Token(row["id"], row["person"], row["label"], row["created_at"], row["expires_at"])
