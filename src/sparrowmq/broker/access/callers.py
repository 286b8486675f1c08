"""The owner of a client id: at a broker with access control it is the account that used the id first.

Replies to requests (326), checks of half messages (39) and locks use client ids and groups that clients state
about themselves. So the first account that uses a client id owns it while it is connected, and a half message
is shown only to producers whose account may send to its topic. This does not affect Java's clients, because
one client has one account.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparrowmq.broker.access.rights import RIGHTS
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.transport.dispatch import refusal

if TYPE_CHECKING:
    from sparrowmq.protocol.frame import Command
    from sparrowmq.transport.connection import Connection

CLIENT_IDS_MAX: Final = 1000
"""Maximum number of client ids of one connection; Java's clients have one each."""


class Principal(NamedTuple):
    """Sender of a request: an authenticated user, or an address."""

    kind: str
    name: str

    @classmethod
    def account(cls, name: str) -> Principal:
        """A user with a valid signature."""
        return cls("account", name)

    @classmethod
    def nobody(cls, host: str) -> Principal:
        """An unauthenticated caller; some requests are open to them (`authenticationWhitelist`)."""
        return cls("nobody", host)

    @property
    def is_account(self) -> bool:
        """Whether the caller is an authenticated account."""
        return self.kind == "account"

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(slots=True)
class _Owner:
    caller: Principal
    connections: set[Connection] = field(default_factory=set)


class ClientOwners:
    """The client ids in use, by account. `caller_of` returns the caller of a request that passed the gate."""

    def __init__(self, caller_of: Callable[[str, Command], Principal]) -> None:
        self._caller_of = caller_of
        self._owners: dict[str, _Owner] = {}
        self._ids: dict[Connection, set[str]] = {}
        self._callers: dict[Connection, Principal] = {}

    def __repr__(self) -> str:
        return f"<ClientOwners {len(self._owners)} client ids on {len(self._ids)} connections>"

    def guard(self, handlers: Mapping[int, Any]) -> dict[int, Any]:
        """The handlers; for requests that act for a client, the owner of the client id is checked first."""
        return {
            code: self._asking(handler, RIGHTS[code].client) if RIGHTS[code].client else handler
            for code, handler in handlers.items()
        }

    def caller(self, connection: Connection) -> Principal | None:
        """The caller of a connection's latest heartbeat; None before the first one."""
        return self._callers.get(connection)

    def connection_lost(self, connection: Connection) -> None:
        """Release its client ids, unless another connection of the same account uses them too."""
        self._callers.pop(connection, None)
        for client_id in self._ids.pop(connection, ()):
            owner = self._owners[client_id]
            owner.connections.discard(connection)
            if not owner.connections:
                del self._owners[client_id]

    def _asking(self, handler: Any, client: Any) -> Any:
        def handle(connection: Connection, command: Command) -> Any:
            caller = self._caller_of(connection.peer[0], command)
            client_id = client(command.ext, command.body) or ""
            owner = self._owners.get(client_id)
            if owner is not None and owner.caller != caller:
                text = (
                    f"the client id {client_id!r} belongs to another account, whose client is "
                    "connected; give "
                    "each client its own (instanceName), or wait until the other one disconnects"
                )
                return refusal(ResponseCode.NO_PERMISSION, text)
            if command.code == RequestCode.HEART_BEAT:
                problem = self._claim(connection, client_id, caller)
                if problem:
                    return refusal(ResponseCode.NO_PERMISSION, problem)
            return handler(connection, command)

        return handle

    def _claim(self, connection: Connection, client_id: str, caller: Principal) -> str:
        """Record a heartbeat; returns why that is not possible, or an empty result."""
        self._callers[connection] = caller
        ids = self._ids.setdefault(connection, set())
        if client_id in ids:
            return ""
        if len(ids) >= CLIENT_IDS_MAX:
            return (
                f"this connection is used by {CLIENT_IDS_MAX} clients, which is the limit; use another "
                f"connection for other clients"
            )
        ids.add(client_id)
        self._owners.setdefault(client_id, _Owner(caller)).connections.add(connection)
        return ""
