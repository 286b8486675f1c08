"""The TLS settings of `tls.properties`, by RocketMQ's names. Pure: callers read the file."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sparrowmq.core.errors import SettingsError

MODES: Final = ("disabled", "permissive", "enforcing")
CLIENT_AUTH: Final = ("none", "optional", "require")
PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The settings in `tls.properties` (remoting:1.6); paths are of PEM files, None if not set.

    `server_auth_client` makes the server verify client certificates against `server_trust_cert`; without it
    any certificate is accepted. `server_need_client_auth` says whether clients must have one.
    `client_auth_server` does the same for connections to other servers; with it, `client_check_server_name`
    also checks the name or address in their certificates, which RocketMQ does not. Passwords are never shown.
    """

    server_cert: Path | None = None
    server_key: Path | None = None
    server_key_password: str | None = field(default=None, repr=False)
    server_trust_cert: Path | None = None
    server_auth_client: bool = False
    server_need_client_auth: str = "none"
    client_cert: Path | None = None
    client_key: Path | None = None
    client_key_password: str | None = field(default=None, repr=False)
    client_trust_cert: Path | None = None
    client_auth_server: bool = False
    client_check_server_name: bool = True
    ciphers: str | None = None
    protocols: tuple[str, ...] = ()


_NAMES: Final = {
    "tls.server.certPath": "server_cert",
    "tls.server.keyPath": "server_key",
    "tls.server.keyPassword": "server_key_password",
    "tls.server.trustCertPath": "server_trust_cert",
    "tls.server.authClient": "server_auth_client",
    "tls.server.need.client.auth": "server_need_client_auth",
    "tls.client.certPath": "client_cert",
    "tls.client.keyPath": "client_key",
    "tls.client.keyPassword": "client_key_password",
    "tls.client.trustCertPath": "client_trust_cert",
    "tls.client.authServer": "client_auth_server",
    "tls.client.checkServerName": "client_check_server_name",
    "tls.ciphers": "ciphers",
    "tls.protocols": "protocols",
}
_TEST_MODE: Final = "tls.test.mode.enable"


def parse_tls(texts: Mapping[str, str], directory: Path) -> TlsSettings:
    """The settings in the pairs of a `tls.properties`; relative paths start at `directory`.

    Raises `SettingsError` naming every unknown name and wrong value. RocketMQ's test mode, a certificate
    generated at each start, is refused because clients could not verify it.
    """
    values: dict[str, Any] = {}
    problems = []
    for name, raw in texts.items():
        text = raw.strip()
        if name == _TEST_MODE:
            if text.lower() == "true":
                problems.append(
                    f"{name}=true: this release has no test mode; give tls.server.certPath and keyPath"
                )
            continue
        attribute = _NAMES.get(name)
        if attribute is None:
            near = difflib.get_close_matches(name, [*_NAMES, _TEST_MODE], 1, 0.75)
            hint = f"did you mean {near[0]}?" if near else "remove it"
            problems.append(f"{name}: there is no such TLS setting; {hint}")
        elif text:
            try:
                values[attribute] = _value(attribute, text, directory)
            except ValueError as error:
                problems.append(f"{name}={text}: {error}")
    if problems:
        raise SettingsError("\n".join(problems))
    settings = TlsSettings(**values)
    _check_pairs(settings)
    return settings


def _value(attribute: str, text: str, directory: Path) -> object:
    if attribute.endswith("password") or attribute == "ciphers":
        return text
    if attribute in ("server_auth_client", "client_auth_server", "client_check_server_name"):
        if text.lower() not in ("true", "false"):
            raise ValueError("must be true or false")
        return text.lower() == "true"
    if attribute == "server_need_client_auth":
        if text.lower() not in CLIENT_AUTH:
            raise ValueError(f"must be one of {', '.join(CLIENT_AUTH)}")
        return text.lower()
    if attribute == "protocols":
        chosen = tuple(part.strip() for part in text.split(",") if part.strip())
        if not chosen or not set(chosen) <= set(PROTOCOLS):
            raise ValueError(f"takes {' and '.join(PROTOCOLS)}, joined with a comma")
        return chosen
    return directory / Path(text).expanduser()


def _check_pairs(settings: TlsSettings) -> None:
    for side in ("server", "client"):
        cert, key = getattr(settings, f"{side}_cert"), getattr(settings, f"{side}_key")
        if (cert is None) != (key is None):
            missing = f"tls.{side}.keyPath" if key is None else f"tls.{side}.certPath"
            raise SettingsError(f"{missing} is missing: certificate and key must be given together", missing)
    if settings.server_auth_client and settings.server_trust_cert is None:
        raise SettingsError(
            "tls.server.authClient=true: give tls.server.trustCertPath, who signs clients' certificates",
            "tls.server.authClient",
            other="tls.server.trustCertPath",
        )
    if settings.server_need_client_auth != "none" and not settings.server_auth_client:
        raise SettingsError(
            f"tls.server.need.client.auth={settings.server_need_client_auth}: certificates nobody checks "
            "prove nothing; set tls.server.authClient=true too",
            "tls.server.need.client.auth",
            settings.server_need_client_auth,
            other="tls.server.authClient",
        )
