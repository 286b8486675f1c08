"""Additions to FastAPI's `/openapi.json`: every status a route may answer with, and tokens.

FastAPI describes success and its own error format, which this API never sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

METHODS: Final = ("get", "post", "put", "patch", "delete")
OPEN: Final = frozenset({"login", "health"})
"""Last path parts of routes that need no token."""
WORDS: Final[Mapping[int, str]] = {
    400: "The body could not be read",
    401: "The token is missing, unknown or expired, or the password is wrong",
    403: "The user is not allowed to do this",
    404: "Not found",
    408: "The body did not arrive in time",
    409: "The current state does not allow it",
    413: "The body is too large",
    422: "A value is invalid or out of range",
    429: "Too many password attempts",
    502: "A server refused",
    503: "The database or a server does not answer, or too many clients are connected",
}
BODIES: Final = (400, 408, 413)
CHANGES: Final = (409,)
PASSWORDS: Final = frozenset({"login", "password"})
"""Last path parts of routes that verify a password."""
REPAIRS: Final = frozenset({"repair"})
CLUSTER: Final = "/cluster/"
"""Path parts of routes that query brokers."""


def describe(app: FastAPI) -> dict[str, Any]:
    """The description, made once."""
    if app.openapi_schema is None:
        found = get_openapi(title=app.title, version=app.version, routes=app.routes)
        for path, method, operation in _operations(found):
            _complete(operation, statuses(path, method, has_body="requestBody" in operation))
            if _last(path) not in OPEN:
                operation["security"] = [{"token": []}]
        parts = found.setdefault("components", {})
        schemas = parts.setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        schemas["Problem"] = {
            "type": "object",
            "description": "What is wrong, as a sentence.",
            "properties": {"error": {"type": "string", "minLength": 1}},
            "required": ["error"],
            "additionalProperties": False,
        }
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        app.openapi_schema = found
    return app.openapi_schema


def statuses(path: str, method: str, *, has_body: bool) -> list[int]:
    """The errors that a route may return. Pure."""
    last = _last(path)
    found = [422, 503]
    if last not in OPEN:
        found += [401, 403, 404]
    if method != "get":
        found += CHANGES
    if has_body:
        found += BODIES
    if last in PASSWORDS:
        found += [401, 429]
    if last in REPAIRS or CLUSTER in path:
        found += [502]
    return sorted(set(found))


def methods_of(app: FastAPI, path: str) -> list[str]:
    """The methods of a path. Pure, except that it creates the description."""
    parts = path.split("/")
    return sorted(
        method.upper()
        for known, method, _ in _operations(describe(app))
        if len(known.split("/")) == len(parts)
        and all(one == part or one.startswith("{") for one, part in zip(known.split("/"), parts, strict=True))
    )


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method in METHODS:
            if method in methods:
                yield path, method, methods[method]


def _complete(operation: dict[str, Any], errors: list[int]) -> None:
    responses = operation["responses"]
    responses.pop("422", None)
    for status in errors:
        responses[str(status)] = {
            "description": WORDS[status],
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }


def _last(path: str) -> str:
    return path.rpartition("/")[2]
