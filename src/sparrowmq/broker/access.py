"""The gate in front of a broker's handlers: who is asking, and may they (remoting:7.2, 7.3).

Without access control there is no gate, and the hot paths are as they were. With it every request is decoded,
judged, and only then given to the handlers.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from sparrowmq.broker.acl import Perm
from sparrowmq.broker.acl_files import AclFiles
from sparrowmq.broker.auth import Rules, parse_codes
from sparrowmq.broker.auth_needs import needs, topic_need
from sparrowmq.broker.auth_store import AuthStore
from sparrowmq.core.errors import FrameError, ProtocolError, SettingsError
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, JSON_HEADER, Command, RawFrame, decode
from sparrowmq.protocol.hot import PULL_PREFIXES, SEND_PREFIXES
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.signing import SigningHook

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings import BrokerSettings
    from sparrowmq.transport.connection import Connection, ServerHandler

log = logging.getLogger("sparrowmq.broker")

ACL_EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "
"""What the remarks of 4.x begin with; clients show them to people."""


class Gate(Protocol):
    """Judges requests."""

    def refusal(self, host: str, command: Command) -> tuple[int, str] | None:
        """Code and remark for a request that may not be done, or None."""

    def topic_refusal(self, host: str, command: Command, topic: str) -> tuple[int, str] | None:
        """The same for a request that passed and turns out to be about a message of `topic`."""

    def refresh(self) -> None:
        """Look whether files changed; called about once a second."""


class PlainGate:
    """4.x: accounts in files."""

    def __init__(self, files: AclFiles) -> None:
        self.files = files

    def refusal(self, host: str, command: Command) -> tuple[int, str] | None:
        """Failures are system errors, in the words of Java's exceptions."""
        try:
            why = self.files.acl.refusal(host, command)
        except ProtocolError as error:
            why = str(error)
        return self._answer(why)

    def topic_refusal(self, host: str, command: Command, topic: str) -> tuple[int, str] | None:
        """Ends of transactions need PUB, all else SUB."""
        perm = Perm.PUB if command.code == Code.END_TRANSACTION else Perm.SUB
        return self._answer(self.files.acl.topic_refusal(host, command, {topic: perm}))

    def refresh(self) -> None:
        """Take changed files."""
        self.files.refresh()

    @staticmethod
    def _answer(why: str | None) -> tuple[int, str] | None:
        return None if why is None else (ResponseCode.SYSTEM_ERROR, ACL_EXCEPTION + why)


class AuthGate:
    """5.x: users and policies."""

    def __init__(self, store: AuthStore, rules: Rules, cluster: str) -> None:
        self.store = store
        self._rules = rules
        self._cluster = cluster

    def refusal(self, host: str, command: Command) -> tuple[int, str] | None:
        """Failures are code 16 with a plain text."""
        try:
            wanted = needs(command, self._cluster) if self._rules.authorize else ()
            why = self.store.tables.refusal(host, command, self._rules, wanted)
        except ProtocolError as error:
            # Strangers learn nothing about how their request was read.
            rules = Rules(False, self._rules.unauthenticated)
            why = self.store.tables.refusal(host, command, rules, ()) or str(error)
        return None if why is None else (ResponseCode.NO_PERMISSION, why)

    def topic_refusal(self, host: str, command: Command, topic: str) -> tuple[int, str] | None:
        """Pub, Sub, Get or Update, whatever the request does to a topic."""
        wanted = topic_need(command.code, topic, self._cluster)
        why = self.store.tables.denied(host, command, self._rules, (wanted,))
        return None if why is None else (ResponseCode.NO_PERMISSION, why)

    def refresh(self) -> None:
        """Nothing: users change by commands only."""


def make_gate(settings: BrokerSettings, clock: Clock) -> tuple[Gate | None, SigningHook | None]:
    """The gate that the settings ask for, and what signs this broker's own requests.

    Raises `SettingsError` for files and settings that cannot be used.
    """
    config = settings.store_path_root_dir / "config"
    if settings.acl_enable:
        return PlainGate(AclFiles(settings.acl_path or config, clock)), None
    if not settings.authentication_enabled:
        return None, None
    store = AuthStore(settings.auth_config_path or config / "auth")
    store.make_first(settings.init_authentication_user, "initAuthenticationUser", ("username", "password"))
    inner = store.make_first(
        settings.inner_client_authentication_credentials,
        "innerClientAuthenticationCredentials",
        ("accessKey", "secretKey"),
    )
    if not store.tables.users:
        raise SettingsError(
            "authenticationEnabled=true, but there is no user; name the first with "
            'initAuthenticationUser={"username":"…","password":"…"}'
        )
    rules = Rules(
        settings.authorization_enabled,
        parse_codes(settings.authentication_whitelist, "authenticationWhitelist"),
        parse_codes(settings.authorization_whitelist, "authorizationWhitelist"),
    )
    return AuthGate(store, rules, settings.broker_cluster_name), SigningHook.of(inner)


class GuardedHandler:
    """Lets through to `inner` what `gate` has nothing against, and answers the rest.

    A refusal is logged at most once a minute: enough to see that somebody tries, too little to fill a disk.
    """

    def __init__(self, inner: ServerHandler, gate: Gate) -> None:
        self._inner = inner
        self._gate = gate
        self._occasional = OccasionalLog(log)

    def connection_made(self, conn: Connection) -> None:
        """A client connected; it is asked who it is with each request."""
        self._inner.connection_made(conn)

    def connection_lost(self, conn: Connection) -> None:
        """A client is gone."""
        self._inner.connection_lost(conn)

    def frames_received(self, conn: Connection, frames: list[RawFrame]) -> None:
        """Judge all requests of one read."""
        host, passed = conn.peer[0], []
        for frame in frames:
            try:
                command = decode(*frame)
            except FrameError as error:
                conn.refuse(error)
                return
            if command.is_response:
                continue  # to a call that nobody waits for any more
            if _is_ambiguous(frame, command.code):
                conn.refuse(FrameError("a header names two request codes"))
                return
            refused = self._gate.refusal(host, command)
            if refused is None:
                passed.append(frame)
                continue
            self._occasional.write(
                logging.WARNING, "refused", f"refusing a request of {conn.address}: {refused[1]!r}"
            )
            if not command.is_oneway:
                conn.send(Command(refused[0], command.opaque, FLAG_RESPONSE, remark=refused[1]))
        if passed:
            self._inner.frames_received(conn, passed)


_HOT_PREFIXES: Final = (*SEND_PREFIXES, *PULL_PREFIXES)


def _is_ambiguous(frame: RawFrame, code: int) -> bool:
    """Whether the hot paths, which look at a header's beginning only, would take it for another request.

    JSON may name a member twice, and the last one is what was judged.
    """
    kind, header, _ = frame
    if kind != JSON_HEADER or not header.startswith(_HOT_PREFIXES):
        return False
    return not header.startswith(b'{"code":%d,' % code)


def gate_handlers(gate: Gate | None, settings: BrokerSettings, address: str) -> dict[int, Any]:
    """The commands that change access control, for the broker's table of handlers."""
    from sparrowmq.broker.access_admin import AuthAdmin, PlainAdmin

    if isinstance(gate, PlainGate):
        return PlainAdmin(gate.files, settings, address).table()
    if isinstance(gate, AuthGate):
        return AuthAdmin(gate.store).table()
    return {}
