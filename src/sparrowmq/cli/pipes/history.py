"""`sparrow pipe history`: an archive and the live log as one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sparrowmq.cli.base.times import millis
from sparrowmq.cli.pipes.common import OutTo, Since, Until, need_spark
from sparrowmq.cli.pipes.pipeline import Pipeline, would
from sparrowmq.cli.pipes.shared import Shared, with_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@with_options
def history(
    archive: Annotated[str, typer.Argument(help="The archive's directory, a path or a URI.")],
    topics: Annotated[list[str] | None, typer.Argument(help="Topics. Default: all archived topics.")] = None,
    to: OutTo = None,
    since: Since = None,
    until: Until = None,
    *,
    shared: Shared,
) -> None:
    """Count archived and live messages by topic, each once, or write them to Parquet."""
    need_spark()
    from sparrowmq.spark.pipelines.query import history as pipeline

    settings = pipeline.HistorySettings(
        directory=archive,
        topics=tuple(topics or ()),
        since=millis(since, shared.zone),
        until=millis(until, shared.zone),
        **shared.source,
    )

    def table(spark: SparkSession) -> DataFrame:
        return pipeline.history(spark, settings)

    Pipeline(
        name="history",
        shared=shared,
        clusters=[shared.cluster],
        places=[archive],
        plan=lambda: pipeline.plan_history(settings),
        dry_run=lambda spark: pipeline.dry_run_history(spark, settings),
        would=would(to),
    ).carry_out_read(to, counted=table, written=table)
