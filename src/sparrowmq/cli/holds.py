"""`sparrow hold …`: messages that brokers keep until a group has consumed them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sparrowmq.cli.common import AsJson, Namesrv, namesrv_or_default, print_json, print_table, run
from sparrowmq.cli.times import when

if TYPE_CHECKING:
    from sparrowmq import HoldStatus

app = typer.Typer(
    help="Keep messages until a group has consumed them: set, list, release.", no_args_is_help=True
)
Topic = Annotated[str, typer.Argument(help="Name of the topic.")]
HOURS: Final = 168


@app.command("set")
def put(
    topic: Topic,
    group: Annotated[str, typer.Argument(help="The group, an archive's for example.")],
    hours: Annotated[int, typer.Option(help="The oldest message waits for so long at most.")] = HOURS,
    size_max: Annotated[
        int, typer.Option(help="At most so many bytes of log are kept for it; 0: no limit.")
    ] = 0,
    namesrv: Namesrv = None,
) -> None:
    """Keep a topic's messages, whatever their age, until a group has consumed them; or change that."""

    async def work() -> None:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            await admin.hold_messages(topic, group, hours=hours, size_max=size_max)

    run(work())
    print(f"messages of {topic} are kept until {group} has consumed them, up to {hours} hours")


@app.command("release")
def release(topic: Topic, namesrv: Namesrv = None) -> None:
    """Keep a topic's messages no longer than others."""

    async def work() -> None:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            await admin.release_messages(topic)

    run(work())
    print(f"messages of {topic} are no longer held")


@app.command("list")
def show(namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """All holds, how far behind their groups are, and which gave way."""

    async def work() -> list[HoldStatus]:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            return await admin.holds()

    found = run(work())
    if as_json:
        for hold in found:
            print_json(asdict(hold))
        return
    columns = ("topic", "broker", "group", "hours", "bytes", "waiting", "oldest", "state")
    print_table(columns, [_row(hold) for hold in found], right=("hours", "bytes", "waiting"))


def _row(hold: HoldStatus) -> tuple[object, ...]:
    state = f"gave way: {hold.overrun}" if hold.overrun else "holds"
    limit = hold.size_max or "–"
    oldest = when(hold.oldest_ms)
    return (hold.topic, hold.broker_name, hold.group, hold.hours, limit, hold.messages, oldest, state)
