"""The gate in front of a broker's handlers: who sends a request, and is it allowed (remoting:7.3).

Without access control there is no gate, and the hot paths are unchanged. With it, every request is decoded
and checked before it reaches the handlers.
"""

from __future__ import annotations

import logging
from concurrent.futures import Executor
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

from sparrowmq.broker.access.auth_needs import Need, needs, topic_need
from sparrowmq.broker.access.auth_store import AuthStore
from sparrowmq.broker.access.callers import Principal
from sparrowmq.broker.access.policies import AccessRules, parse_codes
from sparrowmq.broker.access.rights import producer_groups
from sparrowmq.broker.tables.changes import ChangeQueue
from sparrowmq.core.errors import FrameError, ProtocolError, SettingsError
from sparrowmq.core.rights import PUB
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, JSON_HEADER, Command, RawFrame, decode
from sparrowmq.protocol.hot import PULL_PREFIXES, SEND_PREFIXES
from sparrowmq.transport.dispatch import TURN_SECONDS
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.signing import SigningHook

if TYPE_CHECKING:
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.transport.connection import Connection, ServerHandler
    from sparrowmq.transport.request_watch import RequestWatch

log = logging.getLogger("sparrowmq.broker")


class AccessGate(Protocol):
    """Authorizes requests."""

    def refusal(self, host: str, command: Command) -> tuple[int, str] | None:
        """Code and remark if the request is refused, or None."""

    def topic_refusal(self, host: str, command: Command, topic: str) -> tuple[int, str] | None:
        """The same for an accepted request that turns out to concern a message of `topic`."""

    def caller(self, host: str, command: Command) -> Principal:
        """The caller of an accepted request."""

    def may_send(self, caller: Principal, host: str, topic: str) -> bool:
        """Whether a caller whose earlier request was accepted may send to a topic now."""


class AuthGate:
    """5.x: users and policies."""

    def __init__(
        self,
        store: AuthStore,
        rules: AccessRules,
        cluster: str,
        *,
        producers_need_pub: bool = False,
        pool: Executor | None = None,
    ) -> None:
        self.store = store
        self.changes = ChangeQueue[Command](pool)
        self._rules = rules
        self._cluster = cluster
        self._producers_need_pub = producers_need_pub

    def refusal(self, host: str, command: Command) -> tuple[int, str] | None:
        """Failures are code 16 with a plain text. A body is read only after its signature was verified."""
        try:
            why = self.store.tables.refusal(host, command, self._rules, lambda: self._needs(command))
        except ProtocolError as error:
            why = str(error)
        return None if why is None else (ResponseCode.NO_PERMISSION, why)

    def _needs(self, command: Command) -> list[Need]:
        groups = producer_groups(command.code, command.body) if self._producers_need_pub else ()
        return needs(command, self._cluster) + [Need("Group", name, PUB) for name in groups]

    def topic_refusal(self, host: str, command: Command, topic: str) -> tuple[int, str] | None:
        """Pub, Sub, Get or Update, depending on what the request does to the topic."""
        wanted = topic_need(command.code, topic, self._cluster)
        why = self.store.tables.denied(host, command, self._rules, lambda: (wanted,))
        return None if why is None else (ResponseCode.NO_PERMISSION, why)

    def caller(self, host: str, command: Command) -> Principal:
        """A user, or an unauthenticated caller whose request is on the white list."""
        return self.store.tables.caller(host, command)

    def may_send(self, caller: Principal, host: str, topic: str) -> bool:
        """Needs Pub on the topic; without authorization every user may send."""
        if not caller.is_account or caller.name not in self.store.tables.users:
            return False
        wanted = Need("Topic", topic, PUB)
        return not self._rules.authorize or self.store.tables.may(caller.name, host, wanted)


