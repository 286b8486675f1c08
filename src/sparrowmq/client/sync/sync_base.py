"""The base of the generated synchronous classes: calls into the background loop, and the methods that differ.

`sync_generated` has the classes; its methods and docstrings are generated from the asyncio classes. Only
iteration and sends are written by hand: a send must not cost a task and two thread switches.
"""

from __future__ import annotations

import concurrent.futures
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import closing, suppress
from contextvars import Context, copy_context
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Self, TypeVar, cast

from sparrowmq.client.admin.admin import Admin as AsyncAdmin
from sparrowmq.client.admin.former import former_call, former_name
from sparrowmq.client.base.hooks import SendHook, SendMode
from sparrowmq.client.base.lifecycle import ClientObject, NotPickled, State
from sparrowmq.client.base.stop_signals import STOP_SIGNALS, stop_signals
from sparrowmq.client.cluster.pop_calls import PoppedMessage
from sparrowmq.client.consumer.outcomes import Retry
from sparrowmq.client.producer.producer import Producer as AsyncProducer
from sparrowmq.client.pull.pull_consumer import PullConsumer as AsyncPullConsumer
from sparrowmq.client.pull.pull_schedule import PullSchedule as AsyncPullSchedule
from sparrowmq.client.push.consumer import Consumer as AsyncConsumer
from sparrowmq.client.push.message_stream import MessageStream, StreamedMessage
from sparrowmq.client.push.push_consumer import PushConsumer as AsyncPushConsumer
from sparrowmq.client.push.values import Decode
from sparrowmq.client.push.workers import Handler
from sparrowmq.client.simple.simple_consumer import SimpleConsumer as AsyncSimpleConsumer
from sparrowmq.core.errors import InvalidStateError, NoRoomError, SparrowError
from sparrowmq.core.message import Message, MessageQueue, ReceivedMessage
from sparrowmq.core.results import SendResult
from sparrowmq.core.subscription import Expression
from sparrowmq.loops.event_loop import ENDED, LoopThread, loop_thread, prepare_exit

P = ParamSpec("P")
T = TypeVar("T")
H = TypeVar("H", bound=Handler)
Done = Callable[[SendResult | None, BaseException | None], None]

_TAKE_AT_ONCE: Final = 32
"""Messages that an iterating thread fetches at once."""


Inner = TypeVar("Inner")
Started = TypeVar("Started", bound=ClientObject)


def check_caller(pid: int, what: object) -> LoopThread:
    """The loop for a call to `what`; the object was created in process `pid`.

    Raises `InvalidStateError` after a fork, and where waiting would never end: in the loop's own thread, and
    after the interpreter has ended the loop at exit.
    """
    if pid != os.getpid():
        raise InvalidStateError(
            f"{what!r} was created in another process (pid {pid}, this is {os.getpid()}); create a new one "
            f"after the fork",
            what="process",
            value=pid,
        )
    background = loop_thread()
    if background.is_current_thread:
        raise InvalidStateError(
            f"{what!r} was called on SparrowMQ's own loop, where it would wait for itself: use "
            "sparrowmq.aio in async handlers, or make the handler a plain function",
            what="loop",
        )
    if background.has_ended:
        raise InvalidStateError(ENDED)
    return background


