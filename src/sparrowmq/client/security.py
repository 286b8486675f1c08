"""What a client adds to its requests and connections to be let in: signatures, name space marks, TLS."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from sparrowmq.client.hooks import Hook, RpcHook
from sparrowmq.client.namespaces import Namespaced, namespace_in
from sparrowmq.client.settings import ClientSettings
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.signing import Credentials, sign
from sparrowmq.transport.tls import client_context


@dataclass(frozen=True)
class Signer(RpcHook):
    """Signs every request, to name servers too (client:B-127). Must be the last hook."""

    credentials: Credentials

    def before_request(self, address: str, command: Command) -> None:
        """Add access key and signature."""
        sign(command, self.credentials)


@dataclass(frozen=True)
class Marker(RpcHook):
    """Adds fixed header fields to every request (client:A-84)."""

    fields: tuple[tuple[str, str], ...]

    def before_request(self, address: str, command: Command) -> None:
        """Add the fields."""
        command.ext = {**command.ext, **dict(self.fields)}


def request_hooks(settings: ClientSettings) -> tuple[Hook, ...]:
    """The hooks of a client: what the settings imply around those they name, in order (client:A-83)."""
    first: list[Hook] = []
    last: list[Hook] = []
    if namespace := namespace_in(settings):
        first.append(Namespaced(namespace))
    if settings.namespace_v2:
        first.append(Marker((("nsd", "true"), ("ns", settings.namespace_v2))))
    if settings.access_key is not None and settings.secret_key is not None:
        last.append(Signer(Credentials(settings.access_key, settings.secret_key, settings.security_token)))
    return (*first, *settings.hooks, *last)


def tls_context(settings: ClientSettings) -> ssl.SSLContext | None:
    """The context for this client's connections, None for plain ones.

    Raises `SettingsError` naming a file that cannot be used.
    """
    if isinstance(settings.tls, ssl.SSLContext):
        return settings.tls
    if not settings.tls:
        return None
    return client_context(
        ca=_path(settings.tls_ca),
        cert=_path(settings.tls_cert),
        key=_path(settings.tls_key),
        key_password=settings.tls_key_password,
        verify=settings.tls_verify,
    )


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given).expanduser()
