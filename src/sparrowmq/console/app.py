"""The application in front of the API: which request is whose, and the answers that every page shares."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sparrowmq.console.answers import Desk
from sparrowmq.console.federated import BACK, GO, OUT, Federated
from sparrowmq.console.identity import OpenId
from sparrowmq.console.pages import FORMS, PAGES
from sparrowmq.console.rendering import STATIC, environment, static_file
from sparrowmq.console.safety import HEADERS, ConsoleAddress
from sparrowmq.console.texts import catalogue
from sparrowmq.coordinator.api.app import BodyLimit
from sparrowmq.coordinator.api.shared import PREFIX, Context
from sparrowmq.coordinator.api.told.answering import InPieces
from sparrowmq.core.errors import SparrowError

OF_THE_API: Final = (f"{PREFIX}/", "/openapi.json")
YEAR_SECONDS: Final = 31_536_000
_log = logging.getLogger("sparrowmq.console")


def front(api: FastAPI, url: str = "", openid: OpenId | None = None) -> ASGIApp:
    """The console in front of the coordinator's API. `url` is `consoleUrl`, `openid` a login provider.

    Templates are compiled and texts read here, so that requests do not wait for it. Raises `SettingsError`.
    """
    place = ConsoleAddress.of(url)
    catalogue()
    for name in environment().list_templates():
        environment().get_template(name)
    pages = make_app(api.state.context, place, openid)
    return Front(api, pages, place)


class Front:
    """Passes requests for the API's paths to the API. The console answers the others, with its own headers,
    if their `Host` is an address of the console.
    """

    def __init__(self, api: ASGIApp, pages: ASGIApp, place: ConsoleAddress) -> None:
        self._api = api
        self._pages = pages
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"].startswith(OF_THE_API):
            await self._api(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *own]
            await send(message)

        hosts = [value for name, value in scope["headers"] if name == b"host"]
        host = hosts[0].decode("latin-1") if len(hosts) == 1 else ""
        if not self._place.knows(host):
            text = (
                f"The console of SparrowMQ does not accept the host name {host[:100]!r}. Open it "
                "by its address, or set the coordinator's consoleUrl to the URL that users open.\n"
            )
            await PlainTextResponse(text, 421)(scope, receive, guarded)
            return
        await self._pages(scope, receive, guarded)


def make_app(context: Context, place: ConsoleAddress, openid: OpenId | None = None) -> Starlette:
    """The console's routes."""
    desk = Desk(context, place, openid.host if openid is not None else None)
    routes = [
        Route("/static/{version}/{name}", _static, methods=["GET"]),
        Route("/login", desk.login, methods=["GET", "POST"]),
        *_federated(context, place, openid, desk),
        Route("/logout", desk.logout, methods=["POST"]),
        Route("/preferences", desk.preferences, methods=["POST"]),
        *(Route(form.path, desk.form(form), methods=["GET", "POST"]) for form in FORMS),
        *(Route(page.path, desk.page(page), methods=["GET"]) for page in PAGES),
    ]
    handlers: Mapping[Any, Any] = {
        HTTPException: desk.refused,
        SparrowError: desk.refused,
        Exception: desk.broken,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    app.add_middleware(BodyLimit)
    app.add_middleware(InPieces)
    return app


def _federated(context: Context, place: ConsoleAddress, openid: OpenId | None, desk: Desk) -> list[Route]:
    """The routes of the login with a provider; none without one."""
    if openid is None:
        return []
    from sparrowmq.console.provider import Provider  # an extra: it verifies signatures

    way = Federated(context, place, Provider(openid), desk.show)
    return [Route(path, do, methods=["GET"]) for path, do in ((GO, way.go), (BACK, way.back), (OUT, way.out))]


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        raise HTTPException(404)
    headers = {"Cache-Control": f"public, max-age={YEAR_SECONDS}, immutable"}
    return Response(static_file(name), media_type=STATIC[name], headers=headers)