class PartFacade(NotPickled, Generic[Inner]):
    """A synchronous facade of the asyncio object `inner`, which lives on the background loop.

    May be used from any number of threads. Not usable in a forked child: create a new one there.
    """

    def __init__(self, inner: Inner) -> None:
        self._inner = inner
        self._pid = os.getpid()
        prepare_exit()

    def __repr__(self) -> str:
        return repr(self._inner)

    def _background(self) -> LoopThread:
        return check_caller(self._pid, self)

    def _run(self, method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Await `method` on the background loop."""
        return self._background().run(method(*args, **kwargs), None)

    def _call(self, function: Callable[[], T]) -> T:
        """Call a plain function on the background loop; directly if already on it."""
        if self._pid == os.getpid() and loop_thread().is_current_thread:
            return function()
        return self._background().call(function)


class Facade(PartFacade[Started]):
    """A facade that is started and closed."""

    @property
    def state(self) -> State:
        """The lifecycle state; FAILED when the start or a background task failed."""
        return self._call(lambda: self._inner.state)

    def __enter__(self) -> Self:
        self._run(self._inner.start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._inner.__aexit__, kind, error, trace)


class AdminPartFacade(PartFacade[Inner]):
    """A part of the synchronous `Admin`."""

    if not TYPE_CHECKING:
        __call__ = former_call


class AdminFacade(Facade[AsyncAdmin]):
    """The former names of the synchronous `Admin`."""

    if not TYPE_CHECKING:
        __getattr__ = former_name


class _Waiter:
    """One thread waiting for one result; cheaper than a future."""

    __slots__ = ("error", "lock", "result")

    def __init__(self) -> None:
        self.result: SendResult | None = None
        self.error: BaseException | None = None
        self.lock = threading.Lock()
        self.lock.acquire()

    def done(self, result: SendResult | None, error: BaseException | None) -> None:
        self.result = result
        self.error = error
        self.lock.release()


class ProducerFacade(Facade[AsyncProducer]):
    """Sends of the synchronous producer."""

    def __init__(self, inner: AsyncProducer) -> None:
        super().__init__(inner)
        self._outbox: deque[
            tuple[Message, Done, float | None, SendMode, MessageQueue | None, Context | None]
        ] = deque()
        self._is_hooked = any(isinstance(hook, SendHook) for hook in inner.settings.hooks)
        self._announced = False
        self._room = threading.Semaphore(inner.settings.in_flight_max)

    def send_async(
        self, message: Message, *, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> concurrent.futures.Future[SendResult]:
        """Send without waiting; the future gives the result or raises as `send` does. It cannot be cancelled.

        Unlike `send` it retries (`retries_async` times) only after transport errors.

        Blocks while `in_flight_max` such sends are in flight; raises `NoRoomError` when none ended
        within the timeout.
        """
        future: concurrent.futures.Future[SendResult] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()
        limit = self._inner.settings.send_timeout if timeout is None else timeout
        if not self._room.acquire(timeout=limit):
            raise NoRoomError(
                f"{self._inner.settings.in_flight_max} sends are in flight and none ended within {limit:g} "
                "s; wait for results or raise in_flight_max",
                limit=self._inner.settings.in_flight_max,
            )

        def done(result: SendResult | None, error: BaseException | None) -> None:
            self._room.release()
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(cast("SendResult", result))

        try:
            self._post(message, done, timeout, SendMode.ASYNC, queue)
        except BaseException:
            self._room.release()
            raise
        return future

    def _send(self, message: Message, timeout: float | None) -> SendResult:
        """Send to the next queue in turn and wait."""
        waiter = _Waiter()
        self._post(message, waiter.done, timeout)
        waiter.lock.acquire()
        if waiter.error is not None:
            raise waiter.error
        assert waiter.result is not None
        return waiter.result

    def _post(
        self,
        message: Message,
        done: Done,
        timeout: float | None,
        mode: SendMode = SendMode.SYNC,
        queue: MessageQueue | None = None,
    ) -> None:
        """Queue a send for the loop, which is woken once for all queued sends."""
        background = self._background()
        # Hooks must see the sender's context variables, as with the asyncio producer.
        context = copy_context() if self._is_hooked else None
        self._outbox.append((message, done, timeout, mode, queue, context))
        if not self._announced:
            self._announced = True
            background.loop.call_soon_threadsafe(self._submit_posted)

    def _submit_posted(self) -> None:
        self._announced = False
        outbox, submit = self._outbox, self._inner.submit
        for _ in range(len(outbox)):
            message, done, timeout, mode, queue, context = outbox.popleft()
            try:
                if context is None:
                    submit(message, done, timeout=timeout, queue=queue, mode=mode)
                else:
                    context.run(submit, message, done, timeout=timeout, queue=queue, mode=mode)
            except BaseException as error:
                done(None, error)


class PullConsumerFacade(Facade[AsyncPullConsumer]):
    """A pull consumer that can be iterated."""

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """The messages of all queues, one at a time, until the consumer is closed.

        A message counts as handled when the loop asks for the next one, or when `commit` is called. The one
        at which the loop is left, by `break` or an error, is delivered again. Raises the errors of `poll`,
        and `InvalidStateError` when another loop or a `poll` has taken over.
        """
        lite = self._call(self._inner._need_lite)
        reader = lite.new_reader()
        try:
            while message := self._run(self._inner._next_message, reader):
                yield message
        finally:
            with suppress(InvalidStateError):  # after a fork, or at exit
                self._call(lambda: lite.leave(reader))


class PullScheduleFacade(Facade[AsyncPullSchedule]):
    """The consumer of the synchronous pull schedule."""

    def __init__(self, inner: AsyncPullSchedule) -> None:
        from sparrowmq.client.sync.sync_generated import (
            PullConsumer,  # it is built from classes of this module
        )

        super().__init__(inner)
        self.consumer = PullConsumer.__new__(PullConsumer)
        """The consumer for callbacks; it is started and closed with the schedule."""
        Facade.__init__(self.consumer, inner.consumer)
        inner.context_consumer = self.consumer


class DeliveredMessage(StreamedMessage):
    """A message from iterating over a consumer: call `ack` on success, `retry` on failure."""

    __slots__ = ()

    def ack(self) -> bool:
        """Mark the message as processed. False when it was already settled, or returned after the timeout."""
        return self.stream_of_this().settle_from_thread(self)

    def retry(self, after: float | None = None, *, dead: bool = False) -> bool:
        """Mark the message as failed: it is redelivered later, or becomes a dead letter. Returns False as
        `ack` does.

        `after` is in seconds, as for `Retry`.
        """
        return self.stream_of_this().settle_from_thread(self, Retry(after=after, dead=dead))


class _ThreadLoops:
    """The loops of one thread over a consumer. They share what was fetched: a loop inside another would wait
    for messages that the outer one has not come to.
    """

    def __init__(self, stream: MessageStream) -> None:
        self.stream = stream
        self.count = 0
        self.fetched: deque[StreamedMessage] = deque()


class PushConsumerFacade(Facade[AsyncPushConsumer]):
    """Iteration over the synchronous push consumer."""

    def __init__(self, inner: AsyncPushConsumer) -> None:
        super().__init__(inner)
        inner.message_type = DeliveredMessage
        self._iterating: dict[int, _ThreadLoops] = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._let_go()
        super().__exit__(kind, error, trace)

    def close_on_signals(self, *signals: int) -> None:
        """Close gracefully at the first of these signals: SIGINT and SIGTERM unless others are given.

        Iteration ends and `wait` returns when it is closed. No message is lost or handed out twice in the
        group if the handlers end within `close_timeout`. A second signal has its previous effect. Call it in
        the main thread while the consumer runs. Raises `InvalidStateError` otherwise.
        """
        stop_signals.add(signals or STOP_SIGNALS, self._call(self._inner._closer))

    def _let_go(self) -> None:
        """This thread closes the consumer, so do not wait for the messages of its own loops."""
        owner = threading.get_ident()
        loops = self._iterating.get(owner)
        if loops is not None:
            self._call(lambda: loops.stream.let_go(owner))

    def __iter__(self) -> Generator[DeliveredMessage, None, None]:
        """Messages of topics without handler, until the consumer is closed.

        A message that is not settled when the next one is requested stays unfinished until `consume_timeout`,
        then goes to retry. Leaving the loop returns all unsettled messages.
        """
        stream = self._call(lambda: self._inner.stream)
        owner = threading.get_ident()
        loops = self._iterating.setdefault(owner, _ThreadLoops(stream))
        loops.count += 1
        fetched = loops.fetched
        unsettled: dict[int, StreamedMessage] = {}
        try:
            while True:  # until the consumer is closed
                if stream.ended or not fetched:
                    found = self._run(stream.take, _TAKE_AT_ONCE, owner)
                    if not found:
                        break  # messages not handed to the user yet are returned
                    fetched.extend(found)
                    unsettled = {key: held for key, held in unsettled.items() if stream.is_in_hand(held)}
                    continue
                message = fetched.popleft()
                if stream.is_in_hand(message):
                    unsettled[id(message)] = message
                    assert isinstance(message, DeliveredMessage)
                    yield message
        finally:
            loops.count -= 1
            left = [*unsettled.values()]
            if not loops.count:
                self._iterating.pop(owner, None)
                left += fetched
            with suppress(InvalidStateError):  # after a fork, or at exit: everything was already returned
                self._call(lambda: stream.give_back(left))


class ConsumerFacade(PushConsumerFacade):
    """Iteration, handlers and running of the synchronous consumer."""

    _inner: AsyncConsumer

    def handler(
        self, topic: str, tags: Expression = "*", *, decode: Decode | None = None
    ) -> Callable[[H], H]:
        """A decorator: the function handles the messages of `topic`; see `subscribe`. `decode` replaces the
        consumer's.
        """

        def register(function: H) -> H:
            self._call(lambda: self._inner.subscribe(topic, tags, function, decode=decode))
            return function

        return register

    def run(self) -> None:
        """Start, and consume until SIGINT or SIGTERM; then close gracefully. Only in the main thread. Raises
        `InvalidStateError` without a handler.
        """
        self._inner._need_handler()
        with self:
            self.close_on_signals()
            self._run(self._inner.wait)

    def __iter__(self) -> Generator[Any, None, None]:
        """Messages of topics without handler, or what `decode` makes of them. Each counts as handled when the
        next one is asked for.
        """
        values = self._inner._values
        with closing(super().__iter__()) as messages:
            for message in messages:
                try:
                    value = values.value(message)
                except Retry as retry:
                    message.stream_of_this().settle_from_thread(message, retry)
                    continue
                yield value
                message.ack()


class SimpleConsumerFacade(Facade[AsyncSimpleConsumer]):
    """A simple consumer that can be iterated."""

    def __iter__(self) -> Iterator[PoppedMessage]:
        """Receive messages one at a time, without end. Each is hidden for 30 seconds; acknowledge it within
        that time. `receive` gets several at once, which is faster if they take little time.
        """
        while self._inner.state is State.RUNNING:
            try:
                found = self._run(self._inner.receive, 1)
            except SparrowError:
                if self._inner.state is not State.RUNNING:
                    return
                raise
            yield from found
