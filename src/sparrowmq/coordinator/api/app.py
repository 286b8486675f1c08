"""The application: routes, limits, and errors as one JSON object `{"error": text}`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sparrowmq.coordinator.api import (
    brokers,
    cluster,
    dynamic_settings,
    groups,
    history,
    letters,
    lives,
    messages,
    people,
    replicas,
    rosters,
    searching,
    sending,
    upkeep,
    watching,
)
from sparrowmq.coordinator.api.description import describe, methods_of
from sparrowmq.coordinator.api.shared import PREFIX, Answer, Context, Where
from sparrowmq.coordinator.api.told import (
    access,
    audit_export,
    finding,
    guards,
    members,
    offsets,
    pipelines,
    servers,
    topics,
)
from sparrowmq.coordinator.api.told.answering import InPieces
from sparrowmq.coordinator.database.migrate import newest
from sparrowmq.core.errors import ClientError, DatabaseError, DatabaseValueError, RefusedError

BODY_BYTES_MAX: Final = 64 * 1024
"""Maximum size of a request's body; useful ones are much smaller."""
BODY_VALUES_MAX: Final = 2000
"""Maximum number of values in a body, counted by commas: each wrong value creates an error, which takes
time.
"""


def make_app(context: Context) -> FastAPI:
    """The API of a context. `/openapi.json` describes it."""
    app = FastAPI(
        title="SparrowMQ coordinator",
        version=version("sparrowmq"),
        docs_url=None,  # these pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,  # a redirect would go to the caller's own Host header, without a token
    )
    app.state.context = context
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
    app.include_router(access.router, prefix=PREFIX)
    app.include_router(audit_export.router, prefix=PREFIX)
    app.include_router(pipelines.router, prefix=PREFIX)
    app.include_router(servers.router, prefix=PREFIX)
    app.include_router(brokers.router, prefix=PREFIX)
    app.include_router(cluster.router, prefix=PREFIX)
    app.include_router(finding.router, prefix=PREFIX)
    app.include_router(groups.router, prefix=PREFIX)
    app.include_router(guards.router, prefix=PREFIX)
    app.include_router(history.router, prefix=PREFIX)
    app.include_router(letters.router, prefix=PREFIX)
    app.include_router(lives.router, prefix=PREFIX)
    app.include_router(members.router, prefix=PREFIX)
    app.include_router(messages.router, prefix=PREFIX)
    app.include_router(offsets.router, prefix=PREFIX)
    app.include_router(people.router, prefix=PREFIX)
    app.include_router(replicas.router, prefix=PREFIX)
    app.include_router(rosters.router, prefix=PREFIX)
    app.include_router(searching.router, prefix=PREFIX)
    app.include_router(sending.router, prefix=PREFIX)
    app.include_router(topics.router, prefix=PREFIX)
    app.include_router(watching.router, prefix=PREFIX)
    app.include_router(dynamic_settings.router, prefix=PREFIX)
    app.include_router(upkeep.router, prefix=PREFIX)
    app.add_api_route(f"{PREFIX}/health", health, methods=["GET"], tags=["health"])
    app.add_middleware(BodyLimit)
    app.add_middleware(InPieces)
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(ClientError, _invalid)
    app.add_exception_handler(DatabaseValueError, _invalid)
    app.add_exception_handler(DatabaseError, _unavailable)
    app.add_exception_handler(RequestValidationError, _wrong)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _broken)
    return app


def health(context: Where) -> Answer:
    """Whether the database answers; needs no token."""
    with context.database.read() as connection:
        now = context.database.now(connection)
    return {
        "version": version("sparrowmq"),
        "schema": newest(),
        "coordinator": context.owner.label,
        "now_ms": now,
    }


class BodyLimit:
    """Refuses oversized bodies before reading them, whatever their headers say."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        size = values = 0

        async def counted() -> Message:
            nonlocal size, values
            message = await receive()
            size += len(message.get("body", b""))
            values += message.get("body", b"").count(b",")
            if size > BODY_BYTES_MAX:
                raise HTTPException(413, f"the body is too large; the limit is {BODY_BYTES_MAX} bytes")
            if values > BODY_VALUES_MAX:
                raise HTTPException(413, f"the body has too many values; the limit is {BODY_VALUES_MAX}")
            return message

        await self._app(scope, counted, send)


def _error(status: int, text: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    more = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return JSONResponse({"error": text}, status, {**(headers or {}), **more})


def _refused(request: Request, error: Any) -> JSONResponse:
    again = {"Retry-After": str(error.retry_seconds)} if error.retry_seconds else None
    return _error(error.status, str(error), again)


def _invalid(request: Request, error: Any) -> JSONResponse:
    return _error(422, str(error))


def _unavailable(request: Request, error: Any) -> JSONResponse:
    return _error(503, str(error))


def _wrong(request: Request, error: Any) -> JSONResponse:
    parts = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:10])
    return _error(422, "; ".join(parts))


def _http(request: Request, error: Any) -> JSONResponse:
    headers = error.headers
    if error.status_code == 405:  # the methods of a path are separate routes; each knows only its own
        headers = {"Allow": ", ".join(methods_of(request.app, request.url.path))}
    return _error(error.status_code, str(error.detail), headers)


def _broken(request: Request, error: Any) -> JSONResponse:
    """An unexpected error: the log has the details, the caller gets none."""
    return _error(500, "the coordinator failed on this request; see its log")
