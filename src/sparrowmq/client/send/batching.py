"""Lingering: asynchronous sends wait briefly for others and are sent together as one batch (client:B-77).

A batch has one topic, queue, `wait_store_ok` and tag. Messages for any queue are collected by these values,
and each batch goes to the next queue in turn. Messages to one queue, chosen by the caller or by their key,
form one line: a batch takes the first ones with equal values, and no batch is sent before the previous one
has ended, so the order is kept. What no batch can have is sent alone when its turn comes. While the route of
a topic is looked up, its messages with keys wait in one line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, Final, NamedTuple, Protocol

from sparrowmq.client.base.settings import ProducerSettings
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.send.encoding import (
    Outgoing,
    batch_item,
    may_linger,
    outgoing_items,
    outgoing_single,
)
from sparrowmq.client.send.in_flight import Gate
from sparrowmq.client.send.message_checks import check_is_message
from sparrowmq.client.send.topic_routes import PublishTable
from sparrowmq.core.errors import NoRoomError, SparrowError
from sparrowmq.core.message import COPY_BYTES_MAX, PROPERTIES_BYTES_MAX, Message, MessageQueue
from sparrowmq.core.results import SendResult
from sparrowmq.protocol.batch import BATCH_FIXED_BYTES, BatchItem, encode_batch

Done = Callable[[SendResult | None, BaseException | None], None]
Alike = tuple[bool, str | None]
"""What the messages of a batch have in common: `wait_store_ok` and tag."""
_PROPERTIES_MAX: Final = PROPERTIES_BYTES_MAX - COPY_BYTES_MAX
"""Brokers may refuse a message with more, and a whole batch because of it."""


class SendLine(NamedTuple):
    """Where messages are collected: for one queue, or for any queue with what they have in common."""

    topic: str
    queue: MessageQueue | None
    by_key: bool = False
    """The ordering key chose the queue, not the caller."""
    alike: Alike | None = None


class LingeringMessage(NamedTuple):
    """A message as it was when it was sent, and whom to tell; `size` is what it needs in a batch."""

    message: Message
    unique_key: str
    item: BatchItem
    done: Done
    size: int
    alike: Alike
    alone: Outgoing | None
    """The message as a request of its own, if no batch can have it."""


class BatchSender(Protocol):
    """The methods of the sender that lingering uses."""

    instance: ClientInstance
    gate: Gate
    table: PublishTable

    def send_outgoing(
        self, outgoing: Outgoing, timeout: float | None, *, queue: MessageQueue | None
    ) -> Coroutine[Any, Any, SendResult]:
        """Send a batch or a message: with retries, or once to `queue`."""

    def batch_key(self) -> str:
        """The id of a whole batch."""


class _Bucket:
    """Waiting messages, and whether one batch of them is in flight."""

    __slots__ = ("bytes", "due", "held", "sending", "timer")

    def __init__(self) -> None:
        self.held: list[LingeringMessage] = []
        self.bytes = 0
        self.due = 0
        """The number of messages that have waited long enough."""
        self.timer: asyncio.TimerHandle | None = None
        self.sending = False

    def take(self, bytes_max: int) -> tuple[list[LingeringMessage], int]:
        """The first messages, as many as fit in one batch, and their size in bytes."""
        size = count = 0
        first = self.held[0]
        for one in self.held:
            if count and (size + one.size > bytes_max or one.alone is not None or first.alone is not None):
                break
            if one.alike != first.alike:
                break
            size += one.size
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
        self._buckets: dict[SendLine, _Bucket] = {}
        self._unrouted: dict[str, list[LingeringMessage]] = {}
        """Messages with keys by topic, until its queues are known."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._flushes = 0
        self.bytes = 0

    def __repr__(self) -> str:
        return f"<Linger buckets={len(self._buckets)} bytes={self.bytes}>"

    def put(self, message: Message, done: Done, queue: MessageQueue | None = None) -> bool:
        """Add a message to a batch. Returns False when it must be sent alone.

        That is so if it is no plain message, or if any queue will do and a batch cannot contain it,
        `linger_total_bytes` are held or the producer is closing. Raises `InvalidMessageError` as a send does,
        and `NoRoomError` for a message that would overtake others of its queue.
        """
        check_is_message(message)
        if not may_linger(message):
            return False
        key = message.key if queue is None else None
        if key is None and queue is None:
            if self._closing or self.is_full:
                return False
            held = self._hold(message, done)
            if held.alone is not None:
                return False
            self._add(SendLine(message.topic, None, alike=held.alike), held)
        elif key is None:
            self._add(SendLine(message.topic, queue), self._hold(message, done))
        else:
            self._put_by_key(self._hold(copy(message), done), key)
        return True

    @property
    def is_full(self) -> bool:
        """Whether no more messages may wait."""
        return self.bytes >= self._settings.linger_total_bytes

    def _hold(self, message: Message, done: Done) -> LingeringMessage:
        bytes_max = self._settings.message_bytes_max
        ids = self._sender.instance.unique_ids
        unique_key = ids.next()
        item = batch_item(message, unique_key, bytes_max)
        size, alone = item_bytes(item) + self._room, None
        if size > bytes_max or len(item[2]) > _PROPERTIES_MAX:
            now_ms = self._sender.instance.clock.now_ms()
            alone = outgoing_single(message, unique_key, now_ms, bytes_max)
        return LingeringMessage(
            message, unique_key, item, done, size, (message.wait_store_ok, message.tags), alone
        )

    def _put_by_key(self, held: LingeringMessage, key: str) -> None:
        topic = held.message.topic
        info = self._sender.table.infos.get(topic)
        if info is not None and info.targets and topic not in self._unrouted:
            self._add(SendLine(topic, info.of_key(key).queue, by_key=True), held)
            return
        if self.is_full:
            raise self._full()
        if topic not in self._unrouted:
            self._unrouted[topic] = []
            self._start(self._route(topic), "route for linger")
        self._unrouted[topic].append(held)
        self.bytes += held.size
        self._sender.gate.announce()

    async def _route(self, topic: str) -> None:
        """Look up the route of a topic for the messages that wait for it, in the order of the calls."""
        error: BaseException | None = None
        info = None
        try:
            deadline = self._loop.time() + self._settings.send_timeout
            info = await self._sender.table.find(topic, deadline)
        except SparrowError as failure:
            error = failure
        except BaseException as failure:
            error = failure
            raise
        finally:
            for held in self._unrouted.pop(topic):
                self.bytes -= held.size
                if info is None:
                    self._tell(held.done, None, error)
                else:
                    assert held.message.key is not None
                    queue = info.of_key(held.message.key).queue
                    self._add(SendLine(topic, queue, by_key=True), held, waited=True)
                self._sender.gate.withdraw()

    def _add(self, line: SendLine, held: LingeringMessage, *, waited: bool = False) -> None:
        """Raises `NoRoomError` when the limit is reached, unless nothing of the line waits: then the
        message leaves at once, or it has `waited` already."""
        bytes_max = self._settings.message_bytes_max
        bucket = self._buckets.get(line)
        at_once = self._closing or self._flushes > 0 or self.is_full
        if bucket is None:
            bucket = self._buckets[line] = _Bucket()
        elif self.is_full and not waited:
            raise self._full()
        if bucket.held and bucket.bytes + held.size > bytes_max:
            self._flush(line, bucket)
            if line.queue is None:
                bucket = self._buckets[line] = _Bucket()
        bucket.held.append(held)
        bucket.bytes += held.size
        self.bytes += held.size
        self._sender.gate.announce()
        if at_once or bucket.bytes >= self._settings.linger_bytes:
            self._flush(line, bucket)
        elif bucket.timer is None:
            bucket.timer = self._loop.call_later(self._settings.linger, self._due, line, bucket)

    def _full(self) -> NoRoomError:
        return NoRoomError(
            f"{self.bytes} bytes wait for their batch, the limit is {self._settings.linger_total_bytes}; "
            f"wait for results or raise linger_total_bytes",
            limit=self._settings.linger_total_bytes,
        )

    def close(self) -> None:
        """Send everything now, and let nothing wait from now on, but for its turn."""
        self._closing = True
        self.flush()

    @contextmanager
    def flushing(self) -> Iterator[None]:
        """Send everything now, and let nothing wait within the block, but for its turn."""
        self._flushes += 1
        try:
            self.flush()
            yield
        finally:
            self._flushes -= 1

    def flush(self) -> None:
        """Send what waits now."""
        for line, bucket in list(self._buckets.items()):
            self._flush(line, bucket)

    def _due(self, line: SendLine, bucket: _Bucket) -> None:
        bucket.timer = None
        self._flush(line, bucket)

    def _flush(self, line: SendLine, bucket: _Bucket) -> None:
        """The linger time of all held messages has passed: send them, unless a batch of the same queue is in
        flight.
        """
        if bucket.timer is not None:
            bucket.timer.cancel()
            bucket.timer = None
        bucket.due = len(bucket.held)
        if bucket.held and not bucket.sending:
            self._leave(line, bucket)

    def _leave(self, line: SendLine, bucket: _Bucket) -> None:
        held, size = bucket.take(self._settings.message_bytes_max)
        bucket.sending = line.queue is not None
        self._start(self._send(line, bucket, held, size), "linger")
        if not bucket.sending:
            del self._buckets[line]

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, line: SendLine, bucket: _Bucket, held: list[LingeringMessage], size: int) -> None:
        result: SendResult | None = None
        error: BaseException | None = None
        try:
            outgoing = held[0].alone or self._batch(held)
            result = await self._sender.send_outgoing(
                outgoing, None, queue=None if line.by_key else line.queue
            )
        except SparrowError as failure:
            error = failure
        except BaseException as failure:
            error = failure
            raise
        finally:
            self.bytes -= size
            results: list[SendResult | None] = [result] * len(held)
            if result is not None and held[0].alone is None:
                results = [*parts_of(result, [one.unique_key for one in held])]
            for one, part in zip(held, results, strict=True):
                self._tell(one.done, part, error)
                self._sender.gate.withdraw()
            if bucket.sending:
                self._ended(line, bucket)

    def _batch(self, held: list[LingeringMessage]) -> Outgoing:
        body = encode_batch(one.item for one in held)
        now_ms = self._sender.instance.clock.now_ms()
        messages, unique_keys = [one.message for one in held], [one.unique_key for one in held]
        return outgoing_items(messages, unique_keys, body, self._sender.batch_key(), now_ms)

    def _tell(self, done: Done, result: SendResult | None, error: BaseException | None) -> None:
        """Complete one caller's future. An exception of its callback must not affect the others."""
        try:
            done(result, error)
        except Exception as raised:
            self._loop.call_exception_handler(
                {"message": f"the callback {done!r} of a send failed", "exception": raised}
            )

    def _ended(self, line: SendLine, bucket: _Bucket) -> None:
        """A batch to a chosen queue has ended: send the next one if it is due or the producer is closing."""
        bucket.sending = False
        if not bucket.held:
            self._buckets.pop(line, None)
        elif bucket.due or self._closing:
            self._leave(line, bucket)


def parts_of(batch: SendResult, unique_keys: list[str]) -> list[SendResult]:
    """The results of the messages of a batch (client:B-79).

    A response with a single id (an inner batch) is the result of every message.
    """
    ids = batch.offset_message_id.split(",")
    if len(ids) != len(unique_keys):
        return [batch] * len(unique_keys)
    return [
        SendResult(
            batch.status,
            unique_key,
            offset_id,
            batch.queue,
            offset,
            batch.transaction_id,
            None,
            batch.region,
            batch.trace_on,
        )
        for offset, (unique_key, offset_id) in enumerate(
            zip(unique_keys, ids, strict=True), batch.queue_offset
        )
    ]
