"""Messages for `async for`: handed out one at a time, settled by the user or by the clock."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from sparrowmq.client.handed import LazyMessage
from sparrowmq.client.outcomes import Retry
from sparrowmq.client.process_queue import ProcessQueue
from sparrowmq.core.errors import InvalidStateError
from sparrowmq.core.message import ReceivedMessage


class HandedMessage(LazyMessage):
    """A message that knows the stream it is handed out by. The classes users see add `ack` and `retry`."""

    __slots__ = ("_stream",)

    _stream: MessageStream

    def stream_of_this(self) -> MessageStream:
        """Where to settle this message. Raises `InvalidStateError` for one that was given to a handler."""
        stream: MessageStream | None = getattr(self, "_stream", None)
        if stream is None:
            raise InvalidStateError(
                "this message belongs to a handler: returning from it means done, raising means retry"
            )
        return stream


class DeliveredMessage(HandedMessage):
    """A message from iterating over a consumer: `ack` it when it is done, `retry` it when it failed."""

    __slots__ = ()

    async def ack(self) -> bool:
        """The message is done. False when it was settled before, or went back because it took too long."""
        return self.stream_of_this().settle(self)

    async def retry(self, after: float | None = None, *, dead: bool = False) -> bool:
        """The message failed: it comes again later, or goes to the dead letters. False as with `ack`.

        `after` is in seconds and means what it means for `Retry`.
        """
        return self.stream_of_this().settle(self, Retry(after=after, dead=dead))


Settle = Callable[[ProcessQueue, ReceivedMessage, Retry | None, float], None]
"""(process queue, message, how to try again if it failed, seconds in hand): it left the user's hands."""

_EXPIRED_AFTER: Final = 10.0
"""Until a message comes again that was in hand too long (client:D-44)."""


