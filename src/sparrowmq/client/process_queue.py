"""Messages of one queue in hand: what was pulled and is not finished, in order of offset (client:D.8).

The offset to commit is the smallest one still in hand, so a slow message holds the commit back and a crash
repeats it. A process queue belongs to one assignment of its queue: when the queue is given away it is
`dropped` for good and results that come later are thrown away (client:C-53); the next assignment makes a new
one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sortedcontainers import SortedDict

from sparrowmq.core.message import MessageQueue, ReceivedMessage


@dataclass(frozen=True, slots=True)
class Limits:
    """What one queue may have in hand before pulling pauses; the limits are allowed (client:D-16)."""

    messages: int = 1000
    bytes: int = 100 * 1024 * 1024
    span: int = 2000
    """Distance between smallest and largest offset."""


class ProcessQueue:
    """The messages of `queue` in hand. Touched on the event loop only."""

    __slots__ = (
        "_limits",
        "_messages",
        "_room",
        "broker_max_offset",
        "bytes",
        "dropped",
        "highest_offset",
        "next_offset",
        "queue",
    )

    def __init__(self, queue: MessageQueue, next_offset: int, limits: Limits) -> None:
        self.queue = queue
        self.next_offset = next_offset
        """Queue offset of the next pull."""
        self.broker_max_offset = next_offset
        """Max offset the broker last told."""
        self.highest_offset = next_offset - 1
        """Highest offset ever put."""
        self.bytes = 0
        self.dropped = False
        self._limits = limits
        self._room: asyncio.Future[None] | None = None
        self._messages: SortedDict[int, ReceivedMessage] = SortedDict()

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, offset: int) -> bool:
        return offset in self._messages

    def __repr__(self) -> str:
        state = "dropped" if self.dropped else "active"
        return f"<ProcessQueue {self.queue} {state} next={self.next_offset} in_hand={len(self)}>"

    @property
    def span(self) -> int:
        """Largest minus smallest offset in hand; 0 when empty (client:D-38)."""
        keys = self._messages.keys()
        return keys[-1] - keys[0] if keys else 0

    @property
    def first(self) -> ReceivedMessage | None:
        """The message with the smallest offset in hand."""
        return self._messages.peekitem(0)[1] if self._messages else None

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Take messages in hand; one whose offset is in hand already replaces it (client:D-32)."""
        held = self._messages
        size = 0
        for message in messages:
            offset = message.queue_offset
            previous = held.get(offset)
            if previous is not None:
                size -= len(previous.body)
            held[offset] = message
            size += len(message.body)
        self.bytes += size
        if messages:
            self.highest_offset = max(self.highest_offset, messages[-1].queue_offset)

    def remove(self, messages: Iterable[ReceivedMessage]) -> int:
        """Finish messages and return the offset to commit: the smallest in hand, else highest + 1.

        -1 when nothing was in hand (client:D-33).
        """
        held = self._messages
        if not held:
            return -1
        for message in messages:
            removed = held.pop(message.queue_offset, None)
            if removed is not None:
                self.bytes -= len(removed.body)
        if self._room is not None and not self.is_full:
            self._wake()
        return held.keys()[0] if held else self.highest_offset + 1

    @property
    def is_full(self) -> bool:
        """Whether pulling should pause."""
        limits, count = self._limits, len(self._messages)
        return count > limits.messages or self.bytes > limits.bytes or (count > 1 and self.span > limits.span)

    async def room(self) -> None:
        """Wait until there is room again or the queue is dropped."""
        while self.is_full and not self.dropped:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def drop(self) -> None:
        """Give the queue up: nothing is delivered or committed from here any more."""
        self.dropped = True
        self._messages.clear()
        self.bytes = 0
        self._wake()

    def _wake(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)
