"""`sparrow pipe audit`: sent against stored against consumed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparrowmq.cli.common import UsageError, complain, print_json
from sparrowmq.cli.pipes.common import Show, millis, need_spark, pairs, run_read, session, show_plan, watching
from sparrowmq.cli.pipes.shared import Shared, with_shared
from sparrowmq.core.errors import SparrowError

if TYPE_CHECKING:
    from sparrowmq.spark import AuditSettings

NOT_JUDGED = 2
Texts = list[str] | None


@with_shared
def audit(
    topics: Annotated[list[str], typer.Argument(help="Topics.")],
    to: Annotated[Path, typer.Option("--to", help="Where verdict.json and the findings go.")] = Path("audit"),
    group: Annotated[
        Texts,
        typer.Option(
            metavar="GROUP[=TAGS]", help="A consumer group that should have had it all; may be repeated."
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Sent and stored at or after; a day before the end.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="And before; by default now.")] = None,
    offsets: Annotated[
        str, typer.Option(metavar="JSON", help='Offsets instead: {"topic": {"broker": {"0": [first, end]}}}.')
    ] = "",
    ledger: Annotated[
        str,
        typer.Option(metavar="PATH", help="Producers' files instead of traces: CSV, JSON lines, Parquet."),
    ] = "",
    ledger_column: Annotated[
        Texts,
        typer.Option(metavar="NAME=SQL", help="Its topic, id or time: an expression; may be repeated."),
    ] = None,
    sends: Annotated[bool, typer.Option("--sends/--no-sends", help="Whether sends are judged.")] = True,
    match: Annotated[str, typer.Option(help="id or keys: what tells messages apart.")] = "id",
    trace_topic: Annotated[str, typer.Option(help="Where clients write traces.")] = "RMQ_SYS_TRACE_TOPIC",
    archive: Annotated[
        Path | None, typer.Option(help="An archive to look into, beside the live log.")
    ] = None,
    live: Annotated[bool, typer.Option("--live/--no-live", help="Whether the live log is read.")] = True,
    late: Annotated[float, typer.Option(help="Seconds after storing within which to consume.")] = 300.0,
    margin: Annotated[float, typer.Option(help="Seconds that clocks may differ and traces take.")] = 60.0,
    allow: Annotated[
        Texts,
        typer.Option(metavar="KIND=N", help="So many of a kind are no fault, -1: any; may be repeated."),
    ] = None,
    *,
    shared: Shared,
) -> None:
    """Name each lost, doubled, late and failed message: what was sent, stored and consumed is compared.

    Status 0: all is well, 1: a promise is broken, 2: it could not be judged. verdict.json says it in full.
    """
    try:
        need_spark()
        from sparrowmq.spark.pipelines.audit_settings import AuditedGroup, AuditSettings, spans_from

        settings = AuditSettings(
            directory=to,
            topics=tuple(topics),
            groups=tuple(AuditedGroup.parse(text) for text in group or ()),
            since=millis(since),
            until=millis(until),
            spans=spans_from(offsets) if offsets else (),
            ledger=ledger,
            ledger_columns=pairs(ledger_column, "--ledger-column"),
            with_sent=sends,
            match=match,
            trace_topic=trace_topic,
            archive=archive,
            live=live,
            late_seconds=late,
            margin_seconds=margin,
            allow=_numbers(allow),
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
    """Do what was asked for; the exit status."""
    from sparrowmq.spark.pipelines import audit as pipeline

    planned = pipeline.plan_audit(settings)  # says what is wrong before Spark starts
    run = shared.run
    if shared.plan:
        show_plan(planned, shared.as_json)
        return 0
    if shared.dry_run:
        counts = run_read("audit", run, planned.rows, lambda spark: pipeline.dry_run_audit(spark, settings))
        if shared.as_json:
            print_json({"pipeline": "audit", **counts})
        else:
            read = ", ".join(f"{count:,} {name}" for name, count in counts.items())
            print(f"{read} read; nothing is written")
        return 0
    with watching(run) as watch, session("audit", run.master, run.conf) as spark:
        verdict = pipeline.audit(spark, settings, watch)
    if shared.as_json:
        print_json(verdict.to_json())
    elif run.show is not Show.JSON:
        print("\n".join(verdict.lines()))
        print(f"verdict: {verdict.status.name.lower().replace('_', ' ')}; {settings.directory}/verdict.json")
    return int(verdict.status)
