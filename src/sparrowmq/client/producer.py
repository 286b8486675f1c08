"""The asyncio producer: single, batch and one-way sends (client:B). `Sender` does the work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from sparrowmq.client.hooks import SendMode
from sparrowmq.client.instances import shared_instance
from sparrowmq.client.lifecycle import Lifecycle, State
from sparrowmq.client.publish import QueueSelector
from sparrowmq.client.sender import Sender
from sparrowmq.client.sending import outgoing_encoded_batch
from sparrowmq.client.settings import ProducerSettings
from sparrowmq.core.errors import ClientError
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.core.names import check_group
from sparrowmq.core.results import SendResult

log = logging.getLogger("sparrowmq.client")


class Producer:
    """Sends messages of one producer group.

        async with Producer("orders", namesrv="127.0.0.1:9876") as producer:
            await producer.send(Message("TopicTest", b"hello", tags="TagA"))

    Every send has one time budget for all its tries. A send that times out or loses its connection may still
    have been stored: consumers must expect repeats. At most `in_flight_max` sends are outstanding; more wait.
    """

    def __init__(
        self,
        group: str,
        *,
        namesrv: str | None = None,
        send_timeout: float | None = None,
        retries: int | None = None,
        settings: ProducerSettings | None = None,
    ) -> None:
        """A producer of `group`; arguments override `settings` (see `ProducerSettings` for the rest).

        `namesrv` is `host:port` (several: separated by `;`), by default from the environment. `send_timeout`
        is seconds for one send with all its tries (3), `retries` the tries after the first (2). Raises
        `InvalidNameError` or `SettingsError`.
        """
        check_group(group)
        given: dict[str, Any] = {"namesrv": namesrv, "send_timeout": send_timeout, "retries": retries}
        self.group = group
        self.settings = replace(
            settings or ProducerSettings(),
            **{name: value for name, value in given.items() if value is not None},
        )
        self._life = Lifecycle(f"producer {group!r}")
        self._sender: Sender | None = None

    def __repr__(self) -> str:
        return f"<Producer {self.group!r} {self.state.value} {self._sender!r}>"

    @property
    def state(self) -> State:
        """Where the producer is in its life."""
        return self._life.state

    @property
    def client_id(self) -> str:
        """What brokers know this client by. Raises `InvalidStateError` before the start."""
        return self._running().instance.client_id

    @property
    def in_flight(self) -> int:
        """Sends that wait for their answer."""
        return 0 if self._sender is None else self._sender.gate.count

    async def start(self) -> None:
        """Begin. Raises `NoNameServerError`, or `InvalidStateError` when it was started before.

        `ClientError` when a client with the same `instance_name` has a producer of this group: then it may be
        started later.
        """
        self._life.to(State.STARTING)
        try:
            instance = shared_instance(self.settings)
            self._sender = Sender(self.group, self.settings, instance)
        except BaseException:
            self._life.to(State.FAILED)
            raise
        try:
            instance.register_producer(self.group, self._sender.table)
        except ClientError:
            self._sender = None
            await instance.close()
            self._life.to(State.CREATED)
            raise
        instance.start()
        self._life.to(State.RUNNING)

    async def close(self) -> None:
        """Wait for sends in flight (at most `close_timeout` seconds), tell the brokers, close. Idempotent."""
        if self.state in (State.CREATED, State.FAILED):
            self._life.to(State.CLOSED)
        if self.state is not State.RUNNING:
            return
        sender = self._running()
        self._life.to(State.CLOSING)
        try:
            if not await sender.gate.drain(self.settings.close_timeout):
                log.warning("%r closes while sends are under way; they fail now", self)
            await sender.instance.unregister(producer=self.group)
        finally:
            await sender.instance.close()
            self._life.to(State.CLOSED)

    def _running(self) -> Sender:
        self._life.need_running()
        assert self._sender is not None
        return self._sender

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

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

        By default queues take turns, and a failed try goes to another broker. `queue` names the queue;
        `selector` chooses it from the topic's queues, the message and `argument`; `hash_key` keeps messages
        with equal keys in one queue. A queue that was chosen is tried once. `timeout` in seconds covers
        everything.

        Raises `InvalidMessageError`, `InvalidNameError`, `NoRouteError`, `BrokerError`, `TransportError`,
        or `TooManyRequestsError` when the time was used up waiting for room. Cancelling does not take the
        message back.
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

        One of its arguments is None. For callers that manage many sends themselves. Unlike `send` it tries
        again (`retries_async` times) only what failed in transport, on the same queue number of the next
        broker or, with `queue`, on that queue; what a broker refused is the result. With
        `mode=SendMode.SYNC` it does what `send` does. Errors of the message itself are raised at once.
        """
        self._running().submit(message, done, timeout, mode, queue)

    async def send_batch(
        self, messages: Iterable[Message], *, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> SendResult:
        """Send messages of one topic as one request; they get consecutive offsets in one queue.

        The encoded batch must stay within `message_bytes_max`; it is not compressed. The result's ids are
        joined with commas. Otherwise as `send`.
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
    ) -> SendResult:
        """Send a batch body of `count` messages that is encoded already (remoting:5.5).

        Each message has its own `UNIQ_KEY`. For bulk writers; the result's `message_id` is that of the
        batch. Otherwise as `send_batch`.
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
        return await sender.send_outgoing(outgoing, timeout, queue=queue)

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
        """Send once and wait for no answer: a message the broker refuses or never gets is lost unnoticed.

        Raises what keeps the message from leaving: limits, `NoRouteError`, `ConnectError`.
        """
        await self._running().send_oneway(
            message, timeout, queue=queue, selector=selector, argument=argument, hash_key=hash_key
        )

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of `topic` a producer may send to. Raises `NoRouteError` when there are none."""
        return await self._running().queues(topic)
