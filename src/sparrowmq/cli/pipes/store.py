"""`sparrow pipe store`: a store directory as a table, without a broker."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from sparrowmq.cli.base.times import millis
from sparrowmq.cli.pipes.common import OutTo, Since, Until, need_spark, pairs
from sparrowmq.cli.pipes.pipeline import Pipeline, would
from sparrowmq.cli.pipes.shared import Shared, with_options

COUNTED: Final = "topic string, body binary, store_timestamp timestamp"


@partial(with_options, without=("namesrv",))
def store(
    directory: Annotated[Path, typer.Argument(help="The broker's storePathRootDir, or a copy of it.")],
    topics: Annotated[list[str] | None, typer.Argument(help="Topics. Default: all stored topics.")] = None,
    to: OutTo = None,
    since: Since = None,
    until: Until = None,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Continue after damaged records, with a warning.")
    ] = False,
    *,
    shared: Shared,
) -> None:
    """Count a store directory's messages by topic, or write them to Parquet; every record is checked."""
    need_spark()
    from sparrowmq.spark.pipelines.query import store as pipeline

    settings = pipeline.StoreSettings(
        directory=directory,
        topics=tuple(topics or ()),
        since=millis(since, shared.zone),
        until=millis(until, shared.zone),
        skip_damaged=skip_damaged,
        options=pairs(shared.options, "--option"),
    )
    Pipeline(
        name="store",
        shared=shared,
        plan=lambda: pipeline.plan_store(settings),
        dry_run=lambda spark: pipeline.dry_run_store(spark, settings),
        would=would(to),
    ).carry_out_read(
        to,
        counted=lambda spark: pipeline.store(spark, settings, COUNTED),
        written=lambda spark: pipeline.store(spark, settings),
    )
