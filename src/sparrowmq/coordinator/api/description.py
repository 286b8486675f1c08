"""What `/openapi.json` says beyond FastAPI's own words: every status a route may answer with, and tokens.

FastAPI describes success and an error of its own shape, which this API never sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

METHODS: Final = ("get", "post", "put", "patch", "delete")
OPEN: Final = frozenset({"login", "health"})
"""Routes, by the last part of their paths, that answer without a token."""
WORDS: Final[Mapping[int, str]] = {
    400: "The body could not be read",
    401: "No token, or one that is unknown or has ended; or a wrong password",
    403: "The person may not",
    404: "It is not there",
    408: "The body did not come in time",
    409: "It cannot be in the state that things are in",
    413: "The body is too big",
    422: "A value is none, or out of range",
    429: "Too many tries of passwords",
    502: "The broker refused",
    503: "The database does not answer, or too many callers are connected",
}
BODIES: Final = (400, 408, 413)
CHANGES: Final = (409,)
PASSWORDS: Final = frozenset({"login", "password"})
"""Routes, by the last part of their paths, that try a password."""
REPAIRS: Final = frozenset({"repair"})


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
            "description": "What is wrong, in words.",
            "properties": {"error": {"type": "string", "minLength": 1}},
            "required": ["error"],
            "additionalProperties": False,
        }
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        app.openapi_schema = found
    return app.openapi_schema


def statuses(path: str, method: str, *, has_body: bool) -> list[int]:
    """The errors that a route may answer with. Pure."""
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
    if last in REPAIRS:
        found += [502]
    return sorted(set(found))


def methods_of(app: FastAPI, path: str) -> list[str]:
    """The methods that a path can be called with. Pure but for making the description."""
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
