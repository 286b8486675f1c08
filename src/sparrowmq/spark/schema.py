"""Columns of the source and the sink in Spark's terms.

A schema given by the user is a choice of columns: only those are decoded and handed over (spark:B-04). The
first batch of each task must have exactly Spark's Arrow schema (spark:3.1).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from sparrowmq.columnar.schema import DEFAULT_COLUMNS, TYPES
from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.bodies import BODY, Shape, body_ddl, codec, stored_columns
from sparrowmq.spark.body_types import arrow_type
from sparrowmq.spark.options import ReadOptions, WriteOptions

_SPARK_TYPES: Final = {
    pa.string(): "string",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.binary(): "binary",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.map_(pa.string(), pa.string()): "map<string,string>",
}
SOURCE_COLUMNS: Final[Mapping[str, str]] = {name: _SPARK_TYPES[kind] for name, kind in TYPES.items()}
"""Every column of the source and its Spark type; `DEFAULT_COLUMNS` of them come without a schema."""

SINK_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "body": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string",),
    "key": ("string",),
    "properties": ("map<string,string>",),
    "queue_id": ("int",),
    "broker": ("string",),
    "sharding_key": ("string",),
    "delay_level": ("int",),
    "deliver_at": ("timestamp",),
    "msg_id": ("string",),
}
"""What the sink takes: `value` is another name for `body`, `key` for `keys`."""
KEY_KINDS: Final = ("string", "binary", "int", "bigint")
"""Types of a column that is only named by the option idempotenceKey."""


def source_ddl(options: ReadOptions) -> str:
    """The source's schema when the user gives none. Raises `SettingsError` where bodies need one."""
    left_out = {
        name
        for name, wanted in (("properties", options.include_properties), ("body", options.include_body))
        if not wanted
    }
    types = {name: SOURCE_COLUMNS[name] for name in DEFAULT_COLUMNS if name not in left_out}
    body = options.body
    if BODY in types and body.format != "binary":
        types[BODY] = body_ddl(body)
        if body.mode == "permissive":
            types[f"`{body.corrupt_column}`"] = "binary"
    return ", ".join(f"{name} {kind}" for name, kind in types.items())


def read_shape(schema: StructType, options: ReadOptions) -> Shape:
    """What a read decodes and gives for Spark's `schema`.

    Raises `SettingsError` on a column that the source does not have, or has with another type, and on a body
    type that the format cannot give.
    """
    body = options.body
    if body.format == "binary":
        given = source_schema(schema)
        return Shape(given, given, body)
    special = (BODY, body.corrupt_column)
    if body.corrupt_column in SOURCE_COLUMNS:
        raise SettingsError(
            f"option columnNameOfCorruptRecord={body.corrupt_column!r} is a column of the source; "
            "give another name"
        )
    fields = []
    for field in schema.fields:
        if field.name not in special:
            fields.append(source_schema(StructType([field])).field(0))
        elif field.name == BODY:
            kind = arrow_type(field.dataType)
            codec(body, kind)
            fields.append(pa.field(BODY, kind))
        else:
            fields.append(pa.field(field.name, _need(field, "binary")))
    names = {field.name for field in fields}
    if body.corrupt_column in names and BODY not in names:
        raise SettingsError(f"column {body.corrupt_column!r} of the schema needs the column body beside it")
    given = pa.schema(fields)
    return Shape(stored_columns(given, body), given, body)


def source_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of what a read gives for Spark's `schema` when bodies stay bytes.

    Raises `SettingsError` on a column that the source does not have, or has with another type.
    """
    fields = []
    for field in schema.fields:
        kind = SOURCE_COLUMNS.get(field.name)
        if kind is None:
            near = difflib.get_close_matches(field.name, SOURCE_COLUMNS, 1, 0.6)
            hint = f"did you mean {near[0]}? " if near else ""
            raise SettingsError(
                f"column {field.name!r} of the schema is unknown to the rocketmq source; {hint}known are "
                f"{', '.join(f'{name} {kind}' for name, kind in SOURCE_COLUMNS.items())}"
            )
        fields.append(pa.field(field.name, _need(field, kind), nullable=field.nullable))
    return pa.schema(fields)


def _need(field: StructField, kind: str) -> pa.DataType:
    found = field.dataType.simpleString()
    if found != kind:
        hint = "; bodyFormat=json, text, avro or protobuf decodes bodies" if field.name == BODY else ""
        raise SettingsError(f"column {field.name!r} of the schema has type {found}; it takes {kind}{hint}")
    return arrow_type(field.dataType)


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Where a write finds what it sends: column names, None for what the frame does not have."""

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
    def has_later(self) -> bool:
        """Whether rows may be for later."""
        return self.delay_level is not None or self.deliver_at is not None


def sink_columns(schema: StructType, options: WriteOptions) -> SinkColumns:
    """The columns of a frame that is written. Raises `SettingsError` on unknown, wrong or missing ones."""
    present = set()
    for field in schema.fields:
        kinds = SINK_COLUMNS.get(field.name)
        if kinds is None and field.name == options.idempotence_key:
            kinds = KEY_KINDS
        if kinds is None:
            raise SettingsError(
                f"column {field.name!r} is unknown to the rocketmq sink; it takes {', '.join(SINK_COLUMNS)}"
            )
        found = field.dataType.simpleString()
        if found not in kinds:
            raise SettingsError(
                f"column {field.name!r} has type {found}; the sink takes {' or '.join(kinds)}"
            )
        present.add(field.name)
    if options.idempotence_key and options.idempotence_key not in present:
        raise SettingsError(
            f"option idempotenceKey={options.idempotence_key!r}: the frame has no such column, it has "
            f"{', '.join(sorted(present))}"
        )
    body, keys = _one_of(present, "body", "value"), _one_of(present, "keys", "key")
    if body is None:
        raise SettingsError("the sink needs a column body (or value) of type binary or string")
    if "topic" not in present and not options.topic:
        raise SettingsError("the sink needs the option topic or a column topic")
    if ("queue_id" in present) != ("broker" in present):
        raise SettingsError("columns queue_id and broker name a queue only together; add the missing one")
    others = {
        name: name if name in present else None
        for name in (
            "tags",
            "properties",
            "queue_id",
            "broker",
            "sharding_key",
            "delay_level",
            "deliver_at",
            "msg_id",
        )
    }
    topic = None if options.topic or "topic" not in present else "topic"
    return SinkColumns(
        body=body, topic=topic, keys=keys, idempotence_key=options.idempotence_key or None, **others
    )


def _one_of(present: set[str], name: str, other: str) -> str | None:
    if name in present and other in present:
        raise SettingsError(f"columns {name!r} and {other!r} mean the same; drop one of them")
    return name if name in present else other if other in present else None
