"""Ordered consumption: one handler for each queue at a time, in the order of the queue (client:D.11).

A queue is consumed in runs (`OrderedService._run`). A run takes messages out of the process queue (`_take`),
calls the handler with them (`_call`), and then commits them or puts them back (`_apply_outcome`). It ends
when the queue is empty, when a handler fails (the queue then pauses, see `_suspend`), when the lock at the
broker is lost, or after a minute, so that other queues get a turn. `again` schedules the next run.

A queue has at most one run at a time. Messages that a run took count as unfinished in the process queue
until they are committed or put back. So a run must do one of the two for each of them, unless the queue was
dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from sparrowmq.client.base.callables import CallThreads, kept
from sparrowmq.client.base.settings import ConsumerSettings
from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.client.consumer.consume_hooks import CallRecords
from sparrowmq.client.consumer.dynamic_settings import DynamicSettings
from sparrowmq.client.consumer.lazy_message import LazyMessage
from sparrowmq.client.consumer.offset_store import OffsetStore
from sparrowmq.client.consumer.outcomes import (
    ConsumeResult,
    Outcome,
    Retry,
    outcome_of,
    refuse_unfinished,
    why_of,
)
from sparrowmq.client.consumer.process_queue import ProcessQueue
from sparrowmq.client.push.message_stream import MessageStream, StreamedMessage
from sparrowmq.client.push.send_back import UNLIMITED, SendBack
from sparrowmq.client.push.subscriptions import Subscriptions
from sparrowmq.client.push.workers import NotRun, TopicHandler
from sparrowmq.core.clock import Clock
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.client")

RUN_SECONDS_MAX: Final = 60.0
"""How long a run may last while other queues wait (client:D.11)."""
_AGAIN_SECONDS: Final = 0.01
"""Pause before the next run of a queue whose run ended because of `RUN_SECONDS_MAX`."""
REST_SECONDS: Final = 0.25
"""Pause before the next run of a queue for which no handler may start now."""
_TURN_SECONDS: Final = 0.005
"""Async handlers yield to the loop, and threads return results, at least this often."""
_CALLS_AT_ONCE: Final = 64
"""Calls of a plain handler that are handed to its thread together."""
SUSPEND_MIN: Final = 0.01
SUSPEND_MAX: Final = 30.0
"""Bounds of the pause of a queue after a failure (client:D-63)."""

LockSoon = Callable[[ProcessQueue], None]
"""Called when a queue's lock is missing or too old. It renews the lock, then calls `OrderedService.again`."""


class _Calls:
    """Calls of one handler with messages in order, `batch` at a time, up to the first that fails.

    Afterwards the messages are in three parts: the first `done` succeeded; if `failed`, the next `batch` were
    in the call that `result` and `error` describe; the others were not handled.
    """

    __slots__ = ("batch", "call", "clock", "done", "error", "process_queue", "result", "takes_lists")

    def __init__(
        self,
        process_queue: ProcessQueue,
        call: Callable[[Any], Any],
        batch: int,
        clock: Clock,
        *,
        takes_lists: bool,
    ) -> None:
        self.process_queue = process_queue
        self.call = call
        self.batch = batch
        self.clock = clock
        self.takes_lists = takes_lists
        self.done = 0
        """Messages of the calls that succeeded."""
        self.result: Any = None
        self.error: BaseException | None = None
        """How the last call ended."""

    @property
    def failed(self) -> bool:
        """Whether the last call failed, at least for some of its messages."""
        return self.error is not None or isinstance(self.result, Retry) or self.result is ConsumeResult.LATER

    def pieces(self, messages: Sequence[LazyMessage]) -> Iterator[Any]:
        """The argument of each call to make.

        The caller makes the call and sets `result` or `error` before it asks for the next argument. It stops
        after a failure, when the lease or the queue is lost, and after `_TURN_SECONDS`.
        """
        monotonic = self.clock.monotonic
        end = monotonic() + _TURN_SECONDS
        for start in range(0, len(messages), self.batch):
            if not self.process_queue.may_start() or (start and monotonic() >= end):
                return
            piece = list(messages[start : start + self.batch])
            now_ms = self.clock.now_ms()
            for message in piece:
                message.begin(now_ms)
            yield piece if self.takes_lists else piece[0]
            if self.failed:
                return
            self.done += len(piece)

    def run(self, messages: Sequence[LazyMessage]) -> None:
        """Make the calls of a plain handler. Runs in a thread."""
        for argument in self.pieces(messages):
            try:
                self.result = self.call(argument)
                if self.result is not None:
                    refuse_unfinished(self.result)
            except BaseException as raised:
                self.error = raised

    async def run_async(self, messages: Sequence[LazyMessage]) -> None:
        """Make the calls of an async handler."""
        for argument in self.pieces(messages):
            try:
                self.result = await self.call(argument)
                if self.result is not None:
                    refuse_unfinished(self.result)
            except asyncio.CancelledError as raised:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                self.error = raised
            except BaseException as raised:
                self.error = kept(raised)
        await asyncio.sleep(0)  # let other tasks run


