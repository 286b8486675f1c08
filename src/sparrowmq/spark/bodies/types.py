"""Types of decoded bodies: Spark's types in Arrow, as Spark compares them with the output of a task
(spark:3.1).

Spark's own function takes different arguments in every version, so the mapping is repeated here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as spark_types
from pyspark.sql.types import DataType

from sparrowmq.core.errors import SettingsError

_SIMPLE: Final[dict[type[DataType], pa.DataType]] = {
    spark_types.BooleanType: pa.bool_(),
    spark_types.ByteType: pa.int8(),
    spark_types.ShortType: pa.int16(),
    spark_types.IntegerType: pa.int32(),
    spark_types.LongType: pa.int64(),
    spark_types.FloatType: pa.float32(),
    spark_types.DoubleType: pa.float64(),
    spark_types.StringType: pa.string(),
    spark_types.BinaryType: pa.binary(),
    spark_types.DateType: pa.date32(),
    spark_types.TimestampType: pa.timestamp("us", "UTC"),
    spark_types.TimestampNTZType: pa.timestamp("us"),
}


def arrow_type(kind: DataType, place: str = "body") -> pa.DataType:
    """The Arrow type of a Spark type; `place` names it in errors.

    Raises `SettingsError` for types that bodies cannot have and for non-nullable fields: a field missing from
    a body is null.
    """
    simple = _SIMPLE.get(type(kind))
    if simple is not None:
        return simple
    if isinstance(kind, spark_types.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, spark_types.ArrayType):
        _need_nullable(kind.containsNull, place)
        return pa.list_(pa.field("element", arrow_type(kind.elementType, f"{place}[]")))
    if isinstance(kind, spark_types.MapType):
        _need_nullable(kind.valueContainsNull, place)
        key = arrow_type(kind.keyType, f"{place}.key")
        return pa.map_(key, pa.field("value", arrow_type(kind.valueType, f"{place}.value")))
    if isinstance(kind, spark_types.StructType):
        names = [field.name for field in kind.fields]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise SettingsError(f"field {place}.{twice[0]} of the schema is duplicated")
        fields = []
        for field in kind.fields:
            inner = f"{place}.{field.name}"
            _need_nullable(field.nullable, inner)
            fields.append(pa.field(field.name, arrow_type(field.dataType, inner)))
        return pa.struct(fields)
    raise SettingsError(
        f"field {place} of the schema has type {kind.simpleString()}, which is not supported in bodies"
    )


def _need_nullable(nullable: bool, place: str) -> None:
    if not nullable:
        raise SettingsError(
            f"field {place} of the schema is NOT NULL, but a body may lack it; remove NOT NULL"
        )


def place_of(kind: pa.DataType, wanted: Callable[[pa.DataType], bool], place: str = "body") -> str | None:
    """The first place in a type, itself at `place`, whose type satisfies the condition; None without one."""
    if wanted(kind):
        return place
    for field in (kind.field(i) for i in range(kind.num_fields)):
        inner = f"{place}.{field.name}" if pa.types.is_struct(kind) else f"{place}[]"
        found = place_of(field.type, wanted, inner)
        if found is not None:
            return found
    return None


def plain(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """A function that converts a Python value for Arrow (maps become pairs); None if no conversion is
    needed.
    """
    if pa.types.is_map(kind):
        of_value = plain(kind.item_type) or _same
        return lambda value: None if value is None else [(key, of_value(one)) for key, one in value.items()]
    if pa.types.is_list(kind):
        of_item = plain(kind.value_type)
        if of_item is None:
            return None
        return lambda value: None if value is None else [of_item(one) for one in value]
    if pa.types.is_struct(kind):
        fields = {kind.field(i).name: plain(kind.field(i).type) for i in range(kind.num_fields)}
        special = {name: change for name, change in fields.items() if change is not None}
        if not special:
            return None

        def changed(value: Any) -> Any:
            if value is None:
                return None
            return value | {name: change(value[name]) for name, change in special.items() if name in value}

        return changed
    return None


def _same(value: Any) -> Any:
    return value
