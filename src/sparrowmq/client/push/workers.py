"""Workers that run handlers: bounded sets of threads for plain functions and of tasks for `async def`
functions.

Neither needs a task, thread or wake-up per message: messages that were pulled together are queued together,
workers take parts of them until none is left, and threads return their results to the loop in groups.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from sparrowmq.client.base.callables import is_async, kept
from sparrowmq.client.consumer.lazy_message import LazyMessage
from sparrowmq.client.consumer.outcomes import refuse_unfinished
from sparrowmq.client.consumer.process_queue import ProcessQueue
from sparrowmq.client.push.values import Decode, handler_of_values
from sparrowmq.core.clock import Clock, SystemClock

Handler = Callable[[Any], Any]
"""Takes a message, or a list of them with `batch` above 1; returning means success, raising means retry."""

_TURN_SECONDS: Final = 0.005
"""Async workers yield to the loop at least this often."""
_AHEAD: Final = 4
"""Jobs per thread that are queued before their results are returned."""


class HandlerJob:
    """The messages of one handler call, all from one queue, and the result of the call."""

    __slots__ = (
        "context",
        "error",
        "handler",
        "messages",
        "process_queue",
        "result",
        "seconds",
        "takes_list",
        "timed_out",
    )

    def __init__(
        self,
        process_queue: ProcessQueue,
        messages: Sequence[LazyMessage],
        handler: Handler,
        takes_list: bool,
    ) -> None:
        self.process_queue = process_queue
        self.messages = messages
        self.handler = handler
        self.takes_list = takes_list
        self.result: Any = None
        """The handler's return value."""
        self.error: BaseException | None = None
        """The handler's exception."""
        self.seconds = 0.0
        """How long the handler ran."""
        self.timed_out = False
        self.context: Any = None
        """The context that hooks got before the call."""

    def argument(self, now_ms: int) -> Any:
        """The handler's argument; records the start time (client:D-44)."""
        for message in self.messages:
            message.begin(now_ms)
        return list(self.messages) if self.takes_list else self.messages[0]


Finish = Callable[[HandlerJob], None]
"""Called on the loop for every job that ran, not for skipped jobs."""
Begin = Callable[[HandlerJob], None]
"""Called on the loop for every job before it runs."""


class TopicHandler:
    """A user's handler, and whether calling it returns an awaitable. `decode` makes what it gets.

    Raises TypeError for objects that are not functions, and for generators, whose code does not run when they
    are called.
    """

    __slots__ = ("call", "is_async")

    def __init__(self, call: Handler, decode: Decode | None = None) -> None:
        method = getattr(call, "__call__", None)  # noqa: B004 - the method itself is looked at
        if method is None:
            raise TypeError(f"handler={call!r:.200} cannot be called: give a function that takes a message")
        for function in (call, method):
            if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
                raise TypeError(f"the handler {call!r:.200} is a generator: write it without `yield`")
        self.is_async = is_async(call)
        self.call = call if decode is None else handler_of_values(call, decode)


