"""`sparrow message entries`: the entries of one consume queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparrowmq.cli.base.common import AsJson, Namesrv, print_json, print_table, with_admin

if TYPE_CHECKING:
    from sparrowmq import aio


def entries(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    broker: Annotated[str, typer.Argument(help="Name of the broker.")],
    queue: Annotated[int, typer.Argument(min=0, help="Number of the queue.")],
    first: Annotated[int, typer.Option("--from", min=0, help="First queue offset.")] = 0,
    count: Annotated[int, typer.Option(min=1, max=1000, help="Most entries to show.")] = 10,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Show the entries of a consume queue: where each message is in the log, and the code of its tag."""

    async def work(admin: aio.Admin) -> list[dict[str, Any]]:
        from sparrowmq.core.message import MessageQueue

        return [
            {
                "offset": one.offset,
                "physical_offset": one.physical_offset,
                "size": one.size,
                "tags_code": one.tags_code,
            }
            for one in await admin.topics.entries(MessageQueue(topic, broker, queue), first, count)
        ]

    rows = with_admin(namesrv, work)
    if as_json:
        print_json(*rows)
        return
    columns = ("offset", "physical offset", "bytes", "code of the tag")
    print_table(columns, [tuple(row.values()) for row in rows], right=columns)
