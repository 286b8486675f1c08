"""Options that every pipeline's command has, declared once, and the way from them to a run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from sparrowmq.cli.common import AsJson, Namesrv, namesrv_or_default
from sparrowmq.cli.pipes.common import (
    DEFAULT_MASTER,
    Conf,
    Master,
    Run,
    Show,
    SourceOptions,
    pairs,
    run_pipeline,
    session,
    show_plan,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparrowmq.spark.pipelines.steps import Plan
    from sparrowmq.spark.pipelines.watch import Progress, Watch

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
        return Run(self.master, self.conf or (), self.show, self.metrics)


def with_shared(command: Callable[..., None]) -> Callable[..., None]:
    """The command, its parameter `shared` replaced by the options in `Shared`."""
    kinds = get_type_hints(Shared, include_extras=True)
    signature = inspect.signature(command, eval_str=True)
    own = [one for one in signature.parameters.values() if one.name != "shared"]
    options = [
        inspect.Parameter(one.name, own[-1].KEYWORD_ONLY, default=one.default, annotation=kinds[one.name])
        for one in fields(Shared)
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
        with session(name, shared.master, shared.conf or ()) as spark:
            print(f"{counted(spark):,} messages would be {would}")
    else:
        run_pipeline(name, shared.run, work)
