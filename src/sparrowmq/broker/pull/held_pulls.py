"""Held pulls: requests that wait for a message to arrive or for their time to run out (broker:5.6)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from sparrowmq.broker.members.filters import PullFilter
    from sparrowmq.protocol.hot import PullFrame
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.transport.connection import Connection

HELD_PULLS_MAX: Final = 100_000
"""Default limit, as many as the reference's pull queue holds; above it, pulls are answered at once."""

HELD_PULLS_OF_ONE_MAX: Final = 10_000
"""Limit per connection: a client holds one pull for each queue it reads."""
DROPPED_AT_ONCE: Final = 100
HELD_PULL_BYTES: Final = 1000
"""Memory of a held pull in addition to the texts of its request."""

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True, eq=False)
class HeldPull:
    """One held request. `deadline` is in monotonic seconds; `scanned` is the queue offset before which no
    message is requested, if that is known.
    """

    connection: Connection
    frame: PullFrame
    queue: ConsumeQueue
    wanted: PullFilter
    deadline: float
    scanned: int = 0

    @property
    def size(self) -> int:
        """Approximate memory in bytes."""
        fields = self.frame.fields
        return (
            HELD_PULL_BYTES + len(fields.subscription or "") + len(fields.topic) + len(fields.consumer_group)
        )


Pulls = dict[HeldPull, None]
"""Pulls in order of arrival."""


class HoldRoom:
    """The room that the tables of a broker share. `count` is the number of pulls in all of them."""

    def __init__(self, limit: int = HELD_PULLS_MAX) -> None:
        self._limit = limit
        self._of_one: dict[Connection, int] = {}
        self.count = 0

    def take(self, held: HeldPull) -> bool:
        """Take room for a pull; False when all is taken, its connection has too much or memory is short."""
        of_one = self._of_one.get(held.connection, 0)
        if self.count >= self._limit or of_one >= HELD_PULLS_OF_ONE_MAX:
            return False
        if not held.connection.charge(held.size):
            return False
        self._of_one[held.connection] = of_one + 1
        self.count += 1
        return True

    def give_back(self, held: HeldPull) -> None:
        """Give back the room of a pull."""
        left = self._of_one[held.connection] - 1
        if left:
            self._of_one[held.connection] = left
        else:
            del self._of_one[held.connection]
        self.count -= 1
        held.connection.charge(-held.size)


class HoldTable:
    """Waiting pulls, by queue and by connection.

    The cost of an event on a queue or a connection depends only on its own pulls, not on how many wait
    elsewhere.
    """

    def __init__(self, room: HoldRoom) -> None:
        self._room = room
        self._by_queue: dict[ConsumeQueue, Pulls] = {}
        self._by_connection: dict[Connection, Pulls] = {}
        self.count = 0

    def park(self, held: HeldPull) -> bool:
        """Hold a pull; False when there is no room for it."""
        if not self._room.take(held):
            return False
        _put(self._by_queue, held.queue, held)
        _put(self._by_connection, held.connection, held)
        self.count += 1
        return True

    def has(self, connection: Connection) -> bool:
        """Whether pulls of a connection wait."""
        return connection in self._by_connection

    def take(self, queue: ConsumeQueue) -> list[HeldPull]:
        """Remove and return the pulls that wait on `queue`."""
        waiting = self._by_queue.pop(queue, None)
        if waiting is None:
            return []
        for held in waiting:
            _drop(self._by_connection, held.connection, held)
            self._room.give_back(held)
        self.count -= len(waiting)
        return list(waiting)

    def take_expired(self, now: float) -> list[HeldPull]:
        """Remove and return the pulls that have timed out."""
        return self._take_where(lambda held: held.deadline <= now)

    def drop_connection(self, connection: Connection) -> Iterator[None]:
        """Remove the pulls of a closed connection, `DROPPED_AT_ONCE` in each step."""
        while waiting := self._by_connection.get(connection):
            for held in list(islice(waiting, DROPPED_AT_ONCE)):
                _drop(self._by_queue, held.queue, held)
                _drop(self._by_connection, connection, held)
                self._room.give_back(held)
                self.count -= 1
            yield

    def drop_topic(self, topic: str) -> list[HeldPull]:
        """Remove and return the pulls of a topic that is being deleted."""
        queues = [queue for queue in self._by_queue if queue.topic == topic]
        return [held for queue in queues for held in self.take(queue)]

    def take_group(self, group: str) -> list[HeldPull]:
        """Remove and return the pulls of a consumer group."""
        return self._take_where(lambda held: held.frame.fields.consumer_group == group)

    def _take_where(self, gone: Callable[[HeldPull], bool]) -> list[HeldPull]:
        taken = [held for waiting in self._by_queue.values() for held in waiting if gone(held)]
        for held in taken:
            _drop(self._by_queue, held.queue, held)
            _drop(self._by_connection, held.connection, held)
            self._room.give_back(held)
        self.count -= len(taken)
        return taken


def _put(table: dict[K, Pulls], key: K, held: HeldPull) -> None:
    waiting = table.get(key)
    if waiting is None:
        table[key] = {held: None}
    else:
        waiting[held] = None


def _drop(table: dict[K, Pulls], key: K, held: HeldPull) -> None:
    waiting = table[key]
    if len(waiting) > 1:
        del waiting[held]
    else:
        del table[key]
