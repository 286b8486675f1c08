"""Login with an OpenID Connect provider: the redirects of one browser to the provider and back.

Authorization code flow with PKCE. The values that bind the callback to the browser that started the login
(state, nonce, verifier, next page) are in a cookie of this browser that is valid for ten minutes. The server
keeps no state, so any coordinator can handle the callback. The cookie is `Lax`, because the way back begins
on the provider's site; the session's cookie stays `Strict`, so a small page continues instead of a redirect.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sparrowmq.console.provider_calls import ProviderCalls
from sparrowmq.console.safety import ConsoleAddress, inner_path
from sparrowmq.coordinator.api import people
from sparrowmq.coordinator.api.shared import Context
from sparrowmq.core.errors import RefusedError

if TYPE_CHECKING:
    from sparrowmq.console.provider import Provider

FLOW: Final = "sparrow_login"
FLOW_SECONDS: Final = 600
FLOW_CHARS_MAX: Final = 4000
ONWARD_CHARS_MAX: Final = 1500
"""Of the page to continue with: the cookie has it."""
GO: Final = "/login/oidc"
BACK: Final = "/login/oidc/back"
OUT: Final = "/login/oidc/out"
Show = Callable[[Request, str, dict[str, Any], int], Awaitable[Response]]
"""Renders a page from a template."""


@dataclass(frozen=True, slots=True)
class LoginFlow:
    """One login: the redirect to the provider and back."""

    state: str
    nonce: str
    verifier: str
    onward: str

    @classmethod
    def new(cls, onward: str) -> LoginFlow:
        """A new login with unguessable values."""
        return cls(secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_urlsafe(48), onward)

    @classmethod
    def parse(cls, text: str) -> LoginFlow | None:
        """The login in a cookie; None if the cookie is not ours."""
        try:
            found = json.loads(base64.urlsafe_b64decode(text[:FLOW_CHARS_MAX]))
        except (ValueError, RecursionError):
            return None
        is_whole = isinstance(found, list) and len(found) == 4 and all(isinstance(one, str) for one in found)
        if not is_whole or any(len(one) < 32 for one in found[:3]):
            return None
        return cls(found[0], found[1], found[2], inner_path(found[3]))

    @property
    def text(self) -> str:
        """The value of the cookie."""
        parts = [self.state, self.nonce, self.verifier, self.onward]
        return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()

    @property
    def challenge(self) -> str:
        """The challenge for the verifier (RFC 7636, S256)."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


class Federated:
    """The routes of the login with a provider."""

    def __init__(self, context: Context, place: ConsoleAddress, provider: Provider, show: Show) -> None:
        self._context = context
        self._place = place
        self._provider = provider
        self._calls = ProviderCalls(provider.openid.host)
        self._show = show

    @property
    def host(self) -> str:
        """The provider's name."""
        return self._provider.openid.host

    async def go(self, request: Request) -> Response:
        """Redirect to the provider."""
        flow = LoginFlow.new(inner_path(request.query_params.get("next", "/"))[:ONWARD_CHARS_MAX])
        address = await self._calls.call(
            self._provider.login_address, self._way_back(request), flow.state, flow.nonce, flow.challenge
        )
        answer = RedirectResponse(address, 303, headers={"Cache-Control": "no-store"})
        self._keep(answer, flow.text, FLOW_SECONDS)
        return answer

    async def back(self, request: Request) -> Response:
        """Handle the provider's callback; it works once."""
        try:
            flow, code = self._checked(request)
            claims = await self._calls.call(
                self._provider.claims, code, flow.verifier, self._way_back(request), flow.nonce
            )
            person = self._provider.openid.person(claims)
            address = request.client.host if request.client else ""
            token = await run_in_threadpool(people.login_external, self._context, person, address, self.host)
        except RefusedError as error:
            answer = await self._show(
                request, "error", {"status": error.status, "text": str(error)}, error.status
            )
            self._keep(answer, "", 0)
            return answer
        answer = await self._show(request, "entered", {"onward": flow.onward}, 200)
        secure = self._place.is_secure
        answer.set_cookie(
            self._place.cookie, token, path="/", secure=secure, httponly=True, samesite="strict"
        )
        self._keep(answer, "", 0)
        return answer

    async def out(self, request: Request) -> Response:
        """Log out at the provider as well."""
        address = await self._calls.call(self._provider.logout_address, f"{self._own(request)}/login")
        return RedirectResponse(address or "/login", 303)

    def _checked(self, request: Request) -> tuple[LoginFlow, str]:
        """The login that this browser started, and the code. Raises `RefusedError`."""
        asked = request.query_params
        flow = LoginFlow.parse(request.cookies.get(self._cookie, ""))
        given = asked.get("state", "")
        if flow is None or not hmac.compare_digest(flow.state.encode(), given.encode("utf-8", "replace")):
            text = "this login did not begin in this browser, or took longer than ten minutes; log in again"
            raise RefusedError(text, status=403)
        if "iss" in asked and asked["iss"].rstrip("/") != self._provider.openid.issuer:
            raise RefusedError(
                "the answer came from another login provider than the request went to; nothing was done",
                status=403,
            )
        if "error" in asked:
            raise RefusedError(f"{self.host} refused the login: {asked['error'][:60]}", status=403)
        if not asked.get("code"):
            raise RefusedError(f"{self.host} sent no code; log in again", status=403)
        return flow, asked["code"][:4000]

    def _own(self, request: Request) -> str:
        """The console's own address: `consoleUrl`, or the host of the request (see `ConsoleAddress`)."""
        return self._place.url or f"http://{request.headers.get('host', '')}"

    def _way_back(self, request: Request) -> str:
        return f"{self._own(request)}{BACK}"

    @property
    def _cookie(self) -> str:
        return f"__Host-{FLOW}" if self._place.is_secure else FLOW

    def _keep(self, answer: Response, text: str, seconds: int) -> None:
        secure = self._place.is_secure
        answer.set_cookie(
            self._cookie, text, max_age=seconds, path="/", secure=secure, httponly=True, samesite="lax"
        )
