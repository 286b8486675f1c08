"""Lingering: asynchronous sends wait briefly for others and are sent together as one batch (client:B-77).

A batch has one topic, queue, `wait_store_ok` and tag. Messages without a chosen queue are collected by these
values, and each batch goes to the next queue in turn. Messages to one chosen queue form one line: a batch
takes the first ones with equal values, and no batch is sent before the previous one has ended, so the order
is kept. The ordering key of a message chooses its queue; while the route of a topic is looked up, its
messages with keys wait in one line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from sparrowmq.client.base.settings import ProducerSettings
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.send.encoding import (
    Outgoing,
    batch_item,
    may_linger,
    outgoing_items,
)
from sparrowmq.client.send.in_flight import Gate
from sparrowmq.client.send.message_checks import check_is_message
from sparrowmq.client.send.topic_routes import PublishTable
from sparrowmq.core.errors import SparrowError, TooManyRequestsError
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.core.results import SendResult
from sparrowmq.protocol.batch import BATCH_FIXED_BYTES, BatchItem, encode_batch

Done = Callable[[SendResult | None, BaseException | None], None]
Key = tuple[str, MessageQueue | None, bool, str | None]
"""Topic, chosen queue and, where no queue was chosen, `wait_store_ok` and tag."""
Held = tuple[Message, str, BatchItem, Done]


class BatchSender(Protocol):
    """The methods of the sender that lingering uses."""

    instance: ClientInstance
    gate: Gate
    table: PublishTable

    def submit(self, message: Message, done: Done, timeout: float | None) -> None:
        """Send a message, lingering or alone."""

    def send_outgoing(
        self, outgoing: Outgoing, timeout: float | None, *, queue: MessageQueue | None
    ) -> Coroutine[Any, Any, SendResult]:
        """Send a batch."""

    def batch_key(self) -> str:
        """The id of a whole batch."""


class _Bucket:
    """Waiting messages, and whether one batch of them is in flight."""

    __slots__ = ("bytes", "due", "held", "room", "sending", "timer")

    def __init__(self, room: int) -> None:
        self.room = room
        self.held: list[Held] = []
        self.bytes = 0
        self.due = 0
        """The number of messages that have waited long enough."""
        self.timer: asyncio.TimerHandle | None = None
        self.sending = False

    def take(self, bytes_max: int) -> tuple[list[Held], int]:
        """The first messages, as many as fit in one batch, and their size in bytes."""
        size = count = 0
        first = self.held[0][0]
        for message, _, item, _ in self.held:
            needed = item_bytes(item) + self.room
            if count and size + needed > bytes_max:
                break
            if message.tags != first.tags or message.wait_store_ok != first.wait_store_ok:
                break
            size += needed
            count += 1
        taken, self.held = self.held[:count], self.held[count:]
        self.bytes -= size
        self.due = max(0, self.due - count)
        return taken, size


def item_bytes(item: BatchItem) -> int:
    """The encoded size of one member in bytes."""
    return BATCH_FIXED_BYTES + len(item[1]) + len(item[2])


class Linger:
    """Collects messages for one producer; `bytes` counts those that wait or are in flight.

    `room` bytes per message stay free for properties that the sender adds.
    """

    def __init__(self, sender: BatchSender, settings: ProducerSettings, room: int = 0) -> None:
        self._room = room
        self._sender = sender
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._buckets: dict[Key, _Bucket] = {}
        self._unrouted: dict[str, list[tuple[Message, Done]]] = {}
        """Messages with keys by topic, until its queues are known."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self.bytes = 0

    def __repr__(self) -> str:
        return f"<Linger buckets={len(self._buckets)} bytes={self.bytes}>"

    def put(self, message: Message, done: Done, queue: MessageQueue | None = None) -> bool:
        """Add a message to a batch. Returns False when it must be sent alone.

        That is so if batches cannot contain it, or if `linger_total_bytes` are held. Raises
        `InvalidMessageError` as a send does.
        """
        check_is_message(message)
        if self._closing or not may_linger(message):
            return False
        bytes_max = self._settings.message_bytes_max
        unique_key = self._sender.instance.unique_ids.next()
        item = batch_item(message, unique_key, bytes_max)
        size = item_bytes(item) + self._room
        if size > bytes_max:
            return False
        if queue is None and message.key is not None:
            info = self._sender.table.infos.get(message.topic)
            if info is None or not info.targets or message.topic in self._unrouted:
                self._wait_for_route(message, done)
                return True
            queue = info.of_key(message.key).queue
        key = (
            (message.topic, None, message.wait_store_ok, message.tags)
            if queue is None
            else (message.topic, queue, True, None)
        )
        bucket = self._buckets.get(key)
        if self.bytes >= self._settings.linger_total_bytes:
            if bucket is None or queue is None:
                return False
            raise self._full()  # sent alone, it would overtake waiting messages
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(self._room)
        if bucket.held and bucket.bytes + size > bytes_max:
            self._flush(key, bucket)
            if queue is None:
                bucket = self._buckets[key] = _Bucket(self._room)
        bucket.held.append((message, unique_key, item, done))
        bucket.bytes += size
        self.bytes += size
        self._sender.gate.announce()
        if bucket.bytes >= self._settings.linger_bytes:
            self._flush(key, bucket)
        elif bucket.timer is None:
            bucket.timer = self._loop.call_later(self._settings.linger, self._due, key, bucket)
        return True

    def _full(self) -> TooManyRequestsError:
        return TooManyRequestsError(
            f"{self.bytes} bytes wait for their batch, the limit is {self._settings.linger_total_bytes}; "
            f"wait for results or raise linger_total_bytes"
        )

    def _wait_for_route(self, message: Message, done: Done) -> None:
        """Keep a message until the queues of its topic are known, in the order of the calls."""
        if self.bytes >= self._settings.linger_total_bytes:
            raise self._full()
        if message.topic not in self._unrouted:
            self._unrouted[message.topic] = []
            self._start(self._route(message.topic), "route for linger")
        self._unrouted[message.topic].append((message, done))
        self.bytes += len(message.body)
        self._sender.gate.announce()

    async def _route(self, topic: str) -> None:
        """Look up the route of a topic, then submit again what waited for it."""
        error: BaseException | None = None
        try:
            await self._sender.table.find(topic, self._loop.time() + self._settings.send_timeout)
        except SparrowError as failure:
            error = failure
        except BaseException as failure:
            error = failure
            raise
        finally:
            for message, done in self._unrouted.pop(topic):
                self.bytes -= len(message.body)
                self._again(message, done, error)
                self._sender.gate.withdraw()

    def _again(self, message: Message, done: Done, error: BaseException | None) -> None:
        """Submit a message that waited for its route, unless `error` says that there is none."""
        if error is None:
            try:
                self._sender.submit(message, done, None)
            except SparrowError as failure:
                error = failure
        if error is not None:
            self._tell(done, None, error)

    def close(self) -> None:
        """Send everything now, and collect nothing from now on."""
        self._closing = True
        for key, bucket in list(self._buckets.items()):
            self._flush(key, bucket)

    def _due(self, key: Key, bucket: _Bucket) -> None:
        bucket.timer = None
        self._flush(key, bucket)

    def _flush(self, key: Key, bucket: _Bucket) -> None:
        """The linger time of all held messages has passed: send them, unless a batch of the same queue is in
        flight.
        """
        if bucket.timer is not None:
            bucket.timer.cancel()
            bucket.timer = None
        bucket.due = len(bucket.held)
        if bucket.held and not bucket.sending:
            self._leave(key, bucket)

    def _leave(self, key: Key, bucket: _Bucket) -> None:
        held, size = bucket.take(self._settings.message_bytes_max)
        bucket.sending = key[1] is not None
        self._start(self._send(key, bucket, held, size), "linger")
        if not bucket.sending:
            del self._buckets[key]

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, key: Key, bucket: _Bucket, held: list[Held], size: int) -> None:
        messages = [message for message, _, _, _ in held]
        unique_keys = [unique_key for _, unique_key, _, _ in held]
        result: SendResult | None = None
        error: BaseException | None = None
        try:
            body = encode_batch(item for _, _, item, _ in held)
            now_ms = self._sender.instance.clock.now_ms()
            outgoing = outgoing_items(messages, unique_keys, body, self._sender.batch_key(), now_ms)
            result = await self._sender.send_outgoing(outgoing, None, queue=key[1])
        except SparrowError as failure:
            error = failure
        except BaseException as failure:
            error = failure
            raise
        finally:
            self.bytes -= size
            for position, (_, unique_key, _, done) in enumerate(held):
                part = None if result is None else part_of(result, position, unique_key, len(held))
                self._tell(done, part, error)
                self._sender.gate.withdraw()
            if bucket.sending:
                self._ended(key, bucket)

    def _tell(self, done: Done, result: SendResult | None, error: BaseException | None) -> None:
        """Complete one caller's future. An exception of its callback must not affect the others."""
        try:
            done(result, error)
        except Exception as raised:
            self._loop.call_exception_handler(
                {"message": f"the callback {done!r} of a send failed", "exception": raised}
            )

    def _ended(self, key: Key, bucket: _Bucket) -> None:
        """A batch to a chosen queue has ended: send the next one if it is due or the producer is closing."""
        bucket.sending = False
        if not bucket.held:
            self._buckets.pop(key, None)
        elif bucket.due or self._closing:
            self._leave(key, bucket)


def part_of(batch: SendResult, position: int, unique_key: str, count: int) -> SendResult:
    """The result of one message of a batch (client:B-79).

    A response with a single id (an inner batch) is the result of every message.
    """
    ids = batch.offset_message_id.split(",")
    if len(ids) != count:
        return batch
    return SendResult(
        batch.status,
        unique_key,
        ids[position],
        batch.queue,
        batch.queue_offset + position,
        batch.transaction_id,
        None,
        batch.region,
        batch.trace_on,
    )
