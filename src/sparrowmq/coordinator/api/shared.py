"""Shared by the routes: the caller's identity, one transaction for permission check and audit entry, errors
as JSON.
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
from sparrowmq.coordinator.cluster.explorer import Explorer
from sparrowmq.coordinator.cluster.survey import SurveyView
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.leases.rules import LeaseTimes, Owner
from sparrowmq.coordinator.records.audit import REASON_CHARS_MAX, Actor
from sparrowmq.coordinator.services.base.schedule import ServiceKind
from sparrowmq.coordinator.users import tokens
from sparrowmq.coordinator.users.login_attempts import LoginAttempts
from sparrowmq.coordinator.users.people import Person
from sparrowmq.coordinator.users.roles import RoleRight, need
from sparrowmq.coordinator.users.tokens import AccessToken
from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import RefusedError
from sparrowmq.core.stalls import StallBook

T = TypeVar("T")
PREFIX: Final = "/api/v1"
STREAMS_MAX: Final = 100
HASHES_AT_ONCE: Final = 2
"""Maximum number of concurrent password hashes: each takes 64 MiB."""


@dataclass(frozen=True, slots=True)
class Context:
    """State shared by the routes."""

    database: Database
    kinds: Mapping[str, ServiceKind]
    channels: Channels
    owner: Owner
    times: LeaseTimes
    clock: Clock
    survey: SurveyView
    explorer: Explorer
    stalls: StallBook
    """Belongs to the event loop of this process."""
    wake: Callable[[str], None]
    """Notifies this process's part of a service that its row has changed; called on any thread."""
    streams_max: int = STREAMS_MAX
    """Maximum number of long-running answers; the other connections are for normal requests."""
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the coordinator stops: long-running answers then end."""
    tries: LoginAttempts = field(default_factory=LoginAttempts)
    tries_lock: threading.Lock = field(default_factory=threading.Lock)
    hashing: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(HASHES_AT_ONCE))

    def kind(self, name: str) -> ServiceKind:
        """A service. Raises `RefusedError` (404) naming the existing ones."""
        found = self.kinds.get(name)
        if found is None:
            raise RefusedError(
                f"there is no service {name[:64]!r}; there are {', '.join(self.kinds)}", status=404
            )
        return found


@dataclass(frozen=True, slots=True)
class ApiCaller:
    """Who sent a request."""

    context: Context
    person: Person
    token: AccessToken
    text: str = field(repr=False)
    """The token itself."""
    patience_seconds: float = 0.0
    """Maximum age of answers of brokers about single things that the caller takes. Pages that update
    themselves share them, so that brokers are asked as often for fifty as for one.
    """

    def need(self, right: RoleRight, *things: tuple[str, str]) -> None:
        """Raise `RefusedError` (403) unless the caller has the permission."""
        need(self.person.name, self.person.role, self.person.objects, right, *things)

    def read(self, work: Callable[[Connection], T]) -> T:
        """The result of `work(connection)`."""
        with self.context.database.read() as connection:
            return work(connection)

    def change(self, reason: str, work: Callable[[Connection, Actor], T]) -> T:
        """Do `work(connection, actor)` in one transaction; all of it is committed, including its audit
        entries, or nothing.

        Raises `RefusedError`: 401 when the token has ended, 409 when the person's permissions changed while
        the request waited.
        """
        with self.context.database.write() as connection:
            self.check(connection)
            return work(connection, Actor(self.person.name, reason))

    def check(self, connection: Connection) -> None:
        """Check that the caller's permissions have not changed. Raises like `change`."""
        if tokens.holder(connection, self.text)[0] != self.person:
            text = f"what {self.person.name} may do has just changed; try again"
            raise RefusedError(text, status=409)


class RequestBody(BaseModel):
    """A request's body. Unknown members are refused, so that a typing error does not look like success."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Reason(RequestBody):
    """Reason for the change; kept in the audit log."""

    reason: str = Field(default="", max_length=REASON_CHARS_MAX)


def context_of(request: Request) -> Context:
    """The application's context."""
    found = request.app.state.context
    assert isinstance(found, Context)
    return found


def caller(request: Request) -> ApiCaller:
    """Identify the caller by the token. Raises `RefusedError` (401)."""
    kind, _, text = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not text:
        raise RefusedError("no token was sent; type: sparrow login", status=401)
    return caller_of(context_of(request), text.strip())


def caller_of(context: Context, text: str) -> ApiCaller:
    """The owner of a token. Raises `RefusedError` (401)."""
    with context.database.read() as connection:
        person, token = tokens.holder(connection, text)
    return ApiCaller(context, person, token, text)


Who = Annotated[ApiCaller, Depends(caller)]
Where = Annotated[Context, Depends(context_of)]
Answer = dict[str, Any]
