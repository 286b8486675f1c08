"""`sparrow message search|export|resend`: messages by a filter and time, as a file, and sent once more."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparrowmq.cli.base.common import (
    AsJson,
    Namesrv,
    UsageError,
    complain,
    namesrv_or_default,
    print_json,
    run,
    say,
)
from sparrowmq.cli.base.times import millis, when
from sparrowmq.cli.messages.message_query import Time, Topic, show
from sparrowmq.core.errors import SparrowError

if TYPE_CHECKING:
    from sparrowmq.coordinator.cluster.message_search import SearchResult
    from sparrowmq.core.results import SendResult

Tags = Annotated[str, typer.Option(help="Tag expression, for example 'TagA || TagB'.")]
SqlFilter = Annotated[
    str, typer.Option("--sql", help="SQL92 filter over properties, for example \"a > 5 AND b = 'x'\".")
]


def search(
    topic: Topic,
    tags: Tags = "",
    sql: SqlFilter = "",
    begin: Time = None,
    end: Time = None,
    count: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number, the oldest first.")] = 32,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Show the messages that match a filter and were stored between two times, oldest first.

    The search is bounded; a line says from when on there may be more.
    """
    from sparrowmq.coordinator.cluster.bodies.unpacking import unpacked

    found = _sought(topic, tags, sql, (begin, end), count, namesrv)
    for message in found.messages:
        show(unpacked(message), as_json)
    if not found.messages and not as_json:
        say(f"no message of {topic} was found among {found.passed}")
    _tell_bound(found)


def export(
    topic: Topic,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write, .jsonl or .parquet.")],
    tags: Tags = "",
    sql: SqlFilter = "",
    begin: Time = None,
    end: Time = None,
    count: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number, the oldest first.")] = 10_000,
    at: Annotated[
        list[str] | None,
        typer.Option("--at", metavar="BROKER/QUEUE/OFFSET", help="Only the message there; may be repeated."),
    ] = None,
    namesrv: Namesrv = None,
) -> None:
    """Write the messages that a search finds, or those at some offsets, to a file: JSON Lines with bodies in
    base64, or Parquet.
    """
    from sparrowmq.coordinator.cluster.exporting import FileFormat, write_file

    kind = out.suffix.removeprefix(".")
    if kind not in list(FileFormat):
        raise UsageError(f"--out {out}: the name must end in .jsonl or .parquet, which selects the format")
    if at and (tags or sql or begin is not None or end is not None):
        raise UsageError("--at cannot be combined with --tags, --sql, --begin or --end")
    found = _listed(topic, at, namesrv) if at else _sought(topic, tags, sql, (begin, end), count, namesrv)
    part = out.with_name(f"{out.name}.part")
    try:
        with part.open("wb") as file:
            found = found.first(write_file(found.messages, FileFormat(kind), file))
        part.replace(out)
    except SparrowError:
        raise
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    say(f"{len(found.messages)} messages of {topic} written to {out}")
    _tell_bound(found)


def resend(
    topic: Topic,
    message_id: Annotated[str, typer.Argument(help="The id from `sparrow send`, or an offset id.")],
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Send a stored message to its topic once more, as a new one: every group of the topic gets it."""

    async def work() -> SendResult:
        from sparrowmq import aio
        from sparrowmq.cli.messages.sends import PRODUCER_GROUP
        from sparrowmq.coordinator.cluster.handmade import once_more

        address = namesrv_or_default(namesrv)
        async with (
            aio.Admin(namesrv=address) as admin,
            aio.Producer(PRODUCER_GROUP, namesrv=address) as sender,
        ):
            found = await admin.messages.get(topic, message_id)
            if found is None:
                raise UsageError(f"topic {topic} has no message with id {message_id}")
            return await sender.send(once_more(found), hash_key=found.key)

    sent = run(work())
    if as_json:
        print_json({"message_id": sent.message_id, "queue": str(sent.queue), "offset": sent.queue_offset})
    else:
        say(f"{message_id} sent again as {sent.message_id} to {sent.queue} at offset {sent.queue_offset}")


def _listed(topic: str, at: list[str], namesrv: str | None) -> SearchResult:
    """The messages at some places."""

    async def work() -> SearchResult:
        from sparrowmq import aio
        from sparrowmq.coordinator.cluster.looking import one_at, place_in
        from sparrowmq.coordinator.cluster.message_search import SearchResult

        places = [place_in(topic, one) for one in at]
        async with aio.PullConsumer(namesrv=namesrv_or_default(namesrv)) as reader:
            return SearchResult([await one_at(reader, *one) for one in places])

    return run(work())


def _sought(
    topic: str, tags: str, sql: str, span: tuple[Time, Time], count: int, namesrv: str | None
) -> SearchResult:
    from sparrowmq.coordinator.cluster.exporting import BYTES_MAX
    from sparrowmq.coordinator.cluster.message_search import TIME_MAX, MessageSearch, expression_of
    from sparrowmq.coordinator.cluster.message_search import search as seek

    begin, end = map(millis, span)
    expression = expression_of(tags, sql)
    wish = MessageSearch(topic, expression, begin or 0, TIME_MAX if end is None else end, count)

    async def work() -> SearchResult:
        from sparrowmq import aio

        address = namesrv_or_default(namesrv)
        async with aio.Admin(namesrv=address) as admin, aio.PullConsumer(namesrv=address) as reader:
            return await seek(admin, reader, wish, bytes_max=BYTES_MAX)

    return run(work())


def _tell_bound(found: SearchResult) -> None:
    sys.stdout.flush()
    for queue, why in sorted(found.failed.items()):
        complain(f"{queue} was not searched: {why}")
    if found.stopped_ms is not None:
        complain(f"{found.passed} messages were searched; from {when(found.stopped_ms)} on there may be more")
