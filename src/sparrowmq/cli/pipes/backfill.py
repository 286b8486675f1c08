"""`sparrow pipe backfill`: processes a long range of topics, window by window."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparrowmq.cli.base.common import UsageError
from sparrowmq.cli.base.times import millis
from sparrowmq.cli.pipes.common import Pattern, Since, Topics, Until, need_spark
from sparrowmq.cli.pipes.pipeline import Pipeline
from sparrowmq.cli.pipes.shared import Shared, with_options

if TYPE_CHECKING:
    from sparrowmq.spark.pipelines.backfill.job import Write

To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="PATH|URI",
        help="Directory for result and ledger, visible to all of Spark's machines; or a URI: s3a://…, hdfs://….",
    ),
]
WindowSeconds = Annotated[
    str | None,
    typer.Option(
        "--window", metavar="SPAN", help="Windows by time, such as 30m, 6h or 1d, from midnight UTC on."
    ),
]
WindowRows = Annotated[
    int | None, typer.Option(help="Or windows by number of messages. Default: at most 5,000,000.")
]
Parallel = Annotated[int, typer.Option(help="Windows that run in parallel.")]
Columns = Annotated[str | None, typer.Option(help="Columns of the source to read, separated by commas.")]
Where = Annotated[str, typer.Option(metavar="SQL", help="Only rows that match this condition.")]
Select = Annotated[
    list[str] | None,
    typer.Option(metavar="SQL", help="Column of the result, as an expression; repeatable."),
]
Function = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:NAME",
        help="Call this function with the rows of each window and the window, instead of writing Parquet.",
    ),
]

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@with_options
def backfill(
    topics: Topics = None,
    to: To = "backfill",
    pattern: Pattern = "",
    since: Since = None,
    until: Until = None,
    window: WindowSeconds = None,
    window_rows: WindowRows = None,
    parallel: Parallel = 2,
    columns: Columns = None,
    where: Where = "",
    select: Select = None,
    function: Function = None,
    *,
    shared: Shared,
) -> None:
    """Process a long time range of topics in parallel windows; a restart continues with the rest."""
    need_spark()
    from sparrowmq.spark.pipelines.backfill import job as pipeline
    from sparrowmq.spark.pipelines.backfill.settings import BackfillSettings

    settings = BackfillSettings(
        directory=to,
        topics=tuple(topics or ()),
        pattern=pattern,
        since=millis(since, shared.zone),
        until=millis(until, shared.zone),
        window=None if window is None else seconds(window),
        window_rows=window_rows,
        parallel=parallel,
        columns=tuple(columns.split(",")) if columns else (),
        where=where,
        select=tuple(select or ()),
        **shared.source,
    )
    write = None if function is None else named(function)

    Pipeline(
        name="backfill",
        shared=shared,
        clusters=[shared.cluster],
        places=[to],
        plan=lambda: pipeline.plan_backfill_windows(settings),
        dry_run=lambda spark: pipeline.dry_run_backfill_windows(spark, settings),
        would="would be written; nothing is written",
    ).carry_out(lambda spark, watch: pipeline.backfill_windows(spark, settings, write, watch))


def seconds(text: str) -> float:
    """A span of time such as `90s`, `30m`, `6h`, `1d`. Raises `UsageError`."""
    number, unit = text[:-1], text[-1:]
    if unit not in UNITS or not number.isdecimal() or not int(number):
        told = f"--window {text!r}: give a whole number and s, m, h or d, such as 6h"
        raise UsageError(told, what="--window", value=text)
    return float(int(number) * UNITS[unit])


def named(text: str) -> Write:
    """The function with the name `MODULE:NAME`; modules in the current directory are found. Raises
    `UsageError`.
    """
    module, colon, name = text.partition(":")
    if not colon or not module or not name:
        raise UsageError(f"--function {text!r}: give MODULE:NAME, such as prices:write")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--function {text!r}: {error}") from None
    if not callable(found):
        raise UsageError(f"--function {text!r}: {name} is a {type(found).__name__}, not a function")
    made: Write = found
    return made
