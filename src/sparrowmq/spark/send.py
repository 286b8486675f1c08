"""Batch sends of one task: a bounded number in flight, those to one queue one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, Final, Protocol

from sparrowmq.core.backoff import Backoff
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.core.results import SendResult
from sparrowmq.spark.faults import is_passing
from sparrowmq.spark.loop import LoopThread
from sparrowmq.spark.options import WriteOptions
from sparrowmq.spark.routing import Destination

log = logging.getLogger("sparrowmq.spark")

_BACKOFF: Final = Backoff(first=0.1, most=2.0)


class BatchProducer(Protocol):
    """What a sender needs of `aio.Producer`."""

    async def send_encoded_batch(
        self,
        topic: str,
        body: bytes,
        count: int,
        *,
        queue: MessageQueue | None = None,
        numbered: bool = False,
    ) -> SendResult:
        """Send a batch body of `count` messages."""

    async def send(self, message: Message, *, queue: MessageQueue | None = None) -> SendResult:
        """Send one message."""

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The writable queues of a topic."""


class Sender:
    """Sends on the loop what its caller's thread encodes. Not thread safe.

    The producer repeats a send to any queue at another broker by itself; a send to a certain queue is
    repeated here, `retries` times. After a failed send the sender is done: `submit` and `finish` raise.
    """

    def __init__(self, loop: LoopThread, producer: BatchProducer, options: WriteOptions) -> None:
        self._loop = loop
        self._producer = producer
        self._options = options
        self._pending: deque[Future[None]] = deque()
        self._locks: dict[MessageQueue, asyncio.Lock] = {}
        self._queues: dict[str, Sequence[MessageQueue]] = {}
        self.sent: Counter[str] = Counter()
        """Messages that were acknowledged, by topic."""

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The writable queues of a topic, the same for the whole task."""
        if topic not in self._queues:
            self._queues[topic] = self._loop.run(self._queues_of(topic))
        return self._queues[topic]

    async def _queues_of(self, topic: str) -> Sequence[MessageQueue]:
        return await self._producer.queues(topic)

    def submit(self, destination: Destination, body: bytes, count: int) -> None:
        """Send a batch; waits while too many are in flight. Raises what an earlier send raised."""
        self._start(self._send(destination, body, count))

    def submit_later(self, destination: Destination, message: Message) -> None:
        """Send a message that is for later, alone; otherwise as `submit`."""
        self._start(self._send_later(destination, message))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            while len(self._pending) >= self._options.max_in_flight:
                self._wait_for_one()
        except BaseException:
            work.close()
            raise
        self._pending.append(self._loop.submit(work))

    def finish(self) -> None:
        """Wait for everything. Raises what a send raised."""
        while self._pending:
            self._wait_for_one()

    def cancel(self) -> None:
        """Give up what is still in flight; it may arrive all the same."""
        while self._pending:
            self._pending.popleft().cancel()

    def _wait_for_one(self) -> None:
        self._pending.popleft().result()

    async def _send(self, destination: Destination, body: bytes, count: int) -> None:
        queue = destination.queue
        if queue is None:
            await self._producer.send_encoded_batch(destination.topic, body, count)
        else:
            async with self._locks.setdefault(queue, asyncio.Lock()):
                await self._send_to(queue, body, count)
        self.sent[destination.topic] += count

    async def _send_later(self, destination: Destination, message: Message) -> None:
        queue = destination.queue
        if queue is None:
            await self._producer.send(message)
        else:
            await self._patiently(queue, 1, lambda: self._producer.send(message, queue=queue))
        self.sent[destination.topic] += 1

    async def _send_to(self, queue: MessageQueue, body: bytes, count: int, **more: bool) -> SendResult:
        return await self._patiently(
            queue,
            count,
            lambda: self._producer.send_encoded_batch(queue.topic, body, count, queue=queue, **more),
        )

    async def _patiently(
        self, queue: MessageQueue, count: int, send: Callable[[], Awaitable[SendResult]]
    ) -> SendResult:
        """What `send` to a certain queue gives, after tries that failed in passing."""
        delays = _BACKOFF.delays()
        for _ in range(self._options.retries):
            try:
                return await send()
            except SparrowError as error:
                if not is_passing(error):
                    raise
                log.info("a send of %d messages to %s is tried again: %s", count, queue, error)
            await asyncio.sleep(next(delays))
        return await send()
