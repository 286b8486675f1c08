"""Requests generated from the API's description: valid ones, and ones that are just invalid."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from hypothesis import strategies as st

Schema = Mapping[str, Any]
ODD = (
    "' OR '1'='1",
    "x'; DROP TABLE audit; --",
    'x" UNION SELECT password_hash FROM person --',
    "%",
    "\\",
    "\0",
    "\ud800",
    "\U0001f600" * 60,
    "x" * 3000,
    "../../etc/passwd",
    "\r\nX: y",
    "-1",
    str(2**63),
    str(10**40),
    "NaN",
    "true",
    "",
    " ",
)
"""Texts for fields of all kinds."""
ODD_VALUES: tuple[Any, ...] = (
    *ODD, None, True, 0, -1, 2**31, -(2**63), 2**63, 10**40, 1e308, 0.5, [], {}, [[]], [None], {"": ""},
    {"x" * 3000: 1}, ["x"] * 300,
)  # fmt: skip
"""Values for fields of bodies."""


@dataclass(frozen=True)
class Operation:
    """One method of one path: the schemas of its path, query and body."""

    method: str
    path: str
    inside: Mapping[str, Schema]
    query: Mapping[str, Schema]
    body: Mapping[str, Schema]
    needed: frozenset[str]
    statuses: frozenset[int]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True)
class Request:
    """The request to send."""

    operation: Operation
    inside: Mapping[str, Any] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None

    @property
    def target(self) -> str:
        """Path and query."""
        path = re.sub(r"\{(\w+)\}", lambda name: _quoted(self.inside[name[1]]) or "%20", self.operation.path)
        return f"{path}?{urlencode(self.query, errors='surrogatepass')}" if self.query else path

    @property
    def data(self) -> bytes | None:
        """The body."""
        return None if self.body is None else json.dumps(self.body).encode()


def _quoted(value: object) -> str:
    return quote(str(value), safe="", errors="surrogatepass")


def operations(document: Mapping[str, Any]) -> Iterator[Operation]:
    """All operations."""
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            given = described.get("parameters", [])
            body: Schema = {}
            if "requestBody" in described:
                content = described["requestBody"]["content"]["application/json"]
                body = _resolved(document, content["schema"])
            yield Operation(
                method.upper(),
                path,
                {one["name"]: one["schema"] for one in given if one["in"] == "path"},
                {one["name"]: one["schema"] for one in given if one["in"] == "query"},
                {name: _resolved(document, part) for name, part in body.get("properties", {}).items()},
                frozenset(body.get("required", ())),
                frozenset(int(status) for status in described["responses"]),
            )


def _resolved(document: Mapping[str, Any], schema: Schema) -> Schema:
    """A schema without references."""
    if "$ref" in schema:
        found: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return _resolved(document, found)
    made = dict(schema)
    for name in ("items", "additionalProperties"):
        if isinstance(made.get(name), Mapping):
            made[name] = _resolved(document, made[name])
    if "anyOf" in made:
        made["anyOf"] = [_resolved(document, one) for one in made["anyOf"]]
    return made


def values(schema: Schema) -> st.SearchStrategy[Any]:
    """Values that a schema allows."""
    if "anyOf" in schema:
        return st.one_of(*(values(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema.get("type")
    if kind == "integer":
        return st.integers(schema.get("minimum"), schema.get("maximum"))
    if kind == "string":
        return st.text(min_size=schema.get("minLength", 0), max_size=schema.get("maxLength", 50))
    if kind == "array":
        return st.lists(values(schema["items"]), max_size=min(schema.get("maxItems", 5), 5))
    if kind == "object":
        inner = schema.get("additionalProperties", {})
        return st.dictionaries(st.text(max_size=20), values(inner) if inner else st.none(), max_size=3)
    plain: dict[str | None, st.SearchStrategy[Any]] = {
        "boolean": st.booleans(),
        "number": st.floats(allow_nan=False, allow_infinity=False),
        "null": st.none(),
    }
    return plain.get(kind, st.none())


def is_text(schema: Schema) -> bool:
    """Whether a schema allows texts."""
    return any(one.get("type") == "string" for one in [schema, *schema.get("anyOf", ())])


@st.composite
def requests(draw: st.DrawFn, operation: Operation, names: tuple[str, ...]) -> Request:
    """A request that is mostly valid by the description; `names` are names of existing objects."""
    odd, known = st.sampled_from(ODD_VALUES), st.sampled_from(names)

    def one(schema: Schema) -> Any:
        choices = [values(schema)] * 3 + [odd] + ([known] * 3 if is_text(schema) else [])
        return draw(st.one_of(choices))

    def some(schemas: Mapping[str, Schema], needed: frozenset[str]) -> dict[str, Any]:
        return {name: one(part) for name, part in schemas.items() if name in needed or draw(st.booleans())}

    inside = {name: one(part) for name, part in operation.inside.items()}
    body = some(operation.body, operation.needed) if operation.body else None
    return Request(operation, inside, some(operation.query, frozenset()), body)


def plain(operation: Operation, names: tuple[str, ...]) -> Request:
    """A request with a simple value everywhere."""

    def simple(schema: Schema) -> Any:
        options = schema.get("anyOf", [schema])
        first = options[0]
        if "enum" in first:
            return first["enum"][0]
        made = {"integer": max(1, first.get("minimum", 1)), "boolean": True, "number": 1.0, "array": []}
        return {"object": {}, "string": names[0], **made}.get(first.get("type"), names[0])

    inside = {name: simple(part) for name, part in operation.inside.items()}
    needed = {name: simple(operation.body[name]) for name in operation.needed}
    return Request(operation, inside, {}, needed if operation.body else None)


def odd_requests(operation: Operation, names: tuple[str, ...]) -> Iterator[Request]:
    """For each field of an operation, requests that are simple except for this field."""
    base = plain(operation, names)
    for name in operation.inside:
        for value in ODD:
            yield Request(operation, {**base.inside, name: value}, base.query, base.body)
    for name in operation.query:
        for value in ODD:
            yield Request(operation, base.inside, {name: value}, base.body)
    for name in operation.body:
        for value in ODD_VALUES:
            yield Request(operation, base.inside, base.query, {**(base.body or {}), name: value})
