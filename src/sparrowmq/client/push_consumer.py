"""The asyncio push consumer: a member of a group that gets its share of messages (client:D)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self

from sparrowmq.client.delivery import DeliveredMessage, HandedMessage, MessageStream, iterate
from sparrowmq.client.lifecycle import Lifecycle, State
from sparrowmq.client.member import GroupMember
from sparrowmq.client.settings import ConsumeFrom, ConsumerSettings, Model, check_range
from sparrowmq.client.stop_signals import STOP_SIGNALS, Begin, stop_signals
from sparrowmq.client.subscriptions import Subscriptions
from sparrowmq.client.workers import Handler
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import ClientError, GroupTakenError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_group
from sparrowmq.core.subscription import Expression
from sparrowmq.protocol.bodies import ConsumerRunningInfo

log = logging.getLogger("sparrowmq.client")

BROADCASTING_INSTANCE: Final = "DEFAULT"
"""Instance name of broadcasting consumers that are given none (client:A-06)."""


class PushConsumer:
    """Consumes topics as one member of `group`; the members share the queues among themselves.

        async with PushConsumer("billing", namesrv="127.0.0.1:9876") as consumer:
            consumer.subscribe("TopicTest", "TagA || TagB")
            async for message in consumer:
                ...
                await message.ack()

    Or give `subscribe` a handler: an `async def` runs on the loop, a plain function in one of `threads`
    threads. Returning means done, raising means retry (`Retry` says more). Delivery is at
    least once: a message may come again after a crash, a rebalance or a retry.
    """

    message_type: type[HandedMessage] = DeliveredMessage
    """What messages are made as."""

    def __init__(
        self,
        group: str,
        *,
        namesrv: str | None = None,
        consume_from: ConsumeFrom | None = None,
        threads: int | None = None,
        batch: int | None = None,
        model: Model | None = None,
        ordered: bool | None = None,
        settings: ConsumerSettings | None = None,
    ) -> None:
        """A consumer of `group`; arguments override `settings` (see `ConsumerSettings` for the rest).

        `consume_from` says where a group without stored offsets starts: "last" (default), "first" or a
        datetime. `threads` is how many handlers run at once (20), `batch` how many messages a handler gets
        (1); above 1 it gets a list. `model="broadcasting"` gives every member all messages, `ordered=True`
        handles those of each queue one after the other. Raises `InvalidNameError` or `SettingsError`.
        """
        check_group(group)
        given: dict[str, Any] = {
            "namesrv": namesrv,
            "consume_from": consume_from,
            "threads": threads,
            "batch": batch,
            "model": model,
            "ordered": ordered,
        }
        self.group = group
        self.settings = replace(
            settings or ConsumerSettings(),
            **{name: value for name, value in given.items() if value is not None},
        )
        is_broadcasting = self.settings.model == "broadcasting"
        if is_broadcasting and self.settings.instance_name is None:
            # The same after a restart: the path of the offsets depends on it (client:A-06, D-70).
            self.settings = replace(self.settings, instance_name=BROADCASTING_INSTANCE)
        self._life = Lifecycle(f"consumer {group!r}")
        self._subscriptions = Subscriptions(group, SystemClock(), has_retry=not is_broadcasting)
        self._member: GroupMember | None = None
        self._failure: ClientError | None = None
        self._failure_shown = False
        self._stopped: asyncio.Event | None = None
        self._start_ended: asyncio.Event | None = None
        self._closed: asyncio.Event | None = None
        self._begin_closing: Begin | None = None
        self._ending: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<PushConsumer {self.group!r} {self.state.value} {self._member or ''!r}>"

    @property
    def state(self) -> State:
        """Where the consumer is in its life; FAILED when a background task died."""
        return self._life.state

    @property
    def failure(self) -> ClientError | None:
        """What stopped the consumer, if something did."""
        return self._failure

    @property
    def client_id(self) -> str:
        """What brokers know this member by. Raises `InvalidStateError` before the start."""
        return self._running().instance.client_id

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues this member reads now, sorted."""
        return [] if self._member is None else sorted(self._member.owned())

    @property
    def lag(self) -> dict[MessageQueue, int]:
        """Messages per own queue that are stored and not consumed yet, as of the last pull."""
        return {} if self._member is None else self._member.lag()

    @property
    def last_poll(self) -> float | None:
        """Epoch seconds of the last pull a broker answered; None before the first."""
        last_ms = 0 if self._member is None else self._member.puller.last_success_ms
        return last_ms / 1000 if last_ms else None

    @property
    def last_error(self) -> Exception | None:
        """Why the last pull failed; None when it worked."""
        return None if self._member is None else self._member.puller.last_error

    @property
    def late_results(self) -> int:
        """Results of this member that brokers refused, because the queue had gone on to another member of a
        managed group: commits, and messages sent back. 0 otherwise.
        """
        return 0 if self._member is None else self._member.late_results()

    def subscribe(self, topic: str, expression: Expression = "*", handler: Handler | None = None) -> None:
        """Consume `topic`; again replaces expression and handler. May be called before or after the start.

        `expression` is `*`, tags (`TagA || TagB`), or a filter over properties (`Sql("a > 1")`). Without
        `handler` the messages come by iterating over the consumer. All members of a group must subscribe
        alike. Raises `InvalidNameError` or `InvalidExpressionError`, which names the position and the token
        of what is wrong in SQL, and TypeError for a handler that is no function or that yields.
        """
        self._subscriptions.add(topic, expression, handler)
        if self._member is not None and self.state is State.RUNNING:
            self._member.subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming `topic`; its queues are given up at once."""
        self._subscriptions.remove(topic)
        if self._member is not None and self.state is State.RUNNING:
            self._member.subscriptions_changed()

    async def start(self) -> None:
        """Join the group.

        Raises `NoNameServerError`, `TransportError` when no name server answers, or `InvalidStateError`.
        """
        self._life.to(State.STARTING)
        self._stopped = asyncio.Event()
        self._start_ended = asyncio.Event()
        try:
            self._member = GroupMember(
                self.group, self.settings, self._subscriptions, self._task_died, self.message_type
            )
            await self._member.start()
        except BaseException as error:
            if self.state is State.STARTING:  # else a background task died and said so
                self._life.to(State.CREATED if isinstance(error, GroupTakenError) else State.FAILED)
            if self._member is not None:
                await self._member.abort()
            raise
        else:
            if self.state is State.STARTING:
                self._life.to(State.RUNNING)
        finally:
            self._start_ended.set()

    def pause(self) -> None:
        """Pull no more until `resume`; queues stay, and what was pulled is still consumed (client:D-80)."""
        self._running().pause()

    def resume(self) -> None:
        """Go on after `pause`."""
        self._running().resume()

    @property
    def paused(self) -> bool:
        """Whether it rests after `pause`, or while offsets are being reset."""
        return self._member is not None and self._member.is_paused

    async def reset(self, to: datetime) -> None:
        """Go back or forward to the messages stored at or after a time, in the queues this member has.

        What is in hand is dropped; running handlers may end first, for up to 10 s (client:D-82). Every member
        does this for its own queues. Raises `SparrowError` when a broker cannot be asked.
        """
        member = self._running()
        await member.reset_offsets(await member.find_offsets(round(to.timestamp() * 1000)))

    def set_threads(self, threads: int) -> None:
        """Run up to so many handlers at once from now on (1 to 1000, client:D-93)."""
        check_range("threads", threads, 1, 1000)
        self._running().service.resize(threads)

    def running_info(self) -> ConsumerRunningInfo:
        """What brokers and their tools are told about this member (client:D-86)."""
        return self._running().running_info()

    async def close(self) -> None:
        """Leave the group: what is in hand ends, offsets are committed, brokers are told. Idempotent.

        Waits for running handlers, and for messages that other tasks or threads iterate over; those of the
        caller's own loop go back. Takes at most `close_timeout` seconds; what is still in hand then is
        delivered again. A second call waits for the first, and a start that is under way ends first. Raises
        what stopped the consumer unless it was raised elsewhere before.
        """
        if self.state is State.STARTING:
            assert self._start_ended is not None
            await self._start_ended.wait()
        if self.state is State.CREATED:
            self._life.to(State.CLOSED)
        if self.state is State.CLOSING:
            assert self._closed is not None
            await self._closed.wait()
        if self.state in (State.RUNNING, State.FAILED):
            await self._leave(failed=self.state is State.FAILED)
        if self._failure is not None and not self._failure_shown:
            raise self._shown_failure()

    async def _leave(self, *, failed: bool) -> None:
        self._life.to(State.CLOSING)
        self._closed = asyncio.Event()
        try:
            if self._member is not None:
                self._member.service.stream.let_go(asyncio.current_task())
                await (self._member.abort() if failed else self._member.close())
        finally:
            self._life.to(State.CLOSED)
            self._closed.set()
            self._wake_waiting()
            if self._begin_closing is not None:
                stop_signals.remove(self._begin_closing)

    def close_on_signals(self, *signals: int) -> None:
        """Close in peace at the first of these signals: SIGINT and SIGTERM unless others are given.

        Iterating ends and `wait` returns when it is closed: nothing in hand is lost, nor handed out twice in
        the group, as long as handlers end within `close_timeout`. A second signal does what it did before.
        Call it in the main thread, while the consumer runs. Raises `InvalidStateError` otherwise.
        """
        stop_signals.add(signals or STOP_SIGNALS, self._closer())

    def _closer(self) -> Begin:
        """A function that begins to close this consumer, from any thread or signal handler."""
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
            log.error("consumer %r could not be closed in peace", self.group, exc_info=error)

    async def wait(self) -> None:
        """Wait until the consumer is closed. Raises what stopped it when a background task died."""
        self._running_or_told()
        assert self._stopped is not None
        await self._stopped.wait()
        if self._failure is not None:
            raise self._shown_failure()

    def __aiter__(self) -> AsyncIterator[DeliveredMessage]:
        """Messages of topics without handler. Leaving the loop gives back what was not settled."""
        return iterate(self.stream)

    @property
    def stream(self) -> MessageStream:
        """Messages of topics without handler, for those who iterate in other ways."""
        return self._running_or_told().service.stream

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._failure_shown = True  # the error that is on its way must not be replaced
        await self.close()

    def _running(self) -> GroupMember:
        if self._failure is not None:
            raise self._shown_failure()
        self._life.need_running()
        assert self._member is not None
        return self._member

    def _running_or_told(self) -> GroupMember:
        """The same, but a signal may come at any moment: what it closed just ends."""
        if self._ending is not None and self._failure is None and self._member is not None:
            return self._member
        return self._running()

    def _shown_failure(self) -> ClientError:
        assert self._failure is not None
        self._failure_shown = True
        return self._failure

    def _task_died(self, name: str, error: BaseException) -> None:
        """A background task ended with an error: the consumer cannot go on, and says so."""
        log.error("the background task %r of consumer %r died", name, self.group, exc_info=error)
        if self._failure is not None or self.state not in (State.STARTING, State.RUNNING):
            return
        failure = ClientError(
            f"consumer {self.group!r} stopped because its background task {name!r} died: "
            f"{type(error).__name__}: {error}; close it and make a new one"
        )
        failure.__cause__ = error
        self._failure = failure
        self._life.to(State.FAILED)
        if self._member is not None:
            self._member.stop(failure)
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        if self._stopped is not None:
            self._stopped.set()
