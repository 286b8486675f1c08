"""Protection of the pages: host and origin checks, cookies, form tokens, headers. Pure.

Each check documents the attack it prevents.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from sparrowmq.core.errors import SettingsError

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
"""Only the coordinator's own files are loaded or run, and nothing that is part of a page."""
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Of every answer."""
SESSION: Final = "sparrow_session"
CSRF_FIELD: Final = "csrf"
COOKIE_CHARS_MAX: Final = 200
LOCAL_NAMES: Final = frozenset({"localhost"})
_PORT: Final = re.compile(r":\d{1,5}\Z")


@dataclass(frozen=True, slots=True)
class ConsoleAddress:
    """Where people reach the console: with `url`, at that address too, such as a proxy's with TLS."""

    url: str = ""
    names: Collection[str] = field(default=frozenset())

    @classmethod
    def of(cls, url: str) -> ConsoleAddress:
        """Raises `SettingsError` for a text that is not the address of a site."""
        if not url:
            return cls()
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and parts.hostname and parts.path in ("", "/")
        if not is_whole or parts.query or parts.fragment or parts.username:
            raise SettingsError(
                f"consoleUrl {url[:200]!r} is not a URL; write for example https://mq.example.com"
            )
        return cls(f"{parts.scheme}://{parts.netloc}".lower(), frozenset({str(parts.hostname)}))

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach it by TLS alone: cookies are sent no other way then."""
        return self.url.startswith("https://")

    @property
    def cookie(self) -> str:
        """The name of a session's cookie. With the prefix browsers take it from this host alone, by TLS."""
        return f"__Host-{SESSION}" if self.is_secure else SESSION

    def knows(self, host: str) -> bool:
        """Whether a request's `Host` header is one the console is reached by.

        The name of a foreign page can be made to lead here (DNS rebinding); the page would then have the same
        origin. An address cannot be made to lead elsewhere: it is as good as a known name.
        """
        name = host_name(host)
        return bool(name) and (name in LOCAL_NAMES or name in self.names or _is_address(name))

    def is_own(self, origin: str | None, site: str | None, host: str) -> bool:
        """Whether a form was sent by a page of the console: by `Origin`, which browsers send with every
        form, or `Sec-Fetch-Site`. What has neither, or an `Origin` of `null`, was not.

        An origin is compared whole: the console is served by the scheme of its `url`, or by http without one.
        """
        if site is not None and site != "same-origin":
            return False
        if origin is None:
            return site == "same-origin"
        scheme = urlsplit(self.url).scheme or "http"
        own = {self.url, f"{scheme}://{host.lower()}" if host else ""}
        return bool(origin) and origin.lower() in own


def host_name(host: str) -> str:
    """The name or address in a `Host` header, without its port; empty for anything else. Pure."""
    name = _PORT.sub("", host.strip().lower())
    if name.startswith("[") and name.endswith("]"):
        return name[1:-1]
    return name if name and not set(name) & set("/@[]\\ ?#,") else ""


def csrf_of(session: str) -> str:
    """What the forms of a session carry. Who sends it has read a page of that session."""
    return hmac.new(session.encode(), b"sparrow console forms", hashlib.sha256).hexdigest()


def is_csrf(session: str, given: str) -> bool:
    """Whether a form carries the session's own."""
    return hmac.compare_digest(csrf_of(session).encode(), given.encode("utf-8", "replace"))


def inner_path(text: str) -> str:
    """A path of the console to continue with after a login; the overview for what leads elsewhere. Pure."""
    is_path = text.startswith("/") and not text.startswith(("//", "/\\"))
    has_odd = any(char < " " or char in "\\\x7f" for char in text)
    return text if is_path and not has_odd and len(text) <= 2000 else "/"


def is_here(name: str) -> bool:
    """Whether a name or address is this machine's own. Pure."""
    return name in LOCAL_NAMES or (_is_address(name) and ip_address(name).is_loopback)


def _is_address(name: str) -> bool:
    """Whether it is an address, without a zone: any text may follow the `%` of one."""
    if "%" in name:
        return False
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
