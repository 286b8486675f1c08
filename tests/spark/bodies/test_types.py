from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CalendarIntervalType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.bodies.types import arrow_type, place_of, plain

SIMPLE = [
    BooleanType(),
    ByteType(),
    ShortType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    StringType(),
    BinaryType(),
    DateType(),
    TimestampType(),
    TimestampNTZType(),
    DecimalType(10, 2),
]


@pytest.mark.parametrize(
    "kind",
    [
        *SIMPLE,
        ArrayType(DateType()),
        MapType(StringType(), ArrayType(TimestampType())),
        StructType([StructField("a", StructType([StructField("b", MapType(StringType(), LongType()))]))]),
    ],
    ids=str,
)
def test_types_are_exactly_sparks(kind: DataType) -> None:
    spark = to_arrow_schema(StructType([StructField("body", kind)]), timezone="UTC")
    ours = pa.schema([pa.field("body", arrow_type(kind))])
    assert ours.equals(spark)
    assert str(ours) == str(spark)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            CalendarIntervalType(),
            "field body of the schema has type interval, which is not supported in bodies",
        ),
        (ArrayType(CalendarIntervalType()), r"field body\[\] of the schema has type interval"),
        (MapType(StringType(), CalendarIntervalType()), "field body.value of the schema has type interval"),
        (StructType([StructField("a", LongType(), False)]), "field body.a of the schema is NOT NULL"),
        (ArrayType(LongType(), False), "field body of the schema is NOT NULL"),
        (
            StructType([StructField("a", LongType()), StructField("a", LongType())]),
            "field body.a of the schema is duplicated",
        ),
    ],
)
def test_other_types_are_refused(kind: DataType, text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        arrow_type(kind)


def test_a_type_is_found_in_another() -> None:
    kind = pa.struct(
        [("z", pa.int32()), ("a", pa.list_(pa.struct([("b", pa.map_(pa.string(), pa.date32()))])))]
    )
    assert place_of(kind, pa.types.is_struct) == "body"
    assert place_of(kind, pa.types.is_map) == "body.a[].b"
    assert place_of(kind, pa.types.is_date) == "body.a[].b[].value"
    assert place_of(kind, pa.types.is_binary) is None


def test_maps_become_pairs_wherever_they_are() -> None:
    kind = pa.struct(
        [
            ("m", pa.map_(pa.string(), pa.map_(pa.string(), pa.int64()))),
            ("l", pa.list_(pa.map_(pa.string(), pa.int64()))),
            ("n", pa.int64()),
        ]
    )
    change = plain(kind)
    assert change is not None
    value = {"m": {"a": {"b": 1}, "c": None}, "l": [{"d": 2}, None], "n": 3}
    assert pa.array([change(value), change(None), change({"m": None, "l": None})], kind).to_pylist() == [
        {"m": [("a", [("b", 1)]), ("c", None)], "l": [[("d", 2)], None], "n": 3},
        None,
        {"m": None, "l": None, "n": None},
    ]
    assert plain(pa.struct([("a", pa.list_(pa.int64()))])) is None