class _Chunk:
    """Messages that arrived together; `at` is the index of the first one that was not handed out."""

    __slots__ = ("at", "batch", "handler", "messages", "process_queue")

    def __init__(
        self, process_queue: ProcessQueue, messages: Sequence[LazyMessage], handler: Handler, batch: int
    ) -> None:
        self.process_queue = process_queue
        self.messages = messages
        self.handler = handler
        self.batch = batch
        self.at = 0

    @property
    def left(self) -> int:
        """Number of remaining jobs."""
        return -(-(len(self.messages) - self.at) // self.batch)


class Waiting:
    """Messages that wait for a worker, in order of arrival."""

    def __init__(self) -> None:
        self._chunks: deque[_Chunk] = deque()
        self._all_rest = False
        self._takes_lists = False

    def __len__(self) -> int:
        return sum(chunk.left for chunk in self._chunks)

    def __bool__(self) -> bool:
        """Whether there may be a job; false while all waiting messages belong to paused queues."""
        return bool(self._chunks) and not self._all_rest

    def add(
        self, process_queue: ProcessQueue, messages: Sequence[LazyMessage], handler: Handler, batch: int
    ) -> None:
        """Add messages of one queue, to be handed out `batch` at a time."""
        self._chunks.append(_Chunk(process_queue, messages, handler, batch))
        self._all_rest = False

    def take(self) -> HandlerJob | None:
        """The next job. Jobs of queues that were given up are discarded; jobs that may not start are skipped
        and keep their position.
        """
        chunks = self._chunks
        resting: list[_Chunk] = []
        job = None
        while chunks:
            chunk = chunks[0]
            if not chunk.process_queue.may_start():
                chunks.popleft()
                if not chunk.process_queue.leaving:
                    resting.append(chunk)
                continue
            at, batch = chunk.at, chunk.batch
            end = chunk.at = at + batch
            if end >= len(chunk.messages):
                chunks.popleft()
            takes_list = batch > 1 or self._takes_lists
            job = HandlerJob(chunk.process_queue, chunk.messages[at:end], chunk.handler, takes_list)
            break
        if resting:
            chunks.extendleft(reversed(resting))
            self._all_rest = job is None
        return job

    def go_on(self) -> None:
        """Jobs of paused queues may be able to start again."""
        self._all_rest = False

    def put_back(self, jobs: Iterable[HandlerJob], batch: int) -> None:
        """Put unstarted jobs back at the front; consecutive messages of a queue are combined up to
        `batch`.
        """
        chunks = [_Chunk(job.process_queue, list(job.messages), job.handler, batch) for job in jobs]
        if chunks and self._chunks:
            chunks.append(self._chunks.popleft())
        joined: list[_Chunk] = []
        for chunk in chunks:
            last = joined[-1] if joined else None
            if last and (last.process_queue, last.handler) == (chunk.process_queue, chunk.handler):
                last.messages = [*last.messages, *chunk.messages[chunk.at :]]
            else:
                joined.append(chunk)
        self._chunks.extendleft(reversed(joined))
        self._all_rest = False

    def take_lists(self, takes_lists: bool) -> None:
        """Set whether handlers get a list even for one message."""
        self._takes_lists = takes_lists

    def rebatch(self, batch: int) -> None:
        """Hand out `batch` messages at a time from now on."""
        for chunk in self._chunks:
            chunk.batch = batch

    def forget_given_up(self) -> None:
        """Drop messages of queues that were given up, so that they do not pile up behind hung handlers."""
        self._chunks = deque(chunk for chunk in self._chunks if not chunk.process_queue.leaving)

    def clear(self) -> None:
        """Drop everything."""
        self._chunks.clear()


class ThreadWorkers:
    """Up to `count` daemon threads, started when first needed."""

    def __init__(
        self, count: int, name: str, finish: Finish, begin: Begin | None = None, *, clock: Clock | None = None
    ) -> None:
        self._count = count
        self._clock = clock or SystemClock()
        self._name = name
        self._finish = finish
        self._begin = begin
        self._loop = asyncio.get_running_loop()
        self._waiting = Waiting()
        self._batch = 1
        self._jobs: queue.SimpleQueue[HandlerJob | None] = queue.SimpleQueue()
        self._results: deque[HandlerJob] = deque()
        self._announced = False
        self._threads = 0
        self._started = 0
        self._closing = False
        self._handed = 0
        self._idle: asyncio.Event | None = None

    @property
    def pending(self) -> int:
        """Jobs waiting or running."""
        return self._handed + len(self._waiting)

    def submit(
        self, process_queue: ProcessQueue, messages: Sequence[LazyMessage], handler: Handler, batch: int
    ) -> None:
        """Let threads handle messages, `batch` in each call."""
        if not self._closing:
            self._batch = batch
            self._waiting.add(process_queue, messages, handler, batch)
            self._hand_over()

    def resize(self, count: int) -> None:
        """Use `count` threads from now on; surplus threads end after their current job."""
        jobs = self._recall() if count < self._threads else []
        for _ in range(self._threads - count):
            self._jobs.put(None)
        for job in jobs:
            self._jobs.put(job)
        self._threads = min(self._threads, count)
        self._count = count
        while self._threads < min(count, self._handed):
            self._start_thread()
        self._hand_over()

    def _recall(self) -> list[HandlerJob]:
        """Take back the jobs that no thread has started."""
        jobs, ends = [], 0
        try:
            while True:
                job = self._jobs.get_nowait()
                ends += job is None
                if job is not None:
                    jobs.append(job)
        except queue.Empty:
            pass
        for _ in range(ends):  # surplus threads have not ended yet
            self._jobs.put(None)
        return jobs

    def rebatch(self, batch: int, *, takes_lists: bool) -> None:
        """Hand out `batch` messages at a time from now on, as lists or one by one."""
        self._waiting.take_lists(takes_lists)
        if self._begin is None:  # hooks already know the jobs that were handed over
            jobs = self._recall()
            for job in jobs:
                self._handed -= 1
                job.process_queue.ended()
            self._waiting.put_back(jobs, batch)
        self._batch = batch
        self._waiting.rebatch(batch)
        if not self._closing:
            self._hand_over()

    def forget_given_up(self) -> None:
        """Drop waiting messages of queues that were given up."""
        self._waiting.forget_given_up()

    def go_on(self) -> None:
        """Hand out messages that waited because no handler was allowed to start."""
        self._waiting.go_on()
        if not self._closing:
            self._hand_over()

    async def close(self, timeout: float) -> bool:
        """Start no more handlers and wait up to `timeout` seconds for running ones. Returns whether all
        ended.

        Threads cannot be interrupted: the result of a handler that is still running is discarded.
        """
        self._closing = True
        self._waiting.clear()
        try:
            if self._handed:
                self._idle = asyncio.Event()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._idle.wait(), timeout)
        finally:  # the caller may be cancelled meanwhile
            for _ in range(self._threads):
                self._jobs.put(None)
            self._threads = 0
        return not self._handed

    def _hand_over(self) -> None:
        """Give the threads just enough jobs to keep them busy until results return."""
        limit = self._count * _AHEAD
        now = self._clock.monotonic()
        while self._handed < limit and (job := self._waiting.take()) is not None:
            self._handed += 1
            job.process_queue.began(now)
            if self._begin is not None:
                self._begin(job)
            if self._threads < min(self._count, self._handed):
                self._start_thread()
            self._jobs.put(job)

    def _start_thread(self) -> None:
        self._threads += 1
        self._started += 1
        name = f"{self._name}-{self._started}"
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        now_ms, monotonic = self._clock.now_ms, self._clock.monotonic
        while (job := self._jobs.get()) is not None:
            if self._closing or not job.process_queue.may_start():
                job.error = NotRun()
            else:
                start = monotonic()
                try:
                    job.result = result = job.handler(job.argument(now_ms()))
                    if result is not None:
                        refuse_unfinished(result)
                except BaseException as raised:
                    job.error = raised
                job.seconds = monotonic() - start
            self._results.append(job)
            if not self._announced:
                self._announced = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:
                    return  # the loop is closed, so nothing waits for results

    def _collect(self) -> None:
        self._announced = False
        results, resting = self._results, []
        for _ in range(len(results)):
            job = results.popleft()
            self._handed -= 1
            if not isinstance(job.error, NotRun):
                self._finish(job)
            elif not job.process_queue.leaving:
                resting.append(job)
            job.process_queue.ended()
        if not self._closing:
            if resting:  # no handler started them, so they are handed out again
                self._waiting.put_back(resting, self._batch)
            self._hand_over()
        if self._idle is not None and not self._handed:
            self._idle.set()


