"""A member's side of a managed group: which queues it may read, until when, and which it has to release
(pmq:3.14).

Pure: requests and answers come in as values with the member's own monotonic time. A lease starts when its
request was sent. The coordinator starts it when the request arrives, so the lease always expires here first.

A queue is *leaving* if an answer does not grant it under the generation that the member has: no further
handler starts on it. When the running handlers have ended and their offsets are committed, the queue is
*released*. The next requests report this until an answer no longer asks for it.

When the lease expires, no queue is given up, but handlers pause. If the next answer still grants a queue
under the same generation, no other member had it, and the handlers continue with their unfinished messages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Final

from sparrowmq.core.errors import InvalidStateError
from sparrowmq.core.message import MessageQueue

RELEASED_MAX: Final = 1000
"""Maximum released queues per request, because the coordinator limits the size of requests."""


class Holding(Enum):
    """A member's state of a queue."""

    HELD = "held"
    LEAVING = "leaving"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class Orders:
    """A coordinator's answer to a member.

    `granted` queues may be read under their generation; `revoked` ones, with the generation the member had,
    are to be released. `lease` is in seconds.
    """

    revision: int
    lease: float
    granted: Mapping[MessageQueue, int] = field(default_factory=dict)
    revoked: Mapping[MessageQueue, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """A member's request to a coordinator: the orders it knows, and the queues it has released.

    `number` counts the member's requests; a request that arrives after a later one is ignored.
    """

    number: int
    revision: int
    released: Mapping[MessageQueue, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes in an answer: queues to start, and queues to stop and drain."""

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
        """The generation for requests about a queue; also while it is leaving, for the last commit."""
        found = self._queues.get(queue)
        return None if found is None or found[1] is Holding.RELEASED else found[0]

    def held(self) -> list[MessageQueue]:
        """Queues whose messages may be handled, sorted."""
        return sorted(queue for queue, (_, state) in self._queues.items() if state is Holding.HELD)

    @property
    def is_empty(self) -> bool:
        """Whether the member has no queue, not even one to release."""
        return not self._queues

    def may_start(self, queue: MessageQueue, generation: int, now: float) -> bool:
        """Whether a handler may start on messages that were pulled under `generation`."""
        return now < self._lease_end and self._queues.get(queue) == (generation, Holding.HELD)

    def report(self) -> Report:
        """The next request. It reports the first released queues; the others follow when these are
        confirmed.
        """
        self._reports += 1
        done = ((q, number) for q, (number, state) in self._queues.items() if state is Holding.RELEASED)
        return Report(self._reports, self._revision, dict(islice(done, RELEASED_MAX)))

    def obey(self, orders: Orders, sent: float) -> Changes:
        """Apply the answer to a request that was sent at `sent`. Answers that arrive out of order are
        ignored.

        A queue that is granted again while it is leaving starts after it is released.
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
            if queue not in self._queues:  # granted and revoked before this member knew it
                self._queues[queue] = (number, Holding.RELEASED)
        begin = {queue: number for queue, number in orders.granted.items() if queue not in self._queues}
        self._queues.update((queue, (number, Holding.HELD)) for queue, number in begin.items())
        return Changes(begin, tuple(sorted(stop)))

    def released(self, queue: MessageQueue) -> None:
        """The handlers of a leaving queue have ended and their results are committed or refused.

        Raises `InvalidStateError` for a queue that is not leaving.
        """
        number, state = self._queues.get(queue, (0, None))
        if state is not Holding.LEAVING:
            text = f"{queue} is {state.value if state else 'not held'}, not leaving"
            raise InvalidStateError(text, what="queue", value=queue)
        self._queues[queue] = (number, Holding.RELEASED)

    def give_up(self) -> tuple[MessageQueue, ...]:
        """Stop all held queues: the member leaves, or the coordinator has removed it."""
        held = [queue for queue, (_, state) in self._queues.items() if state is Holding.HELD]
        for queue in held:
            self._queues[queue] = (self._queues[queue][0], Holding.LEAVING)
        return tuple(sorted(held))
