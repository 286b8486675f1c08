"""Decides whose requests are handled next when the requests of all connections exceed one turn of the loop.

The time of all connections in one turn is limited. When it is used up, further requests wait, and the
connection that recently used the least time goes first: a client with few requests waits for one turn, no
matter how many others send without pause. This is start-time fair queueing, with the processing time of
requests as their length.
"""

from __future__ import annotations

import asyncio
import itertools
from heapq import heappop, heappush
from time import monotonic
from typing import Final, Protocol
from weakref import WeakKeyDictionary

TURN_SECONDS: Final = 0.01
"""Seconds that the requests of all connections may take in one turn of the loop."""
NOTED_SECONDS: Final = 0.001
"""Smaller totals are not checked at the end of a turn; at most `PART_SECONDS`."""
PART_SECONDS: Final = 0.001
"""Chunks that take at least this long are recorded as parts of their turn; many short parts can make a long
turn.
"""


class TurnTaker(Protocol):
    """A connection with waiting requests. `used` is its position in the order of used time."""

    used: float

    def go_on(self) -> None:
        """Handle waiting requests; pass those that still wait to `Turns.wait`."""


class Turns:
    """The turns of one loop. `spent` is the time that the requests of this turn took so far, in seconds; once
    it reaches `seconds`, further requests wait.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, seconds: float = TURN_SECONDS) -> None:
        self._loop = loop
        self.seconds = seconds
        self._queue: list[tuple[float, int, TurnTaker]] = []
        self._numbers = itertools.count()
        self._now = 0.0
        self._planned = False
        self._served: TurnTaker | None = None
        self._waits_again = False
        self.spent = 0.0

    def __repr__(self) -> str:
        return f"<Turns {len(self._queue)} connections wait>"

    def note(self, guest: TurnTaker, seconds: float) -> None:
        """Record that a connection's requests took this long; `spent` already includes it."""
        guest.used = max(guest.used, self._now) + seconds
        self._plan()

    def wait(self, guest: TurnTaker) -> None:
        """Continue with a connection when it is its turn. Do not call it again before then."""
        if guest is self._served:
            self._waits_again = True
            return
        heappush(self._queue, (max(guest.used, self._now), next(self._numbers), guest))
        self._plan()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._planned = False
        self.spent = 0.0
        while self._queue and self.spent < self.seconds:
            start, _, guest = heappop(self._queue)
            self._now = max(self._now, start)
            self._serve(guest, start)
        if self._queue or self.spent >= NOTED_SECONDS:
            self._plan()

    def _serve(self, guest: TurnTaker, start: float) -> None:
        self._served, self._waits_again = guest, False
        began = monotonic()
        try:
            guest.go_on()
        finally:
            self._served = None
            took = monotonic() - began
            self.spent += took
            guest.used = start + took
            if self._waits_again:
                self.wait(guest)
            if self._queue:
                self._plan()


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


def turns_of(loop: asyncio.AbstractEventLoop) -> Turns:
    """The turns of a loop, shared by the servers on it."""
    found = _shared.get(loop)
    if found is None:
        found = _shared[loop] = Turns(loop)
    return found
