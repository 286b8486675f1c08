"""`sparrow pipe history`: an archive and the live log as one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparrowmq.cli.common import AsJson, Namesrv, UsageError, namesrv_or_default
from sparrowmq.cli.pipes.common import (
    DEFAULT_MASTER,
    Conf,
    Master,
    ShowPlan,
    SourceOptions,
    millis,
    need_spark,
    pairs,
    session,
    show_plan,
    show_topics,
)


def history(
    archive: Annotated[Path, typer.Argument(help="The archive's directory.")],
    topics: Annotated[
        list[str] | None, typer.Argument(help="Topics; without any, all that are archived.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="Write the messages to Parquet there; it must not exist.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stored at or after, such as 2026-11-21T08:00.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Stored before.")] = None,
    namesrv: Namesrv = None,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
    options: SourceOptions = None,
    plan: ShowPlan = False,
    as_json: AsJson = False,
) -> None:
    """Count archived and live messages by topic, each once, or write them to Parquet."""
    need_spark()
    from sparrowmq.spark.pipelines import history as pipeline

    settings = pipeline.HistorySettings(
        directory=archive,
        topics=tuple(topics or ()),
        name_server=namesrv_or_default(namesrv),
        since=millis(since),
        until=millis(until),
        options=pairs(options, "--option"),
    )
    if to is not None and to.exists():
        raise UsageError(f"{to} exists; give another place or remove it")
    if plan:
        show_plan(pipeline.plan_history(settings), as_json)
        return
    pipeline.plan_history(settings)  # says what is wrong before Spark starts
    with session("history", master, conf or ()) as spark:
        frame = pipeline.history(spark, settings)
        if to is None:
            show_topics(frame, as_json)
        else:
            frame.write.parquet(str(to))
            print(f"{spark.read.parquet(str(to)).count():,} messages are in {to}")