def make_gate(
    settings: BrokerSettings, pool: Executor | None = None
) -> tuple[AccessGate | None, SigningHook | None]:
    """The gate configured by the settings, and the signer of this broker's own requests.

    Its files are written in `pool`.

    Raises `SettingsError` for invalid files and settings.
    """
    if not settings.authentication_enabled:
        return None, None
    store = AuthStore(settings.auth_directory)
    store.make_first(settings.init_authentication_user, "initAuthenticationUser", ("username", "password"))
    inner = store.make_first(
        settings.inner_client_authentication_credentials,
        "innerClientAuthenticationCredentials",
        ("accessKey", "secretKey"),
    )
    if not store.tables.users:
        raise SettingsError(
            "authenticationEnabled=true, but there is no user; name the first with "
            'initAuthenticationUser={"username":"…","password":"…"}',
            "authenticationEnabled",
            other="initAuthenticationUser",
        )
    rules = AccessRules(
        settings.authorization_enabled,
        parse_codes(settings.authentication_whitelist, "authenticationWhitelist"),
        parse_codes(settings.authorization_whitelist, "authorizationWhitelist"),
    )
    gate = AuthGate(
        store,
        rules,
        settings.broker_cluster_name,
        producers_need_pub=settings.producer_group_permission_enable,
        pool=pool,
    )
    return gate, SigningHook.of(inner)


class GuardedHandler:
    """Forwards requests that `gate` accepts to `inner`, and answers the others.

    Refusals are logged at most once a minute: enough to notice attempts, but not enough to fill a disk.
    `requests` counts them.
    """

    def __init__(self, inner: ServerHandler, gate: AccessGate, requests: RequestWatch | None = None) -> None:
        self._requests = requests
        self._inner = inner
        self._gate = gate
        self._occasional = OccasionalLog(log)

    def connection_made(self, conn: Connection) -> None:
        """A client connected; its identity is checked with each request."""
        conn.authenticated = False
        self._inner.connection_made(conn)

    def connection_lost(self, conn: Connection) -> None:
        """A client disconnected."""
        self._inner.connection_lost(conn)

    def frames_received(self, conn: Connection, frames: list[RawFrame]) -> None:
        """Authorize all requests of one read."""
        host, passed, until = conn.peer[0], [], conn.began + TURN_SECONDS
        for at, frame in enumerate(frames):
            if at and monotonic() > until:
                conn.put_off(frames[at:])
                break
            try:
                command = decode(*frame)
            except FrameError as error:
                conn.refuse(error)
                return
            if command.is_response:
                continue  # response to a call that has already ended
            if _is_ambiguous(frame, command.code):
                conn.refuse(FrameError("a header names two request codes"))
                return
            refused = self._gate.refusal(host, command)
            if refused is None:
                if not conn.authenticated:
                    conn.authenticated = self._gate.caller(host, command).is_account
                passed.append(frame)
                continue
            if self._requests is not None:
                self._requests.refused(command.code, refused[0])
            self._occasional.write(
                logging.WARNING, "refused", f"refusing a request of {conn.address}: {refused[1]!r}"
            )
            if not command.is_oneway:
                conn.send(Command(refused[0], command.opaque, FLAG_RESPONSE, remark=refused[1]))
        if passed:
            self._inner.frames_received(conn, passed)


_HOT_PREFIXES: Final = (*SEND_PREFIXES, *PULL_PREFIXES)


def _is_ambiguous(frame: RawFrame, code: int) -> bool:
    """Whether the hot paths, which read only the beginning of a header, would interpret it as another
    request.

    JSON may contain a member twice; the gate checks the last one.
    """
    kind, header, _ = frame
    if kind != JSON_HEADER or not header.startswith(_HOT_PREFIXES):
        return False
    return not header.startswith(b'{"code":%d,' % code)


def gate_handlers(gate: AccessGate | None) -> dict[int, Any]:
    """The commands that change access control, for the broker's table of handlers."""
    from sparrowmq.broker.access.access_admin import AuthAdmin

    return AuthAdmin(gate.store, gate.changes).table() if isinstance(gate, AuthGate) else {}
