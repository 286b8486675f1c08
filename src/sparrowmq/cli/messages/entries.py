"""`sparrow message entries`: the entries of one consume queue."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sparrowmq.cli.base.common import AsJson, Namesrv, namesrv_or_default, print_json, print_table, run


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

    async def work() -> list[dict[str, Any]]:
        from sparrowmq import aio
        from sparrowmq.core.message import MessageQueue

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            return [
                {
                    "offset": one.offset,
                    "physical_offset": one.physical_offset,
                    "size": one.size,
                    "tags_code": one.tags_code,
                }
                for one in await admin.topics.entries(MessageQueue(topic, broker, queue), first, count)
            ]

    rows = run(work())
    if as_json:
        for row in rows:
            print_json(row)
        return
    columns = ("offset", "physical offset", "bytes", "code of the tag")
    print_table(columns, [tuple(row.values()) for row in rows], right=columns)
