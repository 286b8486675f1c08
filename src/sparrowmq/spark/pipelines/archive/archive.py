"""`archive`: topics to Parquet, every message exactly once for any reader.

Each micro-batch becomes one unit, published in one step together with the offsets it covers; a batch that
Spark runs again, and a query that lost its checkpoint, find there which offsets are already archived
(spark:E-03, E-04).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sparrowmq.spark.pipelines.archive import rows
from sparrowmq.spark.pipelines.archive.job import ArchiveJob
from sparrowmq.spark.pipelines.archive.ledger import evolve, rounds
from sparrowmq.spark.pipelines.archive.location import content_of
from sparrowmq.spark.pipelines.archive.plan import BACKFILL, NAME, missing, parts, waiting
from sparrowmq.spark.pipelines.archive.plan import plan_archive as plan_archive
from sparrowmq.spark.pipelines.archive.plan import plan_backfill as plan_backfill
from sparrowmq.spark.pipelines.archive.settings import DEFAULT_COLUMNS as DEFAULT_COLUMNS
from sparrowmq.spark.pipelines.archive.settings import ArchiveSettings as ArchiveSettings
from sparrowmq.spark.pipelines.archive.settings import bad_rows_of as bad_rows_of
from sparrowmq.spark.pipelines.common import reading
from sparrowmq.spark.pipelines.common.queries import run_batches, stream_options
from sparrowmq.spark.pipelines.common.watch import Progress, Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def archive(spark: SparkSession, settings: ArchiveSettings, watch: Watch | None = None) -> Progress:
    """Bring the archive up to date, or with `follow` keep it up to date until `watch.stop()`; returns the
    progress.

    Raises `ArchiveError` when the archive does not fit, `DataLossError` when messages were deleted before
    they were archived, `PipelineError` for errors of Spark. Published data stays, and the next run continues
    from there.
    """
    watch = watch or Watch()
    watch.begin(NAME)
    store = settings.store
    with store.locked():
        job = ArchiveJob(spark, settings, store, watch)
        job.prepare()
        job.report()
        watch.waiting(sum(map(len, waiting(settings, job.ledger))))
        options = stream_options(settings, store.checkpoint, job.ledger.ends())
        run_batches(
            reading.stream(spark, options, settings.read_schema),
            job.write,
            watch,
            name=f"archive {store.name}",
            checkpoint=store.checkpoint.location,
            every=settings.every if settings.follow else None,
        )
    return watch.progress


def backfill(
    spark: SparkSession,
    settings: ArchiveSettings,
    *,
    since: int | None = None,
    until: int | None = None,
    watch: Watch | None = None,
) -> Progress:
    """Archive messages that are still stored but missing before the archive's end; `archive` handles later
    ones.

    `since` and `until` (epoch milliseconds of storing) narrow it. Nothing else may write the archive at the
    same time.
    """
    watch = watch or Watch()
    watch.begin(BACKFILL)
    store = settings.store
    with store.locked():
        job = ArchiveJob(spark, settings, store, watch)
        found = missing(settings, job.ledger, since, until)
        left = sum(map(len, found))
        watch.waiting(left)
        for spans in rounds(found):
            for part in parts(spans, settings.batch_rows):
                if watch.stopping:
                    return watch.progress
                left -= sum(map(len, part))
                job.fill(part, left)
    return watch.progress


def dry_run_archive(spark: SparkSession, settings: ArchiveSettings) -> int:
    """Check the settings against topics and archive, write nothing; return the number of messages that would
    be archived.

    It counts offsets and reads no message. With a filter, the number is an upper bound. Raises
    `SettingsError` for wrong expressions, `ArchiveError` for columns that do not fit.
    """
    ledger = settings.ledger()
    spans = waiting(settings, ledger)
    _check_columns(spark, settings)
    return sum(map(len, spans))


def dry_run_backfill(
    spark: SparkSession, settings: ArchiveSettings, *, since: int | None = None, until: int | None = None
) -> int:
    """Like `check_archive`, for `backfill`."""
    ledger = settings.ledger()
    spans = missing(settings, ledger, since, until)
    _check_columns(spark, settings)
    return sum(map(len, spans))


def _check_columns(spark: SparkSession, settings: ArchiveSettings) -> None:
    frame = reading.batch(spark, settings.source_options, settings.schema)
    columns = rows.columns_of(rows.shaped(frame, settings.select))
    evolve(settings.ledger().columns, columns, settings.store)


def read_archive(spark: SparkSession, where: str | Path) -> DataFrame:
    """A snapshot of the archive as a table: its columns, `date` and `topic`.

    Columns that only some batches have are null in the others. Raises `ArchiveError`.
    """
    content = content_of(where)
    return content.read(spark, content.ledger.units)
