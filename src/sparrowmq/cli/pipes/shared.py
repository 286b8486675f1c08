"""Options of all pipeline commands, declared once, and the start of a run with them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from sparrowmq.cli.base.common import AsJson, Namesrv, UsageError, namesrv_or_default, print_json, say
from sparrowmq.cli.base.times import zone_of
from sparrowmq.cli.pipes.common import (
    DEFAULT_MASTER,
    Conf,
    Master,
    PipeRun,
    Show,
    SourceOptions,
    check_new,
    pairs,
    run_pipeline,
    run_read,
    show_plan,
    show_topics,
    topics_of,
    write_out,
)
from sparrowmq.cli.pipes.zones import SETTING, TimeZone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparrowmq.spark.pipelines.common.steps import Plan
    from sparrowmq.spark.pipelines.common.watch import Progress, Watch

Read = Callable[["SparkSession"], "DataFrame"]

ShowPlan = Annotated[bool, typer.Option("--plan", help="Print the plan; starts no Spark.")]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Check settings against the topics and count by offsets; writes nothing."),
]
ShowAs = Annotated[
    Show,
    typer.Option(
        "--progress", help="bar; json (a line of JSON for every change, on standard output); or none."
    ),
]
MetricsAt = Annotated[
    str | None,
    typer.Option(
        "--metrics", metavar="HOST:PORT", help="Serve the progress as Prometheus metrics during the run."
    ),
]
ReportTo = Annotated[
    str | None,
    typer.Option(
        "--report-to",
        metavar="URL",
        help="Report the progress to this coordinator, which shows it in its console. Needs sparrow login "
        "or SPARROW_TOKEN.",
    ),
]
ReportAs = Annotated[
    str | None,
    typer.Option("--report-as", metavar="NAME", help="Name for the report; default: that of the command."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Options of every command: the cluster, Spark's master, and the output."""

    namesrv: Namesrv = None
    master: Master = DEFAULT_MASTER
    conf: Conf = None
    time_zone: TimeZone = "UTC"
    options: SourceOptions = None
    plan: ShowPlan = False
    dry_run: DryRun = False
    show: ShowAs = Show.BAR
    metrics: MetricsAt = None
    report_to: ReportTo = None
    report_as: ReportAs = None
    as_json: AsJson = False

    @property
    def source(self) -> dict[str, Any]:
        """The settings of every pipeline for the cluster and its reads."""
        return {
            "name_server": namesrv_or_default(self.namesrv),
            "options": pairs(self.options, "--option"),
        }

    @property
    def cluster(self) -> dict[str, str]:
        """Options of a read of the cluster."""
        source = self.source
        return {**source["options"], "nameServer": source["name_server"]}

    def __post_init__(self) -> None:
        zone_of(self.time_zone)  # raises for a wrong one
        if SETTING in pairs(self.conf, "--conf"):
            text = f"--conf {SETTING}: give --time-zone instead, which also holds for --since"
            raise UsageError(text, what="--conf", value=SETTING)

    @property
    def zone(self) -> tzinfo:
        """The time zone. Raises `UsageError`."""
        return zone_of(self.time_zone)

    @property
    def run(self) -> PipeRun:
        """How to run it."""
        return PipeRun(
            self.master,
            (f"{SETTING}={self.time_zone}", *(self.conf or ())),
            self.show,
            self.metrics,
            self.report_to,
            self.report_as,
            self.as_json,
        )


def with_options(command: Callable[..., None], *, without: Collection[str] = ()) -> Callable[..., None]:
    """The command with each dataclass parameter replaced by the options that are its fields.

    `Shared` is such a class; its options `without` are left out. Parameters of such classes follow the `*`.
    """
    signature = inspect.signature(command, eval_str=True)
    groups = {
        one.name: _options(one.annotation, without if one.annotation is Shared else ())
        for one in signature.parameters.values()
        if is_dataclass(one.annotation)
    }

    @functools.wraps(command)
    def called(**values: Any) -> None:
        for name, options in groups.items():
            kind = signature.parameters[name].annotation
            values[name] = kind(**{one.name: values.pop(one.name) for one in options})
        command(**values)

    parameters = [option for one in signature.parameters.values() for option in groups.get(one.name, [one])]
    made: Any = called
    made.__signature__ = signature.replace(parameters=parameters)
    made.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
    return called


def _options(kind: Any, without: Collection[str]) -> list[inspect.Parameter]:
    """The fields of a dataclass as parameters of a command."""
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name]
        )
        for one in fields(kind)
        if one.name not in without
    ]


def carry_out(
    name: str,
    shared: Shared,
    *,
    clusters: Iterable[Mapping[str, str]],
    promised: Callable[[], Sequence[str]] = tuple,
    planned: Callable[[], Plan],
    counted: Callable[[SparkSession], int],
    would: str,
    work: Callable[[SparkSession, Watch], Progress],
) -> None:
    """Print the plan, or count and describe the run, or run it, as requested.

    Raises `TransportError` if one of the `clusters`, given by options, cannot be reached. `promised` gives
    the guarantees of a run, which are shown before Spark starts.
    """
    from sparrowmq.spark.pipelines.common.reading import check_reachable

    check_reachable(*clusters)
    if shared.plan:
        show_plan(planned(), shared.as_json)
    elif shared.dry_run:
        plan = planned()
        show_dry_run(plan, run_read(name, shared.run, plan.rows, counted), would, shared.as_json)
    else:
        for line in promised():
            say(line, err=True)
        run_pipeline(name, shared.run, work)


def show_dry_run(plan: Plan, messages: int, would: str, as_json: bool) -> None:
    """Print the result of a dry run."""
    if as_json:
        print_json({"pipeline": plan.pipeline, "messages": messages})
    else:
        from sparrowmq.spark.pipelines.common.steps import AT_MOST

        most = " at most" if plan.rows_text == AT_MOST else ""
        say(f"{messages:,} messages{most} would be {would}")


def carry_out_read(
    name: str,
    shared: Shared,
    to: str | None,
    *,
    clusters: Iterable[Mapping[str, str]] = (),
    planned: Callable[[], Plan],
    drained: Callable[[SparkSession], int],
    counted: Read,
    written: Read,
) -> None:
    """Print the plan, or read and describe the result, or count by topic, or write to `to`, as requested.

    `written` is the whole table, `counted` may have fewer columns.
    """
    from sparrowmq.spark.pipelines.common.reading import check_reachable

    check_new(to)
    check_reachable(*clusters)
    plan, run, as_json = planned(), shared.run, shared.as_json
    if shared.plan:
        show_plan(plan, as_json)
    elif shared.dry_run:
        would = "counted" if to is None else f"written to {to}; nothing is written"
        show_dry_run(plan, run_read(name, run, plan.rows, drained), would, as_json)
    elif to is None:
        show_topics(run_read(name, run, plan.rows, lambda spark: topics_of(counted(spark))), as_json)
    else:
        rows = run_read(name, run, plan.rows, lambda spark: write_out(written(spark), to))
        print_json({"messages": rows, "to": to}) if as_json else say(f"{rows:,} messages are in {to}")
