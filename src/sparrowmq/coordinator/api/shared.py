"""What the routes share: who calls, one transaction with the right and the audit entry, and errors as
JSON.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection

from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.audit import REASON_CHARS_MAX, Actor
from sparrowmq.coordinator.cluster.survey import SurveyView
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.leases.rules import LeaseTimes, Owner
from sparrowmq.coordinator.services.schedule import Kind
from sparrowmq.coordinator.users import tokens
from sparrowmq.coordinator.users.people import Person
from sparrowmq.coordinator.users.roles import Right, need
from sparrowmq.coordinator.users.tokens import Token
from sparrowmq.coordinator.users.tries import Tries
from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import RefusedError

T = TypeVar("T")
PREFIX: Final = "/api/v1"
HASHES_AT_ONCE: Final = 2
"""Passwords that are hashed side by side: each takes 64 MiB."""


@dataclass(frozen=True, slots=True)
class Context:
    """What the routes work on."""

    database: Database
    kinds: Mapping[str, Kind]
    channels: Channels
    owner: Owner
    times: LeaseTimes
    clock: Clock
    survey: SurveyView
    wake: Callable[[str], None]
    """Tells this process's part of a service that its row has changed; called on any thread."""
    tries: Tries = field(default_factory=Tries)
    tries_lock: threading.Lock = field(default_factory=threading.Lock)
    hashing: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(HASHES_AT_ONCE))

    def kind(self, name: str) -> Kind:
        """A service. Raises `RefusedError` (404) naming those there are."""
        found = self.kinds.get(name)
        if found is None:
            raise RefusedError(
                f"there is no service {name[:64]!r}; there are {', '.join(self.kinds)}", status=404
            )
        return found


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request."""

    context: Context
    person: Person
    token: Token
    text: str = field(repr=False)
    """The token itself."""

    def need(self, right: Right, *things: tuple[str, str]) -> None:
        """Raise `RefusedError` (403) unless the caller may."""
        need(self.person.name, self.person.role, self.person.objects, right, *things)

    def read(self, work: Callable[[Connection], T]) -> T:
        """What `work(connection)` reads."""
        with self.context.database.read() as connection:
            return work(connection)

    def change(self, reason: str, work: Callable[[Connection, Actor], T]) -> T:
        """Do `work(connection, actor)` in one transaction; all of it is kept, its audit entries too, or
        nothing.

        Raises `RefusedError`: 401 when the token ended, 409 when what its person may do was changed while the
        request waited.
        """
        with self.context.database.write() as connection:
            self.check(connection)
            return work(connection, Actor(self.person.name, reason))

    def check(self, connection: Connection) -> None:
        """That the caller is still who was asked for rights. Raises as `change`."""
        if tokens.holder(connection, self.text)[0] != self.person:
            text = f"what {self.person.name} may do was changed just now; try again"
            raise RefusedError(text, status=409)


class Body(BaseModel):
    """A request's body: unknown members are refused, so that a typing error does not pass for success."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Reason(Body):
    """Why it is done; kept in the audit log."""

    reason: str = Field(default="", max_length=REASON_CHARS_MAX)


def context_of(request: Request) -> Context:
    """The application's context."""
    found = request.app.state.context
    assert isinstance(found, Context)
    return found


def caller(request: Request) -> Caller:
    """Who sent the request, by its token. Raises `RefusedError` (401)."""
    context = context_of(request)
    kind, _, text = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not text:
        raise RefusedError("no token was sent; type: sparrow login", status=401)
    with context.database.read() as connection:
        person, token = tokens.holder(connection, text.strip())
    return Caller(context, person, token, text.strip())


Who = Annotated[Caller, Depends(caller)]
Where = Annotated[Context, Depends(context_of)]
Answer = dict[str, Any]