class MessageStream:
    """Messages of topics without handler, waiting for and in the hands of iterating users.

    Bounded by the limits of the process queues, which the messages stay in until they are settled.
    """

    def __init__(self, settle: Settle) -> None:
        self._settle = settle
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._settled_elsewhere: deque[tuple[ProcessQueue, HandedMessage, Retry | None, float]] = deque()
        self._announced = False
        self._waiting: deque[tuple[ProcessQueue, HandedMessage]] = deque()
        self._in_hand: dict[int, tuple[ProcessQueue, HandedMessage, float, object]] = {}
        self._wanted: deque[asyncio.Future[None]] = deque()
        self._end: BaseException | None = None
        self._ended = False
        self._nothing_in_hand: asyncio.Event | None = None
        self.counts = False
        """Whether messages in hand count as handlers at work on their queue: a managed member's do."""

    def __repr__(self) -> str:
        return f"<MessageStream waiting={len(self._waiting)} in_hand={len(self._in_hand)}>"

    @property
    def in_hand(self) -> int:
        """Messages handed out and not settled."""
        return len(self._in_hand)

    @property
    def ended(self) -> bool:
        """Whether nothing more comes. For any thread."""
        return self._ended

    def put(self, process_queue: ProcessQueue, messages: Iterable[HandedMessage]) -> None:
        """Offer messages to whoever iterates."""
        for message in messages:
            message._stream = self
            self._waiting.append((process_queue, message))
        self._wake()

    def settle(self, message: HandedMessage, retry: Retry | None = None) -> bool:
        """The user is done with a message; whether it still was in hand.

        Raises `InvalidStateError` in a forked child: only the parent can settle it.
        """
        self._check_process(message)
        entry = self._in_hand.pop(id(message), None)
        if entry is None:
            return False
        known = not entry[0].dropped
        if known:
            self._settle(entry[0], message, retry, self._loop.time() - entry[2])
        self._left(entry[0])
        self._note_empty()
        return known

    def settle_from_thread(self, message: HandedMessage, retry: Retry | None = None) -> bool:
        """`settle` for any thread: it counts at once, the rest is done on the loop soon after.

        Raises `InvalidStateError` in a forked child, which has no loop that could do it.
        """
        self._check_process(message)
        entry = self._in_hand.pop(id(message), None)
        if entry is None:
            return False
        known = not entry[0].dropped
        self._settled_elsewhere.append((entry[0], message, retry, self._loop.time() - entry[2]))
        if not self._announced:
            self._announced = True
            self._loop.call_soon_threadsafe(self._collect)
        return known

    def _left(self, process_queue: ProcessQueue) -> None:
        if self.counts:
            process_queue.ended()

    def _check_process(self, message: HandedMessage) -> None:
        if self._pid != os.getpid():
            raise InvalidStateError(
                f"a message of {message.queue} was handed out by another process (pid {self._pid}, this is "
                f"{os.getpid()}); settle it there"
            )

    def is_in_hand(self, message: HandedMessage) -> bool:
        """Whether the message was handed out and not settled. For any thread."""
        return id(message) in self._in_hand

    def is_held(self, key: int) -> bool:
        """The same for the `id` of a message."""
        return key in self._in_hand

    def _collect(self) -> None:
        self._announced = False
        for _ in range(len(self._settled_elsewhere)):
            process_queue, message, retry, seconds = self._settled_elsewhere.popleft()
            if not process_queue.dropped:
                self._settle(process_queue, message, retry, seconds)
            self._left(process_queue)
        self._note_empty()

    def expire(self, timeout: float) -> int:
        """Send what was in hand longer than `timeout` seconds to retry; how many."""
        limit = self._loop.time() - timeout
        expired = [message for _, message, since, _ in list(self._in_hand.values()) if since <= limit]
        for message in expired:
            self.settle(message, Retry(after=_EXPIRED_AFTER))
        return len(expired)

    def forget_given_up(self) -> None:
        """Let go of what waits and belongs to queues that were given up."""
        self._waiting = deque(entry for entry in self._waiting if not entry[0].leaving)

    def end(self, error: BaseException | None) -> None:
        """Nothing more comes: iterators stop, with `error` if given."""
        self._ended = True
        self._end = self._end or error
        self._waiting.clear()
        while self._wanted:
            wanted = self._wanted.popleft()
            if not wanted.done():
                wanted.set_result(None)

    async def settled(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until nothing is in hand; whether that is so. For the end only."""
        if self._in_hand or self._settled_elsewhere:
            self._nothing_in_hand = asyncio.Event()
            try:
                await asyncio.wait_for(self._nothing_in_hand.wait(), timeout)
            except TimeoutError:
                pass
        return not self._in_hand

    def _note_empty(self) -> None:
        if self._nothing_in_hand is not None and not self._in_hand and not self._settled_elsewhere:
            self._nothing_in_hand.set()

    async def take(self, count: int = 1, owner: object = None) -> list[HandedMessage]:
        """The next messages, at least one and at most `count`, now in the user's hands; none when closed.

        `owner` is who has them then: the calling task unless given. Raises what stopped the consumer.
        """
        owner = owner or asyncio.current_task()
        while not self._ended:
            if taken := self._take_waiting(count, owner):
                self._wake()  # who waits for what is left
                return taken
            wanted = self._loop.create_future()
            self._wanted.append(wanted)
            try:
                await wanted
            except asyncio.CancelledError:
                with suppress(ValueError):
                    self._wanted.remove(wanted)
                self._wake()  # somebody else, should this wake-up be lost
                raise
        if self._end is not None:
            raise self._end
        return []

    def _take_waiting(self, count: int, owner: object) -> list[HandedMessage]:
        taken: list[HandedMessage] = []
        now = self._loop.time()
        while self._waiting and len(taken) < count:
            process_queue, message = self._waiting.popleft()
            if not process_queue.leaving and message.queue_offset in process_queue:
                if self.counts:
                    process_queue.began(now)
                self._in_hand[id(message)] = (process_queue, message, now, owner)
                taken.append(message)
        return taken

    def give_back(self, messages: Sequence[HandedMessage]) -> None:
        """Put unsettled messages first in line again, in their order; after the end nobody gets them."""
        for message in reversed(messages):
            entry = self._in_hand.pop(id(message), None)
            if entry is None:
                continue
            if not self._ended:
                self._waiting.appendleft((entry[0], message))
            self._left(entry[0])
        self._wake()
        self._note_empty()

    def let_go(self, owner: object) -> None:
        """Give back what `owner` has in hand."""
        self.give_back([message for _, message, _, holder in list(self._in_hand.values()) if holder == owner])

    def _wake(self) -> None:
        while self._waiting and self._wanted:
            wanted = self._wanted.popleft()
            if not wanted.done():
                wanted.set_result(None)
                return


async def iterate(stream: MessageStream) -> AsyncIterator[DeliveredMessage]:
    """All messages, one after the other; leaving the loop gives back what was not settled."""
    taken: dict[int, HandedMessage] = {}
    try:
        while found := await stream.take():
            message = found[0]
            assert isinstance(message, DeliveredMessage)
            taken[id(message)] = message
            yield message
            if len(taken) > 1 or not stream.is_in_hand(message):
                taken = {key: held for key, held in taken.items() if stream.is_in_hand(held)}
    finally:
        stream.give_back(list(taken.values()))
