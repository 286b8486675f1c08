"""`sparrow pipe history`: an archive and the live log as one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparrowmq.cli.pipes.common import OutTo, Since, Until, check_new, millis, need_spark
from sparrowmq.cli.pipes.shared import Shared, carry_out_read, with_shared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@with_shared
def history(
    archive: Annotated[Path, typer.Argument(help="The archive's directory.")],
    topics: Annotated[
        list[str] | None, typer.Argument(help="Topics; without any, all that are archived.")
    ] = None,
    to: OutTo = None,
    since: Since = None,
    until: Until = None,
    *,
    shared: Shared,
) -> None:
    """Count archived and live messages by topic, each once, or write them to Parquet."""
    need_spark()
    from sparrowmq.spark.pipelines import history as pipeline

    settings = pipeline.HistorySettings(
        directory=archive,
        topics=tuple(topics or ()),
        since=millis(since),
        until=millis(until),
        **shared.source,
    )

    def table(spark: SparkSession) -> DataFrame:
        return pipeline.history(spark, settings)

    check_new(to)
    carry_out_read(
        "history",
        shared,
        to,
        plan=pipeline.plan_history(settings),
        drained=lambda spark: pipeline.dry_run_history(spark, settings),
        counted=table,
        written=table,
    )
