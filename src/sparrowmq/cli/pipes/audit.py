"""`sparrow pipe audit`: compares sent, stored and consumed messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparrowmq.cli.base.common import UsageError, complain, print_json, say
from sparrowmq.cli.base.times import millis
from sparrowmq.cli.pipes.common import Show, need_spark, pairs, session
from sparrowmq.cli.pipes.pipeline import Pipeline, watching
from sparrowmq.cli.pipes.shared import Shared, with_options
from sparrowmq.core.errors import SparrowError

if TYPE_CHECKING:
    from sparrowmq.spark import AuditSettings

NOT_JUDGED = 2
Texts = list[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditScope:
    """Options for the messages to check, and the groups."""

    group: Annotated[
        Texts,
        typer.Option(
            metavar="GROUP[=TAGS]", help="Consumer group that should have consumed all messages; repeatable."
        ),
    ] = None
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Start of the checked time. Default: a day before the end."),
    ] = None
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="End of the checked time. Default: now.")
    ] = None
    offsets: Annotated[
        str, typer.Option(metavar="JSON", help='Offsets instead: {"topic": {"broker": {"0": [first, end]}}}.')
    ] = ""

    def settings(self, zone: tzinfo) -> dict[str, Any]:
        """As settings of the pipeline; times without a zone are in `zone`."""
        from sparrowmq.spark.pipelines.audit.settings import AuditedGroup, spans_from

        return {
            "groups": tuple(AuditedGroup.parse(text) for text in self.group or ()),
            "since": millis(self.since, zone),
            "until": millis(self.until, zone),
            "spans": spans_from(self.offsets) if self.offsets else (),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Options for the sources of sent and stored messages."""

    ledger: Annotated[
        str,
        typer.Option(metavar="PATH", help="Producers' files instead of traces: CSV, JSON lines, Parquet."),
    ] = ""
    ledger_columns: Annotated[
        Texts,
        typer.Option(
            "--ledger-column",
            metavar="NAME=SQL",
            help="Expression for the topic, id or time in these files; repeatable.",
        ),
    ] = None
    with_sent: Annotated[bool, typer.Option("--sends/--no-sends", help="Whether sends are checked.")] = True
    match: Annotated[str, typer.Option(help="id or keys: how to identify messages.")] = "id"
    trace_topic: Annotated[str, typer.Option(help="Topic to which clients write traces.")] = (
        "RMQ_SYS_TRACE_TOPIC"
    )
    archive: Annotated[
        str | None,
        typer.Option(metavar="PATH|URI", help="Archive to read in addition to the live log."),
    ] = None
    live: Annotated[bool, typer.Option("--live/--no-live", help="Whether to read the live log.")] = True

    @property
    def settings(self) -> dict[str, Any]:
        """As settings of the pipeline."""
        return {**asdict(self), "ledger_columns": pairs(self.ledger_columns, "--ledger-column")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Options for exceptions that are not faults."""

    late_seconds: Annotated[
        float, typer.Option("--late", help="Seconds within which a stored message must be consumed.")
    ] = 300.0
    margin_seconds: Annotated[
        float, typer.Option("--margin", help="Tolerance for clock differences and late traces, in seconds.")
    ] = 60.0
    allow: Annotated[
        Texts,
        typer.Option(metavar="KIND=N", help="Allowed number of findings of a kind, -1: any; repeatable."),
    ] = None

    @property
    def settings(self) -> dict[str, Any]:
        """As settings of the pipeline."""
        return {**asdict(self), "allow": _numbers(self.allow)}


@with_options
def audit(
    topics: Annotated[list[str], typer.Argument(help="Topics.")],
    to: Annotated[
        str, typer.Option("--to", metavar="PATH|URI", help="Where verdict.json and the findings go.")
    ] = "audit",
    *,
    judged: AuditScope,
    evidence: Evidence,
    allowed: Allowed,
    shared: Shared,
) -> None:
    """Compare sent, stored and consumed messages, and name each lost, duplicate, late and failed one.

    Status 0: all is well, 1: a promise is broken, 2: it could not be judged. verdict.json says it in full.
    """
    try:
        need_spark()
        from sparrowmq.spark.pipelines.audit.settings import AuditSettings

        settings = AuditSettings(
            directory=to,
            topics=tuple(topics),
            **judged.settings(shared.zone),
            **evidence.settings,
            **allowed.settings,
            **shared.source,
        )
        status = _run(settings, shared)
    except SparrowError as error:
        complain(str(error))
        raise typer.Exit(NOT_JUDGED) from error
    raise typer.Exit(status)


def _numbers(texts: Sequence[str] | None) -> dict[str, int]:
    found = {}
    for name, text in pairs(texts, "--allow").items():
        try:
            found[name] = int(text)
        except ValueError:
            raise UsageError(f"--allow {name}={text}: give a number") from None
    return found


def _run(settings: AuditSettings, shared: Shared) -> int:
    """Run the requested command. Returns the exit status."""
    from sparrowmq.spark.pipelines.audit import audit as pipeline

    asked = Pipeline(
        name="audit",
        shared=shared,
        clusters=[shared.cluster] if settings.live else [],
        places=[settings.directory, settings.archive],
        plan=lambda: pipeline.plan_audit(settings),
        dry_run=lambda spark: pipeline.dry_run_audit(spark, settings),
        would="to read; nothing is written",
    )
    if asked.describe():
        return 0
    asked.planned()  # reports errors before Spark starts
    with watching("audit", shared) as watch, session("audit", shared.master, shared.spark_conf) as spark:
        verdict = pipeline.audit(spark, settings, watch)
    if shared.as_json:
        print_json(verdict.to_json())
    elif shared.show is not Show.JSON:
        for line in verdict.lines():
            say(line)
        say(f"verdict: {verdict.status.name.lower().replace('_', ' ')}; {settings.directory}/verdict.json")
    return int(verdict.status)
