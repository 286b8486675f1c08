"""Messages of one queue in hand: what was pulled and is not finished, in order of offset (client:D.8).

The offset to commit is the smallest one still in hand, so a slow message holds the commit back and a crash
repeats it. A process queue belongs to one assignment of its queue: when the queue is given away it is
`dropped` for good and results that come later are thrown away (client:C-53); the next assignment makes a new
one.

Ordered consumption takes messages out in order, and commits or puts them back as a whole (client:D-34 to
D-37). It may do so only while the broker has locked the queue for this member.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sparrowmq.core.message import MessageQueue, ReceivedMessage

LOCK_SECONDS_MAX: Final = 30.0
"""A lock that was not renewed for so long does not count any more (client:C-30, D-42)."""
PULL_SECONDS_MAX: Final = 120.0
"""A queue that was not pulled for so long has lost its pull loop (client:C.6, D-43)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one queue may have in hand before pulling pauses; the limits are allowed (client:D-16)."""

    messages: int = 1000
    bytes: int = 100 * 1024 * 1024
    span: int | None = 2000
    """Distance between smallest and largest offset; None for ordered consumption, which has no such limit."""


class ProcessQueue:
    """The messages of `queue` in hand. Touched on the event loop only; other threads may read flags."""

    __slots__ = (
        "_limits",
        "_messages",
        "_order",
        "_room",
        "_taken",
        "_waiting",
        "broker_max_offset",
        "bytes",
        "consuming",
        "doubtful",
        "dropped",
        "highest_offset",
        "last_consume",
        "last_lock",
        "last_pull",
        "leaving",
        "locked",
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
        """Max offset the broker last told."""
        self.highest_offset = next_offset - 1
        """Highest offset ever put."""
        self.bytes = 0
        self.dropped = False
        self.leaving = False
        """No more is handed out, because the queue is about to be dropped."""
        self.consuming = False
        """A run of ordered consumption is under way or due (client:D-32)."""
        self.running = 0
        """Handlers at work on messages of it."""
        self.locked = False
        self.doubtful = False
        """The broker was lost since the last renewal: it may have forgotten the lock."""
        self.last_lock = now
        """Monotonic seconds of the last lock or renewal."""
        self.last_pull = now
        """Monotonic seconds of the last look at it by its pull loop."""
        self.last_consume = now
        self.unlock_tries = 0
        self._limits = limits
        self._room: asyncio.Future[None] | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._messages: dict[int, ReceivedMessage] = {}
        self._order: deque[int] = deque()  # offsets in ascending order; finished ones leave when first
        self._taken: dict[int, ReceivedMessage] = {}

    def __len__(self) -> int:
        return len(self._messages) + len(self._taken)

    def __contains__(self, offset: int) -> bool:
        return offset in self._messages or offset in self._taken

    def __repr__(self) -> str:
        state = "dropped" if self.dropped else "leaving" if self.leaving else "active"
        return f"<ProcessQueue {self.queue} {state} next={self.next_offset} in_hand={len(self)}>"

    @property
    def span(self) -> int:
        """Largest minus smallest offset in hand; 0 when empty (client:D-38)."""
        return self._order[-1] - self._order[0] if self._messages else 0

    @property
    def first(self) -> ReceivedMessage | None:
        """The message with the smallest offset in hand; of those not taken."""
        return self._messages[self._order[0]] if self._messages else None

    @property
    def waiting_offsets(self) -> list[int]:
        """Offsets in hand that were not taken, in order."""
        return sorted(self._messages)

    @property
    def backlog(self) -> int:
        """Messages the broker has beyond those that were pulled, as of the last pull (client:D-32)."""
        return max(0, self.broker_max_offset - self.next_offset)

    def put(self, messages: Sequence[ReceivedMessage]) -> bool:
        """Take messages in hand; one whose offset is in hand already replaces it (client:D-32).

        Whether an ordered run should start: something is in hand and none is under way. It counts as under
        way from now on.
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
        if held and not self.consuming:
            self.consuming = True
            return True
        return False

    def remove(self, messages: Iterable[ReceivedMessage]) -> int:
        """Finish messages and return the offset to commit: the smallest in hand, else highest + 1.

        -1 when nothing was in hand (client:D-33).
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
        """Hand out the `count` smallest; nothing left ends the run (client:D-34)."""
        held, order = self._messages, self._order
        taken: list[ReceivedMessage] = []
        while held and len(taken) < count:
            message = held.pop(order.popleft(), None)
            if message is not None:
                taken.append(message)
                self._taken[message.queue_offset] = message
        self._skip_finished()
        if not taken:
            self.consuming = False
        return taken

    def commit(self, messages: Sequence[ReceivedMessage] | None = None) -> int:
        """Finish what was taken, or of it only `messages`, which are its smallest.

        The offset to commit; -1 when nothing was taken (client:D-35).
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
        """Undo `take` for all that was taken, or for `messages` (client:D-36, D-37)."""
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
        """What was handed out in order and not committed, in order."""
        return [self._taken[offset] for offset in sorted(self._taken)]

    def lock_expired(self, now: float) -> bool:
        """Whether the lock was not renewed in time (client:D-42)."""
        return now - self.last_lock > LOCK_SECONDS_MAX

    def may_consume_in_order(self, now: float) -> bool:
        """Whether the lock holds."""
        return self.locked and not self.doubtful and not self.lock_expired(now)

    def pull_expired(self, now: float, limit: float = PULL_SECONDS_MAX) -> bool:
        """Whether the pull loop was lost: it did not come round in `limit` seconds (client:D-43)."""
        return now - self.last_pull > limit

    # Room

    @property
    def limits(self) -> Limits:
        """When pulling pauses."""
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
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
        """Wait until there is room again or the queue is dropped."""
        while self.is_full and not self.dropped:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    # The end

    def began(self, now: float) -> None:
        """A handler starts to work on messages of it."""
        self.running += 1
        self.last_consume = now

    def ended(self) -> None:
        """A handler ended."""
        self.running -= 1
        if not self.running and self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            if not waiting.done():
                waiting.set_result(None)

    async def idle(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until no handler works on it; whether none does."""
        if self.running:
            if self._waiting is None:
                self._waiting = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._waiting], timeout=timeout)
        return not self.running

    def leave(self) -> None:
        """Hand out no more; what is being handled may still be finished."""
        self.leaving = True

    def drop(self) -> None:
        """Give the queue up: nothing is delivered or committed from here any more."""
        self.dropped = self.leaving = True
        self.locked = False
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
