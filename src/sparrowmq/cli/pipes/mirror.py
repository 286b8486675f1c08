"""`sparrow pipe mirror`: copies topics and groups of one cluster to another."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from sparrowmq.cli.pipes.common import BatchRows, Every, Follow, Topics, need_spark, pairs
from sparrowmq.cli.pipes.pipeline import Pipeline
from sparrowmq.cli.pipes.shared import Shared, with_options

ToNamesrv = Annotated[
    str, typer.Option("--to", metavar="HOST:PORT", help="Name servers of the target, separated by ';'.")
]
Source = Annotated[
    str, typer.Option("--source", metavar="NAME", help="The source cluster's name, the same in all mirrors.")
]
Target = Annotated[
    str, typer.Option("--target", metavar="NAME", help="The target cluster's name, the same in all mirrors.")
]
Directory = Annotated[
    Path,
    typer.Option(
        "--dir", help="The mirror's own directory, visible to all of Spark's machines under this name."
    ),
]
Pattern = Annotated[str, typer.Option(help="Regular expression for whole topic names; includes new topics.")]
Start = Annotated[str, typer.Option(help="earliest or latest: where the first run starts.")]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="GROUP", help="Group whose offsets are mirrored; repeatable."),
]
GroupPattern = Annotated[
    str, typer.Option(help="Groups whose offsets are mirrored, as a regular expression for whole names.")
]
GroupsEvery = Annotated[float, typer.Option(help="Seconds between two checks of groups.")]
NoCreate = Annotated[bool, typer.Option("--no-create", help="Do not create or extend topics at the target.")]
TargetCluster = Annotated[
    str, typer.Option(help="Cluster in which to create topics, if the target has several.")
]
TargetOptions = Annotated[
    list[str] | None,
    typer.Option("--target-option", metavar="NAME=VALUE", help="Option of the sink; repeatable."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredTopics:
    """Options for the read range."""

    pattern: Pattern = ""
    follow: Follow = False
    every: Every = 1.0
    start: Start = "earliest"
    batch_rows: BatchRows = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredGroups:
    """Options of the groups whose offsets are mirrored."""

    groups: Groups = None
    group_pattern: GroupPattern = ""
    groups_every: GroupsEvery = 10.0

    @property
    def settings(self) -> dict[str, Any]:
        """As settings of the pipeline."""
        return {**asdict(self), "groups": tuple(self.groups or ())}


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTarget:
    """Options for the target."""

    no_create: NoCreate = False
    target_cluster: TargetCluster = ""
    target_options: TargetOptions = None

    @property
    def settings(self) -> dict[str, Any]:
        """As settings of the pipeline. Raises `UsageError`."""
        return {
            "create_topics": not self.no_create,
            "target_cluster": self.target_cluster,
            "target_options": pairs(self.target_options, "--target-option"),
        }


@with_options
def mirror(
    target_namesrv: ToNamesrv,
    source: Source,
    target: Target,
    directory: Directory,
    topics: Topics = None,
    *,
    mirrored: MirroredTopics,
    groups: MirroredGroups,
    at_target: AtTarget,
    shared: Shared,
) -> None:
    """Copy topics to another cluster, in order of each queue, with the progress of consumer groups."""
    need_spark()
    from sparrowmq.spark.pipelines.mirror import mirror as pipeline

    settings = pipeline.MirrorSettings(
        directory=directory,
        source=source,
        target=target,
        target_name_server=target_namesrv,
        topics=tuple(topics or ()),
        **asdict(mirrored),
        **groups.settings,
        **at_target.settings,
        **shared.source,
    )
    Pipeline(
        name="mirror",
        shared=shared,
        clusters=[shared.cluster, settings.sink_options],
        plan=lambda: pipeline.plan_mirror(settings),
        dry_run=lambda spark: pipeline.dry_run_mirror(spark, settings),
        would="would be sent; nothing is changed",
    ).carry_out(lambda spark, watch: pipeline.mirror(spark, settings, watch))
