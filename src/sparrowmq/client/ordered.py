"""Ordered consumption: one handler for each queue at a time, in the order of the queue (client:D.11).

A queue is consumed by runs. A run takes messages out of the process queue, has them handled, and commits them
or puts them back; it ends when nothing is left, when a handler fails (the queue then rests), when the lock at
the broker is lost, or after a minute, so that other queues get a turn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from sparrowmq.client.callables import CallThreads, kept
from sparrowmq.client.consume_hooks import ConsumeHooks
from sparrowmq.client.delivery import HandedMessage, MessageStream
from sparrowmq.client.handed import LazyMessage
from sparrowmq.client.knobs import LiveKnobs
from sparrowmq.client.offset_store import OffsetStore
from sparrowmq.client.outcomes import (
    BROKER_CHOOSES,
    DEAD,
    ConsumeResult,
    Outcome,
    Retry,
    outcome_of,
    refuse_unfinished,
)
from sparrowmq.client.process_queue import ProcessQueue
from sparrowmq.client.send_back import UNLIMITED, SendBack
from sparrowmq.client.settings import ConsumerSettings
from sparrowmq.client.statistics import ConsumeStatistics
from sparrowmq.client.subscriptions import Subscriptions
from sparrowmq.client.tasks import TaskGroup
from sparrowmq.client.workers import NotRun, TopicHandler
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.client")

RUN_SECONDS_MAX: Final = 60.0
"""How long a run keeps others from its place (client:D.11)."""
_AGAIN_SECONDS: Final = 0.01
"""Until the next run of a queue whose run was ended by the clock."""
_TURN_SECONDS: Final = 0.005
"""Async handlers let the rest of the loop run, and threads give results, at least this often."""
_PIECES: Final = 64
"""Calls of a plain handler that are handed to its thread at once."""
SUSPEND_MIN: Final = 0.01
SUSPEND_MAX: Final = 30.0
"""Bounds of the time a queue rests (client:D-63)."""

LockSoon = Callable[[ProcessQueue], None]
"""The queue's lock is missing or too old: have it renewed, then call `OrderedService.again`."""


class _Calls:
    """Calls of one handler with messages in order, `batch` at a time, up to the first that fails."""

    __slots__ = ("batch", "call", "done", "error", "process_queue", "result", "takes_lists")

    def __init__(
        self, process_queue: ProcessQueue, call: Callable[[Any], Any], batch: int, *, takes_lists: bool
    ) -> None:
        self.process_queue = process_queue
        self.call = call
        self.batch = batch
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
        """The arguments of the calls to make, as long as more may be made."""
        end = time.monotonic() + _TURN_SECONDS
        for start in range(0, len(messages), self.batch):
            if self.process_queue.leaving or (start and time.monotonic() >= end):
                return
            piece = list(messages[start : start + self.batch])
            now = time.time_ns() // 1_000_000
            for message in piece:
                message.begin(now)
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
        await asyncio.sleep(0)  # whatever else the loop has to do


