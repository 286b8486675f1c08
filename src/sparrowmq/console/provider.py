"""An OpenID Connect provider: its metadata, its tokens, and the verification of its signatures and claims.

Blocking: called by `ProviderCalls`. Answers are bounded in time and size, redirects are not followed, and
only signatures with public keys count.
"""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote, urlencode

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key
from joserfc.jws import JWSRegistry

from sparrowmq.console.identity import OpenId, check_url
from sparrowmq.core.errors import RefusedError, SettingsError

SECONDS: Final = 5.0
"""Time limit for connecting, for each piece of an answer, and for a whole body."""
ANSWER_BYTES_MAX: Final = 512 * 1024
PIECE_BYTES: Final = 64 * 1024
FRESH_SECONDS: Final = 3600.0
"""How long the provider's metadata is cached."""
AGAIN_SECONDS: Final = 10.0
"""Minimum time between two downloads of its keys because of an unknown key: anyone can send one."""
REST_SECONDS: Final = 2.0
"""How long the provider is left alone after it did not answer: callers that waited meanwhile get that error.
"""
LEEWAY_SECONDS: Final = 60
ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "Ed25519",
    "EdDSA",
)
"""Algorithms with public keys: never `none`, and none whose key would be a secret of ours."""
KEY_TYPES: Final = frozenset({"RSA", "EC", "OKP"})
KEYS_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The provider's endpoints."""

    authorization: str
    token: str
    keys: str
    userinfo: str = ""
    end_session: str = ""
    says_issuer: bool = False
    """Whether its answers include its name (RFC 9207)."""
    basic: bool = True
    """Whether the client's secret is sent in a header."""


Fetch = Callable[[str, bytes | None, Mapping[str, str]], bytes]


