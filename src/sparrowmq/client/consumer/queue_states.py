"""The states of a process queue, and the transitions that events cause.

A process queue has three states: its life cycle, whether its broker has locked it for this member, and
whether a run of ordered consumption is in progress. Each has a table from state and event to the next state.
An event changes the state in every table that knows the event. It must not happen in a state for which such a
table has no entry. Pure; `ProcessQueue` has the methods for the events, and the messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, TypeVar


class _Key(Enum):
    """A key of the tables. Members are singletons, so lookups compare them by identity."""

    __hash__ = object.__hash__


class QueueEvent(_Key):
    """The events of a process queue."""

    LEAVE = "no more messages are delivered from it"
    DROP = "the queue is given up"
    LOCK_TAKEN = "its broker had locked it before the start"
    LOCK_RENEWED = "its broker granted the lock again, in time"
    LOCK_REFUSED = "another member has the lock"
    BROKER_LOST = "the connection to its broker was lost"
    MESSAGES_CAME = "something is in hand"
    NOTHING_LEFT = "a run found no messages"


class QueueLife(_Key):
    """Messages are handed out, and results count."""

    ACTIVE = "active"
    LEAVING = "leaving"
    """No more messages are handed out, because the queue will be dropped; running handlers may end."""
    DROPPED = "dropped"
    """Dropped: later results are discarded (client:C-53)."""


class QueueLock(_Key):
    """Whether the broker has locked the queue for this member (client:C.8)."""

    NONE = "none"
    """Not locked; the next renewal requests the lock."""
    HELD = "held"
    DOUBTFUL = "doubtful"
    """The connection was lost since the last renewal: the broker may have released the lock."""
    WANTED = "wanted"
    """Not locked, and the connection was lost: the lock is requested soon, as when in doubt."""


class OrderedRun(_Key):
    """Ordered consumption (client:D-32)."""

    IDLE = "idle"
    DUE = "due"
    """A run is in progress, or will start."""


S = TypeVar("S", QueueLife, QueueLock, OrderedRun)
Table = Mapping[S, Mapping[QueueEvent, S]]

LIFE: Final[Table[QueueLife]] = {
    QueueLife.ACTIVE: {QueueEvent.LEAVE: QueueLife.LEAVING, QueueEvent.DROP: QueueLife.DROPPED},
    QueueLife.LEAVING: {QueueEvent.LEAVE: QueueLife.LEAVING, QueueEvent.DROP: QueueLife.DROPPED},
    QueueLife.DROPPED: {QueueEvent.LEAVE: QueueLife.DROPPED, QueueEvent.DROP: QueueLife.DROPPED},
}
LOCK: Final[Table[QueueLock]] = {
    QueueLock.NONE: {
        QueueEvent.LOCK_TAKEN: QueueLock.HELD,
        QueueEvent.LOCK_REFUSED: QueueLock.NONE,
        QueueEvent.BROKER_LOST: QueueLock.WANTED,
        QueueEvent.DROP: QueueLock.NONE,
    },
    QueueLock.HELD: {
        QueueEvent.LOCK_RENEWED: QueueLock.HELD,
        QueueEvent.LOCK_REFUSED: QueueLock.NONE,
        QueueEvent.BROKER_LOST: QueueLock.DOUBTFUL,
        QueueEvent.DROP: QueueLock.NONE,
    },
    QueueLock.DOUBTFUL: {
        QueueEvent.LOCK_RENEWED: QueueLock.HELD,
        QueueEvent.LOCK_REFUSED: QueueLock.WANTED,
        QueueEvent.BROKER_LOST: QueueLock.DOUBTFUL,
        QueueEvent.DROP: QueueLock.NONE,
    },
    QueueLock.WANTED: {
        QueueEvent.LOCK_REFUSED: QueueLock.WANTED,
        QueueEvent.BROKER_LOST: QueueLock.WANTED,
        QueueEvent.DROP: QueueLock.NONE,
    },
}
"""A missing lock is not renewed. The next process queue of this queue takes it: another member may have
consumed the queue meanwhile, so the buffered messages are useless.
"""
RUN: Final[Table[OrderedRun]] = {
    OrderedRun.IDLE: {QueueEvent.MESSAGES_CAME: OrderedRun.DUE, QueueEvent.NOTHING_LEFT: OrderedRun.IDLE},
    OrderedRun.DUE: {QueueEvent.MESSAGES_CAME: OrderedRun.DUE, QueueEvent.NOTHING_LEFT: OrderedRun.IDLE},
}
