"""Figures of a server's listener and loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparrowmq.core.figures.exposition import Exposition, labels

if TYPE_CHECKING:
    from sparrowmq.core.stalls import StallBook
    from sparrowmq.transport.server import Listener


def add_server_figures(into: Exposition, node: str, server: Listener[Any]) -> None:
    """Add connections, their memory, and the loop's stalls. `node` has the labels of the server."""
    account = server.account
    add_stalls(into, node, server.watch.book)
    used = into.gauge("sparrow_bound_used", "How much of a bound is used.")
    most = into.gauge("sparrow_bound_max", "The bound.")
    for name, value, limit in (
        ("connections", len(server.connections), server.connections_max),
        ("connection_memory_bytes", account.total, account.limit),
    ):
        label = labels(node, bound=name)
        used.add(label, value)
        most.add(label, limit)


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
