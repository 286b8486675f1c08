"""`sparrow pipe archive`: topics to Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparrowmq.cli.common import UsageError
from sparrowmq.cli.pipes.common import Since, Until, millis, need_spark
from sparrowmq.cli.pipes.shared import Shared, carry_out, with_shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparrowmq.spark.pipelines.steps import Plan
    from sparrowmq.spark.pipelines.watch import Progress, Watch


Topics = Annotated[list[str] | None, typer.Argument(help="Topics; none with --pattern.")]
To = Annotated[
    Path,
    typer.Option("--to", help="The archive's directory; all of Spark's machines see it under this name."),
]
Pattern = Annotated[str, typer.Option(help="A regular expression that whole topic names match.")]
Follow = Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C.")]
Every = Annotated[float, typer.Option(help="With --follow: seconds between the starts of batches.")]
Start = Annotated[str, typer.Option(help="earliest or latest: where queues begin that are new to it.")]
BatchRows = Annotated[int, typer.Option(help="Messages of one batch at most.")]
Columns = Annotated[str | None, typer.Option(help="The source's columns to keep, joined with commas.")]
Select = Annotated[
    list[str] | None,
    typer.Option(metavar="SQL", help="One more column: an expression AS a name; may be repeated."),
]
CompactBatches = Annotated[
    int, typer.Option(help="Merge so many small batches into one directory; 0: never.")
]
Backfill = Annotated[
    bool, typer.Option("--backfill", help="Archive what is stored but missing before the archive's end.")
]
Group = Annotated[
    str, typer.Option(help="A consumer group whose offsets follow the archive; its lag is the archive's.")
]
HoldHours = Annotated[
    int,
    typer.Option(help="Have brokers keep messages until they are archived, so many hours at most; 0: not."),
]


@with_shared
def archive(
    topics: Topics = None,
    to: To = Path("archive"),
    pattern: Pattern = "",
    follow: Follow = False,
    every: Every = 60.0,
    start: Start = "earliest",
    batch_rows: BatchRows = 1_000_000,
    columns: Columns = None,
    select: Select = None,
    compact_batches: CompactBatches = 32,
    backfill: Backfill = False,
    since: Since = None,
    until: Until = None,
    group: Group = "",
    hold_hours: HoldHours = 0,
    *,
    shared: Shared,
) -> None:
    """Copy topics to Parquet, partitioned by date and topic, every message exactly once for any reader."""
    need_spark()
    from sparrowmq.spark.pipelines import archive as pipeline

    if (since or until) and not backfill:
        raise UsageError("--since and --until narrow a --backfill; add it or leave them out")
    settings = pipeline.ArchiveSettings(
        directory=to,
        topics=tuple(topics or ()),
        pattern=pattern,
        start=start,
        follow=follow,
        every=every,
        batch_rows=batch_rows,
        columns=tuple(columns.split(",")) if columns else pipeline.DEFAULT_COLUMNS,
        select=tuple(select or ()),
        compact_batches=compact_batches,
        group=group,
        hold_hours=hold_hours,
        **shared.source,
    )

    span = {"since": millis(since), "until": millis(until)}

    def work(spark: SparkSession, watch: Watch) -> Progress:
        if backfill:
            return pipeline.backfill(spark, settings, **span, watch=watch)
        return pipeline.archive(spark, settings, watch)

    def counted(spark: SparkSession) -> int:
        if backfill:
            return pipeline.dry_run_backfill(spark, settings, **span)
        return pipeline.dry_run_archive(spark, settings)

    def planned() -> Plan:
        return pipeline.plan_backfill(settings, **span) if backfill else pipeline.plan_archive(settings)

    carry_out(
        "archive",
        shared,
        planned=planned,
        counted=counted,
        would="archived; nothing is written",
        work=work,
    )
