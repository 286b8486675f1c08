"""Columns of the source and the sink in Spark's terms.

A schema given by the user selects columns: only these are decoded and passed to Spark (spark:B-04). The first
batch of each task must have exactly Spark's Arrow schema (spark:3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from sparrowmq.columnar.schema import DEFAULT_COLUMNS, TYPES
from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.bodies.ddl import quoted
from sparrowmq.spark.bodies.decoding import BODY, Shape, body_ddl, codec, stored_columns
from sparrowmq.spark.bodies.types import arrow_type
from sparrowmq.spark.options.table import ReadOptions, WriteOptions

_SPARK_TYPES: Final = {
    pa.string(): "string",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.binary(): "binary",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.map_(pa.string(), pa.string()): "map<string,string>",
}
KAFKA_COLUMNS: Final[Mapping[str, str]] = {"key": "sharding_key", "value": "body"}
"""Columns of the source under the names that Kafka's source and the sink have for them, and what they are."""
SOURCE_COLUMNS: Final[Mapping[str, str]] = {
    name: _SPARK_TYPES[kind] for name, kind in TYPES.items() if name != KAFKA_COLUMNS["key"]
}
"""Every other column of the source and its Spark type; without a schema, a read has `DEFAULT_COLUMNS`."""

SINK_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "body": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string",),
    "key": ("binary", "string"),
    "properties": ("map<string,string>",),
    "queue_id": ("int",),
    "broker": ("string",),
    "sharding_key": ("string",),
    "delay_level": ("int",),
    "deliver_at": ("timestamp",),
    "msg_id": ("string",),
}
"""Columns that the sink takes. As in Kafka's sink, `value` is the body, and `key` keeps rows in order: it is
another name for `sharding_key`. `keys` are for look-up only.
"""
KEY_KINDS: Final = ("string", "binary", "int", "bigint")
"""Types of a column that is used only through the option idempotenceKey."""


def check_columns(names: Iterable[str]) -> None:
    """Raises `SettingsError` for a name that is not a column of the source."""
    for name in names:
        if name not in SOURCE_COLUMNS:
            text = f"column {name!r} is unknown to the rocketmq source; known are {', '.join(SOURCE_COLUMNS)}"
            raise SettingsError(text, "columns", name)


def source_ddl(options: ReadOptions) -> str:
    """The source's schema when the user gives none. Raises `SettingsError` where decoding bodies requires
    one.
    """
    left_out = {
        name
        for name, wanted in (("properties", options.include_properties), ("body", options.include_body))
        if not wanted
    }
    types = {name: SOURCE_COLUMNS[name] for name in DEFAULT_COLUMNS if name not in left_out}
    body = options.body
    if BODY in types and body.format != "binary":
        types[BODY] = body_ddl(body)
    if BODY in types and body.mode == "permissive":
        if body.format != "binary" or body.tells_reasons:
            types[quoted(body.corrupt_column)] = "binary"
        if body.tells_reasons:
            types[quoted(body.reason_column)] = "string"
    if options.kafka_columns:
        types = {"key": "string"} | {"value" if name == BODY else name: kind for name, kind in types.items()}
    return ", ".join(f"{name} {kind}" for name, kind in types.items())


def read_shape(schema: StructType, options: ReadOptions) -> Shape:
    """The columns to decode, and those to return for Spark's `schema`.

    Raises `SettingsError` if the source lacks a column or has it with another type, or if the format cannot
    produce the type of the body.
    """
    body = options.body
    special = {body.corrupt_column: "binary", body.reason_column: "string"}
    for option, name in (("Record", body.corrupt_column), ("Reason", body.reason_column)):
        if name in SOURCE_COLUMNS or len(special) == 1:
            taken = "is a column of the source" if name in SOURCE_COLUMNS else "is given twice"
            text = f"option columnNameOfCorrupt{option}={name!r} {taken}; give another name"
            raise SettingsError(text, f"columnNameOfCorrupt{option}", name)
    fields = []
    for field in schema.fields:
        if field.name in special:
            fields.append(pa.field(field.name, _need(field, special[field.name])))
        elif KAFKA_COLUMNS.get(field.name, field.name) == BODY and body.format != "binary":
            kind = arrow_type(field.dataType)
            codec(body, kind)
            fields.append(pa.field(BODY, kind))
        elif (stored := KAFKA_COLUMNS.get(field.name)) is not None:
            kind = _need(field, _SPARK_TYPES[TYPES[stored]])
            fields.append(pa.field(stored, kind, nullable=field.nullable))
        else:
            fields.append(source_schema(StructType([field])).field(0))
    names = {field.name for field in fields}
    if len(names) < len(fields):
        text = "columns 'body' and 'value' of the schema mean the same; leave one of them out"
        raise SettingsError(text, what="body", other="value")
    without = [name for name in special if name in names and BODY not in names]
    if without:
        text = f"column {without[0]!r} of the schema requires the column body as well"
        raise SettingsError(text, what=without[0], other="body")
    given = pa.schema(fields)
    return Shape(stored_columns(given, body), given, body, tuple(schema.names))