class OrderedService:
    """Runs the handlers of one ordered consumer. `again` and `submit` start runs; at most `threads` run."""

    def __init__(
        self,
        group: str,
        settings: ConsumerSettings,
        store: OffsetStore,
        subscriptions: Subscriptions,
        tasks: TaskGroup,
        send_back: SendBack,
        statistics: ConsumeStatistics,
        hooks: ConsumeHooks,
        knobs: LiveKnobs,
        monotonic: Callable[[], float],
        lock_soon: LockSoon,
    ) -> None:
        self._group = group
        self._settings = settings
        self._store = store
        self._subscriptions = subscriptions
        self._tasks = tasks
        self._send_back = send_back
        self._statistics = statistics
        self._hooks = hooks
        self._knobs = knobs
        self._monotonic = monotonic
        self._pieces = _PIECES if settings.auto_commit and not hooks.any else 1
        self._lock_soon = lock_soon
        self._loop = asyncio.get_running_loop()
        self._count = settings.threads
        self._threads = CallThreads(settings.threads, f"sparrowmq-{group}")
        self._ready: deque[ProcessQueue] = deque()
        self._active: dict[MessageQueue, asyncio.Task[None]] = {}
        self._held_up: dict[MessageQueue, ProcessQueue] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._occasional = OccasionalLog(log)
        self._closing = False
        self.stream = MessageStream(self._settled)
        self._offered: dict[int, tuple[ProcessQueue, asyncio.Future[None]]] = {}
        self.done = 0
        self.failed = 0

    def __repr__(self) -> str:
        return (
            f"<OrderedService done={self.done} failed={self.failed} running={len(self._active)} "
            f"ready={len(self._ready)}>"
        )

    def submit(self, process_queue: ProcessQueue, messages: Sequence[HandedMessage], dispatch: bool) -> None:
        """Messages came; `dispatch` says that no run of the queue is under way (client:D-62)."""
        if dispatch:
            self.again(process_queue)

    def again(self, process_queue: ProcessQueue, delay: float = 0.0) -> None:
        """Start a run of the queue when there is a place for it, in `delay` seconds or later."""
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
        """Nothing to do: how many messages a call gets is asked each time."""

    def forget_given_up(self) -> None:
        """Let go of what waits and belongs to queues that were given up."""
        self._ready = deque(queue for queue in self._ready if not queue.leaving)
        self.stream.forget_given_up()
        self._take_back(lambda process_queue, key: not process_queue.leaving or self.stream.is_held(key))

    async def expire(self, process_queues: Iterable[ProcessQueue]) -> None:
        """Iterated messages in hand longer than `consume_timeout` count as failed; handlers have no limit."""
        self.stream.expire(self._knobs.consume_timeout)

    async def close(self, timeout: float) -> None:
        """Hand out no more; wait up to `timeout` seconds for what is in hand."""
        told, self._closing = self._closing, True
        deadline = self._loop.time() + timeout
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._ready.clear()
        self._held_up.clear()
        self.stream.end(None)
        self._take_back(lambda _, key: self.stream.is_held(key))
        await self.stream.settled(timeout)
        self._take_back(lambda _, key: False)
        running = {task for task in self._active.values() if task is not asyncio.current_task()}
        if running:
            _, running = await asyncio.wait(running, timeout=max(0.0, deadline - self._loop.time()))
        if running and not told:
            log.warning(
                "ordered handlers of group %s still ran %.3g s after close; their messages come again",
                self._group,
                timeout,
            )
        self._threads.close()

    def _take_back(self, stays: Callable[[ProcessQueue, int], bool]) -> None:
        """Offered messages count as never handed out, but for those that stay offered, or in hand."""
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
                # Taken anew while a handler still works on what was in hand before (client:D.11, step 2).
                self._held_up[queue] = process_queue
                continue
            task = self._tasks.start(self._run(process_queue), f"ordered {queue}")
            self._active[queue] = task
            task.add_done_callback(partial(self._ended, queue))

    def _ended(self, queue: MessageQueue, _: asyncio.Task[None]) -> None:
        del self._active[queue]
        held_up = self._held_up.pop(queue, None)
        if held_up is not None:
            self._ready.append(held_up)
        self._fill()

    async def _run(self, process_queue: ProcessQueue) -> None:
        end = self._monotonic() + RUN_SECONDS_MAX
        while not process_queue.leaving and not self._closing:
            now = self._monotonic()
            if not process_queue.may_consume_in_order(now):
                self._lock_soon(process_queue)
                return
            if now >= end or len(self._active) > self._count:  # another's turn, or fewer run than before
                self.again(process_queue, _AGAIN_SECONDS)
                return
            messages = self._take(process_queue)
            if not messages:
                return
            if not await self._handle(process_queue, messages):
                return

    def _take(self, process_queue: ProcessQueue) -> list[LazyMessage]:
        """The next messages of one topic: of a retry topic's queue they may be of several.

        Who iterates gets one at a time, so that what was acked is committed while the next is in hand.
        """
        first, count = process_queue.first, self._knobs.batch * self._pieces
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
        """Have messages handled in order; whether the run goes on."""
        topic = messages[0].topic
        start = self._monotonic()
        process_queue.began(start)
        try:
            if self._subscriptions.find(topic) is None:
                return await self._refuse(process_queue, messages)
            context = self._hooks.before(process_queue.queue, messages) if self._hooks.any else None
            calls = await self._call(process_queue, messages, self._subscriptions.handler(topic))
            seconds = self._monotonic() - start
            if context is not None:
                self._hooks.after(context, calls.result, calls.error, seconds)
            return await self._judge(process_queue, messages, calls, seconds)
        finally:
            process_queue.ended()  # who waits for that finds everything noted, and nothing on its way

    async def _judge(
        self, process_queue: ProcessQueue, messages: list[LazyMessage], calls: _Calls, seconds: float
    ) -> bool:
        """Commit, put back, let rest or bury what was handled; whether the run goes on."""
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
        """Make the calls, where the handler's kind belongs."""
        if handler is None:
            calls = _Calls(process_queue, partial(self._offer, process_queue), 1, takes_lists=False)
            await calls.run_async(messages)
            return calls
        knobs = self._knobs
        calls = _Calls(process_queue, handler.call, knobs.batch, takes_lists=knobs.takes_lists)
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
        """The handler commits by itself (client:D.11, the column of autoCommit false)."""
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
                "auto_commit=False do handlers commit by themselves",
            )

    async def _suspend(
        self,
        process_queue: ProcessQueue,
        failed: Sequence[LazyMessage],
        error: BaseException | None,
        outcome: Outcome,
    ) -> bool:
        """Let the queue rest and try again, unless retries are used up or not wanted (client:D-64).

        Messages are passed in their order: behind one that stays, none goes to the dead letters.
        """
        self.failed += len(failed)
        self._tell(failed[0], error)
        passed = 0
        for message in failed:
            if not await self._pass(message, outcome):
                break
            passed += 1
        for message in failed[passed:]:
            message.reconsume_times += 1
        if process_queue.dropped:
            return False
        if passed and self._settings.auto_commit:
            self._commit(process_queue, failed[:passed])
        if passed == len(failed):
            return True
        process_queue.put_back(failed[passed:])
        delay = outcome.after
        if delay is None:
            delay = self._knobs.retry_seconds(failed[passed].reconsume_times - 1)
        if delay is None:
            delay = self._settings.suspend_time
        self.again(process_queue, min(max(delay, SUSPEND_MIN), SUSPEND_MAX))
        return False

    async def _pass(self, message: LazyMessage, outcome: Outcome) -> bool:
        """Whether a failed message is out of the way, because it is a dead letter now or soon."""
        if outcome.level == DEAD:
            return await self._send_back.bury(message)
        limit = self._knobs.max_reconsume_times
        used_up = message.reconsume_times >= (UNLIMITED if limit < 0 else limit)
        return used_up and await self._send_back.send_copy(message)

    async def _refuse(self, process_queue: ProcessQueue, messages: Sequence[LazyMessage]) -> bool:
        """Messages of a topic that is not subscribed any more: retries of it may still come."""
        self._occasional.write(
            logging.WARNING,
            "unsubscribed",
            f"group {self._group} does not subscribe {messages[0].topic}, of which {process_queue.queue} "
            "holds messages; they go to retry, and in the end to the dead letters",
        )
        for index, message in enumerate(messages):
            if not await self._send_back.send(message, BROKER_CHOOSES):
                process_queue.put_back(messages[index:])
                self.again(process_queue, self._settings.redeliver_delay)
                return False
            self._commit(process_queue, [message])
        return True

    def _tell(self, first: LazyMessage, error: BaseException | None) -> None:
        if error is None or isinstance(error, Retry):
            return
        self._occasional.write(
            logging.WARNING,
            f"{type(error).__name__} {first.topic}",
            f"the ordered handler of {first.topic} in group {self._group} failed for message "
            f"{first.message_id} ({first.queue} at offset {first.queue_offset}); its queue rests",
            error=error,
        )

    # Iteration

    async def _offer(self, process_queue: ProcessQueue, message: HandedMessage) -> None:
        """Offer a message to whoever iterates; returns when it is settled."""
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
