"""`sparrow topic update|perm|order|producers`: a topic's queues, who may use it, and who does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparrowmq.cli.base.common import (
    AsJson,
    Namesrv,
    UsageError,
    print_json,
    print_table,
    say,
    with_admin,
)
from sparrowmq.cli.cluster.topics import PERMISSIONS, Topic

if TYPE_CHECKING:
    from sparrowmq import aio


def update(
    topic: Topic,
    read_queues: Annotated[int | None, typer.Option(min=1, max=1024, help="Queues to read.")] = None,
    write_queues: Annotated[int | None, typer.Option(min=1, max=1024, help="Queues to write.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also if nobody reads the messages of other queues any more.")
    ] = False,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Change a topic's numbers of queues at each of its brokers. What is not named stays."""
    if read_queues is None and write_queues is None:
        raise UsageError("give --read-queues, --write-queues or both")

    found = with_admin(
        namesrv,
        lambda admin: admin.topics.set_queues(
            topic, read_queues=read_queues, write_queues=write_queues, force=force
        ),
    )
    for name, one in found.items():
        row = {"broker": name, "read_queues": one.read_queue_nums, "write_queues": one.write_queue_nums}
        text = (
            f"{topic}: {row['read_queues']} queues to read, {row['write_queues']} to write on {row['broker']}"
        )
        print_json(row) if as_json else say(text)


def perm(
    topic: Topic,
    value: Annotated[
        int, typer.Argument(metavar="PERM", min=0, max=7, help="2 write, 4 read, 6 both, 0 neither.")
    ],
    broker: Annotated[str | None, typer.Option(help="Only at this broker.")] = None,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Change who may use a topic, at all its brokers or at one. Its queues and attributes stay."""
    brokers = with_admin(namesrv, lambda admin: admin.topics.set_perm(topic, value, broker_name=broker))
    if as_json:
        print_json({"topic": topic, "perm": value, "brokers": brokers})
        return
    say(f"{topic}: {PERMISSIONS.get(value, value)} on {', '.join(brokers)}")


def order(
    topic: Topic,
    queues: Annotated[
        list[str] | None, typer.Argument(metavar="BROKER=QUEUES…", help="Queues of each broker; none: show.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Make it an ordinary topic again.")] = False,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Show or set the brokers and queues that routes of an ordered topic name, whether they are there or not.

    For example: `sparrow topic order Orders broker-a=4 broker-b=4`
    """
    wanted = dict(_pair(text) for text in queues or ())
    if wanted and clear:
        raise UsageError("give either queues or --clear")

    async def work(admin: aio.Admin) -> dict[str, int]:
        if wanted or clear:
            await admin.name_servers.set_order_conf(topic, wanted)
        return await admin.name_servers.order_conf(topic)

    found = with_admin(namesrv, work)
    if as_json:
        print_json({"topic": topic, "queues": found})
    elif found:
        say(f"{topic}: {', '.join(f'{name}={number}' for name, number in found.items())}")
    else:
        say(f"{topic} is not an ordered topic")


def _pair(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition("=")
    if not name or not number.isdecimal():
        raise UsageError(f"{text!r} is not a number of queues; write BROKER=QUEUES, for example broker-a=4")
    return name, int(number)


def producers(
    topic: Topic,
    group: Annotated[str, typer.Argument(help="Name of the producer group.")],
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """List the connected producers of a group at the brokers of a topic."""

    async def work(admin: aio.Admin) -> list[dict[str, Any]]:
        return [
            {
                "client": one.client_id,
                "address": one.address,
                "language": one.language,
                "version": one.version,
            }
            for one in await admin.producers.connections(group, topic)
        ]

    rows = with_admin(namesrv, work)
    if as_json:
        print_json(*rows)
        return
    print_table(("client", "address", "language", "version"), [tuple(row.values()) for row in rows])
