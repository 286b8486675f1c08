"""Figures of a server's listener and loop, and how a server's figures are collected."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Executor
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.core.figures.bounds import Bound, add_bounds
from sparrowmq.core.figures.exposition import Aside, Collecting, Exposition
from sparrowmq.transport.slices import shared

if TYPE_CHECKING:
    from sparrowmq.core.stalls import StallBook
    from sparrowmq.transport.server import Listener


BURST_SECONDS: Final = 0.0005
"""How long another thread works for a collection until it pauses, so that the loop can run."""
PAUSE_SECONDS: Final = 0.0002


async def collected(collecting: Collecting, thread: Executor) -> None:
    """Do the steps of a collection: in slices of the loop, and those that are `Aside` in the thread."""
    loop, steps = asyncio.get_running_loop(), iter(collecting)
    while (aside := await shared().result(_until_aside(steps))) is not None:
        await loop.run_in_executor(thread, run_aside, aside.steps)


def _until_aside(steps: Iterator[Aside | None]) -> Generator[None, None, Aside | None]:
    for step in steps:
        if step is not None:
            return step
        yield
    return None


def run_aside(steps: Iterable[object]) -> None:
    """Do steps in a thread of their own. It pauses often: Python runs one thread at a time, and would let the
    loop wait for 5 ms whenever it has received something.
    """
    until = perf_counter() + BURST_SECONDS
    for _ in steps:
        if perf_counter() >= until:
            sleep(PAUSE_SECONDS)
            until = perf_counter() + BURST_SECONDS


def add_server_figures(into: Exposition, node: str, server: Listener[Any]) -> None:
    """Add connections, their memory, and the loop's stalls. `node` has the labels of the server."""
    add_stalls(into, node, server.watch.book)
    add_bounds(into, node, server_bounds(server))


def server_bounds(server: Listener[Any]) -> list[Bound]:
    """The bounds of a server's listener."""
    account = server.account
    return [
        Bound("connections", len(server.connections), server.connections_max),
        Bound("connection_memory_bytes", account.total, account.limit),
    ]


def add_stalls(into: Exposition, node: str, book: StallBook) -> None:
    """Add the stalls of a server's loop."""
    stalls = into.counter(
        "sparrow_stalls_total", "Turns of the loop that kept clients waiting for 50 ms or longer."
    )
    stalls.add(node, book.count)
    lost = into.counter("sparrow_stall_seconds_total", "Time of these turns.")
    lost.add(node, round(book.total_ms / 1000, 3))
    longest = into.gauge("sparrow_stall_seconds_max", "Longest of these turns.")
    longest.add(node, round(book.longest[0].own_ms / 1000, 3) if book.longest else 0)
