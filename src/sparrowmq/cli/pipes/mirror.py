"""`sparrow pipe mirror`: topics and groups of one cluster to another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparrowmq.cli.common import AsJson, Namesrv, namesrv_or_default
from sparrowmq.cli.pipes.common import (
    DEFAULT_MASTER,
    Conf,
    DryRun,
    Master,
    MetricsAt,
    Run,
    Show,
    ShowAs,
    ShowPlan,
    SourceOptions,
    need_spark,
    pairs,
    run_pipeline,
    session,
    show_plan,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparrowmq.spark.pipelines.watch import Progress, Watch


def mirror(
    target_namesrv: Annotated[
        str, typer.Option("--to", metavar="HOST:PORT", help="Name servers of the target, joined with ';'.")
    ],
    source: Annotated[
        str,
        typer.Option("--source", metavar="NAME", help="The source cluster's name, the same in all mirrors."),
    ],
    target: Annotated[
        str,
        typer.Option("--target", metavar="NAME", help="The target cluster's name, the same in all mirrors."),
    ],
    directory: Annotated[
        Path,
        typer.Option(
            "--dir", help="The mirror's own directory; all of Spark's machines see it under this name."
        ),
    ],
    topics: Annotated[list[str] | None, typer.Argument(help="Topics; none with --pattern.")] = None,
    pattern: Annotated[
        str, typer.Option(help="A regular expression that whole topic names match; new ones are picked up.")
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(help="With --follow: seconds between the starts of batches.")] = 1.0,
    start: Annotated[str, typer.Option(help="earliest or latest: where the first run begins.")] = "earliest",
    batch_rows: Annotated[int, typer.Option(help="Messages of one batch at most.")] = 100_000,
    groups: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="GROUP", help="A group whose offsets follow; may be repeated."),
    ] = None,
    group_pattern: Annotated[
        str, typer.Option(help="Groups whose offsets follow, as a regular expression over whole names.")
    ] = "",
    groups_every: Annotated[float, typer.Option(help="Seconds between two looks at groups.")] = 10.0,
    no_create: Annotated[
        bool, typer.Option("--no-create", help="Neither make topics at the target nor let them grow.")
    ] = False,
    target_cluster: Annotated[
        str, typer.Option(help="The cluster in which topics are made, of several that the target has.")
    ] = "",
    target_options: Annotated[
        list[str] | None,
        typer.Option("--target-option", metavar="NAME=VALUE", help="An option of the sink; may be repeated."),
    ] = None,
    namesrv: Namesrv = None,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    options: SourceOptions = None,
    plan: ShowPlan = False,
    dry_run: DryRun = False,
    show: ShowAs = Show.BAR,
    metrics: MetricsAt = None,
    as_json: AsJson = False,
) -> None:
    """Copy topics to another cluster, queue by queue in order, and let consumer groups follow."""
    need_spark()
    from sparrowmq.spark.pipelines import mirror as pipeline

    settings = pipeline.MirrorSettings(
        directory=directory,
        source=source,
        target=target,
        target_name_server=target_namesrv,
        name_server=namesrv_or_default(namesrv),
        topics=tuple(topics or ()),
        pattern=pattern,
        start=start,
        follow=follow,
        every=every,
        batch_rows=batch_rows,
        create_topics=not no_create,
        target_cluster=target_cluster,
        groups=tuple(groups or ()),
        group_pattern=group_pattern,
        groups_every=groups_every,
        options=pairs(options, "--option"),
        target_options=pairs(target_options, "--target-option"),
    )
    if plan:
        show_plan(pipeline.plan_mirror(settings), as_json)
        return
    if dry_run:
        with session("mirror", master, conf or ()) as spark:
            print(f"{pipeline.dry_run_mirror(spark, settings):,} messages would be sent; nothing is changed")
        return

    def work(spark: SparkSession, watch: Watch) -> Progress:
        return pipeline.mirror(spark, settings, watch)

    run_pipeline("mirror", Run(master, conf or (), show, metrics), work)
