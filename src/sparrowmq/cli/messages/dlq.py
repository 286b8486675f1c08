"""`sparrow dlq …`: messages that consumer groups failed to consume."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from sparrowmq.cli.base.common import (
    AsJson,
    Namesrv,
    UsageError,
    namesrv_or_default,
    print_json,
    print_table,
    run,
    say,
    tell,
    with_admin,
)
from sparrowmq.cli.base.times import when
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.names import dlq_topic, retry_topic
from sparrowmq.core.outside import json_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sparrowmq.aio import Admin, ResentLetter
    from sparrowmq.core.message import ReceivedMessage

app = typer.Typer(help="Dead letters: list, show, resend, purge, export.", no_args_is_help=True)

Group = Annotated[str, typer.Argument(help="Name of the consumer group.")]
PAGE: Final = 128


def _admin(namesrv: str | None) -> Admin:
    from sparrowmq import aio

    return aio.Admin(namesrv=namesrv_or_default(namesrv))


async def _letters(admin: Admin, group: str) -> AsyncIterator[ReceivedMessage]:
    """All dead letters of a group, page by page."""
    last: ReceivedMessage | None = None
    while page := await admin.dead_letters.list(group, count=PAGE, after=last):
        for letter in page:
            yield letter
        last = page[-1]


def _values(letter: ReceivedMessage) -> dict[str, Any]:
    own = letter.properties
    return {
        "message_id": letter.message_id,
        "topic": own.get("RETRY_TOPIC"),
        "broker": letter.queue.broker_name,
        "offset": letter.queue_offset,
        "tags": letter.tags,
        "keys": letter.keys,
        "tries": letter.reconsume_times,
        "born_ms": letter.born_timestamp,
        "stored_ms": letter.store_timestamp,
        "properties": own,
        "body": base64.b64encode(letter.body).decode(),
    }


@app.command("list")
def list_groups(namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """List the groups with dead letters, and their numbers."""
    found = with_admin(namesrv, lambda admin: admin.dead_letters.groups())
    if as_json:
        for status in found:
            print_json({"group": status.group, "messages": status.messages})
    else:
        rows = [(status.group, status.messages) for status in found]
        print_table(("group", "dead letters"), rows, right=("dead letters",))


@app.command("show")
def show(
    group: Group,
    count: Annotated[int, typer.Option(min=1, help="Maximum number, the oldest first.")] = 20,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Show a group's dead letters, oldest first."""
    letters = with_admin(namesrv, lambda admin: admin.dead_letters.list(group, count=count))
    if as_json:
        print_json(*map(_values, letters))
        return
    rows = [
        (
            letter.message_id,
            letter.properties.get("RETRY_TOPIC", "-"),
            letter.tags or "-",
            " ".join(letter.keys) or "-",
            letter.reconsume_times,
            when(letter.born_timestamp),
            letter.body[:60].decode(errors="replace"),
        )
        for letter in letters
    ]
    print_table(("message id", "topic", "tags", "keys", "tries", "born", "body"), rows, right=("tries",))


@app.command("resend")
def resend(
    group: Group,
    message_id: Annotated[list[str] | None, typer.Argument(help="Ids from `dlq show`.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All dead letters of the group.")] = False,
    rate: Annotated[
        float | None, typer.Option(min=0.01, help="Maximum letters per second. Default: no limit.")
    ] = None,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Deliver dead letters to their group again, through its retry topic. They also stay where they are.

    Brokers of RocketMQ make letters of a group that consumes in order dead again at once: the answer says so.
    """
    wanted = set(message_id or ())
    if not wanted and not everything:
        raise UsageError("give the ids of the dead letters to resend, or --all")
    if wanted and everything:
        raise UsageError("give either ids of dead letters or --all, not both")

    async def work(admin: Admin) -> tuple[list[ResentLetter], dict[str, str]]:
        told = await admin.dead_letters.resend(group, None if everything else wanted, rate=rate)
        return told, await _stored_in(admin, group, told)

    told, stored = with_admin(namesrv, work)
    rows = [
        (one.message_id, one.outcome, one.new_id or "-", stored.get(one.new_id) or one.reason or "-")
        for one in told
        if one.outcome != "missing"
    ]
    if rows and not as_json:
        print_table(("message id", "outcome", "new id", "stored in, or why not"), rows)
    sent = [one for one in told if one.outcome == "sent"]
    text = f"{len(sent)} sent again to group {group}"
    dead = [one.message_id for one in sent if stored[one.new_id] == dlq_topic(group)]
    if dead:
        text += f"; {len(dead)} of them became dead letters again at once: {', '.join(dead)}"
    letters = [asdict(one) for one in told]
    ids = [one.message_id for one in sent]
    topics = {one.message_id: stored[one.new_id] for one in sent}
    tell({"group": group, "sent": ids, "stored_in": topics, "letters": letters}, text, as_json)
    gone = [one.message_id for one in told if one.outcome == "missing"]
    if gone:
        raise UsageError(f"group {group} has no dead letter with the id {', '.join(gone)}")
    if len(sent) < len(told):
        raise UsageError(f"{len(told) - len(sent)} letters were not sent, for the reasons given")


async def _stored_in(admin: Admin, group: str, told: list[ResentLetter]) -> dict[str, str]:
    """The topic in which the broker stored each letter that was sent, by its new id; empty if it does not
    say.
    """
    found = {}
    for one in told:
        if one.outcome == "sent":
            try:
                stored = await admin.messages.get_by_offset_id(one.new_id, decompress=False)
            except SparrowError:  # what was sent is told all the same
                found[one.new_id] = ""
                continue
            found[one.new_id] = retry_topic(group) if stored is None else stored.queue.topic
    return found


@app.command("purge")
def purge(
    group: Group,
    yes: Annotated[bool, typer.Option("--yes", help="Delete them; without it nothing is done.")] = False,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Delete all dead letters of a group, with their topic at all brokers."""
    from sparrowmq.core.names import dlq_topic

    async def work(admin: Admin) -> int | None:
        known = {one.group: one.messages for one in await admin.dead_letters.groups()}
        if group in known and yes:
            await admin.topics.delete(dlq_topic(group))
        return known.get(group)

    count = with_admin(namesrv, work)
    if count is None:
        raise UsageError(f"group {group} has no dead letters")
    if not yes:
        raise UsageError(f"{count} dead letters of group {group} would be deleted; type --yes to do it")
    tell({"group": group, "deleted": count}, f"{count} dead letters of group {group} deleted", as_json)


@app.command("export")
def export(
    group: Group,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write. Default: standard output.")
    ] = None,
    namesrv: Namesrv = None,
) -> None:
    """Write all dead letters of a group as JSON lines, bodies in base64."""

    async def work(target: TextIO) -> int:
        count = 0
        async with _admin(namesrv) as admin:
            async for letter in _letters(admin, group):
                target.write(json_line(_values(letter)) + "\n")
                count += 1
        return count

    if out is None:
        run(work(sys.stdout))
        return
    try:
        with replacing(out) as target:
            count = run(work(target))
    except SparrowError:
        raise
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}") from None
    say(f"{count} dead letters of group {group} written to {out}")


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """A text file that replaces the file at `path` on success; otherwise that file stays unchanged.

    Anything but a regular file, such as `/dev/stdout`, is written directly. Raises `OSError`.
    """
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8") as target:
            yield target
        return
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w", encoding="utf-8") as target:
            yield target
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
