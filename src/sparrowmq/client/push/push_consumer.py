"""The asyncio push consumer: a group member that receives its share of the messages (client:D)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, Unpack

from sparrowmq.client.base.lifecycle import ClientObject, Lifecycle, State
from sparrowmq.client.base.settings import ConsumerSettings, check_range, settings_of
from sparrowmq.client.base.stop_signals import STOP_SIGNALS, Begin, stop_signals
from sparrowmq.client.push.member import GroupMember
from sparrowmq.client.push.message_stream import DeliveredMessage, MessageStream, StreamedMessage, iterate
from sparrowmq.client.push.subscriptions import Subscriptions
from sparrowmq.client.push.values import Decode, check_decode
from sparrowmq.client.push.workers import Handler
from sparrowmq.core.clock import SystemClock, epoch_ms
from sparrowmq.core.errors import ClientError, InvalidStateError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_group
from sparrowmq.core.subscription import Expression
from sparrowmq.protocol.bodies import ConsumerRunningInfo

if TYPE_CHECKING:
    from sparrowmq.client.base.options import ConsumerOptions

log = logging.getLogger("sparrowmq.client")

BROADCASTING_INSTANCE: Final = "DEFAULT"
"""Default instance name of broadcasting consumers (client:A-06)."""


class PushConsumer(ClientObject):
    """Consumes topics as one member of `group`; the members share the queues.

        async with PushConsumer("billing", name_server="127.0.0.1:9876") as consumer:
            consumer.subscribe("TopicTest", "TagA || TagB")
            async for message in consumer:
                ...
                await message.ack()

    Or give `subscribe` a handler: an `async def` runs on the loop, a plain function in one of `threads`
    threads. Returning means success, raising means retry (see `Retry`). Delivery is at least once: a message
    may come again after a crash, a rebalance or a retry.
    """

    message_type: type[StreamedMessage] = DeliveredMessage
    """Class of the received messages."""

    def __init__(
        self,
        group: str,
        *,
        settings: ConsumerSettings | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """A consumer of `group`. `options` are the fields of `ConsumerSettings`; they override `settings`.

        `consume_from` says where a group without stored offsets starts: "last" (default), "first" or a
        datetime. `threads` is how many handlers run at once (20), `batch` how many messages a handler gets
        (1); above 1 it gets a list. `model="broadcasting"` gives every member all messages, `ordered=True`
        handles the messages of each queue one at a time. Raises `InvalidNameError` or `SettingsError`.
        """
        check_group(group)
        self.group = group
        self.settings = settings_of(ConsumerSettings, settings, options)
        is_broadcasting = self.settings.model == "broadcasting"
        if is_broadcasting and self.settings.instance_name is None:
            # Must not change across restarts: the path of the offset file depends on it (client:A-06, D-70).
            self.settings = replace(self.settings, instance_name=BROADCASTING_INSTANCE)
        self._life = Lifecycle(f"consumer {group!r}")
        self._subscriptions = Subscriptions(group, SystemClock(), has_retry=not is_broadcasting)
        self._member: GroupMember | None = None
        self._decode: Decode | None = None
        self._failure: ClientError | None = None
        self._failure_shown = False
        self._stopped: asyncio.Event | None = None
        self._begin_closing: Begin | None = None
        self._ending: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.group!r} {self.state.value} {self._member or ''!r}>"

    @property
    def failure(self) -> ClientError | None:
        """The error that stopped the consumer, if any."""
        return self._failure

    @property
    def client_id(self) -> str:
        """The id of this member at the brokers. Raises `InvalidStateError` before the start."""
        return self._running().instance.client_id

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues this member reads now, sorted; queue id -1 stands for all queues of a topic at a broker,
        which the members share by POP.
        """
        return [] if self._member is None else self._member.assigned()

    @property
    def lag(self) -> dict[MessageQueue, int]:
        """Unconsumed messages per assigned queue, as of the last pull."""
        return {} if self._member is None else self._member.lag()

    @property
    def last_poll(self) -> float | None:
        """Epoch seconds of the last successful pull; None before the first."""
        last_ms = 0 if self._member is None else self._member.puller.last_success_ms
        return last_ms / 1000 if last_ms else None

    @property
    def last_error(self) -> Exception | None:
        """The error of the last pull; None when it succeeded."""
        return None if self._member is None else self._member.puller.last_error

    @property
    def late_results(self) -> int:
        """Number of commits and returned messages that brokers refused because the queue had moved to another
        member of a managed group; otherwise 0.
        """
        return 0 if self._member is None else self._member.late_results()

    @property
    def skipped_messages(self) -> int:
        """Number of messages that failed and were skipped, because neither a retry nor a dead letter of them
        could be stored.
        """
        return 0 if self._member is None else self._member.skipped_messages()

    def subscribe(
        self,
        topic: str,
        expression: Expression = "*",
        handler: Handler | None = None,
        *,
        decode: Decode | None = None,
    ) -> None:
        """Consume `topic`; a second call replaces expression and handler. May be called before the start,
        which then returns when the brokers know the group, or later.

        `expression` is `*`, tags (`TagA || TagB`), or a filter over properties (`Sql("a > 1")`). Without
        `handler`, iterate over the consumer to get the messages. With `decode`, the handler gets what that
        returns for each message; where it raises, the handler counts as failed. All members of a group must
        have the same subscriptions. Raises `InvalidNameError`, `InvalidExpressionError`, which names position
        and token of an SQL error, and TypeError for a handler that is not a function or is a generator.
        """
        if decode is not None:
            check_decode(decode)
            if handler is None:
                raise TypeError(
                    f"subscribe({topic!r}, decode=...) needs a handler; for a loop give decode to Consumer"
                )
        self._subscriptions.add(topic, expression, handler, decode or self._decode)
        if self._member is not None and self.state is State.RUNNING:
            self._member.subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming `topic`; its queues are given up immediately."""
        self._subscriptions.remove(topic)
        if self._member is not None and self.state is State.RUNNING:
            self._member.subscriptions_changed()

    async def start(self) -> None:
        """Join the group.

        Raises `NoNameServerError`, `TransportError` when no name server answers, or `InvalidStateError`.
        """
        with self._life.starting():
            self._stopped = asyncio.Event()
            self._member = member = GroupMember(
                self.group, self.settings, self._subscriptions, self._task_died, self.message_type
            )
            try:
                await member.start()
            except BaseException:
                self._member = None
                await member.abort()
                raise

    def pause(self) -> None:
        """Stop pulling until `resume`; the queues stay assigned, and pulled messages are still consumed
        (client:D-80).
        """
        self._running().pause()

    def resume(self) -> None:
        """Resume pulling after `pause`."""
        self._running().resume()

    @property
    def paused(self) -> bool:
        """Whether pulling is paused, by `pause` or by an offset reset in progress."""
        return self._member is not None and self._member.is_paused

    async def reset(self, to: datetime | int) -> None:
        """Move to the messages stored at or after `to`, an aware datetime or epoch milliseconds, in the
        queues of this member.

        Unfinished messages are dropped; running handlers get up to 10 s to end (client:D-82). Every member
        must do this for its queues. Raises `SparrowError` when a broker cannot be asked.
        """
        member = self._running()
        await member.reset_offsets(await member.find_offsets(epoch_ms("to", to)))

    def set_threads(self, threads: int) -> None:
        """Set the maximum number of concurrent handlers (1 to 1000, client:D-93)."""
        check_range("threads", threads, 1, 1000)
        self._running().service.resize(threads)

    def running_info(self) -> ConsumerRunningInfo:
        """Information about this member for brokers and tools (client:D-86)."""
        return self._running().running_info()

    async def close(self) -> None:
        """Leave the group: finish running handlers, commit offsets, notify the brokers. Idempotent.

        Waits for running handlers, and for messages in the loops of other tasks or threads; messages in the
        caller's loop are returned. Takes at most `close_timeout` seconds; messages unfinished by then are
        delivered again. A second call waits for the first, and for a running start. Raises the error that
        stopped the consumer unless it was raised before.
        """
        await self._life.close(self._leave)
        if self._failure is not None and not self._failure_shown:
            raise self._shown_failure()

    async def _leave(self) -> None:
        try:
            if self._member is not None:
                self._member.service.stream.let_go(asyncio.current_task())
                await (self._member.close() if self._failure is None else self._member.abort())
        finally:
            self._wake_waiting()
            if self._begin_closing is not None:
                stop_signals.remove(self._begin_closing)

    def close_on_signals(self, *signals: int) -> None:
        """Close gracefully at the first of these signals: SIGINT and SIGTERM unless others are given.

        Iteration ends and `wait` returns when it is closed. No message is lost or handed out twice in the
        group if the handlers end within `close_timeout`. A second signal has its previous effect. Call it in
        the main thread while the consumer runs. Raises `InvalidStateError` otherwise.
        """
        stop_signals.add(signals or STOP_SIGNALS, self._closer())

    def _closer(self) -> Begin:
        """A function that starts closing this consumer, from any thread or signal handler."""
        self._running()
        if self._begin_closing is None:
            loop = asyncio.get_running_loop()

            def begin() -> bool:
                if self.state is not State.RUNNING or loop.is_closed():
                    return False
                loop.call_soon_threadsafe(self._close_soon)
                return True

            self._begin_closing = begin
        return self._begin_closing

    def _close_soon(self) -> None:
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self.close())
            self._ending.add_done_callback(self._ended)

    def _ended(self, ending: asyncio.Task[None]) -> None:
        if not ending.cancelled() and (error := ending.exception()) is not None:
            log.error("consumer %r: graceful shutdown failed", self.group, exc_info=error)

    async def wait(self) -> None:
        """Wait until the consumer is closed. Raises the error of a background task that failed."""
        self._running_or_told()
        assert self._stopped is not None
        await self._stopped.wait()
        if self._failure is not None:
            raise self._shown_failure()

    def __aiter__(self) -> AsyncIterator[DeliveredMessage]:
        """Messages of topics without handler. Leaving the loop returns messages that were not settled."""
        return iterate(self.stream)

    @property
    def stream(self) -> MessageStream:
        """Messages of topics without handler, for other kinds of iteration. Raises `InvalidStateError` when
        there is no such topic.
        """
        stream = self._running_or_told().service.stream
        if not stream.ended and not self._subscriptions.has_loop_topics:
            raise InvalidStateError(
                f"{self._life.name} has no topic for a loop, which would wait without end; subscribe to a "
                "topic without a handler first"
            )
        return stream

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._failure_shown = True  # do not replace the error that is being raised
        await super().__aexit__(kind, error, trace)

    def _running(self) -> GroupMember:
        if self._failure is not None:
            raise self._shown_failure()
        self._life.need_running()
        assert self._member is not None
        return self._member

    def _running_or_told(self) -> GroupMember:
        """Like `_running`, but iteration just ends if a signal has closed the consumer."""
        if self._ending is not None and self._failure is None and self._member is not None:
            return self._member
        return self._running()

    def _shown_failure(self) -> ClientError:
        assert self._failure is not None
        self._failure_shown = True
        return self._failure

    def _task_died(self, name: str, error: BaseException) -> None:
        """Mark the consumer as failed: a background task ended with an error."""
        failure = self._life.task_died(name, error)
        if self._failure is not None or self.state not in (State.STARTING, State.RUNNING):
            return
        self._failure = failure
        self._life.to(State.FAILED)
        if self._member is not None:
            self._member.stop(failure)
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        if self._stopped is not None:
            self._stopped.set()
