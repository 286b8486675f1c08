"""`sparrow pipe mirror`: topics and groups of one cluster to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparrowmq.cli.pipes.common import need_spark, pairs
from sparrowmq.cli.pipes.shared import Shared, carry_out, with_shared

Topics = Annotated[list[str] | None, typer.Argument(help="Topics; none with --pattern.")]
ToNamesrv = Annotated[
    str, typer.Option("--to", metavar="HOST:PORT", help="Name servers of the target, joined with ';'.")
]
Source = Annotated[
    str, typer.Option("--source", metavar="NAME", help="The source cluster's name, the same in all mirrors.")
]
Target = Annotated[
    str, typer.Option("--target", metavar="NAME", help="The target cluster's name, the same in all mirrors.")
]
Directory = Annotated[
    Path,
    typer.Option("--dir", help="The mirror's own directory; all of Spark's machines see it under this name."),
]
Pattern = Annotated[
    str, typer.Option(help="A regular expression that whole topic names match; new ones are picked up.")
]
Follow = Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C.")]
Every = Annotated[float, typer.Option(help="With --follow: seconds between the starts of batches.")]
Start = Annotated[str, typer.Option(help="earliest or latest: where the first run begins.")]
BatchRows = Annotated[int, typer.Option(help="Messages of one batch at most.")]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="GROUP", help="A group whose offsets follow; may be repeated."),
]
GroupPattern = Annotated[
    str, typer.Option(help="Groups whose offsets follow, as a regular expression over whole names.")
]
GroupsEvery = Annotated[float, typer.Option(help="Seconds between two looks at groups.")]
NoCreate = Annotated[
    bool, typer.Option("--no-create", help="Neither make topics at the target nor let them grow.")
]
TargetCluster = Annotated[
    str, typer.Option(help="The cluster in which topics are made, of several that the target has.")
]
TargetOptions = Annotated[
    list[str] | None,
    typer.Option("--target-option", metavar="NAME=VALUE", help="An option of the sink; may be repeated."),
]


@with_shared
def mirror(
    target_namesrv: ToNamesrv,
    source: Source,
    target: Target,
    directory: Directory,
    topics: Topics = None,
    pattern: Pattern = "",
    follow: Follow = False,
    every: Every = 1.0,
    start: Start = "earliest",
    batch_rows: BatchRows = 100_000,
    groups: Groups = None,
    group_pattern: GroupPattern = "",
    groups_every: GroupsEvery = 10.0,
    no_create: NoCreate = False,
    target_cluster: TargetCluster = "",
    target_options: TargetOptions = None,
    *,
    shared: Shared,
) -> None:
    """Copy topics to another cluster, queue by queue in order, and let consumer groups follow."""
    need_spark()
    from sparrowmq.spark.pipelines import mirror as pipeline

    settings = pipeline.MirrorSettings(
        directory=directory,
        source=source,
        target=target,
        target_name_server=target_namesrv,
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
        target_options=pairs(target_options, "--target-option"),
        **shared.source,
    )
    carry_out(
        "mirror",
        shared,
        planned=lambda: pipeline.plan_mirror(settings),
        counted=lambda spark: pipeline.dry_run_mirror(spark, settings),
        would="sent; nothing is changed",
        work=lambda spark, watch: pipeline.mirror(spark, settings, watch),
    )
