"""Messages for `async for`: handed out one at a time, settled by the user or by the clock (DESIGN section 3)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from sparrowmq.client.process_queue import ProcessQueue
from sparrowmq.core.errors import InvalidStateError
from sparrowmq.core.message import ReceivedMessage


class DeliveredMessage(ReceivedMessage):
    """A message handed out by iterating over a consumer: `ack` it when it is done, `retry` it when it failed."""

    __slots__ = ("_stream",)

    _stream: MessageStream

    async def ack(self) -> bool:
        """The message is done. False when it was settled before, or went back because it took too long."""
        return self._stream_of_this().settle(self, failed=False)

    async def retry(self) -> bool:
        """The message failed: the broker delivers it again later. False as with `ack`."""
        return self._stream_of_this().settle(self, failed=True)

    def _stream_of_this(self) -> MessageStream:
        stream: MessageStream | None = getattr(self, "_stream", None)
        if stream is None:
            raise InvalidStateError(
                "this message belongs to a handler: returning from it means done, raising means retry"
            )
        return stream


Settle = Callable[[ProcessQueue, ReceivedMessage, bool], None]
"""(process queue, message, failed): the message left the user's hands."""


class MessageStream:
    """Messages of topics without handler, waiting for and in the hands of iterating users.

    Bounded by the limits of the process queues, which the messages stay in until they are settled.
    """

    def __init__(self, settle: Settle, now: Callable[[], float]) -> None:
        """`now` gives monotonic seconds."""
        self._settle = settle
        self._now = now
        self._waiting: deque[tuple[ProcessQueue, DeliveredMessage]] = deque()
        self._in_hand: dict[int, tuple[ProcessQueue, DeliveredMessage, float]] = {}
        self._wanted: deque[asyncio.Future[None]] = deque()
        self._end: BaseException | None = None
        self._ended = False

    def __repr__(self) -> str:
        return f"<MessageStream waiting={len(self._waiting)} in_hand={len(self._in_hand)}>"

    @property
    def in_hand(self) -> int:
        """Messages handed out and not settled."""
        return len(self._in_hand)

    def put(self, process_queue: ProcessQueue, messages: Iterable[DeliveredMessage]) -> None:
        """Offer messages to whoever iterates."""
        for message in messages:
            message._stream = self
            self._waiting.append((process_queue, message))
        self._wake()

    def settle(self, message: DeliveredMessage, *, failed: bool) -> bool:
        """The user is done with a message; whether it still was in hand."""
        entry = self._in_hand.pop(id(message), None)
        if entry is None or entry[0].dropped:
            return False
        self._settle(entry[0], message, failed)
        return True

    def expire(self, timeout: float) -> int:
        """Send what was in hand longer than `timeout` seconds to retry; how many."""
        limit = self._now() - timeout
        expired = [message for _, message, since in self._in_hand.values() if since <= limit]
        for message in expired:
            self.settle(message, failed=True)
        return len(expired)

    def end(self, error: BaseException | None) -> None:
        """Nothing more comes: iterators stop, with `error` if given."""
        self._ended = True
        self._end = self._end or error
        self._waiting.clear()
        while self._wanted:
            wanted = self._wanted.popleft()
            if not wanted.done():
                wanted.set_result(None)

    async def take(self) -> DeliveredMessage | None:
        """The next message, now in the user's hands; None when the consumer closes.

        Raises what stopped the consumer.
        """
        while not self._ended:
            while self._waiting:
                process_queue, message = self._waiting.popleft()
                if not process_queue.dropped and message.queue_offset in process_queue:
                    self._in_hand[id(message)] = (process_queue, message, self._now())
                    return message
            wanted = asyncio.get_running_loop().create_future()
            self._wanted.append(wanted)
            try:
                await wanted
            except asyncio.CancelledError:
                self._wake()  # for another one, should this wake-up be lost
                raise
        if self._end is not None:
            raise self._end
        return None

    def give_back(self, messages: Sequence[DeliveredMessage]) -> None:
        """Put unsettled messages first in line again, in their order."""
        for message in reversed(messages):
            entry = self._in_hand.pop(id(message), None)
            if entry is not None:
                self._waiting.appendleft((entry[0], message))
        self._wake()

    async def iterate(self) -> AsyncIterator[DeliveredMessage]:
        """All messages, one after the other; leaving the loop gives back what was not settled."""
        taken: dict[int, DeliveredMessage] = {}
        try:
            while (message := await self.take()) is not None:
                taken[id(message)] = message
                yield message
                if len(taken) > 1 or id(message) not in self._in_hand:
                    taken = {key: held for key, held in taken.items() if key in self._in_hand}
        finally:
            self.give_back(list(taken.values()))

    def _wake(self) -> None:
        while self._waiting and self._wanted:
            wanted = self._wanted.popleft()
            if not wanted.done():
                wanted.set_result(None)
                return
