"""The unfinished messages of one queue: pulled and not yet processed, in order of offset (client:D.8).

The offset to commit is the smallest unfinished one, so a slow message delays the commit and is repeated after
a crash. A process queue belongs to one assignment of its queue. When the queue is given away, it is `dropped`
and later results are discarded (client:C-53); the next assignment makes a new one. Other modules report
events to it; `queue_states` defines its states and transitions.

Ordered consumption takes messages out in order, and commits or puts them back as a whole (client:D-34 to
D-37). It may do so only while the broker has locked the queue for this member.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from sparrowmq.client.consumer.queue_states import (
    LIFE,
    LOCK,
    RUN,
    OrderedRun,
    QueueEvent,
    QueueLife,
    QueueLock,
)
from sparrowmq.core.errors import InvariantError
from sparrowmq.core.message import MessageQueue, ReceivedMessage

LOCK_SECONDS_MAX: Final = 30.0
"""A lock that was not renewed for this long is no longer valid (client:C-30, D-42)."""
BROKER_LOCK_SECONDS: Final = 60.0
"""How long a broker keeps a lock that is not renewed; after that another member may have read the queue."""
PULL_SECONDS_MAX: Final = 120.0
"""A queue that was not pulled for this long has lost its pull loop (client:C.6, D-43)."""


_IDLE: Final = OrderedRun.IDLE
_HELD: Final = QueueLock.HELD
_RUN_AFTER_MESSAGES: Final = {run: row[QueueEvent.MESSAGES_CAME] for run, row in RUN.items()}
_RUN_AFTER_THE_LAST: Final = {run: row[QueueEvent.NOTHING_LEFT] for run, row in RUN.items()}
"""Columns that only the table of runs has: these events occur in every run."""
_OF_LOCKS: Final = frozenset(event for row in LOCK.values() for event in row) - {QueueEvent.DROP}


@dataclass(frozen=True, slots=True)
class Limits:
    """How many unfinished messages one queue may have before pulling pauses; the limits themselves are
    allowed (client:D-16).
    """

    messages: int = 1000
    bytes: int = 100 * 1024 * 1024
    span: int | None = 2000
    """Distance between smallest and largest offset; None for ordered consumption, which has no span limit."""


class MakeQueue(Protocol):
    """Creates the process queue of a queue."""

    def __call__(self, queue: MessageQueue, next_offset: int, limits: Limits, *, now: float) -> ProcessQueue:
        """A process queue whose next pull is at `next_offset`; `now` in monotonic seconds."""


class ProcessQueue:
    """The unfinished messages of `queue`. Only the event loop changes it; other threads may read flags.

    Its attributes are read-only for others; its methods change them.
    """

    __slots__ = (
        "_life",
        "_limits",
        "_lock",
        "_messages",
        "_order",
        "_room",
        "_run",
        "_taken",
        "_waiting",
        "broker_max_offset",
        "bytes",
        "dropped",
        "highest_offset",
        "last_consume",
        "last_lock",
        "last_pull",
        "leaving",
        "next_offset",
        "queue",
        "running",
        "unlock_tries",
    )

    def __init__(self, queue: MessageQueue, next_offset: int, limits: Limits, *, now: float = 0.0) -> None:
        self.queue = queue
        self.next_offset = next_offset
        """Queue offset of the next pull."""
        self.broker_max_offset = next_offset
        """Max offset in the broker's last response."""
        self.highest_offset = next_offset - 1
        """Highest offset that was ever put."""
        self.bytes = 0
        self._life = QueueLife.ACTIVE
        self._lock = QueueLock.NONE
        self._run = OrderedRun.IDLE
        self.dropped = False
        """Whether the queue is dropped; stored in addition to the state because it is read for each message.
        """
        self.leaving = False
        """Whether the queue is leaving or dropped; stored for the same reason."""
        self.running = 0
        """Number of running handlers for its messages."""
        self.last_lock = now
        """Monotonic seconds of the last lock or renewal."""
        self.last_pull = now
        """Monotonic seconds when its pull loop last handled it."""
        self.last_consume = now
        self.unlock_tries = 0
        self._limits = limits
        self._room: asyncio.Future[None] | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._messages: dict[int, ReceivedMessage] = {}
        self._order: deque[int] = deque()  # ascending; finished ones are removed when first
        self._taken: dict[int, ReceivedMessage] = {}

    def __len__(self) -> int:
        return len(self._messages) + len(self._taken)

    def __contains__(self, offset: int) -> bool:
        return offset in self._messages or offset in self._taken

    def holds(self, message: ReceivedMessage) -> bool:
        """Whether a message of this queue is unfinished."""
        return message.queue_offset in self

    def __repr__(self) -> str:
        return (
            f"<ProcessQueue {self.queue} {self._life.value} next={self.next_offset} unfinished={len(self)}>"
        )

    # States

    @property
    def life(self) -> QueueLife:
        """Whether messages are handed out and results are accepted."""
        return self._life

    @property
    def lock(self) -> QueueLock:
        """Whether the broker has locked the queue for this member (ordered consumption)."""
        return self._lock

    @property
    def run(self) -> OrderedRun:
        """Whether a run of ordered consumption is under way or due."""
        return self._run

    def _happened(self, event: QueueEvent) -> None:
        """Change to the states that the life and lock tables define.

        Raises `InvariantError`, without any change, for an event that is impossible in the current state.
        """
        life = LIFE[self._life].get(event, self._life)
        lock = LOCK[self._lock].get(event)
        if lock is None:
            if event in _OF_LOCKS:
                raise InvariantError(f"{self.queue}: {event.value}, but its lock is {self._lock.value}")
            lock = self._lock
        self._life, self._lock = life, lock
        self.dropped = life is QueueLife.DROPPED
        self.leaving = life is not QueueLife.ACTIVE

    @property
    def locked(self) -> bool:
        """Whether this member has the lock, as far as it knows."""
        return self._lock in (QueueLock.HELD, QueueLock.DOUBTFUL)

    @property
    def doubtful(self) -> bool:
        """Whether the lock must be renewed soon because the connection to the broker was lost."""
        return self._lock in (QueueLock.DOUBTFUL, QueueLock.WANTED)

    # Pulls

    @property
    def span(self) -> int:
        """Largest minus smallest unfinished offset; 0 when empty (client:D-38)."""
        return self._order[-1] - self._order[0] if self._messages else 0

    @property
    def first(self) -> ReceivedMessage | None:
        """The message with the smallest offset that was not taken."""
        return self._messages[self._order[0]] if self._messages else None

    @property
    def unfinished(self) -> int | None:
        """The smallest unfinished offset, taken or not; None if there is none."""
        return min((*self._order, *self._taken), default=None)

    @property
    def waiting_offsets(self) -> list[int]:
        """Unfinished offsets that were not taken, in order."""
        return sorted(self._messages)

    @property
    def backlog(self) -> int:
        """Messages at the broker that were not pulled yet, as of the last pull (client:D-32)."""
        return max(0, self.broker_max_offset - self.next_offset)

    def looked_after(self, now: float) -> None:
        """Its pull loop handled the queue."""
        self.last_pull = now

    def answered(self, max_offset: int) -> None:
        """The broker reported its max offset."""
        self.broker_max_offset = max_offset

    def pulled_to(self, offset: int) -> None:
        """Everything before `offset` was pulled."""
        self.next_offset = offset

    def read_on_from(self, offset: int) -> None:
        """Pull from `offset` next. The broker no longer has the messages after it and will use these offsets
        for other messages. Unfinished messages are kept.
        """
        self.next_offset = offset
        self.highest_offset = min(self.highest_offset, offset - 1)

    def put(self, messages: Sequence[ReceivedMessage]) -> bool:
        """Add pulled messages; a message replaces an unfinished one with the same offset (client:D-32).

        Returns whether an ordered run should start: there are messages and no run is active. It counts as
        active from now on.
        """
        held, order = self._messages, self._order
        size, in_order = 0, True
        last = order[-1] if order else -1
        for message in messages:
            offset = message.queue_offset
            size += len(message.body)
            previous = held.get(offset)
            if previous is not None:
                size -= len(previous.body)
            else:
                in_order &= offset > last
                last = offset
                order.append(offset)
            held[offset] = message
        self.bytes += size
        if not in_order:
            self._order = deque(sorted(held))
        if messages:
            self.highest_offset = max(self.highest_offset, messages[-1].queue_offset)
        if held and self._run is _IDLE:
            self._run = _RUN_AFTER_MESSAGES[self._run]
            return True
        return False

    def remove(self, messages: Iterable[ReceivedMessage]) -> int:
        """Finish messages and return the offset to commit: the smallest unfinished one, or else highest + 1.

        -1 when there were no unfinished messages (client:D-33).
        """
        held = self._messages
        if not held:
            return -1
        size, pop = 0, held.pop
        for message in messages:
            removed = pop(message.queue_offset, None)
            if removed is not None:
                size += len(removed.body)
        self.bytes -= size
        self._skip_finished()
        self._room_changed()
        return self._order[0] if held else self.highest_offset + 1

    # Ordered consumption

    def take(self, count: int) -> list[ReceivedMessage]:
        """Hand out the `count` messages with the smallest offsets; the run ends when none are left
        (client:D-34).
        """
        held, order = self._messages, self._order
        taken: list[ReceivedMessage] = []
        while held and len(taken) < count:
            message = held.pop(order.popleft(), None)
            if message is not None:
                taken.append(message)
                self._taken[message.queue_offset] = message
        self._skip_finished()
        if not taken:
            self._run = _RUN_AFTER_THE_LAST[self._run]
        return taken

    def commit(self, messages: Sequence[ReceivedMessage] | None = None) -> int:
        """Finish all taken messages, or only `messages`, which must have the smallest offsets.

        Returns the offset to commit; -1 when nothing was taken (client:D-35).
        """
        finished = list(self._taken.values()) if messages is None else messages
        highest = -1
        for message in finished:
            removed = self._taken.pop(message.queue_offset, None)
            if removed is not None:
                self.bytes -= len(removed.body)
                highest = max(highest, removed.queue_offset)
        self._room_changed()
        return highest + 1 if highest >= 0 else -1

    def put_back(self, messages: Iterable[ReceivedMessage] | None = None) -> None:
        """Undo `take` for all taken messages, or for `messages` (client:D-36, D-37)."""
        back = list(self._taken) if messages is None else [message.queue_offset for message in messages]
        back = sorted(offset for offset in back if offset in self._taken)
        for offset in back:
            self._messages[offset] = self._taken.pop(offset)
        if self._order and back and back[-1] > self._order[0]:
            self._order = deque(sorted(self._messages))
        else:
            self._order.extendleft(reversed(back))

    @property
    def taken(self) -> list[ReceivedMessage]:
        """Taken messages that are not committed, in order."""
        return [self._taken[offset] for offset in sorted(self._taken)]

    def lock_taken(self) -> None:
        """The broker granted the lock before the queue was started."""
        self._happened(QueueEvent.LOCK_TAKEN)

    def lock_granted(self, now: float) -> bool:
        """The broker renewed the lock. Returns False if the queue must be restarted, because the lock was
        missing, or so old that another member may have had it in the meantime.
        """
        if QueueEvent.LOCK_RENEWED not in LOCK[self._lock] or now - self.last_lock > BROKER_LOCK_SECONDS:
            return False
        self._happened(QueueEvent.LOCK_RENEWED)
        self.last_lock = now
        return True

    def lock_refused(self) -> None:
        """Another member has the lock."""
        self._happened(QueueEvent.LOCK_REFUSED)

    def broker_lost(self) -> None:
        """The connection to the broker was lost: no handler starts until the lock is renewed."""
        self._happened(QueueEvent.BROKER_LOST)

    def unlock_failed(self) -> None:
        """A handler did not end in time to release the lock."""
        self.unlock_tries += 1

    def lock_expired(self, now: float) -> bool:
        """Whether the lock was not renewed in time (client:D-42)."""
        return now - self.last_lock > LOCK_SECONDS_MAX

    def may_consume_in_order(self, now: float) -> bool:
        """Whether the lock is valid."""
        return self._lock is _HELD and not self.lock_expired(now)

    def pull_expired(self, now: float, limit: float = PULL_SECONDS_MAX) -> bool:
        """Whether the pull loop was lost: it did not handle the queue for `limit` seconds (client:D-43)."""
        return now - self.last_pull > limit

    def may_start(self) -> bool:
        """Whether a handler may start now. Called before each start, also by threads. The call changes
        nothing; a queue that pauses now may continue later unless it is leaving.
        """
        return not self.leaving

    # Room

    @property
    def limits(self) -> Limits:
        """The limits at which pulling pauses."""
        return self._limits

    def limit_to(self, limits: Limits) -> None:
        """Replace the limits at which pulling pauses."""
        self._limits = limits
        self._room_changed()

    @property
    def is_full(self) -> bool:
        """Whether pulling should pause."""
        limits = self._limits
        return (
            len(self) > limits.messages
            or self.bytes > limits.bytes
            or (limits.span is not None and len(self._messages) > 1 and self.span > limits.span)
        )

    async def room(self) -> None:
        """Wait until the queue is below its limits or dropped."""
        while self.is_full and not self.dropped:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    # The end

    def began(self, now: float) -> None:
        """A handler starts."""
        self.running += 1
        self.last_consume = now

    def ended(self) -> None:
        """A handler ended. Raises `InvariantError` when none was running."""
        if self.running <= 0:
            text = f"a handler of {self.queue} ended, but none was running"
            raise InvariantError(text, what="handler", value=self.queue)
        self.running -= 1
        if not self.running and self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            if not waiting.done():
                waiting.set_result(None)

    async def idle(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until no handler is running. Returns whether that is so."""
        if self.running:
            if self._waiting is None:
                self._waiting = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._waiting], timeout=timeout)
        return not self.running

    def leave(self) -> None:
        """Hand out no more messages; running handlers may still finish."""
        self._happened(QueueEvent.LEAVE)

    def drop(self) -> None:
        """Drop the queue: from now on nothing is delivered or committed."""
        self._happened(QueueEvent.DROP)
        self._messages.clear()
        self._taken.clear()
        self._order.clear()
        self.bytes = 0
        self._wake()

    def _skip_finished(self) -> None:
        order, held = self._order, self._messages
        while order and order[0] not in held:
            order.popleft()
        while order and order[-1] not in held:
            order.pop()

    def _room_changed(self) -> None:
        if self._room is not None and not self.is_full:
            self._wake()

    def _wake(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)
