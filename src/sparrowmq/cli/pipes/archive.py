"""`sparrow pipe archive`: topics to Parquet."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparrowmq.cli.base.common import UsageError
from sparrowmq.cli.base.times import millis
from sparrowmq.cli.pipes.common import BatchRows, Every, Follow, Pattern, Since, Topics, Until, need_spark
from sparrowmq.cli.pipes.pipeline import Pipeline
from sparrowmq.cli.pipes.shared import Shared, with_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparrowmq.spark import BadRows
    from sparrowmq.spark.pipelines.common.steps import Plan
    from sparrowmq.spark.pipelines.common.watch import Progress, Watch


To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="PATH|URI",
        help="The archive's directory, visible to all of Spark's machines; or a URI: s3a://…, hdfs://….",
    ),
]
Format = Annotated[str, typer.Option("--format", help="parquet, or a transactional table: delta or iceberg.")]
Table = Annotated[
    str, typer.Option(metavar="NAME", help="The table's name in a catalog; iceberg's catalog.namespace.name.")
]
Sort = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMNS", help="Columns by which a table's files are clustered, separated by commas."
    ),
]
FileBytes = Annotated[int, typer.Option(help="Approximate size of a table's merged files.")]
KeepDays = Annotated[
    int, typer.Option(help="Delete a table's rows older than this number of days; 0: never.")
]
HistoryDays = Annotated[
    int, typer.Option(help="Versions of a table older than this number of days may be deleted.")
]
Start = Annotated[str, typer.Option(help="earliest or latest: where to start in new queues.")]
Columns = Annotated[str | None, typer.Option(help="Columns of the source to keep, separated by commas.")]
Select = Annotated[
    list[str] | None,
    typer.Option(metavar="SQL", help="Additional column: an expression AS a name; repeatable."),
]
CompactBatches = Annotated[
    int, typer.Option(help="Merge this number of small batches into one directory; 0: never.")
]
Backfill = Annotated[
    bool,
    typer.Option(
        "--backfill", help="Also archive stored messages that are missing before the archive's end."
    ),
]
Group = Annotated[
    str,
    typer.Option(
        help="Consumer group to which the archive commits its progress; its lag is the archive's lag."
    ),
]
HoldHours = Annotated[
    int,
    typer.Option(
        help="Make brokers keep messages until they are archived, at most this number of hours; 0: no hold."
    ),
]
BadRowsTopic = Annotated[
    str,
    typer.Option(
        metavar="TOPIC",
        help="Topic for bodies that cannot be decompressed. Default: such a body ends the run.",
    ),
]
BadRowsTo = Annotated[
    str, typer.Option(metavar="PATH|URI", help="Or a directory for them (Parquet), outside the archive.")
]
BadRowsMax = Annotated[int | None, typer.Option(help="Maximum number of them in a batch; more end the run.")]
BadRowsShare = Annotated[
    float | None, typer.Option(help="Maximum share of them in a batch, such as 0.01; more end the run.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AsTable:
    """Options of archives that are tables."""

    format: Format = "parquet"
    table: Table = ""
    sort: Sort = None
    file_bytes: FileBytes = 128 * 1024 * 1024
    keep_days: KeepDays = 0
    history_days: HistoryDays = 7

    @property
    def settings(self) -> dict[str, Any]:
        """As settings of the pipeline."""
        return {**asdict(self), "sort": _names(self.sort)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Options for the read range, and for the kept columns."""

    pattern: Pattern = ""
    follow: Follow = False
    every: Every = 60.0
    start: Start = "earliest"
    batch_rows: BatchRows = 1_000_000
    columns: Columns = None
    select: Select = None
    compact_batches: CompactBatches = 32

    @property
    def settings(self) -> dict[str, Any]:
        """As settings of the pipeline."""
        from sparrowmq.columnar.schema import DEFAULT_COLUMNS

        columns = _names(self.columns) or DEFAULT_COLUMNS
        return {**asdict(self), "columns": columns, "select": tuple(self.select or ())}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Options of a backfill."""

    backfill: Backfill = False
    since: Since = None
    until: Until = None

    def span(self, zone: tzinfo) -> dict[str, int | None]:
        """The time limits; without a zone they are in `zone`. Raises `UsageError` for times without a
        backfill, and `SettingsError` if they end before they begin.
        """
        from sparrowmq.spark.pipelines.common.source import check_times

        if (self.since or self.until) and not self.backfill:
            raise UsageError("--since and --until narrow a --backfill; add it or leave them out")
        since, until = millis(self.since, zone), millis(self.until, zone)
        check_times(since, until)
        return {"since": since, "until": until}


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """Options for reports to the brokers."""

    group: Group = ""
    hold_hours: HoldHours = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BadBodies:
    """Options for bodies that cannot be decoded."""

    bad_rows_topic: BadRowsTopic = ""
    bad_rows_to: BadRowsTo = ""
    bad_rows_max: BadRowsMax = None
    bad_rows_share: BadRowsShare = None

    def rows(self, to: str, shared: Shared) -> BadRows | None:
        """As settings of the pipeline. Raises `UsageError`, `SettingsError`."""
        from sparrowmq.spark import BadRows
        from sparrowmq.spark.options.table import connection_options
        from sparrowmq.spark.pipelines.archive.settings import bad_rows_of

        if not self.bad_rows_topic and not self.bad_rows_to:
            if self.bad_rows_max is not None or self.bad_rows_share is not None:
                raise UsageError(
                    "--bad-rows-max and --bad-rows-share need --bad-rows-topic or --bad-rows-to: add one of "
                    "them"
                )
            return None
        return BadRows(
            name=bad_rows_of(to),
            topic=self.bad_rows_topic,
            table=self.bad_rows_to,
            options=connection_options(shared.cluster) if self.bad_rows_topic else {},
            most=self.bad_rows_max,
            share=self.bad_rows_share,
        )


@with_options
def archive(
    topics: Topics = None,
    to: To = "archive",
    *,
    table: AsTable,
    batches: Batches,
    gaps: Gaps,
    upstream: Upstream,
    bad: BadBodies,
    shared: Shared,
) -> None:
    """Copy topics to Parquet or to a table, partitioned by date and topic, every message exactly once."""
    need_spark()
    from sparrowmq.spark.pipelines.archive import archive as pipeline

    span = gaps.span(shared.zone)
    settings = pipeline.ArchiveSettings(
        directory=to,
        topics=tuple(topics or ()),
        bad_rows=bad.rows(to, shared),
        **table.settings,
        **batches.settings,
        **asdict(upstream),
        **shared.source,
    )

    def work(spark: SparkSession, watch: Watch) -> Progress:
        if gaps.backfill:
            return pipeline.backfill(spark, settings, **span, watch=watch)
        return pipeline.archive(spark, settings, watch)

    def counted(spark: SparkSession) -> int:
        if gaps.backfill:
            return pipeline.dry_run_backfill(spark, settings, **span)
        return pipeline.dry_run_archive(spark, settings)

    def planned() -> Plan:
        return pipeline.plan_backfill(settings, **span) if gaps.backfill else pipeline.plan_archive(settings)

    Pipeline(
        name="archive",
        shared=shared,
        clusters=[shared.cluster],
        places=[to],
        plan=planned,
        dry_run=counted,
        would="would be archived; nothing is written",
    ).carry_out(work)


def _names(text: str | None) -> tuple[str, ...]:
    """Names joined with commas."""
    return tuple(text.split(",")) if text else ()