class OrderedService:
    """Runs the handlers of one ordered consumer: at most `threads` runs at a time.

    A queue waits in `_ready` until its run may start; the run is then in `_active`. A new process queue whose
    queue still has an old run waits in `_after_run`.
    """

    def __init__(
        self,
        group: str,
        settings: ConsumerSettings,
        store: OffsetStore,
        subscriptions: Subscriptions,
        tasks: TaskGroup,
        send_back: SendBack,
        records: CallRecords,
        dynamic: DynamicSettings,
        clock: Clock,
        lock_soon: LockSoon,
    ) -> None:
        self._group = group
        self._settings = settings
        self._store = store
        self._subscriptions = subscriptions
        self._tasks = tasks
        self._send_back = send_back
        self._statistics = records.statistics
        self._hooks = records.hooks
        self._dynamic = dynamic
        self._clock = clock
        # With hooks or manual commits each call has its own outcome, so calls are made one by one.
        self._calls_at_once = _CALLS_AT_ONCE if settings.auto_commit and not records.hooks.any else 1
        self._lock_soon = lock_soon
        self._loop = asyncio.get_running_loop()
        self._count = settings.threads
        self._threads = CallThreads(settings.threads, f"sparrowmq-{group}")
        self._ready: deque[ProcessQueue] = deque()
        self._active: dict[MessageQueue, asyncio.Task[None]] = {}
        self._after_run: dict[MessageQueue, ProcessQueue] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._occasional = OccasionalLog(log)
        self._closing = False
        self.stream = MessageStream(self._settled, counts=settings.managed)
        self._offered: dict[int, tuple[ProcessQueue, asyncio.Future[None]]] = {}
        self.done = 0
        self.failed = 0

    def __repr__(self) -> str:
        return (
            f"<OrderedService done={self.done} failed={self.failed} running={len(self._active)} "
            f"ready={len(self._ready)}>"
        )

    def submit(
        self, process_queue: ProcessQueue, messages: Sequence[StreamedMessage], dispatch: bool
    ) -> None:
        """Start a run if `dispatch` says that the queue has none; it takes the messages (client:D-62)."""
        if dispatch:
            self.again(process_queue)

    def again(self, process_queue: ProcessQueue, delay: float = 0.0) -> None:
        """Start a run of the queue as soon as the limit allows, but not before `delay` seconds."""
        if self._closing or process_queue.leaving:
            return
        if delay:
            self._after(delay, lambda: self.again(process_queue))
            return
        self._ready.append(process_queue)
        self._fill()

    def resize(self, threads: int) -> None:
        """Run up to `threads` handlers at once from now on."""
        self._count = threads
        self._threads.resize(threads)
        self._fill()

    def rebatch(self) -> None:
        """Nothing to do: each run reads the current batch size."""

    def go_on(self) -> None:
        """Offer iterated messages that could not start before; runs retry on their own."""
        self.stream.go_on()

    def forget_given_up(self) -> None:
        """Drop waiting messages and runs of queues that this member no longer has."""
        self._ready = deque(queue for queue in self._ready if not queue.leaving)
        self.stream.forget_given_up()
        self._take_back(lambda process_queue, key: not process_queue.leaving or self.stream.is_held(key))

    async def expire(self, process_queues: Iterable[ProcessQueue]) -> None:
        """Let iterated messages fail after `consume_timeout`; handlers have no time limit."""
        self.stream.expire(self._dynamic.consume_timeout)

    async def close(self, timeout: float) -> None:
        """Start no more runs; wait up to `timeout` seconds for running handlers. Idempotent."""
        was_closing, self._closing = self._closing, True
        deadline = self._loop.time() + timeout
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._ready.clear()
        self._after_run.clear()
        self.stream.end(None)
        self._take_back(lambda _, key: self.stream.is_held(key))
        running: set[asyncio.Task[None]] = set()
        try:
            await self.stream.settled(timeout)
            self._take_back(lambda _, key: False)
            running = {task for task in self._active.values() if task is not asyncio.current_task()}
            if running:
                _, running = await asyncio.wait(running, timeout=max(0.0, deadline - self._loop.time()))
        finally:  # the caller may be cancelled meanwhile
            self._threads.close()
        if running and not was_closing:
            log.warning(
                "ordered handlers of group %s were still running %.3g s after close; their messages will "
                "be delivered again",
                self._group,
                timeout,
            )

    def _take_back(self, stays: Callable[[ProcessQueue, int], bool]) -> None:
        """Withdraw offered messages, as if they were never offered, except where `stays` is true."""
        for key, (process_queue, offered) in self._offered.items():
            if not offered.done() and not stays(process_queue, key):
                offered.set_exception(NotRun())

    # Runs

    def _after(self, delay: float, call: Callable[[], None]) -> None:
        def due() -> None:
            self._timers.discard(timer)
            call()

        timer = self._loop.call_later(delay, due)
        self._timers.add(timer)

    def _fill(self) -> None:
        while self._ready and len(self._active) < self._count and not self._closing:
            process_queue = self._ready.popleft()
            queue = process_queue.queue
            if process_queue.leaving:
                continue
            if queue in self._active:
                # The queue was assigned again while a handler still processes its old messages
                # (client:D.11-2).
                self._after_run[queue] = process_queue
                continue
            task = self._tasks.start(self._run(process_queue), f"ordered {queue}")
            self._active[queue] = task
            task.add_done_callback(partial(self._ended, queue))

    def _ended(self, queue: MessageQueue, _: asyncio.Task[None]) -> None:
        del self._active[queue]
        waiting = self._after_run.pop(queue, None)
        if waiting is not None:
            self._ready.append(waiting)
        self._fill()

    async def _run(self, process_queue: ProcessQueue) -> None:
        end = self._clock.monotonic() + RUN_SECONDS_MAX
        while not process_queue.leaving and not self._closing:
            now = self._clock.monotonic()
            if not process_queue.may_start():
                self.again(process_queue, REST_SECONDS)
                return
            if not process_queue.may_consume_in_order(now):
                self._lock_soon(process_queue)
                return
            if now >= end or len(self._active) > self._count:  # another queue's turn, or fewer threads now
                self.again(process_queue, _AGAIN_SECONDS)
                return
            messages = self._take(process_queue)
            if not messages:
                return
            if not await self._handle(process_queue, messages):
                return

    def _take(self, process_queue: ProcessQueue) -> list[LazyMessage]:
        """Take the next messages of one topic; a queue of a retry topic may have messages of several.

        Iteration gets one message at a time, so that each is committed before the next is offered.
        """
        first, count = process_queue.first, self._dynamic.batch * self._calls_at_once
        if first is not None and self._subscriptions.handler(first.topic) is None:
            count = 1
        found = process_queue.take(count)
        messages = [message for message in found if isinstance(message, LazyMessage)]
        for index, message in enumerate(messages):
            if message.topic != messages[0].topic:
                process_queue.put_back(messages[index:])
                return messages[:index]
        return messages

    async def _handle(self, process_queue: ProcessQueue, messages: list[LazyMessage]) -> bool:
        """Have messages handled in order. Returns whether the run continues."""
        topic = messages[0].topic
        start = self._clock.monotonic()
        process_queue.began(start)
        try:
            if self._subscriptions.find(topic) is None:
                return await self._refuse(process_queue, messages)
            context = self._hooks.before(process_queue.queue, messages) if self._hooks.any else None
            calls = await self._call(process_queue, messages, self._subscriptions.handler(topic))
            seconds = self._clock.monotonic() - start
            if context is not None:
                self._hooks.after(context, calls.result, calls.error, seconds)
            return await self._apply_outcome(process_queue, messages, calls, seconds)
        finally:
            process_queue.ended()  # a hand-over waits until everything is committed or put back

    async def _apply_outcome(
        self, process_queue: ProcessQueue, messages: list[LazyMessage], calls: _Calls, seconds: float
    ) -> bool:
        """Commit what succeeded, retry or bury what failed, put back the rest.

        Returns whether the run continues.
        """
        if process_queue.dropped:
            return False  # the queue has another owner, who gets the messages again (client:C-53)
        if isinstance(calls.error, NotRun):
            process_queue.put_back(messages)
            return False
        outcome = Outcome(0)
        piece = messages[calls.done : calls.done + calls.batch] if calls.failed else []
        if piece:
            outcome = outcome_of(len(piece), calls.result, calls.error)
        done, failed = calls.done + outcome.done, piece[outcome.done :]
        self.done += done
        self._statistics.consumed(messages[0].topic, done, len(failed), seconds, process_queue.queue)
        process_queue.put_back(messages[done + len(failed) :])
        if self._settings.auto_commit:
            if done:
                self._commit(process_queue, messages[:done])
            self._warn_of_manual(calls.result)
        if failed:
            return await self._suspend(process_queue, failed, calls.error, outcome)
        return self._settings.auto_commit or self._manual(process_queue, calls.result)

    async def _call(
        self, process_queue: ProcessQueue, messages: list[LazyMessage], handler: TopicHandler | None
    ) -> _Calls:
        """Make the calls: iteration and async handlers on the loop, plain handlers in a thread."""
        if handler is None:
            calls = _Calls(
                process_queue, partial(self._offer, process_queue), 1, self._clock, takes_lists=False
            )
            await calls.run_async(messages)
            return calls
        dynamic = self._dynamic
        calls = _Calls(
            process_queue, handler.call, dynamic.batch, self._clock, takes_lists=dynamic.takes_lists
        )
        if handler.is_async:
            await calls.run_async(messages)
        else:
            await self._threads.call(partial(calls.run, messages))
        return calls

    # Outcomes

    def _commit(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage] | None) -> None:
        offset = process_queue.commit(messages)
        if offset >= 0 and not process_queue.dropped:
            self._store.set(process_queue.queue, offset)

    def _manual(self, process_queue: ProcessQueue, result: Any) -> bool:
        """Apply the result of a handler with `auto_commit=False` (client:D.11).

        Returns whether the run continues.
        """
        if result is ConsumeResult.COMMIT:
            self._commit(process_queue, None)
        elif result is ConsumeResult.ROLLBACK:
            process_queue.put_back()
            self.again(process_queue, self._settings.suspend_time)
            return False
        return True

    def _warn_of_manual(self, result: Any) -> None:
        if result is ConsumeResult.COMMIT or result is ConsumeResult.ROLLBACK:
            self._occasional.write(
                logging.WARNING,
                "manual",
                f"a handler of group {self._group} returned {result}, which counts as success: only with "
                "auto_commit=False do handlers commit themselves",
            )

    async def _suspend(
        self,
        process_queue: ProcessQueue,
        failed: Sequence[LazyMessage],
        error: BaseException | None,
        outcome: Outcome,
    ) -> bool:
        """Pause the queue and retry its failed messages, unless they become dead letters (client:D-64).

        Messages become dead letters in order: none after one that will be retried. Returns whether the run
        continues, which is when no message is left to retry.
        """
        self.failed += len(failed)
        self._log_failure(failed[0], error)
        buried = 0
        for message in failed:
            if not await self._bury(message, outcome, "" if error is None else why_of(error)):
                break
            buried += 1
        for message in failed[buried:]:
            message.reconsume_times += 1
        if process_queue.dropped:
            return False
        if buried and self._settings.auto_commit:
            self._commit(process_queue, failed[:buried])
        if buried == len(failed):
            return True
        process_queue.put_back(failed[buried:])
        delay = outcome.after
        if delay is None:
            delay = self._dynamic.retry_seconds(failed[buried].reconsume_times - 1)
        if delay is None:
            delay = self._settings.suspend_time
        self.again(process_queue, min(max(delay, SUSPEND_MIN), SUSPEND_MAX))
        return False

    async def _bury(self, message: LazyMessage, outcome: Outcome, why: str) -> bool:
        """Send a failed message to the dead letter topic if its retries are used up. Returns whether it was
        sent.
        """
        if outcome.dead:
            return await self._send_back.bury(message, why)
        limit = self._dynamic.max_reconsume_times
        used_up = message.reconsume_times >= (UNLIMITED if limit < 0 else limit)
        return used_up and await self._send_back.send_copy(message, why)

    async def _refuse(self, process_queue: ProcessQueue, messages: Sequence[LazyMessage]) -> bool:
        """Send back messages of a topic that is no longer subscribed; its retries may still arrive.

        Returns whether the run continues.
        """
        self._occasional.write(
            logging.WARNING,
            "unsubscribed",
            f"group {self._group} does not subscribe to {messages[0].topic}, but {process_queue.queue} has "
            f"messages of it; they are retried and finally become dead letters",
        )
        for index, message in enumerate(messages):
            if not await self._send_back.send(message):
                process_queue.put_back(messages[index:])
                self.again(process_queue, self._settings.redeliver_delay)
                return False
            self._commit(process_queue, [message])
        return True

    def _log_failure(self, first: LazyMessage, error: BaseException | None) -> None:
        if error is None or isinstance(error, Retry):
            return
        self._occasional.write(
            logging.WARNING,
            f"{type(error).__name__} {first.topic}",
            f"the ordered handler of {first.topic} in group {self._group} failed for message "
            f"{first.message_id} ({first.queue} at offset {first.queue_offset}); its queue pauses",
            error=error,
        )

    # Iteration

    async def _offer(self, process_queue: ProcessQueue, message: StreamedMessage) -> None:
        """Offer a message for iteration. Returns when it is acked, raises when it goes to retry."""
        settled: asyncio.Future[None] = self._loop.create_future()
        self._offered[id(message)] = process_queue, settled
        try:
            self.stream.put(process_queue, [message])
            await settled
        finally:
            self._offered.pop(id(message), None)

    def _settled(
        self, process_queue: ProcessQueue, message: ReceivedMessage, retry: Retry | None, seconds: float
    ) -> None:
        _, settled = self._offered.get(id(message), (None, None))
        if settled is None or settled.done():
            return
        if retry is None:
            settled.set_result(None)
        else:
            settled.set_exception(retry)