def source_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that a read returns for Spark's `schema` when bodies stay bytes.

    Raises `SettingsError` if the source lacks a column or has it with another type.
    """
    fields = []
    for field in schema.fields:
        kind = SOURCE_COLUMNS.get(field.name)
        if kind is None:
            from difflib import get_close_matches

            near = get_close_matches(field.name, SOURCE_COLUMNS, 1, 0.6)
            hint = f"did you mean {near[0]}? " if near else ""
            raise SettingsError(
                f"column {field.name!r} of the schema is unknown to the rocketmq source; {hint}known are "
                f"{', '.join(f'{name} {kind}' for name, kind in SOURCE_COLUMNS.items())}",
                what=field.name,
            )
        fields.append(pa.field(field.name, _need(field, kind), nullable=field.nullable))
    return pa.schema(fields)


def _need(field: StructField, kind: str) -> pa.DataType:
    found = field.dataType.simpleString()
    if found != kind:
        hint = "; bodyFormat=json, text, avro or protobuf decodes bodies" if field.name == BODY else ""
        text = f"column {field.name!r} of the schema has type {found}; it must be {kind}{hint}"
        raise SettingsError(text, what=field.name, value=found, limit=kind)
    return arrow_type(field.dataType)


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """The columns from which a write takes its values; None if the frame lacks one."""

    body: str
    topic: str | None = None
    tags: str | None = None
    keys: str | None = None
    properties: str | None = None
    queue_id: str | None = None
    broker: str | None = None
    sharding_key: str | None = None
    delay_level: str | None = None
    deliver_at: str | None = None
    msg_id: str | None = None
    idempotence_key: str | None = None

    @property
    def has_delays(self) -> bool:
        """Whether rows may be delayed or timed."""
        return self.delay_level is not None or self.deliver_at is not None

    @property
    def has_key_ids(self) -> bool:
        """Whether row ids are made of keys, so that a stored row is identified by its key."""
        return self.idempotence_key is not None and self.msg_id is None


def sink_columns(schema: StructType, options: WriteOptions) -> SinkColumns:
    """Find the columns of a frame to write, in any case, as Spark's own sinks do.

    Raises `SettingsError` on unknown, wrong or missing ones.
    """
    key = options.idempotence_key.casefold()
    present = _present(schema, key)
    if key and key not in present:
        raise SettingsError(
            f"option idempotenceKey={options.idempotence_key!r}: the frame has no such column, it has "
            f"{', '.join(sorted(present.values()))}",
            "idempotenceKey",
            options.idempotence_key,
        )
    body, sharding_key = _one_of(present, "body", "value"), _one_of(present, "sharding_key", "key")
    if body is None:
        raise SettingsError("the sink needs a column body (or value) of type binary or string")
    if "topic" not in present and not options.topic:
        raise SettingsError("the sink needs the option topic or a column topic", "topic")
    if ("queue_id" in present) != ("broker" in present):
        raise SettingsError("a queue needs both columns queue_id and broker; add the missing one")
    others = {
        name: present.get(name)
        for name in (
            "tags",
            "keys",
            "properties",
            "queue_id",
            "broker",
            "delay_level",
            "deliver_at",
            "msg_id",
        )
    }
    return SinkColumns(
        body=body,
        topic=None if options.topic else present.get("topic"),
        sharding_key=sharding_key,
        idempotence_key=present.get(key),
        **others,
    )


def _present(schema: StructType, key: str) -> dict[str, str]:
    """The columns of a frame by their names in lower case; `key` names one that only identifies rows."""
    present: dict[str, str] = {}
    for field in schema.fields:
        name = field.name.casefold()
        kinds = SINK_COLUMNS.get(name, KEY_KINDS if name == key else None)
        if kinds is None:
            raise SettingsError(
                f"column {field.name!r} is unknown to the rocketmq sink; known are {', '.join(SINK_COLUMNS)}"
            )
        found = field.dataType.simpleString()
        if found not in kinds:
            raise SettingsError(f"column {field.name!r} has type {found}; it must be {' or '.join(kinds)}")
        if name in present:
            raise SettingsError(
                f"columns {present[name]!r} and {field.name!r} differ only in case; drop one of them"
            )
        present[name] = field.name
    return present


def _one_of(present: Mapping[str, str], name: str, other: str) -> str | None:
    if name in present and other in present:
        raise SettingsError(
            f"columns {present[name]!r} and {present[other]!r} mean the same; drop one of them"
        )
    return present.get(name, present.get(other))
