"""Avro bodies by fastavro: each body is one datum of `avroSchema`, without a header."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from importlib import import_module
from io import BytesIO
from typing import Any, Final

import pyarrow as pa

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.bodies.codecs import RowCodec, short
from sparrowmq.spark.bodies.ddl import quoted

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
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}
"""Underlying and logical types that map to a Spark type, besides decimal; others are read as the underlying
type.
"""
_DECIMAL: Final = (("bytes", "decimal"), ("fixed", "decimal"))
_OWN: Final = "sparrowmq-"
"""Before the names of dates and times in parsed schemas: the library's readers end at Python's calendar."""
_DAYS_BEFORE_1970: Final = date(1970, 1, 1).toordinal()

Schema = Any
"""A parsed Avro schema: a name, a list (union) or an object."""


def avro_codec(text: str, kind: pa.DataType) -> RowCodec:
    """Reads data of schema `text` as Arrow type `kind`. Raises `SettingsError`."""
    library, schema = avro_library(), avro_schema(text)
    check_struct(kind)

    def read(body: bytes) -> Any:
        return read_datum(library, body, schema, None)

    return RowCodec(read, kind)


def avro_library() -> Any:
    """Import fastavro, with our readers of times. Raises `SettingsError` where it is not installed."""
    try:
        library = import_module("fastavro")
    except ImportError:
        text = "bodyFormat=avro needs fastavro: pip install 'sparrowmq[avro]'"
        raise SettingsError(text, "bodyFormat", "avro", what="fastavro") from None
    readers = {f"{kind}-{_OWN}{name}": _time_reader(name) for kind, name in _LOGICAL}
    library.read.LOGICAL_READERS.update(readers)
    return library


def _time_reader(name: str) -> Callable[..., Any]:
    """Reads a date or time; days or microseconds since 1970, as Arrow has them, where Python has none."""
    if name == "date":
        return _date
    epoch = datetime(1970, 1, 1, tzinfo=None if name.startswith("local-") else UTC)
    unit = 1000 if name.endswith("-millis") else 1

    def read(number: int, *_: object) -> datetime | int:
        try:
            return epoch + timedelta(microseconds=number * unit)
        except OverflowError:
            return number * unit

    return read


def _date(days: int, *_: object) -> date | int:
    try:
        return date.fromordinal(_DAYS_BEFORE_1970 + days)
    except (OverflowError, ValueError):
        return days


def avro_schema(text: str) -> Schema:
    """A schema as fastavro takes it, with logical types that Spark has only, times under our own names.

    Raises `SettingsError`.
    """
    library = avro_library()
    try:
        return library.parse_schema(_known_logical(_parsed(text)))
    except SettingsError:
        raise
    except library.schema.UnknownType as error:
        raise _wrong(f"type {error.name!r} is unknown") from None
    except Exception as error:  # fastavro has many exception classes
        raise _wrong(short(error)) from None


def check_struct(kind: pa.DataType) -> None:
    """Raise `SettingsError` for a body whose type is not a struct."""
    if not pa.types.is_struct(kind):
        raise SettingsError("bodyFormat=avro needs a body of type struct<…> in the schema", what="body")


def read_datum(library: Any, body: bytes, writer: Schema, reader: Schema | None) -> Any:
    """Decode one datum that fills the whole body, with the reader's schema if there is one. Raises whatever
    fastavro raises.
    """
    stream = BytesIO(body)
    value = library.schemaless_reader(stream, writer, reader)
    if stream.tell() != len(body):
        raise ValueError(f"{len(body) - stream.tell()} bytes are left after decoding")
    return value


def avro_ddl(text: str) -> str:
    """Spark's type for an Avro schema, which must be a record. Raises `SettingsError` for types without an
    equivalent.
    """
    schema = avro_schema(text)  # with full names: the library that reads bodies decides which types are meant
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise _wrong("it must be a record")
    return _ddl(schema, {}, ())


def _parsed(text: str) -> Schema:
    try:
        return json.loads(text)
    except ValueError as error:
        raise _wrong(f"it is not valid JSON ({error})") from None


def _wrong(why: str) -> SettingsError:
    return SettingsError(f"option avroSchema: {why}", "avroSchema")


def _known_logical(schema: Schema) -> Schema:
    """The schema without logical types that Spark does not have, and with our names of times."""
    if isinstance(schema, list):
        return [_known_logical(one) for one in schema]
    if isinstance(schema, str):
        return schema
    if not isinstance(schema, dict):
        raise _wrong(f"{str(schema)[:100]} is not a type")
    logical = _logical(schema)
    kept = {key: value for key, value in schema.items() if logical in _DECIMAL or key != "logicalType"}
    if logical in _LOGICAL:
        kept["logicalType"] = f"{_OWN}{logical[1]}"
    for key in ("type", "items", "values"):
        if key in kept:
            kept[key] = _known_logical(kept[key])
    if isinstance(kept.get("fields"), list):
        kept["fields"] = [{**field, "type": _known_logical(field.get("type"))} for field in kept["fields"]]
    return kept


def _logical(schema: Mapping[str, Any]) -> tuple[str, str]:
    return str(schema.get("type")), str(schema.get("logicalType")).removeprefix(_OWN)


def _ddl(schema: Schema, names: dict[str, Mapping[str, Any]], within: tuple[str, ...]) -> str:
    if isinstance(schema, list):
        return _ddl(_of_union(schema), names, within)
    if isinstance(schema, dict):
        return _of_object(schema, names, within)
    if schema in _PRIMITIVE:
        return _PRIMITIVE[schema]
    if schema in within:
        raise _wrong(f"type {schema} is recursive, which Spark's types do not support")
    if schema not in names:
        raise _wrong(f"type {schema!r} has no equivalent in Spark")
    return _ddl(names[schema], names, within)


def _of_union(branches: list[Schema]) -> Schema:
    others = [branch for branch in branches if branch != "null"]
    if len(others) != 1:
        raise _wrong(f"a union may have only null and one other type, not {json.dumps(branches)[:100]}")
    return others[0]


def _of_object(
    schema: Mapping[str, Any], names: dict[str, Mapping[str, Any]], within: tuple[str, ...]
) -> str:
    kind, logical = schema["type"], _logical(schema)
    if "name" in schema:
        names[schema["name"]] = schema
    if logical in _DECIMAL:
        return f"decimal({schema.get('precision')},{schema.get('scale', 0)})"
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind == "record":
        inner = (*within, schema["name"])
        fields = [
            f"{quoted(field['name'])}: {_ddl(field['type'], names, inner)}" for field in schema["fields"]
        ]
        return f"struct<{', '.join(fields)}>"
    if kind == "array":
        return f"array<{_ddl(schema['items'], names, within)}>"
    if kind == "map":
        return f"map<string, {_ddl(schema['values'], names, within)}>"
    if kind in ("enum", "fixed"):
        return "string" if kind == "enum" else "binary"
    return _ddl(kind, names, within)
