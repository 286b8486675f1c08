"""The lag of a group in a queue. Pure.

Unknown is not zero: if a group has never committed an offset of a queue, its lag there is unknown, because
its first member decides where it begins.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueLag:
    """Messages of one queue that a group has not consumed, and the offset of the oldest of them."""

    messages: int
    oldest: int


def queue_lag(committed: int | None, first: int, end: int) -> QueueLag | None:
    """The lag of a group whose committed offset is `committed`, in a queue with messages from `first` up to
    `end`.

    None when it is unknown. Messages that were deleted before the group read them no longer wait. An offset
    beyond the end counts as the end.
    """
    if committed is None or committed < 0:
        return None
    oldest = min(max(committed, first), end)
    return QueueLag(end - oldest, oldest)


def age_ms(stored_ms: int | None, now_ms: int) -> int | None:
    """How long a message has waited; None when its store time is unknown."""
    return None if stored_ms is None or stored_ms <= 0 else max(0, now_ms - stored_ms)


@dataclass(slots=True)
class LagSum:
    """The lag of a group in `queues` queues. `age_ms` is that of the oldest message.

    Queues in which nothing waits need not be added.
    """

    messages: int = 0
    age_ms: int | None = 0
    unknown: int = 0
    """Queues whose lag is unknown; they are not in `messages`."""
    queues: int = 0

    def add(self, lag: QueueLag | None, age: int | None) -> None:
        """Add a queue; `age` is that of its oldest waiting message, None when it is unknown."""
        if lag is None:
            self.add_unknown()
            return
        self.messages += lag.messages
        if not lag.messages or self.age_ms is None:
            return
        self.age_ms = None if age is None else max(self.age_ms, age)

    def add_unknown(self) -> None:
        """Add a queue whose lag is unknown."""
        self.unknown += 1

    @property
    def is_known(self) -> bool:
        """Whether anything is known about at least one queue."""
        return self.unknown < self.queues
