"""A member's side of a managed group: which queues it may read, until when, and what it owes (pmq:3.14).

Pure: requests and answers come in as values with the member's own monotonic time. The lease that an answer
gives counts from the moment its request was sent, so it has always run out here before the coordinator, which
counts from the moment it heard, can think so.

A queue that is not among an answer's grants under the generation the member has is *leaving*: no handler
starts on it any more. When those at work have ended and their progress is committed, the queue is *released*,
which the next requests say until an answer no longer asks for it.

When the lease is over nothing is given up: handlers rest. If the next answer still grants a queue under the
same generation, nobody else had it, and they go on with what is in hand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from sparrowmq.core.errors import InvalidStateError
from sparrowmq.core.message import MessageQueue


class Holding(Enum):
    """What a member has of a queue."""

    HELD = "held"
    LEAVING = "leaving"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class Orders:
    """What a coordinator answers to a member.

    `granted` queues may be read under their generation; `revoked` ones, with the generation the member had,
    are to be released. `lease` is in seconds.
    """

    revision: int
    lease: float
    granted: Mapping[MessageQueue, int] = field(default_factory=dict)
    revoked: Mapping[MessageQueue, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """What a member asks a coordinator with: the orders it knows, and the queues it has released.

    `number` counts the member's requests: one that was overtaken on its way counts for nothing.
    """

    number: int
    revision: int
    released: Mapping[MessageQueue, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Changes:
    """What an answer changes: queues to begin with, and queues to stop and drain."""

    begin: Mapping[MessageQueue, int] = field(default_factory=dict)
    stop: tuple[MessageQueue, ...] = ()


class Grants:
    """The queues of one member of one group."""

    def __init__(self) -> None:
        self._queues: dict[MessageQueue, tuple[int, Holding]] = {}
        self._lease_end = -math.inf
        self._revision = 0
        self._reports = 0

    def __repr__(self) -> str:
        return f"<Grants revision={self._revision} queues={len(self._queues)}>"

    @property
    def lease_end(self) -> float:
        """When the lease ends, in the member's monotonic seconds."""
        return self._lease_end

    def generation(self, queue: MessageQueue) -> int | None:
        """The generation requests about a queue carry; also while it is leaving, for the last commit."""
        found = self._queues.get(queue)
        return None if found is None or found[1] is Holding.RELEASED else found[0]

    def held(self) -> list[MessageQueue]:
        """Queues whose messages are to be handled, sorted."""
        return sorted(queue for queue, (_, state) in self._queues.items() if state is Holding.HELD)

    @property
    def is_empty(self) -> bool:
        """Whether it has to do with no queue, not even to release one."""
        return not self._queues

    def may_start(self, queue: MessageQueue, generation: int, now: float) -> bool:
        """Whether a handler may start on messages that were pulled under `generation`."""
        return now < self._lease_end and self._queues.get(queue) == (generation, Holding.HELD)

    def report(self) -> Report:
        """What the next request says."""
        self._reports += 1
        released = {q: number for q, (number, state) in self._queues.items() if state is Holding.RELEASED}
        return Report(self._reports, self._revision, released)

    def obey(self, orders: Orders, sent: float) -> Changes:
        """Take over the answer to a request that was sent at `sent`. Answers that come out of order are old.

        A queue whose new grant comes while the old one is still leaving begins when that is released.
        """
        if orders.revision < self._revision:
            return Changes()
        self._revision = orders.revision
        self._lease_end = max(self._lease_end, sent + orders.lease)
        stop = []
        for queue, (number, state) in list(self._queues.items()):
            if state is Holding.HELD and orders.granted.get(queue) != number:
                self._queues[queue] = (number, Holding.LEAVING)
                stop.append(queue)
            elif state is Holding.RELEASED and orders.revoked.get(queue) != number:
                del self._queues[queue]
        for queue, number in orders.revoked.items():
            if queue not in self._queues:  # granted and taken back before this member heard of it
                self._queues[queue] = (number, Holding.RELEASED)
        begin = {queue: number for queue, number in orders.granted.items() if queue not in self._queues}
        self._queues.update((queue, (number, Holding.HELD)) for queue, number in begin.items())
        return Changes(begin, tuple(sorted(stop)))

    def released(self, queue: MessageQueue) -> None:
        """The handlers of a leaving queue have ended and what they did is committed, or refused.

        Raises `InvalidStateError` for a queue that is not leaving.
        """
        number, state = self._queues.get(queue, (0, None))
        if state is not Holding.LEAVING:
            raise InvalidStateError(f"{queue} is {state.value if state else 'not held'}, not leaving")
        self._queues[queue] = (number, Holding.RELEASED)

    def give_up(self) -> tuple[MessageQueue, ...]:
        """Stop all queues that are held: the member goes, or the coordinator counts it out."""
        held = [queue for queue, (_, state) in self._queues.items() if state is Holding.HELD]
        for queue in held:
            self._queues[queue] = (self._queues[queue][0], Holding.LEAVING)
        return tuple(sorted(held))
