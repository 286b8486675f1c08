"""`sparrow pipe history`: an archive and the live log as one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparrowmq.cli.common import AsJson, Namesrv, namesrv_or_default
from sparrowmq.cli.pipes.common import (
    DEFAULT_MASTER,
    Conf,
    Master,
    OutTo,
    Since,
    SourceOptions,
    Until,
    check_new,
    millis,
    need_spark,
    pairs,
    session,
    show_plan,
    show_topics,
    write_out,
)
from sparrowmq.cli.pipes.shared import ShowPlan


def history(
    archive: Annotated[Path, typer.Argument(help="The archive's directory.")],
    topics: Annotated[
        list[str] | None, typer.Argument(help="Topics; without any, all that are archived.")
    ] = None,
    to: OutTo = None,
    since: Since = None,
    until: Until = None,
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
    check_new(to)
    if plan:
        show_plan(pipeline.plan_history(settings), as_json)
        return
    pipeline.plan_history(settings)  # says what is wrong before Spark starts
    with session("history", master, conf or ()) as spark:
        frame = pipeline.history(spark, settings)
        if to is None:
            show_topics(frame, as_json)
        else:
            write_out(frame, to)
