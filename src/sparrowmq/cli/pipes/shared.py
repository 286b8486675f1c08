"""Options of all pipeline commands, declared once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, is_dataclass
from datetime import tzinfo
from typing import Annotated, Any, get_type_hints

import typer

from sparrowmq.cli.base.common import AsJson, Namesrv, UsageError, namesrv_or_default
from sparrowmq.cli.base.times import zone_of
from sparrowmq.cli.pipes.common import (
    DEFAULT_MASTER,
    Conf,
    Master,
    Show,
    SourceOptions,
    pairs,
)
from sparrowmq.cli.pipes.zones import SETTING, TimeZone

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
    def spark_conf(self) -> tuple[str, ...]:
        """Settings of the Spark session."""
        return (f"{SETTING}={self.time_zone}", *(self.conf or ()))


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
