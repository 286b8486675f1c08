"""`sparrow pipe replay`: sends messages of topics, archives and dead letters to a topic again."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparrowmq.cli.base.common import UsageError
from sparrowmq.cli.base.times import millis
from sparrowmq.cli.pipes.common import Since, Until, need_spark, pairs
from sparrowmq.cli.pipes.pipeline import Pipeline
from sparrowmq.cli.pipes.shared import Shared, with_options

if TYPE_CHECKING:
    from sparrowmq.spark.offsets.offsets import Span

Topics = Annotated[
    list[str] | None, typer.Argument(help="Topics to read. Default with --archive: all of its topics.")
]
To = Annotated[
    str, typer.Option("--to", help="Topic to send to; {topic} stands for a message's original topic.")
]
Home = Annotated[
    str,
    typer.Option(
        "--home",
        metavar="PATH|URI",
        help="The replay's directory; a restart continues from it.",
    ),
]
Archive = Annotated[
    str | None, typer.Option("--archive", metavar="PATH|URI", help="Read an archive instead of the live log.")
]
DeadLetters = Annotated[
    str, typer.Option("--dead-letters", metavar="GROUP", help="Read a consumer group's dead letters.")
]
Ranges = Annotated[
    list[str] | None,
    typer.Option(
        "--range",
        metavar="QUEUE=FIRST-END",
        help="Only offsets from FIRST up to, excluding, END of Orders/broker-a/0; repeatable.",
    ),
]
ToNamesrv = Annotated[
    str | None,
    typer.Option(
        "--to-namesrv",
        metavar="HOST:PORT",
        help="Name servers of the cluster to send to. Default: the same cluster.",
    ),
]
ToOptions = Annotated[
    list[str] | None,
    typer.Option("--to-option", metavar="NAME=VALUE", help="Option of the sink; repeatable."),
]
Tags = Annotated[str, typer.Option(help="Only messages with these tags: 'created || paid'.")]
Sql92 = Annotated[str, typer.Option(help="Only messages whose properties match this condition.")]
Where = Annotated[
    str,
    typer.Option(metavar="SQL", help="Only messages that match this condition; text is the body as text."),
]
Values = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=SQL",
        help="Send the value of this expression as body, tags, keys, properties or sharding_key; repeatable.",
    ),
]
KeepIds = Annotated[
    bool, typer.Option("--keep-ids", help="Send the messages' own unique ids instead of new ones.")
]
Spread = Annotated[
    bool, typer.Option("--spread", help="Distribute over all queues, without order. Default: queue by queue.")
]
NoMark = Annotated[
    bool, typer.Option("--no-mark", help="Omit the properties SPARROW_REPLAY and SPARROW_ORIGIN.")
]
Rate = Annotated[int | None, typer.Option(help="Maximum messages per second.")]
BatchRows = Annotated[int, typer.Option(help="Maximum messages per part.")]
Tasks = Annotated[int, typer.Option(help="Tasks that send in parallel; one with --rate.")]

_RANGE = re.compile(r"(?P<topic>[^/=]+)/(?P<broker>[^/=]+)/(?P<queue>\d+)=(?P<first>\d+)-(?P<end>\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFrom:
    """Options for the source and the read range."""

    archive: Archive = None
    dead_letters_of: DeadLetters = ""
    ranges: Ranges = None
    since: Since = None
    until: Until = None

    def settings(self, zone: tzinfo) -> dict[str, Any]:
        """As settings of the pipeline; times without a zone are in `zone`. Raises `UsageError`."""
        times = {"since": millis(self.since, zone), "until": millis(self.until, zone)}
        return {**asdict(self), "ranges": tuple(map(span, self.ranges or ())), **times}


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTo:
    """Options for the target cluster."""

    to_namesrv: ToNamesrv = None
    to_options: ToOptions = None

    @property
    def settings(self) -> dict[str, Any]:
        """As settings of the pipeline. Raises `UsageError`."""
        return {
            "to_name_server": self.to_namesrv or "",
            "to_options": pairs(self.to_options, "--to-option"),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Options for the selection of messages."""

    tags: Tags = ""
    sql92: Sql92 = ""
    where: Where = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentValues:
    """Options for changes to the messages."""

    values: Values = None
    keep_ids: KeepIds = False
    spread: Spread = False
    no_mark: NoMark = False

    @property
    def settings(self) -> dict[str, Any]:
        """As settings of the pipeline. Raises `UsageError`."""
        return {
            "values": pairs(self.values, "--set"),
            "ids": "keep" if self.keep_ids else "renew",
            "keep_order": not self.spread,
            "mark": not self.no_mark,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Options for the speed."""

    rate: Rate = None
    batch_rows: BatchRows = 100_000
    tasks: Tasks = 2


@with_options
def replay(
    topics: Topics = None,
    to: To = "",
    home: Home = "replay",
    *,
    read: ReadFrom,
    sent_to: SentTo,
    conditions: Conditions,
    values: SentValues,
    pace: Pace,
    shared: Shared,
) -> None:
    """Send stored messages to a topic again: filtered, changed, at a rate, never twice after a restart."""
    need_spark()
    from sparrowmq.spark.pipelines.replay import replay as pipeline
    from sparrowmq.spark.pipelines.replay.settings import ReplaySettings

    settings = ReplaySettings(
        home=home,
        to=to,
        topics=tuple(topics or ()),
        **read.settings(shared.zone),
        **sent_to.settings,
        **asdict(conditions),
        **values.settings,
        **asdict(pace),
        **shared.source,
    )

    Pipeline(
        name="replay",
        shared=shared,
        clusters=[settings.sink_options(""), *([shared.cluster] if read.archive is None else [])],
        places=[home, read.archive],
        plan=lambda: pipeline.plan_replay(settings),
        dry_run=lambda spark: pipeline.dry_run_replay(spark, settings),
        would="would be sent; nothing is sent",
    ).carry_out(
        lambda spark, watch: pipeline.replay(spark, settings, watch),
        promised=lambda: pipeline.promises(settings),
    )


def span(text: str) -> Span:
    """The offsets that `--range` names. Raises `UsageError`."""
    from sparrowmq.core.message import MessageQueue
    from sparrowmq.spark.offsets.offsets import Span

    found = _RANGE.fullmatch(text)
    if found is None or int(found["first"]) >= int(found["end"]):
        raise UsageError(
            f"--range {text!r}: give TOPIC/BROKER/QUEUE=FIRST-END, such as Orders/broker-a/0=100-200",
            what="--range",
            value=text,
        )
    queue = MessageQueue(found["topic"], found["broker"], int(found["queue"]))
    return Span(queue, int(found["first"]), int(found["end"]))