@dataclass(slots=True)
class Provider:
    """The provider of some settings. `fetch` asks it; `clock` gives monotonic seconds."""

    openid: OpenId
    fetch: Fetch = field(default_factory=lambda: fetched)
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _endpoints: tuple[float, Endpoints] | None = None
    _failed: tuple[float, str] | None = None
    _keys: tuple[float, list[Key]] | None = None
    _issuer: str = ""
    """Its name as it writes it, with or without a trailing slash."""

    def endpoints(self) -> Endpoints:
        """The provider's metadata. Raises `RefusedError` (502)."""
        with self._lock:
            known, now = self._endpoints, self.clock()
            if known is not None and now - known[0] < FRESH_SECONDS:
                return known[1]
            if self._failed is not None and now - self._failed[0] < REST_SECONDS:
                raise RefusedError(self._failed[1], status=502)
            try:
                found = self._discover()
            except RefusedError as error:
                self._failed = (self.clock(), str(error))
                raise
            self._endpoints = (now, found)
            return found

    def login_address(self, redirect: str, state: str, nonce: str, challenge: str) -> str:
        """The address to which a browser is sent to log in."""
        fields = {
            "response_type": "code",
            "client_id": self.openid.client_id,
            "redirect_uri": redirect,
            "scope": self.openid.scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return with_fields(self.endpoints().authorization, fields)

    def logout_address(self, redirect: str) -> str:
        """The address to which a browser is sent to log out of the provider; empty if it has none."""
        end = self.endpoints().end_session
        fields = {"client_id": self.openid.client_id, "post_logout_redirect_uri": redirect}
        return with_fields(end, fields) if end else ""

    def claims(self, code: str, verifier: str, redirect: str, nonce: str) -> Mapping[str, Any]:
        """The claims about the person who logged in, for a code. Raises `RefusedError`: 502 if its answer is
        invalid, 401 if the claims are not for this login.
        """
        where = self.endpoints()
        answer = self._exchange(where, code, verifier, redirect)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise self._bad("sent no id_token")
        found = dict(self.verified(token, nonce))
        access = answer.get("access_token")
        wanted = {self.openid.name_claim, self.openid.role_claim} - set(found)
        if wanted and where.userinfo and isinstance(access, str):
            more = self._json(where.userinfo, None, {"Authorization": f"Bearer {access}"})
            if more.get("sub") != found.get("sub"):
                raise RefusedError(
                    f"{self.openid.host} sent the data of another user than the one who logged in", status=401
                )
            found = {**more, **found}
        return found

    def verified(self, token: str, nonce: str) -> Mapping[str, Any]:
        """The claims of an id_token that this provider signed for us and for this login. Raises
        `RefusedError` (401).
        """
        key_id = _key_id(token)
        for again in (False, True):
            keys = [one for one in self._known_keys(again=again) if key_id is None or one.kid == key_id]
            for key in keys:
                try:
                    registry = JWSRegistry(algorithms=list(ALGORITHMS))
                    claims = jwt.decode(token, key, algorithms=list(ALGORITHMS), registry=registry).claims
                except (JoseError, ValueError, TypeError):
                    continue
                self._check(claims, nonce)
                return claims
        raise RefusedError(f"the token of {self.openid.host} is not signed with one of its keys", status=401)

    def _check(self, claims: Mapping[str, Any], nonce: str) -> None:
        registry = jwt.JWTClaimsRegistry(
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": self._issuer},
            aud={"essential": True, "value": self.openid.client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": True, "value": nonce},
        )
        try:
            registry.validate(dict(claims))
        except JoseError as error:
            text = f"the token of {self.openid.host} is not for this login: {error}; log in again"
            raise RefusedError(text, status=401) from None
        audience, party = claims["aud"], claims.get("azp")
        if (isinstance(audience, list) and len(audience) > 1 and party is None) or (
            party is not None and party != self.openid.client_id
        ):
            raise RefusedError(f"the token of {self.openid.host} is for another client", status=401)

    def _exchange(self, where: Endpoints, code: str, verifier: str, redirect: str) -> Mapping[str, Any]:
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "code_verifier": verifier,
            "client_id": self.openid.client_id,
        }
        headers = {}
        if self.openid.client_secret and where.basic:
            pair = f"{quote(self.openid.client_id, safe='')}:{quote(self.openid.client_secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        elif self.openid.client_secret:
            fields["client_secret"] = self.openid.client_secret
        return self._json(where.token, urlencode(fields).encode(), headers)

    def _discover(self) -> Endpoints:
        told = self._json(f"{self.openid.issuer}/.well-known/openid-configuration", None, {})
        issuer = told.get("issuer")
        if not isinstance(issuer, str) or issuer.rstrip("/") != self.openid.issuer:
            raise self._bad(f"identifies itself as {str(issuer)[:200]!r}")
        self._issuer = issuer
        ways = told.get("token_endpoint_auth_methods_supported")
        return Endpoints(
            self._address(told, "authorization_endpoint"),
            self._address(told, "token_endpoint"),
            self._address(told, "jwks_uri"),
            self._address(told, "userinfo_endpoint", needed=False),
            self._address(told, "end_session_endpoint", needed=False),
            told.get("authorization_response_iss_parameter_supported") is True,
            not isinstance(ways, list) or "client_secret_basic" in ways or "client_secret_post" not in ways,
        )

    def _address(self, told: Mapping[str, Any], name: str, *, needed: bool = True) -> str:
        found = told.get(name)
        if found is None and not needed:
            return ""
        try:
            check_url(str(found), name)
        except SettingsError as error:
            raise self._bad(f"published unusable data: {error}") from None
        return str(found)

    def _known_keys(self, *, again: bool) -> list[Key]:
        """Its keys; with `again` they are downloaded again, unless that was done recently."""
        where = self.endpoints()
        with self._lock:
            known, now = self._keys, self.clock()
            fresh = AGAIN_SECONDS if again else FRESH_SECONDS
            if known is not None and now - known[0] < fresh:
                return known[1]
            found = _keys_of(self._json(where.keys, None, {}))
            self._keys = (now, found)
            return found

    def _json(self, url: str, body: bytes | None, headers: Mapping[str, str]) -> Mapping[str, Any]:
        try:
            found = json.loads(self.fetch(url, body, {"Accept": "application/json"} | dict(headers)))
        except HTTPError as error:
            with error:
                raise self._bad(f"answered {error.code}{_why(error)}") from None
        except (OSError, HTTPException) as error:
            raise self._bad(f"does not answer: {getattr(error, 'reason', error)}") from None
        except (ValueError, RecursionError):
            raise self._bad("answered no JSON") from None
        if not isinstance(found, dict):
            raise self._bad("answered no object")
        return found

    def _bad(self, what: str) -> RefusedError:
        return RefusedError(
            f"the login provider {self.openid.host} {what}; try again or ask its operators", status=502
        )


def fetched(url: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
    """The content of an address. Raises `OSError` or `HTTPException`, `ValueError` if it is too large."""
    request = urllib.request.Request(url, body, dict(headers))
    found = bytearray()
    with urllib.request.build_opener(_NoRedirect).open(request, timeout=SECONDS) as answer:
        until = time.monotonic() + SECONDS
        while piece := answer.read1(PIECE_BYTES):
            found += piece
            if len(found) > ANSWER_BYTES_MAX:
                raise ValueError(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
            if time.monotonic() > until:
                raise TimeoutError(f"its answer is not complete after {SECONDS:g} s")
    return bytes(found)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirects, because requests to a provider contain secrets."""

    def redirect_request(self, *arguments: Any) -> None:
        """Do not follow."""


def with_fields(url: str, fields: Mapping[str, str]) -> str:
    """An address with additional fields. Pure."""
    return f"{url}{'&' if '?' in url else '?'}{urlencode(fields)}"


def _keys_of(told: Mapping[str, Any]) -> list[Key]:
    """The usable public keys; others are omitted."""
    found: list[Key] = []
    listed = told.get("keys")
    for one in listed[:KEYS_MAX] if isinstance(listed, list) else ():
        if not isinstance(one, dict) or one.get("kty") not in KEY_TYPES or one.get("use", "sig") != "sig":
            continue
        try:
            found.append(JWKRegistry.import_key(one))
        except (JoseError, ValueError, TypeError):
            continue
    return found


def _key_id(token: str) -> str | None:
    """The name of the key that signed a token, None if missing. Raises `RefusedError` (401)."""
    head = token.partition(".")[0]
    try:
        found = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RefusedError("the login provider did not send a signed token", status=401)
    name = found.get("kid")
    return name if isinstance(name, str) else None


def _why(error: HTTPError) -> str:
    """The error code in an answer, such as invalid_grant."""
    try:
        word = json.loads(error.read(4096)).get("error")
    except (ValueError, AttributeError, OSError):
        return ""
    return f" ({word[:60]})" if isinstance(word, str) else ""
