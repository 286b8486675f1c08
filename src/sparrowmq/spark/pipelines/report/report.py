"""`report`: each day's topics, groups, lag, sizes and key skew, as Parquet and as one HTML page.

A message belongs to the day on which it was stored, by the brokers' clocks, so a past day gets no late
messages. Repeating the report for a day replaces its partition of each table and its page.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.cluster.faults import DataLossError
from sparrowmq.spark.pipelines.common import directories
from sparrowmq.spark.pipelines.common.queries import plain_errors
from sparrowmq.spark.pipelines.common.steps import Plan, Step
from sparrowmq.spark.pipelines.common.watch import Progress, Watch
from sparrowmq.spark.pipelines.query import stored
from sparrowmq.spark.pipelines.report import snapshots as progress
from sparrowmq.spark.pipelines.report import tables as report_tables
from sparrowmq.spark.pipelines.report.page import Content, render
from sparrowmq.spark.pipelines.report.settings import Day, ReportSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "report"
GROUPS: Final = "groups"
PROGRESS: Final = "progress"
ORDER: Final = {
    **report_tables.ORDER,
    GROUPS: ("group", "topic"),
    PROGRESS: ("group", "topic", "at"),
}
TABLES: Final = tuple(ORDER)
_STAGING: Final = "_staging"
Clock = Callable[[], float]


def page_path(settings: ReportSettings, day: Day) -> Path:
    """The path of a day's page."""
    return _root(settings) / f"report-{day}.html"


def plan_report(settings: ReportSettings, now: Clock = time) -> Plan:
    """What `report` would read and write now. Queries the cluster, starts no Spark, writes nothing."""
    where = settings.stored
    steps, rows = [], 0
    if settings.live:
        steps.append(Step("take a snapshot", "of groups", {"to": str(_root(settings) / progress.SNAPSHOTS)}))
    for day in settings.chosen(now()):
        count = sum(unit.rows for unit in where.ledger.units)
        if settings.live:
            count = sum(map(len, stored.live_spans(where, day.start, day.end)))
        rows += count
        gaps = stored.gaps(where, day.start, day.end)
        details: dict[str, object] = {
            "from": stored.moment(day.start),
            "to before": stored.moment(day.end),
            "messages": count,
        }
        if gaps:
            details["may be incomplete"] = gaps[0]
        steps.append(Step("read", f"{', '.join(settings.topics)} of {where} on {day}", details))
        tables = ", ".join(TABLES)
        steps.append(Step("replace", str(page_path(settings, day)), {f"tables, date={day}": tables}))
    return Plan(NAME, tuple(steps), rows)


def dry_run_report(spark: SparkSession, settings: ReportSettings, now: Clock = time) -> int:
    """Check the settings against the archive and the topics without reading messages. Returns an upper bound
    of the messages.

    For the live log it counts offsets. An archive has no counts per day, so all its messages count.
    """
    for day in settings.chosen(now()):
        report_tables.messages(spark, settings.stored, day)
    return plan_report(settings, now).rows or 0


def report(
    spark: SparkSession, settings: ReportSettings, watch: Watch | None = None, now: Clock = time
) -> Progress:
    """Report on each day. Returns what was done (a batch for each day).

    Raises `DataLossError` when messages of a day may have been deleted, unless `partial`; earlier days are
    then complete. Raises `PipelineError` for failures of Spark.
    """
    watch = watch or Watch()
    watch.begin(NAME)
    if settings.live:
        progress.take_snapshot(settings, now())
    watch.waiting(plan_report(settings, now).rows)
    for day in settings.chosen(now()):
        if watch.stopping:
            break
        with plain_errors(), directories.locked(_root(settings), "report", SettingsError):
            _report_day(spark, settings, day, watch, now())
    if not watch.stopping:
        watch.waiting(0)
    return watch.progress


def _report_day(spark: SparkSession, settings: ReportSettings, day: Day, watch: Watch, now: float) -> None:
    began = monotonic()
    where = settings.stored
    doubts = stored.gaps(where, day.start, day.end)
    if doubts and not settings.partial:
        raise DataLossError(
            f"{day} cannot be reported completely: {doubts[0]}; partial=True reports the messages that are "
            f"left",
            what="day",
            value=day,
        )
    found = report_tables.messages(spark, where, day).persist()
    try:
        made = report_tables.tables(found, day, settings.top)
        made |= _about_groups(spark, settings, day)
        staging = _root(settings) / _STAGING / str(day)
        shutil.rmtree(staging, ignore_errors=True)
        for name, frame in made.items():
            frame.repartition(1).sortWithinPartitions(*ORDER[name]).write.parquet(str(staging / name))
    finally:
        found.unpersist()
    size = _publish(settings, staging, day)
    content = Content(
        day,
        **{name: _rows(spark, frame, _partition(settings, name, day)) for name, frame in made.items()},
        source=str(where),
        doubts=doubts,
        is_over=now * 1000 >= day.end,
    )
    directories.replace_file(page_path(settings, day), render(content))
    rows = sum(row["messages"] for row in content.topics)
    watch.batch(rows, size, monotonic() - began, max(0, (watch.progress.lag or 0) - rows))


def _about_groups(spark: SparkSession, settings: ReportSettings, day: Day) -> dict[str, DataFrame]:
    """The tables about groups, from the snapshots of the day and the first one after it."""
    after = Day(day.date + timedelta(days=1), day.zone)
    snapshots = progress.read_snapshots(spark, settings.directory, [day, after])
    snapshots = snapshots.where(snapshots["topic"].isin(*settings.topics))
    if settings.groups:
        snapshots = snapshots.where(snapshots["group"].isin(*settings.groups))
    closing = progress.closing(snapshots, day)
    counts: Mapping[str, tuple[int, int]] = {}
    if settings.live:
        names = [row["group"] for row in closing.select("group").distinct().collect()]
        counts = progress.returned(settings.stored.source_options, names, day)
    rows = [(group, retries, dead) for group, (retries, dead) in sorted(counts.items())]
    back = spark.createDataFrame(rows, "`group` string, retries bigint, dead_letters bigint")
    return {
        GROUPS: closing.join(back, "group", "left"),
        PROGRESS: progress.progress(snapshots, day),
    }


def _publish(settings: ReportSettings, staging: Path, day: Day) -> int:
    """Replace each table's old partition by the new one. Returns the bytes of all."""
    size = 0
    for name in TABLES:
        fresh, target = staging / name, _partition(settings, name, day)
        size += sum(path.stat().st_size for path in fresh.glob("*.parquet"))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)
    shutil.rmtree(staging.parent, ignore_errors=True)
    return size


def _rows(spark: SparkSession, frame: DataFrame, where: Path) -> Sequence[Mapping[str, Any]]:
    """The written rows of a table: some for each topic and group, never messages."""
    return [row.asDict() for row in spark.read.schema(frame.schema).parquet(str(where)).collect()]


def _partition(settings: ReportSettings, name: str, day: Day) -> Path:
    return _root(settings) / name / f"date={day}"


def _root(settings: ReportSettings) -> Path:
    return directories.directory(settings.directory, "report")
