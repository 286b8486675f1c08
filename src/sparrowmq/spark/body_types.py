"""Types of decoded bodies: Spark's in Arrow, as Spark compares them with what a task gives (spark:3.1).

Written out here because Spark's own function for it has other arguments in every version.
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

    Raises `SettingsError` on types that bodies cannot have, and on fields that must not be null: a field that
    a body lacks is null.
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
            raise SettingsError(f"field {place}.{twice[0]} of the schema is there twice")
        fields = []
        for field in kind.fields:
            inner = f"{place}.{field.name}"
            _need_nullable(field.nullable, inner)
            fields.append(pa.field(field.name, arrow_type(field.dataType, inner)))
        return pa.struct(fields)
    raise SettingsError(
        f"field {place} of the schema has type {kind.simpleString()}, which bodies cannot have"
    )


def _need_nullable(nullable: bool, place: str) -> None:
    if not nullable:
        raise SettingsError(
            f"field {place} of the schema is NOT NULL; a body may lack it, leave NOT NULL out"
        )


def contains(kind: pa.DataType, wanted: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type or one within it is wanted."""
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    return wanted(kind) or any(contains(one, wanted) for one in inner)


def plain(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """What makes of a Python value what Arrow takes: pairs for maps; None: nothing to do."""
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
