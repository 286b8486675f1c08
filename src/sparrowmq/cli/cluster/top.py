"""`sparrow top`, `sparrow group lag`: the current activity of a cluster and the lag of its groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from sparrowmq.cli.base.common import (
    AsJson,
    Namesrv,
    UsageError,
    complain,
    namesrv_or_default,
    print_json,
    print_table,
    run,
)

if TYPE_CHECKING:
    from rich.console import Console

    from sparrowmq.cli.cluster.cluster_look import ClusterWatch
    from sparrowmq.cli.cluster.cluster_rows import ClusterRows

System = Annotated[bool, typer.Option("--system", help="Include RocketMQ's own topics and groups.")]


def top(
    interval: Annotated[float, typer.Option(min=0.2, max=3600.0, help="Seconds between two updates.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Measure once, print the figures, and exit.")] = False,
    system: System = False,
    namesrv: Namesrv = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as one line of JSON.")] = False,
) -> None:
    """Show the current activity of a cluster: brokers, topics, groups, rates, lag and stalls.

    Unknown figures are shown as -, and are null in JSON. Without a terminal it prints the figures once.
    """
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    if console.is_terminal and not console.is_dumb_terminal and not once and not as_json:
        run(_live(console, interval, namesrv_or_default(namesrv), system=system))
        return
    rows = run(_twice(interval, namesrv_or_default(namesrv), system=system))
    if as_json:
        print_json(asdict(rows))
        return
    from sparrowmq.cli.cluster.top_view import TopChoice, view

    if console.is_terminal:
        console.print(view(rows, TopChoice(), width=console.width))
    else:  # in a pipe or file nothing is shortened
        Console(highlight=False, markup=False, width=10_000).print(view(rows, TopChoice()))


@asynccontextmanager
async def _watch(namesrv: str, *, system: bool) -> AsyncIterator[ClusterWatch]:
    from sparrowmq import aio
    from sparrowmq.cli.cluster.cluster_look import ClusterWatch
    from sparrowmq.core.clock import SystemClock

    async with aio.Admin(namesrv=namesrv) as admin, aio.PullConsumer(namesrv=namesrv) as reader:
        yield ClusterWatch(admin, reader, SystemClock(), system=system)


async def _live(console: Console, interval: float, namesrv: str, *, system: bool) -> None:
    from sparrowmq.cli.cluster.top_screen import TopScreen

    async with _watch(namesrv, system=system) as watch:
        await TopScreen(console, watch.look, interval).run()


async def _twice(interval: float, namesrv: str, *, system: bool) -> ClusterRows:
    from sparrowmq.cli.cluster.cluster_rows import rows_of

    async with _watch(namesrv, system=system) as watch:
        before = await watch.look()
        await asyncio.sleep(interval)
        return rows_of(before, await watch.look())


def lag(
    group: Annotated[str | None, typer.Argument(help="Only this group.")] = None,
    system: System = False,
    namesrv: Namesrv = None,
    as_json: AsJson = False,
) -> None:
    """Show how many messages wait for groups, and since when; unknown values are shown as -.

    A group that committed no offset of a queue has an unknown lag there: its first member decides where it
    begins.
    """

    async def work() -> ClusterRows:
        from sparrowmq.cli.cluster.cluster_rows import rows_of

        async with _watch(namesrv_or_default(namesrv), system=system or group is not None) as watch:
            return rows_of(None, await watch.look())

    rows = run(work())
    found = [one for one in rows.groups if group in (None, one.group)]
    if group is not None and not found:
        raise UsageError(f"no broker has an offset of group {group!r}; see `sparrow group list`")
    for name, why in rows.failed.items():
        complain(f"{name}: {why}; the figures do not include it")
    facts = [
        {
            "group": one.group,
            "lag_messages": one.lag_messages,
            "lag_seconds": one.lag_seconds,
            "unknown_queues": one.unknown_queues,
        }
        for one in found
    ]
    if as_json:
        print_json(*facts)
        return
    cells = [tuple("-" if value is None else value for value in row.values()) for row in facts]
    columns = ("group", "lag", "oldest waits for s", "unknown queues")
    print_table(columns, cells, right=columns[1:])
