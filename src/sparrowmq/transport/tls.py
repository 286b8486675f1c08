"""TLS contexts: a server's, which are reloaded when files change, and a client's (remoting:1.6)."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings.text import parse_properties
from sparrowmq.core.settings.tls import TlsSettings, parse_tls
from sparrowmq.transport.occasional import OccasionalLog

RELOAD_SECONDS: Final = 1.0
"""Files are checked for changes at most this often, and only when a client connects."""
HANDSHAKE_SECONDS_MAX: Final = 10.0
_READ_BY_ALL: Final = 0o004

logger = logging.getLogger("sparrowmq.transport")

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_NEED: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


def read_tls_settings(path: Path) -> TlsSettings:
    """The settings in a `tls.properties` file. Raises `SettingsError` naming the file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"tls.config.file={path} cannot be read: {error}", "tls.config.file", path
        ) from None
    try:
        return parse_tls(parse_properties(text), path.parent)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}", error.setting, error.value, other=error.other) from None


def client_context(
    *,
    ca: Path | None = None,
    cert: Path | None = None,
    key: Path | None = None,
    key_password: str | None = None,
    verify: bool = True,
    check_hostname: bool = True,
) -> ssl.SSLContext:
    """A context for connecting: it trusts `ca`, by default the system's CAs.

    `cert` and `key` are sent to servers that request them. Without `verify` any certificate is accepted, so
    an attacker can read and change everything. Raises `SettingsError` naming the unusable file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = verify and check_hostname
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    if verify:
        if ca is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            _load_authority(context, ca)
    if cert is not None:
        _load_certificate(context, cert, key, key_password)
    return context


def outgoing_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of a server that connects to others: `tls.client.…`."""
    context = client_context(
        ca=settings.client_trust_cert,
        cert=settings.client_cert,
        key=settings.client_key,
        key_password=settings.client_key_password,
        verify=settings.client_auth_server,
        check_hostname=settings.client_check_server_name,
    )
    _restrict(context, settings)
    return context


