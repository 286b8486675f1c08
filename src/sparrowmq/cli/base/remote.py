"""Calls of a coordinator's HTTP API, and the login that is saved for them in the user's configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote, urlencode, urlsplit

import typer

from sparrowmq.cli.base.common import UsageError, complain
from sparrowmq.core.errors import RefusedError
from sparrowmq.core.settings.servers import is_loopback

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

DEFAULT_URL: Final = "http://127.0.0.1:9877"
SECONDS: Final = 15.0
PREFIX: Final = "/api/v1"
_OTHERS: Final = 0o077

Url = Annotated[
    str | None,
    typer.Option(
        "--coordinator",
        metavar="URL",
        help=f"Coordinator. Default: SPARROW_COORDINATOR_URL, that of the last login, {DEFAULT_URL}.",
    ),
]
Why = Annotated[str, typer.Option("--reason", help="Reason for the audit log.")]


def login_file() -> Path:
    """The file with the login; only the user may read it."""
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "sparrowmq" / "coordinator.json"


def keep_login(url: str, token: str) -> None:
    """Save a login, in place of the previous one. Raises `UsageError`."""
    path = login_file()
    fresh = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump({"url": url, "token": token}, file)
        fresh.replace(path)
    except OSError as error:
        raise UsageError(
            f"the login cannot be saved in {path}: {error.strerror}; set XDG_CONFIG_HOME to a directory of "
            f"your own"
        ) from None


def forget_login() -> None:
    """Delete the saved login. Raises `UsageError`."""
    try:
        login_file().unlink(missing_ok=True)
    except OSError as error:
        path = login_file()
        raise UsageError(f"{path} cannot be deleted: {error.strerror}", value=path) from None


def _kept() -> dict[str, str]:
    path = login_file()
    try:
        if (mode := path.stat().st_mode) & _OTHERS:
            path.chmod(mode & 0o700)
            complain(f"warning: {path} was open to other users of this machine; log out and in again")
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return {name: str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def url_of(given: str | None) -> str:
    """The coordinator to call."""
    url = given or os.environ.get("SPARROW_COORDINATOR_URL") or _kept().get("url") or DEFAULT_URL
    if not _is_address(url):
        raise UsageError(f"{url!r} is not a coordinator's address; write for example {DEFAULT_URL}")
    return url.rstrip("/")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        plain = url.isprintable() and " " not in url and parts.port != 0
    except ValueError:
        return False
    return plain and parts.scheme in ("http", "https") and bool(parts.hostname)


def call(
    url: str | None,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    query: Mapping[str, Any] | None = None,
    *,
    prefix: str = PREFIX,
) -> Any:
    """The response of one call, with the saved token for that coordinator, or SPARROW_TOKEN.

    Raises `RefusedError` with the coordinator's text, `UsageError` when none answers.
    """
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request

    base = url_of(url)
    pairs = [(name, value) for name, value in (query or {}).items() if value not in (None, "", [])]
    more = f"?{urlencode(pairs, doseq=True, errors='surrogateescape')}" if pairs else ""
    data = None if body is None else json.dumps(dict(body)).encode()
    request = Request(base + prefix + path + more, data, _headers(base), method=method)
    try:
        with _opener(base).open(request, timeout=SECONDS) as answer:
            text = answer.read()
    except HTTPError as error:
        with error:
            raise RefusedError(_words(error.read(), error.code), status=error.code) from None
    except (OSError, HTTPException) as error:  # URLError and TimeoutError are OSErrors
        why = getattr(error, "reason", error)
        if isinstance(why, TimeoutError):
            raise UsageError(
                f"the coordinator at {base} did not answer within {SECONDS:g} s; see its log: it may be "
                f"waiting for its database",
                value=base,
                limit=SECONDS,
            ) from None
        reason = getattr(why, "strerror", None) or why
        raise UsageError(
            f"no coordinator answers at {base}: {reason}; start one with sparrow up or sparrow coordinator, "
            f"or set its address with --coordinator or SPARROW_COORDINATOR_URL",
            value=base,
        ) from None
    try:
        return json.loads(text)
    except ValueError:
        raise UsageError(
            f"the server at {base} is not a coordinator; give the coordinator's address with --coordinator"
        ) from None


def _headers(base: str) -> dict[str, str]:
    kept = _kept()
    token = os.environ.get("SPARROW_TOKEN") or (kept.get("token") if kept.get("url") == base else None)
    if not token:
        return {"Content-Type": "application/json"}
    if not (token.isascii() and token.isprintable()):
        raise UsageError(
            "SPARROW_TOKEN is not a valid token; make one with sparrow token create, or unset it"
        )
    return {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}


def _opener(base: str) -> OpenerDirector:
    """Follows no redirects: the token is for `base` only."""
    from urllib.request import HTTPRedirectHandler, ProxyHandler, build_opener

    class Stay(HTTPRedirectHandler):
        def redirect_request(self, *arguments: Any) -> None:
            return None

    local = is_loopback(urlsplit(base).hostname or "")
    return build_opener(Stay, ProxyHandler({})) if local else build_opener(Stay)


def part(name: object) -> str:
    """A name, encoded for use in a path."""
    return quote(str(name), safe="", errors="surrogateescape")


def _words(body: bytes, status: int) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return f"the coordinator answered with status {status}"
