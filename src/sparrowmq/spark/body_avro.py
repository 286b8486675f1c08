"""Avro bodies by fastavro: one datum of `avroSchema` a body, without a header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from io import BytesIO
from typing import Any, Final

import pyarrow as pa

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.body_codecs import RowCodec, short

_PRIMITIVE: Final = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
}
_LOGICAL: Final = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
}
"""Logical types that become Spark's, besides decimal; others are read as what they are stored as."""

Schema = Any
"""A parsed Avro schema: a name, a list (union) or an object."""


def avro_codec(text: str, kind: pa.DataType) -> RowCodec:
    """Reads data of schema `text` as Arrow type `kind`. Raises `SettingsError`."""
    try:
        fastavro = import_module("fastavro")
    except ImportError:
        raise SettingsError("bodyFormat=avro needs fastavro: pip install 'sparrowmq[avro]'") from None
    if not pa.types.is_struct(kind):
        raise SettingsError("bodyFormat=avro needs a body of type struct<…> in the schema")
    try:
        schema = fastavro.parse_schema(_known_logical(_parsed(text)))
    except Exception as error:  # it has many of its own
        raise _wrong(short(error)) from None

    def read(body: bytes) -> Any:
        stream = BytesIO(body)
        value = fastavro.schemaless_reader(stream, schema, None)
        if stream.tell() != len(body):
            raise ValueError(f"{len(body) - stream.tell()} bytes are left over")
        return value

    return RowCodec(read, kind)


def avro_ddl(text: str) -> str:
    """Spark's type for an Avro schema, a record. Raises `SettingsError` on what has none."""
    schema = _parsed(text)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise _wrong("it must be a record")
    return _ddl(schema, {}, ())


def _parsed(text: str) -> Schema:
    try:
        return json.loads(text)
    except ValueError as error:
        raise _wrong(f"it is no JSON ({error})") from None


def _wrong(why: str) -> SettingsError:
    return SettingsError(f"option avroSchema: {why}")


def _known_logical(schema: Schema) -> Schema:
    """The schema without logical types that Spark does not have."""
    if isinstance(schema, list):
        return [_known_logical(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    known = schema.get("logicalType") in (*_LOGICAL, "decimal")
    kept = {key: value for key, value in schema.items() if known or key != "logicalType"}
    for key in ("type", "items", "values"):
        if key in kept:
            kept[key] = _known_logical(kept[key])
    if isinstance(kept.get("fields"), list):
        kept["fields"] = [_known_logical(field) for field in kept["fields"]]
    return kept


def _ddl(schema: Schema, names: dict[str, Mapping[str, Any]], within: tuple[str, ...]) -> str:
    if isinstance(schema, list):
        return _ddl(_of_union(schema), names, within)
    if isinstance(schema, str):
        if schema in _PRIMITIVE:
            return _PRIMITIVE[schema]
        if schema in within:
            raise _wrong(f"type {schema} contains itself, which Spark's types cannot")
        if schema not in names:
            raise _wrong(f"type {schema!r} is unknown")
        return _ddl(names[schema], names, within)
    if not isinstance(schema, dict):
        raise _wrong(f"{str(schema)[:100]} is no type")
    return _of_object(schema, names, within)


def _of_union(branches: list[Schema]) -> Schema:
    others = [branch for branch in branches if branch != "null"]
    if len(others) != 1:
        raise _wrong(f"of unions only null and one type can be read, not {json.dumps(branches)[:100]}")
    return others[0]


def _of_object(
    schema: Mapping[str, Any], names: dict[str, Mapping[str, Any]], within: tuple[str, ...]
) -> str:
    kind, logical = schema.get("type"), schema.get("logicalType")
    name = str(schema.get("name", ""))
    if kind in ("record", "enum", "fixed"):
        names[name] = schema
        names[f"{schema.get('namespace', '')}.{name}"] = schema
    if logical == "decimal":
        return f"decimal({schema.get('precision')},{schema.get('scale', 0)})"
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind == "record":
        if name in within:
            raise _wrong(f"type {name} contains itself, which Spark's types cannot")
        inner = (*within, name, f"{schema.get('namespace', '')}.{name}")
        fields = [f"`{field['name']}`: {_ddl(field['type'], names, inner)}" for field in schema["fields"]]
        return f"struct<{', '.join(fields)}>"
    if kind == "array":
        return f"array<{_ddl(schema['items'], names, within)}>"
    if kind == "map":
        return f"map<string, {_ddl(schema['values'], names, within)}>"
    if kind in ("enum", "fixed"):
        return "string" if kind == "enum" else "binary"
    return _ddl(kind, names, within)
