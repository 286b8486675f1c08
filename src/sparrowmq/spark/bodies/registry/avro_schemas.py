"""Avro schemas of a registry as one schema: each referenced type is inlined where it is first used. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from sparrowmq.spark.bodies.registry.client import Registered, RegistryError

_NAMED: Final = ("record", "error", "enum", "fixed")


def whole(found: Registered) -> str:
    """The schema with all its references and with full names. Raises `RegistryError` on invalid JSON."""
    try:
        others = {}
        for _, text in found.references:
            schema = json.loads(text)
            if isinstance(schema, dict) and "name" in schema:
                others[_full(schema, "")] = schema
        made = _inlined(json.loads(found.text), "", others, set())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RegistryError(f"a registry's Avro schema cannot be read: {error}") from None
    return json.dumps(made)


def _full(schema: Mapping[str, Any], around: str) -> str:
    name = str(schema["name"])
    if "." in name:
        return name
    space = schema.get("namespace", around)
    return f"{space}.{name}" if space else name


def _inlined(schema: Any, around: str, others: Mapping[str, Any], known: set[str]) -> Any:
    if isinstance(schema, list):
        return [_inlined(one, around, others, known) for one in schema]
    if isinstance(schema, str):
        return _used(schema, around, others, known)
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    kind = schema.get("type")
    if kind in _NAMED:
        full = _full(schema, around)
        known.add(full)
        around = full.rpartition(".")[0]
        made["name"] = full
        made.pop("namespace", None)
        if "fields" in schema:
            made["fields"] = [
                {**one, "type": _inlined(one["type"], around, others, known)} for one in schema["fields"]
            ]
        return made
    for part in ("type", "items", "values"):
        if part in schema:
            made[part] = _inlined(schema[part], around, others, known)
    return made


def _used(name: str, around: str, others: Mapping[str, Any], known: set[str]) -> Any:
    """A type by its full name, or inlined as a whole if it belongs to another schema and is used here
    first.
    """
    for full in (name, f"{around}.{name}") if around and "." not in name else (name,):
        if full in known:
            return full
        if full in others:
            return _inlined(others[full], "", others, known)
    return name
