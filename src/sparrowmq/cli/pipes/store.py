"""`sparrow pipe store`: a store directory as a table, without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparrowmq.cli.common import AsJson, UsageError
from sparrowmq.cli.pipes.common import (
    DEFAULT_MASTER,
    Conf,
    Master,
    SourceOptions,
    need_spark,
    pairs,
    session,
    show_topics,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def store(
    directory: Annotated[Path, typer.Argument(help="The broker's storePathRootDir, or a copy of it.")],
    topics: Annotated[
        list[str] | None, typer.Argument(help="Topics; without any, all that is stored.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="Write the messages to Parquet there; it must not exist.")
    ] = None,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Go on after damaged records, with a warning.")
    ] = False,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    options: SourceOptions = None,
    as_json: AsJson = False,
) -> None:
    """Count a store directory's messages by topic, or write them to Parquet; every record is checked."""
    need_spark()
    from sparrowmq.spark.options import ReadOptions
    from sparrowmq.spark.store_files import log_files

    given = {**pairs(options, "--option"), "store": str(directory.absolute())}
    if topics:
        given["subscribe"] = ",".join(topics)
    if skip_damaged:
        given["damagedRecords"] = "skip"
    log_files(ReadOptions.parse(given, "batch").store)  # says what is wrong before Spark starts
    if to is not None and to.exists():
        raise UsageError(f"{to} exists; give another place or remove it")
    with session("store", master, conf or ()) as spark:
        if to is None:
            show_topics(_load(spark, given, "topic string, body binary, store_timestamp timestamp"), as_json)
        else:
            _load(spark, given, None).write.parquet(str(to))
            print(f"{_rows(spark, to):,} messages are in {to}")


def _load(spark: SparkSession, options: dict[str, str], schema: str | None) -> DataFrame:
    reader = spark.read.format("rocketmq").options(**options)
    return (reader.schema(schema) if schema else reader).load()


def _rows(spark: SparkSession, where: Path) -> int:
    return int(spark.read.parquet(str(where)).count())
