"""The grants of a member of a managed group, and the process queues that heed them (pmq:3.14).

`Grants` decides which queues may be read, under which generation and until when; The parts of a consumer are
created with `Leases`. Requests carry the generation it gives, handlers start while it lets them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sparrowmq.client.consumer.process_queue import Limits, ProcessQueue
from sparrowmq.core.grants import Grants
from sparrowmq.core.message import MessageQueue

NOT_GRANTED: Final = -1
"""The generation of a queue without a grant, which no grant has."""


class LeasedQueue(ProcessQueue):
    """A process queue that was started under a grant. Handlers may start while the grant and the lease are
    valid (`Grants.may_start`); between two leases they pause, and continue under the same generation.
    """

    __slots__ = ("_generation", "_grants", "_monotonic")

    def __init__(
        self,
        grants: Grants,
        monotonic: Callable[[], float],
        queue: MessageQueue,
        offset: int,
        limits: Limits,
        *,
        now: float,
    ) -> None:
        super().__init__(queue, offset, limits, now=now)
        self._grants = grants
        self._monotonic = monotonic
        generation = grants.generation(queue)
        self._generation = NOT_GRANTED if generation is None else generation

    def may_start(self) -> bool:
        """Whether a handler may start on messages of it now."""
        return not self.leaving and self._grants.may_start(self.queue, self._generation, self._monotonic())


class Leases:
    """The grants of one consumer, and its process queues. `monotonic` gives seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self.grants = Grants()
        """The current grants."""
        self._lives: dict[MessageQueue, list[ProcessQueue]] = {}
        """Process queues of a queue that may have running handlers, including the latest."""

    def __repr__(self) -> str:
        return f"<Leases {self.grants!r}>"

    def begin_again(self) -> None:
        """Start without grants, as another member."""
        self.grants = Grants()

    def generation(self, queue: MessageQueue) -> int | None:
        """The generation for requests about a queue."""
        return self.grants.generation(queue)

    def make_queue(
        self, queue: MessageQueue, next_offset: int, limits: Limits, *, now: float
    ) -> ProcessQueue:
        """A process queue that respects the lease."""
        made = LeasedQueue(self.grants, self._monotonic, queue, next_offset, limits, now=now)
        self._lives[queue] = [*self.at_work(queue), made]
        return made

    def at_work(self, queue: MessageQueue) -> list[ProcessQueue]:
        """The process queues of a queue that have running handlers."""
        return [life for life in self._lives.get(queue, ()) if life.running]

    def forget(self, queue: MessageQueue) -> None:
        """Forget a queue: it has no running handlers any more."""
        self._lives.pop(queue, None)