def server_context(settings: TlsSettings, protocols: Sequence[str] = ()) -> ssl.SSLContext:
    """The context of a server's port; `protocols` are those it offers by ALPN, the best first.

    Raises `SettingsError` naming the unusable file.
    """
    if settings.server_cert is None:
        raise SettingsError(
            "TLS needs a certificate: give tls.server.certPath and tls.server.keyPath", "tls.server.certPath"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load_certificate(context, settings.server_cert, settings.server_key, settings.server_key_password)
    if settings.server_auth_client and settings.server_trust_cert is not None:
        _load_authority(context, settings.server_trust_cert)
        context.verify_mode = _NEED[settings.server_need_client_auth]
    _restrict(context, settings)
    if protocols:
        context.set_alpn_protocols(protocols)
    return context


class FollowedContext:
    """A context that `make` rebuilds when one of `files` changed; calling it returns the current one.

    If a file is unusable, the old context stays and an error is logged; certificate and key are loaded when
    they match again. Raises `SettingsError` when the first context cannot be made.
    """

    def __init__(
        self,
        files: Iterable[Path | None],
        make: Callable[[], ssl.SSLContext],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = [path for path in files if path is not None]
        self._make = make
        self._monotonic = monotonic
        self._occasional = OccasionalLog(logger)
        self._seen = _stamps(self._files)
        self._context = make()
        self._looked_at = monotonic()

    def __repr__(self) -> str:
        return f"<FollowedContext {', '.join(map(str, self._files))}>"

    def __call__(self) -> ssl.SSLContext:
        """The context for the next connection."""
        now = self._monotonic()
        if now - self._looked_at >= RELOAD_SECONDS:
            self._looked_at = now
            seen = _stamps(self._files)
            if seen != self._seen:
                self._reload(seen)
        return self._context

    def _reload(self, seen: list[tuple[int, int, int]]) -> None:
        try:
            self._context = self._make()
        except SettingsError as error:
            self._occasional.write(
                logging.ERROR,
                "reload",
                f"the TLS files have changed but cannot be loaded; the previous ones stay in use: {error}",
            )
            return
        self._seen = seen
        logger.info("the TLS files have changed and were reloaded: %s", ", ".join(map(str, self._files)))


class PortTls(Protocol):
    """How a port treats TLS."""

    enforcing: bool

    @property
    def context(self) -> Callable[[], ssl.SSLContext]:
        """Returns the context for the next connection."""


class ServerTls:
    """How a server's port treats TLS; `context` returns the one for the next connection, from the current
    files.

    Raises `SettingsError` when the first context cannot be made.
    """

    def __init__(
        self,
        settings: TlsSettings,
        *,
        enforcing: bool = False,
        protocols: Sequence[str] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.enforcing = enforcing
        self._settings = settings
        self.context = FollowedContext(
            (settings.server_cert, settings.server_key, settings.server_trust_cert),
            lambda: server_context(settings, protocols),
            monotonic=monotonic,
        )

    def __repr__(self) -> str:
        return f"<ServerTls {'enforcing' if self.enforcing else 'permissive'} {self._settings.server_cert}>"


def outgoing_tls(settings: TlsSettings) -> FollowedContext:
    """How a server connects to others, from the current files. Raises `SettingsError`."""
    files = (settings.client_trust_cert, settings.client_cert, settings.client_key)
    return FollowedContext(files, lambda: outgoing_context(settings))


def server_tls(path: Path | None, mode: str, protocols: Sequence[str] = ()) -> ServerTls | None:
    """The TLS of a server's port from `tls.config.file` and `tls.server.mode`; None when TLS is disabled.
    `protocols` are those it offers by ALPN.

    Raises `SettingsError` when TLS is enforced and no certificate is configured, or a file is unusable.
    """
    settings = None if path is None or mode == "disabled" else read_tls_settings(path)
    if settings is None or settings.server_cert is None:
        if mode == "enforcing":
            raise SettingsError(
                "tls.server.mode=enforcing: give tls.config.file, a properties file with tls.server.certPath "
                "and tls.server.keyPath",
                "tls.server.mode",
                "enforcing",
                other="tls.config.file",
            )
        return None
    return ServerTls(settings, enforcing=mode == "enforcing", protocols=protocols)


def handshake_failure(address: str, error: ssl.SSLError) -> str:
    """The error text for a failed TLS handshake with a server, and what to do."""
    host = address.rpartition(":")[0]
    if isinstance(error, ssl.SSLCertVerificationError):
        text = error.verify_message
        if "mismatch" in text or "not match" in text:
            step = (
                f"its certificate is not valid for {host}: connect by a name in the certificate, add "
                f"{host} to it, or, for connections between brokers, set tls.client.checkServerName=false"
            )
        elif "expired" in text:
            step = "renew it"
        elif "not yet valid" in text:
            step = "check the clocks"
        else:
            step = "give the CA that signed it as tls_ca"
        return f"the certificate of {address} was rejected: {text}; {step}"
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
        return f"{address} does not speak TLS; turn TLS on there, or off here"
    return f"the TLS handshake with {address} failed: {error.reason or error}"


def early_end(error: Exception | None, tls: bool) -> str:
    """The error text for a server that closed a connection without sending anything, and what to do.

    In TLS 1.3 a server refuses a client's certificate, or asks for the one that is missing, after the client
    has seen the handshake end.
    """
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
            return "the server requires a client certificate; give tls_cert and tls_key"
        if "EXPIRED" in reason:
            return "the server rejected this client's certificate because it has expired; renew it"
        if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
            return f"the server rejected this client's certificate ({reason}); give one it trusts as tls_cert"
        return f"TLS failed: {reason}"
    if error is not None:
        return str(error)
    if tls:
        return "the server closed it without a response"
    return "the server closed it without a response; if the server requires TLS, set tls=True"


def _stamps(paths: Iterable[Path]) -> list[tuple[int, int, int]]:
    found = []
    for path in paths:
        try:
            stat = path.stat()
            found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        except OSError:
            found.append((0, 0, 0))
    return found


def _load_authority(context: ssl.SSLContext, path: Path) -> None:
    try:
        context.load_verify_locations(cafile=str(path))
    except (OSError, ssl.SSLError) as error:
        text = f"{path} is not a PEM file of trusted certificates: {_words(error)}"
        raise SettingsError(text, what="authority", value=path) from None


def _load_certificate(context: ssl.SSLContext, cert: Path, key: Path | None, password: str | None) -> None:
    # Without a password OpenSSL would ask the terminal for one.
    def secret() -> str:
        if password is None:
            text = f"the key {key or cert} is encrypted: give its password"
            raise SettingsError(text, what="password", value=key or cert)
        return password

    try:
        held = key or cert
        if held.stat().st_mode & _READ_BY_ALL:
            logger.warning("every user of this machine can read the key %s; type: chmod o= %s", held, held)
        context.load_cert_chain(str(cert), None if key is None else str(key), secret)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            f"the certificate {cert} and the key {key or cert} cannot be used: {_words(error)}",
            what="key",
            value=key or cert,
        ) from None


def _restrict(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if settings.protocols:
        chosen = sorted(_VERSIONS[name] for name in settings.protocols)
        context.minimum_version, context.maximum_version = chosen[0], chosen[-1]
    if settings.ciphers is not None:
        try:
            context.set_ciphers(settings.ciphers.replace(",", ":"))
        except ssl.SSLError:
            raise SettingsError(
                f"tls.ciphers={settings.ciphers}: OpenSSL knows none of them; "
                "use OpenSSL's names, such as ECDHE-RSA-AES128-GCM-SHA256",
                "tls.ciphers",
                settings.ciphers,
            ) from None


def _words(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "it is not a PEM file"
    return error.strerror or str(error)
