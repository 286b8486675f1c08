"""Sends each request code its hostile requests while a second client pings; tells its longest stall."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

from tests.hostile.shapes import Entry
from tests.hostile.wire import Pings
from tests.hostile.world import World

from sparrowmq.core.stalls import Stall


@dataclass(frozen=True)
class Found:
    """What became of one code. Times in ms; `stall` is 0 when none was noted. `held` is the processor time of
    the loop that 99 of 100 pings waited for at most.
    """

    entry: Entry
    stall: float
    held: float
    worst: Stall | None


def measure(worlds: Mapping[str, World], entries: Iterable[Entry]) -> Iterator[Found]:
    """One after the other, each on a connection of its own."""
    for entry in entries:
        world = worlds[entry.kind]
        with closing(world.line()) as pinging:
            before, _ = world.stalls()
            with Pings(pinging.ping, world.pid) as pings:
                _send(world, entry)
            assert pings.held, "nobody was served"
            after, last = world.stalls()
        worst = max(last[: after - before], key=lambda one: one.own_ms, default=None)
        stall = 0.0 if worst is None else worst.own_ms
        yield Found(entry, stall, pings.p99 * 1000, worst)


def _send(world: World, entry: Entry) -> None:
    line = world.line()
    for asks in entry.asks(world):
        if not line.exchange(entry.code, asks):  # it was too much for the server, which closed the connection
            line.close()
            line = world.line()
    line.close()
