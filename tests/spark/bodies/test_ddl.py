"""Names and types as Spark's SQL text."""

from __future__ import annotations

import pytest
from pyspark.sql import types
from pyspark.sql.types import DataType, StructField, StructType

from sparrowmq.spark.bodies.ddl import ddl, quoted, type_ddl


def _struct(*names: str) -> StructType:
    return StructType([StructField(name, types.IntegerType()) for name in names])


def test_names_are_quoted() -> None:
    assert quoted("price.net") == "`price.net`"
    assert quoted("a`b``") == "`a``b`````"
    assert ddl({"a b": "int", "c`d": "map<string,string>"}) == "`a b` int, `c``d` map<string,string>"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (types.DecimalType(10, 2), "decimal(10,2)"),
        (_struct("a", "_b2"), "struct<a:int,_b2:int>"),
        (
            _struct("order-id", "@t", "a.b", "ü", "2", "c`d"),
            "struct<`order-id`:int,`@t`:int,`a.b`:int,`ü`:int,`2`:int,`c``d`:int>",
        ),
        (
            types.MapType(types.StringType(), types.ArrayType(_struct("x y"))),
            "map<string,array<struct<`x y`:int>>>",
        ),
    ],
)
def test_fields_are_quoted_where_they_need_it(kind: DataType, text: str) -> None:
    assert type_ddl(kind) == text


def test_plain_types_are_as_spark_shows_them() -> None:
    kind = StructType(
        [StructField("a", types.ArrayType(_struct("b"))), StructField("c", types.TimestampType())]
    )
    assert type_ddl(kind) == kind.simpleString()
