"""Lingering: asynchronous sends wait a little for others and travel with them as one batch (client:B-77).

A batch has one topic, queue, `wait_store_ok` and tag. Without a chosen queue messages are gathered by these,
and each batch takes its turn. Messages to one chosen queue wait in one line: a batch is what stands first and
agrees, and none leaves before the one ahead of it ended, so they keep the order they were given in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from sparrowmq.client.gate import Gate
from sparrowmq.client.instance import ClientInstance
from sparrowmq.client.sending import Outgoing, batch_item, check_is_message, outgoing_items, system_properties
from sparrowmq.client.settings import ProducerSettings
from sparrowmq.core.errors import SparrowError, TooManyRequestsError
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.core.names import RETRY_PREFIX
from sparrowmq.core.results import SendResult
from sparrowmq.protocol.batch import BATCH_FIXED_BYTES, BatchItem, encode_batch

Done = Callable[[SendResult | None, BaseException | None], None]
Key = tuple[str, MessageQueue | None, bool, str | None]
"""Topic, chosen queue and, where no queue was chosen, `wait_store_ok` and tag."""
Held = tuple[Message, str, BatchItem, Done]


class BatchSender(Protocol):
    """What lingering needs of the sender."""

    instance: ClientInstance
    gate: Gate

    def send_outgoing(
        self, outgoing: Outgoing, timeout: float | None, *, queue: MessageQueue | None
    ) -> Coroutine[Any, Any, SendResult]:
        """Send a batch."""

    def batch_key(self) -> str:
        """The id of a batch as a whole."""


class _Bucket:
    """Messages that wait, and whether one batch of them is on its way."""

    __slots__ = ("bytes", "due", "held", "room", "sending", "timer")

    def __init__(self, room: int) -> None:
        self.room = room
        self.held: list[Held] = []
        self.bytes = 0
        self.due = 0
        """How many of those held have waited long enough."""
        self.timer: asyncio.TimerHandle | None = None
        self.sending = False

    def take(self, bytes_max: int) -> tuple[list[Held], int]:
        """The first messages, as many as one batch may have, and their bytes."""
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
    """Bytes of one encoded member."""
    return BATCH_FIXED_BYTES + len(item[1]) + len(item[2])


class Linger:
    """Gathers messages for one producer; `bytes` wait or are on their way.

    `room` bytes are left free for each message: the sender adds something.
    """

    def __init__(self, sender: BatchSender, settings: ProducerSettings, room: int = 0) -> None:
        self._room = room
        self._sender = sender
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._buckets: dict[Key, _Bucket] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self.bytes = 0

    def __repr__(self) -> str:
        return f"<Linger buckets={len(self._buckets)} bytes={self.bytes}>"

    def put(self, message: Message, done: Done, queue: MessageQueue | None = None) -> bool:
        """Keep a message for a batch; False when it must be sent alone.

        That is what a batch cannot hold, and everything while `linger_total_bytes` are held. Raises
        `InvalidMessageError` as a send does.
        """
        check_is_message(message)
        if self._closing or message.topic.startswith(RETRY_PREFIX) or system_properties(message) is not None:
            return False
        bytes_max = self._settings.message_bytes_max
        unique_key = self._sender.instance.unique_ids.next()
        item = batch_item(message, unique_key, bytes_max)
        size = item_bytes(item) + self._room
        if size > bytes_max:
            return False
        key = (
            (message.topic, None, message.wait_store_ok, message.tags)
            if queue is None
            else (message.topic, queue, True, None)
        )
        bucket = self._buckets.get(key)
        if self.bytes >= self._settings.linger_total_bytes:
            if bucket is None or queue is None:
                return False
            raise TooManyRequestsError(  # sent alone it would overtake those that wait
                f"{self.bytes} bytes linger, the limit is {self._settings.linger_total_bytes}; wait for "
                "results or raise linger_total_bytes"
            )
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

    def close(self) -> None:
        """Let all leave now, and keep nothing from now on."""
        self._closing = True
        for key, bucket in list(self._buckets.items()):
            self._flush(key, bucket)

    def _due(self, key: Key, bucket: _Bucket) -> None:
        bucket.timer = None
        self._flush(key, bucket)

    def _flush(self, key: Key, bucket: _Bucket) -> None:
        """The time of all that is held has come: let it leave, unless it must wait for the batch ahead."""
        if bucket.timer is not None:
            bucket.timer.cancel()
            bucket.timer = None
        bucket.due = len(bucket.held)
        if bucket.held and not bucket.sending:
            self._leave(key, bucket)

    def _leave(self, key: Key, bucket: _Bucket) -> None:
        held, size = bucket.take(self._settings.message_bytes_max)
        bucket.sending = key[1] is not None
        task = self._loop.create_task(self._send(key, bucket, held, size), name="linger")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if not bucket.sending:
            del self._buckets[key]

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
        """Give one caller its outcome; what its callback raises must not keep the others from theirs."""
        try:
            done(result, error)
        except Exception as raised:
            self._loop.call_exception_handler(
                {"message": f"the callback {done!r} of a send raised", "exception": raised}
            )

    def _ended(self, key: Key, bucket: _Bucket) -> None:
        """The batch to a chosen queue is through: the next may leave when it is due or closing."""
        bucket.sending = False
        if not bucket.held:
            self._buckets.pop(key, None)
        elif bucket.due or self._closing:
            self._leave(key, bucket)


def part_of(batch: SendResult, position: int, unique_key: str, count: int) -> SendResult:
    """The result of one message of a batch (client:B-79).

    An answer with one id for all (an inner batch) is every message's result.
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
