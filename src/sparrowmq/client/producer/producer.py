"""The asyncio producer: sends of every kind, requests, transactions (client:B). `Sender` does the work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, nullcontext, suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from sparrowmq.client.base.hooks import SendMode
from sparrowmq.client.base.lifecycle import ClientObject, Lifecycle
from sparrowmq.client.base.settings import ProducerSettings, check_range, settings_of
from sparrowmq.client.base.tasks import TaskGroup, run_every
from sparrowmq.client.cluster.broker_api import need_address
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.cluster.instances import shared_instance
from sparrowmq.client.producer.recall import recall
from sparrowmq.client.send.detector import ROUND_SECONDS, detect
from sparrowmq.client.send.encoding import outgoing_encoded_batch
from sparrowmq.client.send.queue_selection import QueueSelector
from sparrowmq.client.send.sender import Sender
from sparrowmq.client.send.sequences import as_numbered
from sparrowmq.client.tracing.on_demand import tracing_of
from sparrowmq.core.errors import ClientError, GroupTakenError, RequestTimeoutError, SparrowError
from sparrowmq.core.message import Message, MessageQueue, ReceivedMessage
from sparrowmq.core.names import check_group
from sparrowmq.core.results import SendResult

if TYPE_CHECKING:  # loaded only by producers that need it
    from sparrowmq.client.base.options import ProducerOptions
    from sparrowmq.client.producer.transaction import TransactionListener, TransactionResult, Transactions
    from sparrowmq.client.tracing.dispatcher import Tracing

log = logging.getLogger("sparrowmq.client")


class Producer(ClientObject):
    """Sends messages of one producer group.

        async with Producer("orders", name_server="127.0.0.1:9876") as producer:
            await producer.send(Message("TopicTest", b"hello", tags="TagA"))

    Every send has one time budget for all attempts. A send that times out or loses its connection may still
    have been stored: consumers must expect repeats. At most `in_flight_max` sends are in flight; others wait.
    """

    def __init__(
        self,
        group: str,
        *,
        settings: ProducerSettings | None = None,
        transaction_listener: TransactionListener | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """A producer of `group`. `options` are the fields of `ProducerSettings`; they override `settings`.

        `name_server` is `host:port` (several: separated by `;`), by default from the environment.
        `send_timeout` is the time in seconds for one send including retries (3), `retries` the attempts
        after the first (2). With `linger` (seconds; 0.005 is usual) sends that are in flight at the same time
        share requests, which is many times faster, and the order of each `key` is kept.
        `send_in_transaction` needs a `transaction_listener`. Raises `InvalidNameError` or `SettingsError`.

        An `idempotent` producer numbers its messages: a send that is repeated because its response was lost
        is stored once and keeps its order in the queue. It is sent to the same queue until it is answered.
        Sends to one queue leave one at a time, so combine messages (`send_batch`, `linger`). Only normal
        messages are supported. Apache's brokers store such messages at least once, like others.
        """
        check_group(group)
        self.group = group
        self.settings = settings_of(ProducerSettings, settings, options)
        self._life = Lifecycle(f"producer {group!r}")
        self._listener = transaction_listener
        self._sender: Sender | None = None
        self._transactions: Transactions | None = None
        self._tracing: Tracing | None = None
        self._tasks = TaskGroup(self._life.task_died)

    def __repr__(self) -> str:
        return f"<Producer {self.group!r} {self.state.value} {self._sender!r}>"

    @property
    def client_id(self) -> str:
        """The id of this client at the brokers. Raises `InvalidStateError` before the start."""
        return self._running().instance.client_id

    @property
    def in_flight(self) -> int:
        """Number of sends in flight."""
        return 0 if self._sender is None else self._sender.gate.count

    async def start(self) -> None:
        """Start. Raises `NoNameServerError`, or `InvalidStateError` when it was started before.

        Raises `ClientError` when a client with the same `instance_name` already has a producer of this group;
        it may then be started later.
        """
        with self._life.starting():
            instance = shared_instance(self.settings)
            self._tracing = tracing_of(self.group, self.settings, "PRODUCE")
            own = () if self._tracing is None else (self._tracing.hook,)
            kind = _sender_kind(self.settings)
            self._sender = sender = kind(self.group, self.settings, instance, own)
            try:
                instance.register_producer(self.group, sender.table)
                instance.start()
                await self._start_parts(sender, instance)
            except BaseException as error:
                self._sender = None
                await (instance.close() if isinstance(error, GroupTakenError) else self._end_parts(instance))
                raise

    async def _start_parts(self, sender: Sender, instance: ClientInstance) -> None:
        settings = self.settings
        if self._listener is not None:
            from sparrowmq.client.producer.transaction import Transactions

            self._transactions = Transactions(
                self.group,
                self._listener,
                instance,
                sender.hooks,
                threads=settings.check_threads,
                waiting_max=settings.checks_max,
            )
        for topic in settings.topics:
            try:
                await sender.queues(topic)
            except SparrowError as error:
                log.warning("the route of %s could not be loaded when the producer started: %s", topic, error)
        if self._tracing is not None:
            self._tracing.start()
        if sender.faults is not None and settings.detector:
            work = partial(detect, sender.faults, instance, sender.table, settings)
            asking = run_every(ROUND_SECONDS, work, name="asking brokers that failed", sleep=instance.sleep)
            self._tasks.start(asking, "detector")
        self._tasks.start(self._greet(instance), "first heartbeat")

    async def _greet(self, instance: ClientInstance) -> None:
        """The first heartbeat. Every broker may have half messages of an earlier producer of the group."""
        if self._transactions is not None:
            await instance.know_all_brokers()
        await instance.heartbeat()

    async def close(self) -> None:
        """Wait for sends in flight (at most `close_timeout` seconds), notify the brokers, close. Idempotent.

        Waits for a running start or another close.
        """
        await self._life.close(self._end)

    async def _end(self) -> None:
        sender = self._sender
        if sender is None:  # the start failed
            return
        try:
            if sender.linger is not None:
                sender.linger.close()
            deadline = asyncio.get_running_loop().time() + self.settings.close_timeout
            if not await sender.gate.drain(self.settings.close_timeout):
                log.warning("%r closes while sends are in progress; they fail", self)
            if self._transactions is not None:
                await self._transactions.close(max(0.0, deadline - asyncio.get_running_loop().time()))
        finally:
            await self._end_parts(sender.instance)

    async def _end_parts(self, instance: ClientInstance) -> None:
        """Stop everything that the start began, as far as it got, completely even if cancelled."""
        async with AsyncExitStack() as end:  # in reverse order
            end.push_async_callback(instance.close)
            if self._tracing is not None:
                end.push_async_callback(self._tracing.close)
            end.push_async_callback(instance.unregister, producer=self.group)
            end.push_async_callback(self._tasks.close)
            if self._transactions is not None:
                end.push_async_callback(self._transactions.close)

    def _running(self) -> Sender:
        self._life.need_running()
        assert self._sender is not None
        return self._sender

    # Sending

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        argument: Any = None,
        hash_key: object = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send one message and wait until the broker has stored it.

        By default queues are used in turn, and a retry goes to another broker. `queue` names the queue;
        `selector` is called with the topic's queues, the message and `argument`, and returns the queue;
        `hash_key` keeps messages with equal keys in one queue. There is no retry if the caller chose the
        queue. `timeout` in seconds covers all attempts.

        Raises `InvalidMessageError`, `InvalidNameError`, `NoRouteError`, `BrokerError`, `TransportError`, or
        `NoRoomError` when the timeout passed before the send could start. Cancelling does not undo
        the send.
        """
        sender = self._running()
        if queue is None and selector is None and hash_key is None:
            return await sender.send(message, timeout)
        return await sender.send_to_chosen(
            message, timeout, queue=queue, selector=selector, argument=argument, hash_key=hash_key
        )

    def submit(
        self,
        message: Message,
        done: Callable[[SendResult | None, BaseException | None], None],
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        mode: SendMode = SendMode.ASYNC,
    ) -> None:
        """Send without waiting and without a task: `done(result, error)` is called on the loop.

        One of its arguments is None. For callers that manage many sends themselves. Unlike `send` it retries
        (`retries_async` times) only after transport errors, on the same queue number of the next broker or,
        with `queue`, on that queue, and when the topic lost the queue. If a broker refuses the message, that
        error is the result. With `mode=SendMode.SYNC` it retries like `send`. Errors in the message itself
        are raised immediately.
        """
        self._running().submit(message, done, timeout, mode, queue)

    async def send_batch(
        self, messages: Iterable[Message], *, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> SendResult:
        """Send messages of one topic as one request; they get consecutive offsets in one queue.

        The encoded batch must stay within `message_bytes_max`; it is not compressed. The result's
        `message_ids` are those of the messages. Otherwise as `send`.
        """
        sender = self._running()
        return await sender.send_outgoing(sender.make_batch(list(messages)), timeout, queue=queue)

    async def send_encoded_batch(
        self,
        topic: str,
        body: bytes,
        count: int,
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
        numbered: bool = False,
    ) -> SendResult:
        """Send an already encoded batch body of `count` messages (remoting:5.5).

        Each message has its own `UNIQ_KEY`. For bulk writers; the result's `message_id` is that of the batch.
        `numbered`: the messages have the properties of an idempotent producer that the caller implements
        (docs/protocol.md), and `queue` is their queue. Otherwise as `send_batch`.
        """
        sender = self._running()
        outgoing = outgoing_encoded_batch(
            topic,
            body,
            count,
            sender.instance.unique_ids.next(),
            sender.instance.clock.now_ms(),
            self.settings.message_bytes_max,
        )
        if numbered:
            outgoing = as_numbered(outgoing)
        return await sender.send_outgoing(outgoing, timeout, queue=queue)

    async def flush(self, timeout: float) -> None:
        """Send what waits for a batch (`linger`) now, and wait until no send is in flight.

        Results and errors are those of the sends. Sends that begin meanwhile do not linger, and are waited
        for, too. Raises `RequestTimeoutError` after `timeout` seconds; the sends go on.
        """
        check_range("timeout", timeout, 0, 86400, "seconds")
        sender = self._running()
        with nullcontext() if sender.linger is None else sender.linger.flushing():
            ended = await sender.gate.drain(timeout)
        if not ended:
            raise RequestTimeoutError(
                f"at least {sender.gate.unfinished} sends of producer {self.group!r} have not ended after "
                f"{timeout:g} s; they go on: wait longer, or for their results",
                value=sender.gate.unfinished,
                limit=timeout,
            )

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        argument: Any = None,
        hash_key: object = None,
        timeout: float | None = None,
    ) -> None:
        """Send once without waiting for a response: a message that the broker refuses or never receives is
        silently lost.

        Raises only errors that prevent the send: exceeded limits, `NoRouteError`, `ConnectError`.
        """
        await self._running().send_oneway(
            message, timeout, queue=queue, selector=selector, argument=argument, hash_key=hash_key
        )

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The writable queues of `topic`. Raises `NoRouteError` when there are none."""
        return await self._running().queues(topic)

    async def request(
        self,
        message: Message,
        timeout: float = 3.0,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        argument: Any = None,
        hash_key: object = None,
    ) -> ReceivedMessage:
        """Send a message and wait for a consumer's reply (client:B.18).

        `timeout` in seconds covers both. The consumer answers with `create_reply_message` or `reply`. Raises
        `ReplyTimeoutError` when it was sent but no reply arrived, `ClientError` with the cause when it could
        not be sent, `NoRoomError` when 65,535 requests are already waiting, and errors in the
        message itself. Late replies are dropped.
        """
        from sparrowmq.client.cluster.request_reply import request_message, wait_for_reply

        sender = self._running()
        instance = sender.instance
        began = asyncio.get_running_loop().time()
        asked, correlation_id = request_message(message, instance.client_id, timeout)
        reply = instance.replies.expect(correlation_id)
        try:
            if message.topic not in sender.table.infos:
                await sender.table.find(message.topic, began + timeout)
                with suppress(TimeoutError):  # a broker that does not answer must not delay the others
                    async with asyncio.timeout_at(began + timeout):
                        await instance.heartbeat()  # brokers must know where to send replies (client:B-90)
            send = self.send(
                asked, queue=queue, selector=selector, argument=argument, hash_key=hash_key, timeout=timeout
            )
            sent = asyncio.create_task(send, name="request")
            sent.add_done_callback(lambda task: task.cancelled() or task.exception())
            return await wait_for_reply(reply, sent, began + timeout, message.topic, timeout)
        finally:
            instance.replies.forget(correlation_id)

    async def reply(
        self, request: ReceivedMessage, body: bytes, *, timeout: float | None = None
    ) -> SendResult:
        """Answer a request that a consumer received. Raises `ClientError` for a message that is not a
        request.
        """
        from sparrowmq.client.cluster.request_reply import create_reply_message

        return await self.send(create_reply_message(request, body), timeout=timeout)

    async def send_in_transaction(
        self,
        message: Message,
        argument: Any = None,
        *,
        timeout: float | None = None,
        check_after: float | None = None,
    ) -> TransactionResult:
        """Send a message that consumers see only when its transaction is committed (client:B.19).

        The message is stored first, as `send` does with `timeout`; then the listener's `execute` is called
        with it and `argument`, and its result is sent to the broker. If that request is lost, or the state is
        unknown, the broker asks for the listener's `check`, first after `check_after` seconds (None: the
        broker's default, 6). A delay level is ignored. Raises the errors of `send`, and `ClientError` without
        a listener.
        """
        sender = self._running()
        if self._transactions is None:
            raise ClientError(
                f"producer {self.group!r} has no transaction listener; create it with transaction_listener=",
                what="transaction_listener",
            )
        from sparrowmq.client.producer.transaction import half_message

        half = half_message(message, self.group, check_after)
        sent = await sender.send(half, timeout)
        return await self._transactions.finish(half, sent, argument, self.settings.send_timeout)

    async def recall(self, topic: str, handle: str, *, timeout: float | None = None) -> str:
        """Cancel a timed message that is not delivered yet and return its message id (client:B-107).

        `handle` is the `recall_handle` in the result of the send. Brokers refuse, with code 16, unless their
        setting `recallMessageEnable` is true (`sparrow up --set recallMessageEnable=true`; RocketMQ's default
        is false), and when it is too late. Raises `ClientError` for an invalid handle.
        """
        sender = self._running()
        message_id = await recall(
            sender.instance,
            self.group,
            topic,
            handle,
            self.settings.send_timeout if timeout is None else timeout,
        )
        if self._tracing is not None:
            self._tracing.hook.recalled(self.group, topic, message_id, True)
        return message_id

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of `queue` will get."""
        return await self._running().instance.brokers.max_offset(await self._master(queue), queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The smallest stored offset of `queue`."""
        return await self._running().instance.brokers.min_offset(await self._master(queue), queue)

    async def search_offset(
        self,
        queue: MessageQueue,
        timestamp: datetime | int | None = None,
        *,
        timestamp_ms: int | None = None,
    ) -> int:
        """The offset of the first message of `queue` stored at or after `timestamp`, an aware datetime or
        epoch milliseconds. `timestamp_ms` is a former name of `timestamp`.
        """
        from sparrowmq.client.base.former_arguments import search_time

        at = search_time(timestamp, timestamp_ms)
        brokers = self._running().instance.brokers
        return await brokers.search_offset(await self._master(queue), queue, at)

    async def earliest_store_time(self, queue: MessageQueue) -> int:
        """Epoch milliseconds of the oldest stored message of `queue`, -1 when there is none."""
        return await self._running().instance.brokers.earliest_store_time(await self._master(queue), queue)

    async def _master(self, queue: MessageQueue) -> str:
        """The master of a queue; if the route lacks it, the route is refreshed once (client:A-55)."""
        return need_address(await self._running().instance.master_of(queue), queue, "master")


def _sender_kind(settings: ProducerSettings) -> type[Sender]:
    if not settings.idempotent:
        return Sender
    from sparrowmq.client.send.idempotent_sender import IdempotentSender

    return IdempotentSender
