"""`sparrow hold …`: messages that brokers keep until a group has consumed them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sparrowmq.cli.base.common import AsJson, Namesrv, print_json, print_table, tell, with_admin
from sparrowmq.cli.base.times import when

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
    group: Annotated[str, typer.Argument(help="The group, for example that of an archive.")],
    hours: Annotated[int, typer.Option(help="Maximum age of the oldest message.")] = HOURS,
    size_max: Annotated[int, typer.Option(help="Maximum bytes of log to keep for it; 0: no limit.")] = 0,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Keep a topic's messages, regardless of their age, until a group has consumed them; or change it."""
    with_admin(namesrv, lambda admin: admin.holds.set(topic, group, hours=hours, size_max=size_max))
    made = {"topic": topic, "group": group, "hours": hours, "size_max": size_max}
    tell(made, f"messages of {topic} are kept until {group} has consumed them, up to {hours} hours", as_json)


@app.command("release")
def release(topic: Topic, namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """Release a hold: retention applies to the topic again."""
    with_admin(namesrv, lambda admin: admin.holds.delete(topic))
    tell({"released": topic}, f"the hold on messages of {topic} is released", as_json)


@app.command("list")
def show(namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """List all holds, the lag of their groups, and holds that exceeded their limits."""
    found = with_admin(namesrv, lambda admin: admin.holds.list())
    if as_json:
        print_json(*map(asdict, found))
        return
    columns = ("topic", "broker", "group", "hours", "bytes", "waiting", "oldest", "state")
    print_table(columns, [_row(hold) for hold in found], right=("hours", "bytes", "waiting"))


def _row(hold: HoldStatus) -> tuple[object, ...]:
    state = f"gave way: {hold.overrun}" if hold.overrun else "holds"
    limit = hold.size_max or "–"
    oldest = when(hold.oldest_ms)
    return (hold.topic, hold.broker_name, hold.group, hold.hours, limit, hold.messages, oldest, state)
