"""`sparrow pipe report`: days of topics and groups as tables and pages."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from time import time
from typing import Annotated

import typer

from sparrowmq.cli.base.common import UsageError, say
from sparrowmq.cli.pipes.common import need_spark
from sparrowmq.cli.pipes.pipeline import Pipeline
from sparrowmq.cli.pipes.shared import Shared, with_options


@with_options
def report(
    topics: Annotated[list[str], typer.Argument(help="Topics.")],
    to: Annotated[Path, typer.Option("--to", help="Directory for tables, pages and snapshots.")] = Path(
        "report"
    ),
    day: Annotated[
        str, typer.Option(metavar="DATE", help="The last day: a date, today or yesterday.")
    ] = "yesterday",
    days: Annotated[int, typer.Option(help="Number of days.")] = 1,
    group: Annotated[
        list[str] | None,
        typer.Option(help="Consumer group; repeatable. Default: all groups of the topics."),
    ] = None,
    archive: Annotated[
        str | None,
        typer.Option(metavar="PATH|URI", help="Archive to read in addition to the live log."),
    ] = None,
    live: Annotated[bool, typer.Option("--live/--no-live", help="Whether to contact the cluster.")] = True,
    top: Annotated[int, typer.Option(help="Number of keys, tags and producers to list.")] = 10,
    partial: Annotated[
        bool, typer.Option("--partial", help="Include days whose messages may already be deleted.")
    ] = False,
    snapshot: Annotated[
        bool,
        typer.Option("--snapshot", help="Only record the current offsets of the groups; starts no Spark."),
    ] = False,
    *,
    shared: Shared,
) -> None:
    """Report on whole days: messages, sizes, hours, queues, keys, producers, groups and their lag."""
    need_spark()
    from sparrowmq.spark.pipelines.report import report as pipeline
    from sparrowmq.spark.pipelines.report import snapshots
    from sparrowmq.spark.pipelines.report.settings import ReportSettings

    settings = ReportSettings(
        directory=to,
        topics=tuple(topics),
        groups=tuple(group or ()),
        day=date_of(day, shared.time_zone),
        days=days,
        zone=shared.time_zone,
        archive=archive,
        live=live,
        top=top,
        partial=partial,
        **shared.source,
    )
    if snapshot:
        say(snapshots.take_snapshot(settings, time()))
        return
    Pipeline(
        name="report",
        shared=shared,
        clusters=[shared.cluster] if live else [],
        plan=lambda: pipeline.plan_report(settings),
        dry_run=lambda spark: pipeline.dry_run_report(spark, settings),
        would="would be reported on; nothing is written",
    ).carry_out(lambda spark, watch: pipeline.report(spark, settings, watch))


def date_of(text: str, zone: str) -> date | None:
    """A date, `today`, or None for `yesterday`, which is the pipeline's default. Raises `UsageError`."""
    if text == "yesterday":
        return None
    if text == "today":
        from sparrowmq.spark.pipelines.report.settings import Day, ReportSettings

        ReportSettings(directory="", topics=("-",), zone=zone)  # the error says what is wrong with the zone
        return Day.of(time(), zone).date
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--day {text!r}: give a date such as 2026-11-21, today or yesterday") from None
