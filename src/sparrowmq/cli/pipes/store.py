"""`sparrow pipe store`: a store directory as a table, without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparrowmq.cli.common import AsJson
from sparrowmq.cli.pipes.common import (
    DEFAULT_MASTER,
    Conf,
    Master,
    OutTo,
    SourceOptions,
    check_new,
    need_spark,
    pairs,
    session,
    show_topics,
    write_out,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def store(
    directory: Annotated[Path, typer.Argument(help="The broker's storePathRootDir, or a copy of it.")],
    topics: Annotated[
        list[str] | None, typer.Argument(help="Topics; without any, all that is stored.")
    ] = None,
    to: OutTo = None,
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
    check_new(to)
    with session("store", master, conf or ()) as spark:
        if to is None:
            show_topics(_load(spark, given, "topic string, body binary, store_timestamp timestamp"), as_json)
        else:
            write_out(_load(spark, given, None), to)


def _load(spark: SparkSession, options: dict[str, str], schema: str | None) -> DataFrame:
    reader = spark.read.format("rocketmq").options(**options)
    return (reader.schema(schema) if schema else reader).load()
