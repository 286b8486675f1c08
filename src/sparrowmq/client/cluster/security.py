"""A client's credentials: signatures of requests, namespace fields, TLS of connections."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparrowmq.client.base.hooks import Hook, RpcHook
from sparrowmq.client.base.settings import ClientSettings
from sparrowmq.client.cluster.namespaces import Namespaced, namespace_in
from sparrowmq.core.errors import SettingsError
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.signing import Credentials, sign
from sparrowmq.transport.tls import FollowedContext, client_context

ACCESS_VARIABLE: Final = "SPARROW_ACCESS_KEY"
SECRET_VARIABLE: Final = "SPARROW_SECRET_KEY"
TOKEN_VARIABLE: Final = "SPARROW_SECURITY_TOKEN"
TLS_VARIABLE: Final = "SPARROW_CLIENT_TLS"
CA_VARIABLE: Final = "SPARROW_CLIENT_TLS_CA"
CERT_VARIABLE: Final = "SPARROW_CLIENT_TLS_CERT"
KEY_VARIABLE: Final = "SPARROW_CLIENT_TLS_KEY"


ACTING: Final[ContextVar[Credentials | None]] = ContextVar("sparrowmq_acting", default=None)
"""The account that signs the requests of this task instead of the client's. A proxy uses it to act for its
callers.
"""


@dataclass(frozen=True)
class Signer(RpcHook):
    """Signs every request, including those to name servers (client:B-127). Must be the last hook."""

    credentials: Credentials

    def before_request(self, address: str, command: Command) -> None:
        """Add the access key and the signature."""
        sign(command, ACTING.get() or self.credentials)


@dataclass(frozen=True)
class Marker(RpcHook):
    """Adds fixed header fields to every request (client:A-84)."""

    fields: tuple[tuple[str, str], ...]

    def before_request(self, address: str, command: Command) -> None:
        """Add the fields."""
        command.ext = {**command.ext, **dict(self.fields)}


def credentials(settings: ClientSettings, environment: Mapping[str, str]) -> Credentials | None:
    """The account of a client: from its settings, or else `SPARROW_ACCESS_KEY`, `SPARROW_SECRET_KEY` and
    `SPARROW_SECURITY_TOKEN`. Raises `SettingsError` when only one of the keys is given.
    """
    if settings.access_key is not None and settings.secret_key is not None:
        return Credentials(settings.access_key, settings.secret_key, settings.security_token)
    access_key, secret_key = environment.get(ACCESS_VARIABLE), environment.get(SECRET_VARIABLE)
    if not access_key and not secret_key:
        return None
    if not access_key or not secret_key:
        missing = SECRET_VARIABLE if access_key else ACCESS_VARIABLE
        raise SettingsError(
            f"{missing} is not set: access key and secret key must be given together", missing
        )
    return Credentials(access_key, secret_key, environment.get(TOKEN_VARIABLE))


def request_hooks(settings: ClientSettings, environment: Mapping[str, str] | None = None) -> tuple[Hook, ...]:
    """The hooks of a client in order: those that settings imply, around those that settings list
    (client:A-83).
    """
    first: list[Hook] = []
    last: list[Hook] = []
    if namespace := namespace_in(settings):
        first.append(Namespaced(namespace))
    if settings.namespace_v2:
        first.append(Marker((("nsd", "true"), ("ns", settings.namespace_v2))))
    account = credentials(settings, os.environ if environment is None else environment)
    if account is not None:
        last.append(Signer(account))
    return (*first, *settings.hooks, *last)


def tls_context(
    settings: ClientSettings, environment: Mapping[str, str] | None = None
) -> ssl.SSLContext | FollowedContext | None:
    """The TLS context for this client's connections, None without TLS; it reloads its files when they change.

    Without settings, `SPARROW_CLIENT_TLS=true` enables TLS, `SPARROW_CLIENT_TLS_CA` names the certificate
    authority, `SPARROW_CLIENT_TLS_CERT` and `SPARROW_CLIENT_TLS_KEY` the client certificate. Raises
    `SettingsError` with the file or value that cannot be used.
    """
    if isinstance(settings.tls, ssl.SSLContext):
        return settings.tls
    environment = os.environ if environment is None else environment
    wanted = settings.tls
    if wanted is None:
        wanted = _switch(environment, TLS_VARIABLE)
    if not wanted:
        return None
    cert, key = settings.tls_cert, settings.tls_key
    if cert is None:
        cert, key = environment.get(CERT_VARIABLE) or None, environment.get(KEY_VARIABLE) or None
        if (cert is None) != (key is None):
            missing = CERT_VARIABLE if cert is None else KEY_VARIABLE
            raise SettingsError(f"{missing} is not set: certificate and key must be given together", missing)
    files = ca, own, secret = _path(settings.tls_ca or environment.get(CA_VARIABLE)), _path(cert), _path(key)
    return FollowedContext(
        files,
        lambda: client_context(
            ca=ca, cert=own, key=secret, key_password=settings.tls_key_password, verify=settings.tls_verify
        ),
    )


def _path(given: str | Path | None) -> Path | None:
    return Path(given).expanduser() if given else None


def _switch(environment: Mapping[str, str], name: str) -> bool:
    value = environment.get(name, "").strip().lower()
    if value not in ("", "true", "false", "1", "0"):
        raise SettingsError(f"{name}={value}: write true or false", name, value)
    return value in ("true", "1")
