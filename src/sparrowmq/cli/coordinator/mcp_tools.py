"""Tools of the Model Context Protocol, made from the description of the coordinator's API. Pure.

Each GET route that answers with JSON is a tool, so a new route is a new tool. No tool changes anything: a
change is a link to a form of the console, where a person reads the preview and confirms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

PLAN: Final = "plan_change"
PAGE_CHARS_MAX: Final = 1000
FIELDS_MAX: Final = 50
VALUE_CHARS_MAX: Final = 2000
FORMS: Final[Mapping[str, tuple[str, ...]]] = {
    "/groups/GROUP/reset": ("topic", "queue", "to", "time", "offset"),
    "/groups/GROUP/pause": ("place", "minutes"),
    "/groups/GROUP/undo": (),
    "/new/topic": ("topic", "queues", "perm"),
    "/topics/TOPIC/change": ("queues", "perm"),
    "/topics/TOPIC/delete": (),
    "/topics/TOPIC/hold": ("group", "hours", "size_max"),
    "/services/NAME/run": (),
}
"""Forms that the description of `plan_change` names, with their fields."""
_OPEN: Final = frozenset({"health"})
_OLD: Final = "knobs"
Answer = dict[str, Any]


class ArgumentError(ValueError):
    """An argument of a tool is missing, unknown or of the wrong type."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A GET route: its path below the API's prefix, and the schemas of its parameters by name."""

    name: str
    path: str
    about: str
    inside: frozenset[str]
    needed: frozenset[str]
    parameters: Mapping[str, Answer]

    def described(self) -> Answer:
        """The tool in an answer to `tools/list`."""
        schema = {"type": "object", "properties": dict(self.parameters), "required": sorted(self.needed)}
        return _described(self.name, self.about, schema)

    def target(self, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Path and query of a call. Raises `ArgumentError`."""
        known = ", ".join(self.parameters) or "none"
        for name in given:
            if name not in self.parameters:
                raise ArgumentError(f"{self.name} has no argument {name[:60]!r}; it has: {known}")
        for name in sorted(self.needed):
            if given.get(name) in (None, ""):
                raise ArgumentError(f"{self.name} needs the argument {name}")
        path = self.path
        for name in self.inside:
            path = path.replace(f"{{{name}}}", quote(_text(given[name]), safe=""))
        query = {name: _texts(value) for name, value in given.items() if name not in self.inside}
        return path, query


def tools_of(description: Mapping[str, Any], prefix: str) -> dict[str, Tool]:
    """The tools of an API, by name. Raises `ValueError` if two routes have one name."""
    schemas = description.get("components", {}).get("schemas", {})
    found: dict[str, Tool] = {}
    for path, methods in description["paths"].items():
        operation = methods.get("get")
        short = path.removeprefix(prefix)
        if operation is None or not _is_tool(short, operation):
            continue
        parts = operation.get("parameters", ())
        name = short.strip("/").translate(str.maketrans({"/": "_", "-": "_", "{": None, "}": None}))
        if name in found or name == PLAN:
            raise ValueError(f"two routes would be the tool {name}: {path}")
        found[name] = Tool(
            name,
            short,
            operation.get("description", ""),
            frozenset(one["name"] for one in parts if one["in"] == "path"),
            frozenset(one["name"] for one in parts if one["required"]),
            {one["name"]: _whole(one["schema"], schemas) for one in parts},
        )
    return found


def plan_described() -> Answer:
    """`plan_change` in an answer to `tools/list`."""
    forms = "; ".join(f"{page} ({', '.join(fields) or 'no fields'})" for page, fields in FORMS.items())
    about = (
        "Plan a change: returns a link to a form of the console with these fields filled in. Nothing is "
        "changed. A person with the right opens the link, reads the preview, writes a reason and confirms. "
        f"Forms and their fields: {forms}."
    )
    text = {"type": "string", "maxLength": VALUE_CHARS_MAX}
    fields = {"type": "object", "additionalProperties": text, "maxProperties": FIELDS_MAX}
    page = {"type": "string", "maxLength": PAGE_CHARS_MAX}
    schema = {"type": "object", "properties": {"page": page, "fields": fields}, "required": ["page"]}
    return _described(PLAN, about, schema)


def plan_link(base: str, given: Mapping[str, Any]) -> str:
    """The address of a form with its fields filled in. Raises `ArgumentError`."""
    page, fields = given.get("page"), given.get("fields", {})
    if not isinstance(page, str) or not page.startswith("/") or len(page) > PAGE_CHARS_MAX:
        raise ArgumentError(f"page must be the path of a form, such as /groups/GROUP/reset, not {page!r:.80}")
    if page.startswith("//") or not page.isprintable() or any(sign in page for sign in "\\?# "):
        raise ArgumentError(f"page must be a path of the console alone, without query, not {page[:80]!r}")
    if any(segment in (".", "..") for segment in unquote(page).split("/")):
        raise ArgumentError(f"page must be a path without . and .., not {page[:80]!r}")
    if not isinstance(fields, dict) or len(fields) > FIELDS_MAX:
        raise ArgumentError(f"fields must be an object of at most {FIELDS_MAX} texts")
    texts = {_text(name): _text(value) for name, value in fields.items()}
    if any(len(text) > VALUE_CHARS_MAX for field in texts.items() for text in field):
        raise ArgumentError(f"name and value of a field have at most {VALUE_CHARS_MAX} characters")
    path = quote(page, safe="/%")  # printable text has no half of a surrogate pair
    return f"{base}{path}?{urlencode(texts)}" if texts else base + path


def _described(name: str, about: str, schema: Answer) -> Answer:
    schema["additionalProperties"] = False
    return {
        "name": name,
        "description": about,
        "inputSchema": schema,
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }


def _is_tool(path: str, operation: Mapping[str, Any]) -> bool:
    is_json = "application/json" in operation["responses"].get("200", {}).get("content", {})
    parts = path.strip("/").split("/")
    return is_json and _OLD not in parts and parts[-1] not in _OPEN


def _whole(schema: Any, schemas: Mapping[str, Any]) -> Any:
    """A schema with what it refers to: tools have no common part."""
    if isinstance(schema, list):
        return [_whole(one, schemas) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        named = schemas[schema["$ref"].rpartition("/")[2]]
        return {**named, **{name: one for name, one in schema.items() if name != "$ref"}}
    return {name: _whole(one, schemas) for name, one in schema.items()}


def _texts(value: Any) -> str | list[str]:
    """A value of a query, which may be a list. Raises `ArgumentError`."""
    return [_text(one) for one in value] if isinstance(value, list) else _text(value)


def _text(value: Any) -> str:
    """One value as an address has it. Raises `ArgumentError` for lists and objects."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        kind = "a list" if isinstance(value, list) else "an object"
        raise ArgumentError(f"one value must be a text or a number, not {kind}")
    return "" if value is None else str(value).encode(errors="replace").decode()
