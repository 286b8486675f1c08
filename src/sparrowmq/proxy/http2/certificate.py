"""TLS of the proxy's port: configured certificates, or one made at each start.

RocketMQ's clients of version 5 use TLS unless told otherwise, and do not verify the server's certificate. So
a proxy without a configured one offers TLS with its own, as Apache's does: it hides messages from
eavesdroppers, but a client cannot tell the proxy from a man in the middle.
"""

from __future__ import annotations

import datetime
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sparrowmq.transport.tls import PortTls, server_tls

PROTOCOLS: Final = ("h2",)
DAYS: Final = 365
NAME: Final = "sparrow-proxy"


class OwnTls:
    """TLS with a certificate that this process made."""

    enforcing: bool

    def __init__(self, *, enforcing: bool = False) -> None:
        self.enforcing = enforcing
        context = _own_context()
        self.context: Callable[[], ssl.SSLContext] = lambda: context

    def __repr__(self) -> str:
        return f"<OwnTls {'enforcing' if self.enforcing else 'permissive'}>"


def proxy_tls(path: Path | None, mode: str) -> PortTls | None:
    """The TLS of a proxy's port from `tls.config.file` and `tls.server.mode`; None when TLS is disabled.

    Without a file the certificate is made here. Raises `SettingsError` when the file is unusable.
    """
    if mode == "disabled":
        return None
    if path is None:
        return OwnTls(enforcing=mode == "enforcing")
    return server_tls(path, mode, PROTOCOLS)


def _own_context() -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(PROTOCOLS)
    # The TLS library takes certificates from files only; only this user can read this one.
    with tempfile.NamedTemporaryFile(prefix="sparrow-proxy-") as file:
        file.write(key.private_bytes(pem, *plain) + certificate.public_bytes(pem))
        file.flush()
        context.load_cert_chain(file.name)
    return context
