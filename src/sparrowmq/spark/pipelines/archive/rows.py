"""The rows of an archive: their columns, their day, and writing them as Parquet files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.bodies.ddl import ddl, quoted, type_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

NEEDED: Final = ("topic", "broker", "queue_id", "queue_offset", "store_timestamp")
"""Columns without which an archive cannot be read beside the live log."""
PARTITIONS: Final = ("date", "topic")
UTC_DATE: Final = "date_add(DATE'1970-01-01', CAST(floor(unix_seconds(store_timestamp) / 86400) AS INT))"
"""The day on which a message was stored, in UTC, even if the session has another time zone."""
SORT: Final = ("broker", "queue_id", "queue_offset")
"""Sort order of the rows of a day and topic in merged files."""
_NOT_KEPT: Final = ("interval", "time")
"""Types that files of Parquet do not have."""
_OWN: Final = frozenset({"date", "batch"})
TIMESTAMPS: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""Spark's default type has no statistics, so readers could not skip files by time."""


def shaped(frame: DataFrame, select: Sequence[str]) -> DataFrame:
    """The source's rows with the expressions of `select` and `date`. Raises `SettingsError`."""
    from pyspark.sql import functions as F

    chosen = frame.selectExpr("*", *select)
    counts = Counter((*map(str.casefold, chosen.columns), *_OWN))  # Spark compares names without case
    doubled = sorted(name for name in chosen.columns if counts[name.casefold()] > 1)
    if doubled:
        raise SettingsError(
            f"column {doubled[0]!r} already exists; give the expression in select another name",
            "select",
            doubled[0],
        )
    for item in chosen.schema.fields:
        _check_type(item.dataType, item.name)
    return chosen.withColumn("date", F.expr(UTC_DATE))


def _check_type(kind: DataType, place: str) -> None:
    """Raise `SettingsError` for a type that files cannot keep, or that could not be read back."""
    from pyspark.sql import types

    if isinstance(kind, types.ArrayType):
        _check_type(kind.elementType, f"{place}[]")
    elif isinstance(kind, types.MapType):
        _check_type(kind.keyType, f"{place}.key")
        _check_type(kind.valueType, f"{place}.value")
    elif isinstance(kind, types.StructType):
        names: dict[str, str] = {}
        for item in kind.fields:
            other = names.setdefault(item.name.casefold(), item.name)
            if other != item.name or kind.names.count(item.name) > 1:
                raise SettingsError(
                    f"column {place!r} has fields {other!r} and {item.name!r}, which differ at most in case; "
                    "rename one in select"
                )
            _check_type(item.dataType, f"{place}.{item.name}")
    elif kind.typeName() in _NOT_KEPT:
        raise SettingsError(
            f"column {place!r} has type {kind.simpleString()}, which an archive cannot keep; cast it in "
            "select, for example to string"
        )


def columns_of(frame: DataFrame) -> dict[str, str]:
    """The columns stored in the files, and their types as text."""
    return {item.name: type_ddl(item.dataType) for item in frame.schema.fields if item.name not in PARTITIONS}


def write(frame: DataFrame, where: str) -> None:
    """Write Parquet files below a directory, `date=…/topic=…`."""
    with setting(frame.sparkSession, TIMESTAMPS):
        (
            frame.write.mode("overwrite")
            .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
            .partitionBy(*PARTITIONS)
            .parquet(where)
        )


@contextmanager
def setting(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session during the block."""
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


def read(spark: SparkSession, base: str, paths: Sequence[str], columns: Mapping[str, str]) -> DataFrame:
    """Read directories that `write` wrote below `base` as a table of `topic`, `date` and `columns`."""
    if not paths:
        return empty(spark, columns)
    kinds = {**columns, "batch": "string", "date": "date", "topic": "string"}
    names = ("topic", "date", *map(quoted, columns))
    frame = spark.read.schema(ddl(kinds)).option("basePath", base).parquet(*paths)
    return frame.select(*names)


def empty(spark: SparkSession, columns: Mapping[str, str]) -> DataFrame:
    """The same table without rows."""
    return spark.createDataFrame([], ddl({"topic": "string", "date": "date", **columns}))


def order(sort: Sequence[str] = ()) -> tuple[str, ...]:
    """The sort order of a file."""
    return (*PARTITIONS, *(sort or SORT))


def clustered(frame: DataFrame) -> DataFrame:
    """Write a table to few files, each sorted by queue and offset."""
    found = [name for name in order() if name in frame.columns]
    return frame.repartition(*PARTITIONS).sortWithinPartitions(*found)
