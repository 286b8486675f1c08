"""`sparrow pipe replay`: messages of topics, archives and dead letters to a topic again."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparrowmq.cli.common import UsageError
from sparrowmq.cli.pipes.common import Since, Until, millis, need_spark, pairs
from sparrowmq.cli.pipes.shared import Shared, carry_out, with_shared

if TYPE_CHECKING:
    from sparrowmq.spark.offsets import Span

Topics = Annotated[
    list[str] | None, typer.Argument(help="Topics to read; with --archive and none, all that it has.")
]
To = Annotated[
    str, typer.Option("--to", help="The topic to send to; {topic} in it is the one a message comes from.")
]
Home = Annotated[
    Path, typer.Option("--home", help="The replay's directory: one that was stopped or killed goes on there.")
]
Archive = Annotated[
    Path | None, typer.Option("--archive", metavar="DIR", help="Read an archive, not the live log.")
]
DeadLetters = Annotated[
    str, typer.Option("--dead-letters", metavar="GROUP", help="Read a consumer group's dead letters.")
]
Ranges = Annotated[
    list[str] | None,
    typer.Option(
        "--range",
        metavar="QUEUE=FIRST-END",
        help="Only offsets from FIRST to before END of Orders/broker-a/0; may be repeated.",
    ),
]
ToNamesrv = Annotated[
    str | None,
    typer.Option("--to-namesrv", metavar="HOST:PORT", help="Name servers of another cluster to send to."),
]
ToOptions = Annotated[
    list[str] | None,
    typer.Option("--to-option", metavar="NAME=VALUE", help="An option of the sink; may be repeated."),
]
Tags = Annotated[str, typer.Option(help="Only messages with these tags: 'created || paid'.")]
Sql92 = Annotated[str, typer.Option(help="Only messages whose properties this condition holds for.")]
Where = Annotated[
    str, typer.Option(metavar="SQL", help="Only messages this holds for; text is the body as text.")
]
Values = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=SQL",
        help="Send this expression's value as body, tags, keys, properties or sharding_key; may be repeated.",
    ),
]
KeepIds = Annotated[
    bool, typer.Option("--keep-ids", help="Send the messages' own unique ids instead of new ones.")
]
Spread = Annotated[
    bool, typer.Option("--spread", help="Spread over all queues, without order; else queue by queue.")
]
NoMark = Annotated[
    bool, typer.Option("--no-mark", help="Without the properties SPARROW_REPLAY and SPARROW_ORIGIN.")
]
Rate = Annotated[int | None, typer.Option(help="Messages a second at most.")]
BatchRows = Annotated[int, typer.Option(help="Messages of a part at most.")]
Tasks = Annotated[int, typer.Option(help="Tasks that send at once; one with --rate.")]

_RANGE = re.compile(r"(?P<topic>[^/=]+)/(?P<broker>[^/=]+)/(?P<queue>\d+)=(?P<first>\d+)-(?P<end>\d+)")


@with_shared
def replay(
    topics: Topics = None,
    to: To = "",
    home: Home = Path("replay"),
    archive: Archive = None,
    dead_letters: DeadLetters = "",
    ranges: Ranges = None,
    since: Since = None,
    until: Until = None,
    to_namesrv: ToNamesrv = None,
    tags: Tags = "",
    sql92: Sql92 = "",
    where: Where = "",
    values: Values = None,
    keep_ids: KeepIds = False,
    spread: Spread = False,
    no_mark: NoMark = False,
    rate: Rate = None,
    batch_rows: BatchRows = 100_000,
    tasks: Tasks = 2,
    to_options: ToOptions = None,
    *,
    shared: Shared,
) -> None:
    """Send stored messages to a topic again: filtered, changed, at a rate, none twice when restarted."""
    need_spark()
    from sparrowmq.spark.pipelines import replay as pipeline
    from sparrowmq.spark.pipelines.replay_settings import ReplaySettings

    settings = ReplaySettings(
        home=home,
        to=to,
        topics=tuple(topics or ()),
        archive=archive,
        dead_letters_of=dead_letters,
        ranges=tuple(map(span, ranges or ())),
        since=millis(since),
        until=millis(until),
        to_name_server=to_namesrv or "",
        tags=tags,
        sql92=sql92,
        where=where,
        values=pairs(values, "--set"),
        ids="keep" if keep_ids else "renew",
        keep_order=not spread,
        mark=not no_mark,
        rate=rate,
        batch_rows=batch_rows,
        tasks=tasks,
        to_options=pairs(to_options, "--to-option"),
        **shared.source,
    )
    if not shared.plan:
        lines = pipeline.promises(settings)  # says what is wrong before Spark starts
        for line in () if shared.dry_run else lines:
            print(line, file=sys.stderr)
    carry_out(
        "replay",
        shared,
        planned=lambda: pipeline.plan_replay(settings),
        counted=lambda spark: pipeline.dry_run_replay(spark, settings),
        would="sent; nothing is sent",
        work=lambda spark, watch: pipeline.replay(spark, settings, watch),
    )


def span(text: str) -> Span:
    """The offsets that `--range` names. Raises `UsageError`."""
    from sparrowmq.core.message import MessageQueue
    from sparrowmq.spark.offsets import Span

    found = _RANGE.fullmatch(text)
    if found is None or int(found["first"]) >= int(found["end"]):
        raise UsageError(
            f"--range {text!r}: give TOPIC/BROKER/QUEUE=FIRST-END, such as Orders/broker-a/0=100-200"
        )
    queue = MessageQueue(found["topic"], found["broker"], int(found["queue"]))
    return Span(queue, int(found["first"]), int(found["end"]))
