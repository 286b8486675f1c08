"""Messages for `async for`: handed out one at a time, and settled by the user or by a timeout."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from sparrowmq.client.consumer.lazy_message import LazyMessage
from sparrowmq.client.consumer.outcomes import Retry
from sparrowmq.client.consumer.process_queue import ProcessQueue
from sparrowmq.core.errors import InvalidStateError
from sparrowmq.core.message import ReceivedMessage


class StreamedMessage(LazyMessage):
    """A message that knows its stream. The classes users see add `ack` and `retry`."""

    __slots__ = ("_stream",)

    _stream: MessageStream

    def stream_of_this(self) -> MessageStream:
        """The stream in which to settle this message. Raises `InvalidStateError` for a message of
        a handler.
        """
        stream: MessageStream | None = getattr(self, "_stream", None)
        if stream is None:
            raise InvalidStateError(
                "this message belongs to a handler: return from the handler to acknowledge it, or raise to "
                "retry",
                what="handler",
            )
        return stream


class DeliveredMessage(StreamedMessage):
    """A message from iterating over a consumer: call `ack` on success, `retry` on failure."""

    __slots__ = ()

    async def ack(self) -> bool:
        """Mark the message as processed. False when it was already settled, or returned after the timeout."""
        return self.stream_of_this().settle(self)

    async def retry(self, after: float | None = None, *, dead: bool = False) -> bool:
        """Mark the message as failed: it is redelivered later, or becomes a dead letter. Returns False as
        `ack` does.

        `after` is in seconds, as for `Retry`.
        """
        return self.stream_of_this().settle(self, Retry(after=after, dead=dead))


Settle = Callable[[ProcessQueue, ReceivedMessage, Retry | None, float], None]
"""Called when a message was settled: (process queue, message, retry if it failed, processing seconds)."""

_EXPIRED_AFTER: Final = 10.0
"""Delay of the retry after a message timed out (client:D-44)."""


class MessageStream:
    """Messages of topics without handler: waiting for iteration, or being processed by users.

    The limits of the process queues bound it, because messages stay there until they are settled. `counts`:
    unsettled messages count as running handlers of their queue, as for managed members.
    """

    def __init__(self, settle: Settle, *, counts: bool = False) -> None:
        self._settle = settle
        self._counts = counts
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._settled_elsewhere: deque[tuple[ProcessQueue, StreamedMessage, Retry | None, float]] = deque()
        self._announced = False
        self._waiting: deque[tuple[ProcessQueue, StreamedMessage]] = deque()
        self._in_hand: dict[int, tuple[ProcessQueue, StreamedMessage, float, object]] = {}
        self._wanted: deque[asyncio.Future[None]] = deque()
        self._end: BaseException | None = None
        self._ended = False
        self._nothing_in_hand: asyncio.Event | None = None

    def __repr__(self) -> str:
        return f"<MessageStream waiting={len(self._waiting)} in_hand={len(self._in_hand)}>"

    @property
    def in_hand(self) -> int:
        """Messages handed out and not settled."""
        return len(self._in_hand)

    @property
    def ended(self) -> bool:
        """Whether the stream has ended. For any thread."""
        return self._ended

    def put(self, process_queue: ProcessQueue, messages: Iterable[StreamedMessage]) -> None:
        """Offer messages for iteration."""
        for message in messages:
            message._stream = self
            self._waiting.append((process_queue, message))
        self._wake()

    def settle(self, message: StreamedMessage, retry: Retry | None = None) -> bool:
        """Settle a message. Returns whether it was still unsettled.

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

    def settle_from_thread(self, message: StreamedMessage, retry: Retry | None = None) -> bool:
        """`settle` for any thread: it takes effect immediately; the loop does the remaining work soon after.

        Raises `InvalidStateError` in a forked child, which has no such loop.
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
        if self._counts:
            process_queue.ended()

    def _check_process(self, message: StreamedMessage) -> None:
        if self._pid != os.getpid():
            raise InvalidStateError(
                f"a message of {message.queue} was received by another process (pid {self._pid}, this is "
                f"{os.getpid()}); acknowledge or retry it there",
                what="process",
                value=self._pid,
            )

    def is_in_hand(self, message: StreamedMessage) -> bool:
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
        """Send messages unsettled for longer than `timeout` seconds to retry. Returns how many."""
        limit = self._loop.time() - timeout
        expired = [message for _, message, since, _ in list(self._in_hand.values()) if since <= limit]
        for message in expired:
            self.settle(message, Retry(after=_EXPIRED_AFTER))
        return len(expired)

    def forget_given_up(self) -> None:
        """Drop waiting messages of queues that were given up."""
        self._waiting = deque(entry for entry in self._waiting if not entry[0].leaving)

    def end(self, error: BaseException | None) -> None:
        """End the stream: iterators stop, with `error` if given."""
        self._ended = True
        self._end = self._end or error
        self._waiting.clear()
        while self._wanted:
            wanted = self._wanted.popleft()
            if not wanted.done():
                wanted.set_result(None)

    async def settled(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until all messages are settled. Returns whether they are. Only for
        closing.
        """
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

    async def take(self, count: int = 1, owner: object = None) -> list[StreamedMessage]:
        """Take the next messages, at least one and at most `count`; none when closed.

        `owner` has them from then on, by default the calling task. Raises the error that stopped the
        consumer.
        """
        owner = owner or asyncio.current_task()
        while not self._ended:
            if taken := self._take_waiting(count, owner):
                self._wake()  # the next waiter takes the others
                return taken
            wanted = self._loop.create_future()
            self._wanted.append(wanted)
            try:
                await wanted
            except asyncio.CancelledError:
                with suppress(ValueError):
                    self._wanted.remove(wanted)
                self._wake()  # wake another waiter in case this wake-up is lost
                raise
        if self._end is not None:
            raise self._end
        return []

    def _take_waiting(self, count: int, owner: object) -> list[StreamedMessage]:
        taken: list[StreamedMessage] = []
        now = self._loop.time()
        resting: list[tuple[ProcessQueue, StreamedMessage]] = []
        while self._waiting and len(taken) < count:
            process_queue, message = self._waiting.popleft()
            if process_queue.leaving or not process_queue.holds(message):
                continue
            if not process_queue.may_start():
                resting.append((process_queue, message))
                continue
            if self._counts:
                process_queue.began(now)
            self._in_hand[id(message)] = (process_queue, message, now, owner)
            taken.append(message)
        self._waiting.extendleft(reversed(resting))
        return taken

    def give_back(self, messages: Sequence[StreamedMessage]) -> None:
        """Return unsettled messages to the front, in order; after the end they are not handed out again."""
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
        """Return the messages that `owner` has."""
        self.give_back([message for _, message, _, holder in list(self._in_hand.values()) if holder == owner])

    def go_on(self) -> None:
        """Offer messages again that waited because no handler was allowed to start."""
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self._wanted:
            wanted = self._wanted.popleft()
            if not wanted.done():
                wanted.set_result(None)
                return


async def iterate(stream: MessageStream) -> AsyncGenerator[DeliveredMessage, None]:
    """All messages, one at a time; leaving the loop returns messages that were not settled."""
    taken: dict[int, StreamedMessage] = {}
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
