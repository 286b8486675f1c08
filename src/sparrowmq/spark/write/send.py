"""Batch sends of one task: a bounded number in flight, those to one queue one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sparrowmq.core.errors import BrokerError, NoRouteError, SparrowError
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.core.results import SendResult
from sparrowmq.loops.event_loop import LoopThread
from sparrowmq.spark.cluster.faults import is_illegal_queue, is_passing
from sparrowmq.spark.cluster.retry import Retries
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.write.log_once import first_time
from sparrowmq.spark.write.queue_choice import missing, stand_in
from sparrowmq.spark.write.refusals import QueueLeftError, queue_left
from sparrowmq.spark.write.routing import Destination

if TYPE_CHECKING:  # only writes with large bodies need it
    from sparrowmq.spark.write.body_limit import LargestBody

log = logging.getLogger("sparrowmq.spark")

T = TypeVar("T")


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


class TaskSender:
    """Sends on the loop what its caller's thread encodes. Not thread safe.

    A send that failed in passing is repeated for as long as `brokerTimeoutMs` says; one that any queue may
    have is tried at other brokers first, by the producer. What a queue does not take because it left its
    topic since the task began goes to another one. After a failed send the sender is done: `submit` and
    `finish` raise.
    """

    def __init__(self, loop: LoopThread, producer: BatchProducer, options: WriteOptions) -> None:
        self._loop = loop
        self._producer = producer
        self._options = options
        self._pending: deque[Future[None]] = deque()
        self._locks: dict[MessageQueue, asyncio.Lock] = {}
        self._queues: dict[str, Sequence[MessageQueue]] = {}
        self._limits: dict[str, LargestBody] = {}
        self.sent: Counter[str] = Counter()
        """Messages that were acknowledged, by topic."""

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The writable queues of a topic, the same for the whole task."""
        if topic not in self._queues:
            self._queues[topic] = self._loop.run(self._queues_of(topic))
        return self._queues[topic]

    async def _queues_of(self, topic: str) -> Sequence[MessageQueue]:
        found = await retried(
            self._options, f"reading the queues of {topic}", lambda: self._producer.queues(topic)
        )
        return [queue for queue in found if queue.broker_name not in self._options.lost_brokers]

    def body_limit(self, topic: str) -> LargestBody:
        """The largest body for a topic, the same for the whole task."""
        if topic not in self._limits:
            from sparrowmq.spark.write.body_limit import body_limit

            brokers = {queue.broker_name for queue in self.queues(topic)} - self._options.lost_brokers
            self._limits[topic] = self._loop.run(body_limit(self._options, topic, brokers))
        return self._limits[topic]

    def submit(self, destination: Destination, body: bytes, count: int) -> None:
        """Send a batch; waits while too many are in flight. Raises the error of an earlier send."""
        self._start(self._send(destination, body, count))

    def submit_delayed(self, destination: Destination, message: Message) -> None:
        """Send a delayed message, alone; otherwise like `submit`."""
        self._start(self._send_delayed(destination, message))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            while len(self._pending) >= self._options.max_in_flight:
                self._wait_for_one()
        except BaseException:
            work.close()
            raise
        self._pending.append(self._loop.submit(work))

    def finish(self) -> None:
        """Wait for all sends. Raises the error of a send."""
        while self._pending:
            self._wait_for_one()

    def cancel(self) -> None:
        """Abandon sends in flight; they may still arrive."""
        while self._pending:
            self._pending.popleft().cancel()

    def _wait_for_one(self) -> None:
        self._pending.popleft().result()

    async def _send(self, destination: Destination, body: bytes, count: int) -> None:
        queue = destination.queue
        if queue is None:
            await self._anywhere(
                destination.topic,
                count,
                lambda: self._producer.send_encoded_batch(destination.topic, body, count),
            )
        else:
            async with self._locks.setdefault(queue, asyncio.Lock()):
                await self._or_stand_in(queue, lambda queue: self._send_to(queue, body, count))
        self.sent[destination.topic] += count

    async def _send_delayed(self, destination: Destination, message: Message) -> None:
        queue = destination.queue
        if queue is None:
            await self._anywhere(destination.topic, 1, lambda: self._producer.send(message))
        else:
            await self._or_stand_in(
                queue,
                lambda queue: self._to_queue(queue, 1, lambda: self._producer.send(message, queue=queue)),
            )
        self.sent[destination.topic] += 1

    async def _send_to(self, queue: MessageQueue, body: bytes, count: int, **more: bool) -> SendResult:
        return await self._to_queue(
            queue,
            count,
            lambda: self._producer.send_encoded_batch(queue.topic, body, count, queue=queue, **more),
        )

    async def _to_queue(
        self, queue: MessageQueue, count: int, send: Callable[[], Awaitable[SendResult]]
    ) -> SendResult:
        """What `send` to a certain queue gives; its broker may lose its route while it is away.

        Raises `QueueLeftError` if the queue was one of its topic's and left.
        """

        async def sent() -> SendResult:
            try:
                return await send()
            except (BrokerError, NoRouteError) as error:
                if queue in self._known(queue.topic) and await self._has_left(queue, error):
                    raise queue_left(queue, error) from error
                raise

        return await retried(self._options, f"a send of {count} messages to {queue}", sent, routed=True)

    def _known(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of a topic that the task uses, as far as it asked for them."""
        return self._queues.get(topic, ())

    async def _has_left(self, queue: MessageQueue, error: SparrowError) -> bool:
        """Whether an error says that a queue left its topic."""
        return is_illegal_queue(error) or queue in missing([queue], await self._producer.queues(queue.topic))

    async def _or_stand_in(
        self, queue: MessageQueue, send: Callable[[MessageQueue], Awaitable[SendResult]]
    ) -> SendResult:
        """What `send` to a queue gives, or to another one if it left its topic."""
        try:
            return await send(queue)
        except QueueLeftError as error:
            other = stand_in(queue, self._known(queue.topic), self._options.lost_brokers)
            if other == queue:
                raise
            say_left(queue, other, error)
            return await send(other)

    async def _anywhere(
        self, topic: str, count: int, send: Callable[[], Awaitable[SendResult]]
    ) -> SendResult:
        """What `send` to any queue of a topic gives."""
        what = f"a send of {count} messages to {topic}"
        return await retried(self._options, what, send, routed=self.sent[topic] > 0)


def say_left(queue: MessageQueue, other: MessageQueue, error: QueueLeftError) -> None:
    """Log, once in a process, that rows for a queue that left its topic go to another one."""
    if first_time("left", queue):
        log.warning("the rest of the rows for %s go to %s: %s", queue, other, error)


async def retried(
    options: WriteOptions, what: str, work: Callable[[], Awaitable[T]], *, routed: bool = False
) -> T:
    """The result of `work`, repeated after faults that pass for as long as `brokerTimeoutMs` says.

    A topic without a route is an error at once, waiting seldom helps; `routed`: it had one before.
    """
    retries = Retries(options.broker_timeout)
    while True:  # until a result, an error or the end of the retries
        try:
            return await work()
        except SparrowError as error:
            if not is_passing(error) or (isinstance(error, NoRouteError) and not routed):
                raise
            await retries.pause(what, error)
