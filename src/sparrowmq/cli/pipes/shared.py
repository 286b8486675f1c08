"""Options that every pipeline's command has, declared once, and the way from them to a run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from sparrowmq.cli.common import AsJson, Namesrv, namesrv_or_default, print_json
from sparrowmq.cli.pipes.common import (
    DEFAULT_MASTER,
    Conf,
    Master,
    Run,
    Show,
    SourceOptions,
    pairs,
    run_pipeline,
    run_read,
    show_plan,
    show_topics,
    topics_of,
    write_out,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparrowmq.spark.pipelines.steps import Plan
    from sparrowmq.spark.pipelines.watch import Progress, Watch

Read = Callable[["SparkSession"], "DataFrame"]

ShowPlan = Annotated[bool, typer.Option("--plan", help="Print what would be done; start no Spark.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Read all that would be read, write nothing.")]
ShowAs = Annotated[
    Show,
    typer.Option("--progress", help="bar; json: a line of JSON for every change, on standard output; none."),
]
MetricsAt = Annotated[
    str | None,
    typer.Option("--metrics", metavar="HOST:PORT", help="Serve the progress for Prometheus meanwhile."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What every command takes: which cluster, where Spark runs, and whether and how it is told."""

    namesrv: Namesrv = None
    master: Master = DEFAULT_MASTER
    conf: Conf = None
    options: SourceOptions = None
    plan: ShowPlan = False
    dry_run: DryRun = False
    show: ShowAs = Show.BAR
    metrics: MetricsAt = None
    as_json: AsJson = False

    @property
    def source(self) -> dict[str, Any]:
        """The settings of every pipeline that say which cluster, and how to read it."""
        return {
            "name_server": namesrv_or_default(self.namesrv),
            "options": pairs(self.options, "--option"),
        }

    @property
    def run(self) -> Run:
        """How it is run."""
        return Run(self.master, self.conf or (), self.show, self.metrics, self.as_json)


def with_shared(command: Callable[..., None], *, without: Collection[str] = ()) -> Callable[..., None]:
    """The command, its parameter `shared` replaced by the options in `Shared`, but for those `without`."""
    kinds = get_type_hints(Shared, include_extras=True)
    signature = inspect.signature(command, eval_str=True)
    own = [one for one in signature.parameters.values() if one.name != "shared"]
    options = [
        inspect.Parameter(one.name, own[-1].KEYWORD_ONLY, default=one.default, annotation=kinds[one.name])
        for one in fields(Shared)
        if one.name not in without
    ]

    @functools.wraps(command)
    def called(**values: Any) -> None:
        shared = Shared(**{one.name: values.pop(one.name) for one in options})
        command(**values, shared=shared)

    made: Any = called
    made.__signature__ = signature.replace(parameters=[*own, *options])
    made.__annotations__ = {one.name: one.annotation for one in (*own, *options)} | {"return": None}
    return called


def carry_out(
    name: str,
    shared: Shared,
    *,
    planned: Callable[[], Plan],
    counted: Callable[[SparkSession], int],
    would: str,
    work: Callable[[SparkSession, Watch], Progress],
) -> None:
    """Print the plan, or count and say what would be done, or do the work: as asked."""
    if shared.plan:
        show_plan(planned(), shared.as_json)
    elif shared.dry_run:
        show_dry_run(name, run_read(name, shared.run, planned().rows, counted), would, shared.as_json)
    else:
        run_pipeline(name, shared.run, work)


def show_dry_run(name: str, messages: int, would: str, as_json: bool) -> None:
    """Say what a dry run counted."""
    if as_json:
        print_json({"pipeline": name, "messages": messages})
    else:
        print(f"{messages:,} messages would be {would}")


def carry_out_read(
    name: str,
    shared: Shared,
    to: Path | None,
    *,
    plan: Plan,
    drained: Callable[[SparkSession], int],
    counted: Read,
    written: Read,
) -> None:
    """Print the plan, or read and say what would be done, or count by topic, or write to `to`: as asked.

    `written` is the whole table, `counted` may be fewer of its columns.
    """
    run, as_json = shared.run, shared.as_json
    if shared.plan:
        show_plan(plan, as_json)
    elif shared.dry_run:
        would = "counted" if to is None else f"written to {to}; nothing is written"
        show_dry_run(name, run_read(name, run, plan.rows, drained), would, as_json)
    elif to is None:
        show_topics(run_read(name, run, plan.rows, lambda spark: topics_of(counted(spark))), as_json)
    else:
        rows = run_read(name, run, plan.rows, lambda spark: write_out(written(spark), to))
        print_json({"messages": rows, "to": str(to)}) if as_json else print(f"{rows:,} messages are in {to}")
