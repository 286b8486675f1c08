"""Sends each request code its hostile requests while a second client pings; tells its longest stall."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.hostile.shapes import Entry
from tests.hostile.wire import Pings
from tests.hostile.world import World

from sparrowmq.core.stalls import Stall


@dataclass(frozen=True)
class Found:
    """What became of one code. Times in ms; `stall` is 0 when none was noted, `waited` is the pings'."""

    entry: Entry
    stall: float
    waited: float
    worst: Stall | None


def measure(worlds: dict[str, World], entries: Iterable[Entry]) -> Iterator[Found]:
    """One after the other, each on a connection of its own."""
    for entry in entries:
        world = worlds[entry.kind]
        with world.wire() as watching, world.wire() as pinging:
            before, _ = watching.stalls()
            with Pings(pinging) as pings:
                _send(world, entry)
            assert pings.count, "nobody was served"
            after, last = watching.stalls()
        worst = max(last[: after - before], key=lambda one: one.own_ms, default=None)
        stall = 0.0 if worst is None else worst.own_ms
        yield Found(entry, stall, pings.longest * 1000, worst)


def _send(world: World, entry: Entry) -> None:
    wire = world.wire()
    for asks in entry.asks(world):
        data, count = wire.frames(entry.code, asks)
        if not wire.send(data) or wire.answers(count) is None:
            wire.socket.close()  # it was too much for the server, which said so or closed
            wire = world.wire()
    wire.socket.close()