class NotRun(Exception):
    """Marks a job that was skipped because its queue was given up or the consumer closes."""


class TaskWorkers:
    """Up to `count` concurrent handlers on the loop; a worker ends when there are no jobs."""

    def __init__(
        self,
        count: int,
        finish: Finish,
        start: Callable[[Any, str], object],
        begin: Begin | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        """`start(coroutine, name)` runs a worker in the background."""
        self._count = count
        self._clock = clock or SystemClock()
        self._finish = finish
        self._begin = begin
        self._start = start
        self._waiting = Waiting()
        self._workers = 0
        self._running: dict[asyncio.Task[Any], HandlerJob] = {}
        self._starting = False
        self._closing = False
        self._idle: asyncio.Event | None = None

    @property
    def pending(self) -> int:
        """Jobs waiting, and active workers."""
        return len(self._waiting) + self._workers

    def submit(
        self, process_queue: ProcessQueue, messages: Sequence[LazyMessage], handler: Handler, batch: int
    ) -> None:
        """Let workers handle messages, `batch` in each call."""
        if not self._closing:
            self._waiting.add(process_queue, messages, handler, batch)
            self._add_worker()  # the active ones may be waiting for I/O

    def resize(self, count: int) -> None:
        """Run up to `count` handlers at once from now on."""
        self._count = count
        self._add_worker()

    def rebatch(self, batch: int, *, takes_lists: bool) -> None:
        """Hand out `batch` messages at a time from now on, as lists or one by one."""
        self._waiting.take_lists(takes_lists)
        self._waiting.rebatch(batch)

    def forget_given_up(self) -> None:
        """Drop waiting messages of queues that were given up."""
        self._waiting.forget_given_up()

    def go_on(self) -> None:
        """Hand out messages that waited because no handler was allowed to start."""
        self._waiting.go_on()
        if not self._closing:
            self._add_worker()

    def cancel_older(self, limit_ms: int) -> int:
        """Cancel handlers that started before `limit_ms` (epoch milliseconds). Returns how many."""
        late = [(task, job) for task, job in self._running.items() if job.messages[0].started_ms <= limit_ms]
        for task, job in late:
            if not job.timed_out:
                job.timed_out = True
                task.cancel()
        return len(late)

    async def close(self, timeout: float) -> bool:
        """Start no more handlers and wait up to `timeout` seconds for running ones. Returns whether all
        ended.
        """
        self._closing = True
        self._waiting.clear()
        if self._workers:
            self._idle = asyncio.Event()
            try:
                await asyncio.wait_for(self._idle.wait(), timeout)
            except TimeoutError:
                pass
        return not self._workers

    def _add_worker(self) -> None:
        if self._waiting and not self._starting and self._workers < self._count:
            self._workers += 1
            self._starting = True
            self._start(self._work(), "handlers")

    async def _work(self) -> None:
        self._starting = False
        me, running = asyncio.current_task(), self._running
        now_ms, monotonic = self._clock.now_ms, self._clock.monotonic
        assert me is not None
        try:
            started = monotonic()
            turn_ends = started + _TURN_SECONDS
            while not self._closing and self._workers <= self._count and (job := self._waiting.take()):
                if not self._starting:
                    self._add_worker()  # runs while this handler waits
                job.process_queue.began(started)
                running[me] = job
                if self._begin is not None:
                    self._begin(job)
                try:
                    job.result = result = await job.handler(job.argument(now_ms()))
                    if result is not None:
                        refuse_unfinished(result)
                except asyncio.CancelledError as raised:
                    if job.timed_out and me.uncancel() == 0:
                        job.error = TimeoutError("the handler took longer than consume_timeout")
                    elif me.cancelling():
                        raise
                    else:
                        job.error = raised
                except BaseException as raised:
                    job.error = kept(raised)
                finally:
                    del running[me]
                    job.process_queue.ended()
                now = monotonic()
                job.seconds = now - started
                started = now
                self._finish(job)
                if now >= turn_ends:
                    await asyncio.sleep(0)
                    started = monotonic()
                    turn_ends = started + _TURN_SECONDS
        finally:
            self._workers -= 1
            if self._idle is not None and not self._workers:
                self._idle.set()
            elif not self._closing:
                self._add_worker()
