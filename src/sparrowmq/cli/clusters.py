"""`sparrow cluster …` and `sparrow group …`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sparrowmq.cli.brokers import rate
from sparrowmq.cli.common import (
    AsJson,
    Namesrv,
    UsageError,
    namesrv_or_default,
    print_json,
    print_table,
    run,
)

cluster_app = typer.Typer(help="Clusters: list.", no_args_is_help=True)
group_app = typer.Typer(
    help="Consumer groups: progress, members, plans, policies, offsets.", no_args_is_help=True
)


@cluster_app.command("list")
def list_clusters(namesrv: Namesrv = None, as_json: AsJson = False) -> None:
    """Print clusters and their brokers, with versions and rates (messages a second, last 10 s)."""

    async def work() -> list[dict[str, Any]]:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            return [
                {
                    "cluster": found.cluster,
                    "broker": found.broker_name,
                    "id": found.broker_id,
                    "address": found.address,
                    "version": found.runtime.get("brokerVersionDesc", ""),
                    "in": rate(found.runtime, "putTps"),
                    "out": rate(found.runtime, "getTransferredTps"),
                    "error": found.error,
                }
                for found in await admin.broker_list()
            ]

    rows = run(work())
    if as_json:
        for row in rows:
            print_json(row)
        return
    print_table(
        ("cluster", "broker", "id", "address", "version", "in/s", "out/s"),
        [
            [row[name] or "-" if name == "version" else row[name] for name in row if name != "error"]
            for row in rows
        ],
        right=("id", "in/s", "out/s"),
    )


@group_app.command("list")
def list_groups(
    system: Annotated[bool, typer.Option("--all", help="RocketMQ's own groups as well.")] = False,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Print the names of all consumer groups."""

    async def work() -> list[str]:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            return await admin.group_list(system=system)

    for name in run(work()):
        print_json(name) if as_json else print(name)


@group_app.command("progress")
def progress(
    group: Annotated[str, typer.Argument(help="Name of the group.")],
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Print how far a group has come in each queue, and what waits for it."""

    async def work() -> list[dict[str, Any]]:
        from sparrowmq import aio

        async with aio.Admin(namesrv=namesrv_or_default(namesrv)) as admin:
            found = await admin.group_progress(group, topic)
            if not found and group not in await admin.group_list(system=True):
                raise UsageError(f"no broker knows group {group!r}; see the names with `sparrow group list`")
            return [
                {
                    "topic": place.queue.topic,
                    "broker": place.queue.broker_name,
                    "queue": place.queue.queue_id,
                    "broker_offset": place.broker_offset,
                    "consumer_offset": place.consumer_offset,
                    "lag": place.lag,
                }
                for place in found
            ]

    rows = run(work())
    if as_json:
        for row in rows:
            print_json(row)
        return
    print_table(
        ("topic", "broker", "queue", "broker offset", "consumer offset", "lag"),
        [tuple(row.values()) for row in rows],
        right=("queue", "broker offset", "consumer offset", "lag"),
    )
    print(f"{sum(row['lag'] for row in rows)} messages wait")
