"""Held pulls: requests that wait for a message to arrive or for their time to run out (broker:5.6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sparrowmq.broker.filters import Wanted
    from sparrowmq.protocol.hot import PullFrame
    from sparrowmq.store.consume_queue import ConsumeQueue
    from sparrowmq.transport.connection import Connection

HELD_PULLS_MAX: Final = 100_000
"""As many as the reference's pull queue holds; beyond it a pull is answered at once."""


@dataclass(slots=True, eq=False)
class HeldPull:
    """One parked request. `deadline` is monotonic seconds, `scanned` the queue offset before which nothing is
    wanted, where that is known.
    """

    connection: Connection
    frame: PullFrame
    queue: ConsumeQueue
    wanted: Wanted
    deadline: float
    scanned: int = 0


class HoldTable:
    """The pulls that wait, by queue."""

    def __init__(self, limit: int = HELD_PULLS_MAX) -> None:
        self._limit = limit
        self._by_queue: dict[ConsumeQueue, list[HeldPull]] = {}
        self.count = 0

    def park(self, held: HeldPull) -> bool:
        """Keep a pull; False when the table is full."""
        if self.count >= self._limit:
            return False
        self._by_queue.setdefault(held.queue, []).append(held)
        self.count += 1
        return True

    def take(self, queue: ConsumeQueue) -> list[HeldPull]:
        """Remove and return the pulls that wait on `queue`."""
        held = self._by_queue.pop(queue, [])
        self.count -= len(held)
        return held

    def take_expired(self, now: float) -> list[HeldPull]:
        """Remove and return the pulls whose time is up."""
        return self._take_where(lambda held: held.deadline <= now)

    def drop_connection(self, connection: Connection) -> None:
        """Forget the pulls of a connection that is gone."""
        self._take_where(lambda held: held.connection is connection)

    def drop_topic(self, topic: str) -> list[HeldPull]:
        """Remove and return the pulls of a topic that is being deleted."""
        return self._take_where(lambda held: held.queue.topic == topic)

    def take_group(self, group: str) -> list[HeldPull]:
        """Remove and return the pulls of a consumer group."""
        return self._take_where(lambda held: held.frame.fields.consumer_group == group)

    def _take_where(self, gone: Callable[[HeldPull], bool]) -> list[HeldPull]:
        taken: list[HeldPull] = []
        for queue in list(self._by_queue):
            waiting = self._by_queue[queue]
            leaving = [held for held in waiting if gone(held)]
            if not leaving:
                continue
            taken += leaving
            staying = [held for held in waiting if not gone(held)]
            if staying:
                self._by_queue[queue] = staying
            else:
                del self._by_queue[queue]
        self.count -= len(taken)
        return taken
