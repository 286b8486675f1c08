"""POP and NOTIFICATION requests that wait for messages (broker:13.9), with keys and deadlines."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparrowmq.protocol.frame import Command
    from sparrowmq.transport.connection import Connection

WAITING_MAX: Final = 100_000
"""Waiting requests of all clients (`maxPopPollingSize`)."""
WAITING_OF_KEY_MAX: Final = 1024
"""Requests that wait for the same queue of a topic for the same group (`popPollingSize`)."""
WAITING_BYTES: Final = 1500
"""Memory of a waiting request in addition to the texts of its header."""
ALL_QUEUES: Final = -1

K = TypeVar("K", bound=Hashable)


class WaitKey(NamedTuple):
    """What requests wait for: messages of a queue, or of all (-1), for a group."""

    topic: str
    group: str
    queue_id: int


@dataclass(slots=True, eq=False)
class WaitingRequest:
    """One waiting request. `born_time` is when its client sent it, `deadline` when it is answered in any
    case, epoch ms; `resume` handles it again; its argument says whether the deadline has passed. `topics` are
    those whose messages it may get.
    """

    connection: Connection
    command: Command
    key: WaitKey
    topics: tuple[str, ...]
    born_time: int
    deadline: int
    resume: Callable[[WaitingRequest, bool], None]
    _gone: bool = False

    @property
    def is_gone(self) -> bool:
        """Whether it no longer waits."""
        return self._gone

    def wait(self, *, ended: bool) -> None:
        """It begins to wait, or has ended."""
        self._gone = ended

    @property
    def size(self) -> int:
        """Approximate memory in bytes."""
        return WAITING_BYTES + sum(len(name) + len(text) for name, text in self.command.ext.items())


Requests = dict[WaitingRequest, None]
"""Requests in order of arrival."""


class WaitingTable:
    """The waiting requests of one kind, by what they wait for and by connection.

    `newest_first` decides which of several gets a message: RocketMQ serves the oldest POP, but the newest
    NOTIFICATION.
    """

    def __init__(self, *, newest_first: bool = False) -> None:
        self._newest_first = newest_first
        self._by_key: dict[WaitKey, Requests] = {}
        self._by_connection: dict[Connection, Requests] = {}
        self._keys: dict[str, dict[WaitKey, int]] = {}
        """By topic, the keys that wait for it and how many requests each has."""
        self._deadlines: list[tuple[int, int, WaitingRequest]] = []
        self._numbers = count()
        self.count = 0

    def park(self, one: WaitingRequest) -> bool:
        """Let a request wait; False when too many wait, or memory is short."""
        if self.count >= WAITING_MAX or len(self._by_key.get(one.key, ())) >= WAITING_OF_KEY_MAX:
            return False
        if not one.connection.charge(one.size):
            return False
        one.wait(ended=False)
        self._by_key.setdefault(one.key, {})[one] = None
        self._by_connection.setdefault(one.connection, {})[one] = None
        for topic in one.topics:
            keys = self._keys.setdefault(topic, {})
            keys[one.key] = keys.get(one.key, 0) + 1
        heapq.heappush(self._deadlines, (one.deadline, next(self._numbers), one))
        self.count += 1
        return True

    def number(self, key: WaitKey) -> int:
        """How many requests wait for the same."""
        return len(self._by_key.get(key, ()))

    def keys_of(self, topic: str, queue_id: int, *, is_retry: bool) -> list[WaitKey]:
        """The keys that wait for a message of a queue. Messages of a retry topic wake the keys of every
        queue.
        """
        keys = self._keys.get(topic)
        if not keys:
            return []
        return [key for key in keys if is_retry or key.queue_id in (ALL_QUEUES, queue_id)]

    def take(self, key: WaitKey) -> WaitingRequest | None:
        """Remove and return the request whose turn it is; None if none waits."""
        waiting = self._by_key.get(key)
        if not waiting:
            return None
        one = next(reversed(waiting) if self._newest_first else iter(waiting))
        self._remove(one)
        return one

    def take_expired(self, now_ms: int) -> list[WaitingRequest]:
        """Remove and return the requests whose deadline has passed."""
        taken = []
        while self._deadlines and (self._deadlines[0][2].is_gone or self._deadlines[0][0] <= now_ms):
            one = heapq.heappop(self._deadlines)[2]
            if not one.is_gone:
                self._remove(one)
                taken.append(one)
        return taken

    def take_all(self) -> list[WaitingRequest]:
        """Remove and return all requests."""
        return self._take([one for waiting in self._by_key.values() for one in waiting])

    def take_topic(self, topic: str) -> list[WaitingRequest]:
        """Remove and return the requests for a topic that is deleted."""
        keys = [key for key in self._by_key if key.topic == topic]
        return self._take([one for key in keys for one in self._by_key[key]])

    def drop_connection(self, connection: Connection) -> None:
        """Remove the requests of a closed connection."""
        self._take(list(self._by_connection.get(connection, ())))

    def _take(self, requests: Iterable[WaitingRequest]) -> list[WaitingRequest]:
        taken = list(requests)
        for one in taken:
            self._remove(one)
        return taken

    def _remove(self, one: WaitingRequest) -> None:
        one.wait(ended=True)
        _drop(self._by_key, one.key, one)
        _drop(self._by_connection, one.connection, one)
        for topic in one.topics:
            keys = self._keys[topic]
            keys[one.key] -= 1
            if not keys[one.key]:
                del keys[one.key]
                if not keys:
                    del self._keys[topic]
        one.connection.charge(-one.size)
        self.count -= 1
        if len(self._deadlines) > 2 * self.count + 1000:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].is_gone]
            heapq.heapify(self._deadlines)


def _drop(table: dict[K, Requests], key: K, one: WaitingRequest) -> None:
    waiting = table[key]
    del waiting[one]
    if not waiting:
        del table[key]
