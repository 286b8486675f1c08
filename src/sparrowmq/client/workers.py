"""Where handlers run: a bounded set of threads for plain functions, of tasks for `async def` ones.

Neither costs a task, thread or wake-up per message: what was pulled together waits together, workers take
pieces of it until nothing is left, and the results of threads come back to the loop in groups.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from sparrowmq.client.callables import is_async, kept
from sparrowmq.client.handed import LazyMessage
from sparrowmq.client.outcomes import refuse_unfinished
from sparrowmq.client.process_queue import ProcessQueue

Handler = Callable[[Any], Any]
"""Takes a message, or a list of them with `batch` above 1; returning means done, raising means retry."""

_TURN_SECONDS: Final = 0.005
"""Async workers let the rest of the loop run at least this often."""
_AHEAD: Final = 4
"""Jobs per thread that are handed over before their results come back."""


class Job:
    """Messages of one queue that are handled by one call, and how that ended."""

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
        """What the handler returned."""
        self.error: BaseException | None = None
        """What the handler raised."""
        self.seconds = 0.0
        """How long the handler took."""
        self.timed_out = False
        self.context: Any = None
        """What hooks were told before."""

    def argument(self) -> Any:
        """What the handler gets; notes the time at which it got it (client:D-44)."""
        now = time.time_ns() // 1_000_000
        for message in self.messages:
            message.begin(now)
        return list(self.messages) if self.takes_list else self.messages[0]


Finish = Callable[[Job], None]
"""Called on the loop for every job that ran. Not called for those that were skipped."""
Begin = Callable[[Job], None]
"""Called on the loop for every job before it runs."""


class TopicHandler:
    """A user's handler, and whether calling it gives something to await.

    Raises TypeError for what is no function, and for generators: calling one runs nothing of it.
    """

    __slots__ = ("call", "is_async")

    def __init__(self, call: Handler) -> None:
        self.call = call
        method = getattr(call, "__call__", None)  # noqa: B004 - the method itself is looked at
        if method is None:
            raise TypeError(f"handler={call!r:.200} cannot be called: give a function of a message")
        for function in (call, method):
            if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
                raise TypeError(f"the handler {call!r:.200} is a generator: write it without `yield`")
        self.is_async = is_async(call)


class _Chunk:
    """Messages that came together; `at` is the first that was not handed out yet."""

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
        """Jobs it still makes."""
        return -(-(len(self.messages) - self.at) // self.batch)


class Waiting:
    """What waits for a worker, first come first served."""

    def __init__(self) -> None:
        self._chunks: deque[_Chunk] = deque()
        self.takes_lists = False
        """Whether handlers get a list even of one message."""

    def __len__(self) -> int:
        return sum(chunk.left for chunk in self._chunks)

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def add(
        self, process_queue: ProcessQueue, messages: Sequence[LazyMessage], handler: Handler, batch: int
    ) -> None:
        """Have messages of one queue wait, to be handed out `batch` at a time."""
        self._chunks.append(_Chunk(process_queue, messages, handler, batch))

    def take(self) -> Job | None:
        """The next job; those of queues that were given up are skipped."""
        chunks = self._chunks
        while chunks:
            chunk = chunks[0]
            if chunk.process_queue.leaving:
                chunks.popleft()
                continue
            at, batch = chunk.at, chunk.batch
            end = chunk.at = at + batch
            if end >= len(chunk.messages):
                chunks.popleft()
            takes_list = batch > 1 or self.takes_lists
            return Job(chunk.process_queue, chunk.messages[at:end], chunk.handler, takes_list)
        return None

    def put_back(self, jobs: Iterable[Job], batch: int) -> None:
        """Have jobs that nobody began with wait again, before all others; what follows each other in a queue
        is handed out together as far as `batch` allows.
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

    def rebatch(self, batch: int) -> None:
        """Hand out `batch` at a time from now on."""
        for chunk in self._chunks:
            chunk.batch = batch

    def forget_given_up(self) -> None:
        """Let go of what belongs to queues that were given up, so that hung handlers cannot pile it up."""
        self._chunks = deque(chunk for chunk in self._chunks if not chunk.process_queue.leaving)

    def clear(self) -> None:
        """Let go of everything."""
        self._chunks.clear()


class ThreadWorkers:
    """Up to `count` daemon threads, started when first needed."""

    def __init__(self, count: int, name: str, finish: Finish, begin: Begin | None = None) -> None:
        self._count = count
        self._name = name
        self._finish = finish
        self._begin = begin
        self._loop = asyncio.get_running_loop()
        self._waiting = Waiting()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._results: deque[Job] = deque()
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
        """Have threads handle messages, `batch` in each call."""
        if not self._closing:
            self._waiting.add(process_queue, messages, handler, batch)
            self._hand_over()

    def resize(self, count: int) -> None:
        """Have `count` threads from now on; those too many end when they are done with what they do."""
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

    def _recall(self) -> list[Job]:
        """Take back the jobs that no thread has begun with."""
        jobs, ends = [], 0
        try:
            while True:
                job = self._jobs.get_nowait()
                ends += job is None
                if job is not None:
                    jobs.append(job)
        except queue.Empty:
            pass
        for _ in range(ends):  # threads that are to end still are
            self._jobs.put(None)
        return jobs

    def rebatch(self, batch: int, *, takes_lists: bool) -> None:
        """Hand out `batch` messages at a time from now on, as lists or one by one."""
        self._waiting.takes_lists = takes_lists
        if self._begin is None:  # hooks were told of the jobs that are handed over
            jobs = self._recall()
            for job in jobs:
                self._handed -= 1
                job.process_queue.ended()
            self._waiting.put_back(jobs, batch)
        self._waiting.rebatch(batch)
        if not self._closing:
            self._hand_over()

    def forget_given_up(self) -> None:
        """Let go of what waits and belongs to queues that were given up."""
        self._waiting.forget_given_up()

    async def close(self, timeout: float) -> bool:
        """Start no more handlers, wait up to `timeout` seconds for running ones; whether all ended.

        Threads cannot be interrupted: a handler that goes on afterwards has its result thrown away.
        """
        self._closing = True
        self._waiting.clear()
        if self._handed:
            self._idle = asyncio.Event()
            try:
                await asyncio.wait_for(self._idle.wait(), timeout)
            except TimeoutError:
                pass
        for _ in range(self._threads):
            self._jobs.put(None)
        self._threads = 0
        return not self._handed

    def _hand_over(self) -> None:
        """Give the threads what keeps them busy until results come back, and not more."""
        limit = self._count * _AHEAD
        now = time.monotonic()
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
        while (job := self._jobs.get()) is not None:
            if self._closing or job.process_queue.leaving:
                job.error = NotRun()
            else:
                start = time.perf_counter()
                try:
                    job.result = result = job.handler(job.argument())
                    if result is not None:
                        refuse_unfinished(result)
                except BaseException as raised:
                    job.error = raised
                job.seconds = time.perf_counter() - start
            self._results.append(job)
            if not self._announced:
                self._announced = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:
                    return  # the loop is closed: nobody waits for results

    def _collect(self) -> None:
        self._announced = False
        results = self._results
        for _ in range(len(results)):
            job = results.popleft()
            self._handed -= 1
            if not isinstance(job.error, NotRun):
                self._finish(job)
            job.process_queue.ended()
        if not self._closing:
            self._hand_over()
        if self._idle is not None and not self._handed:
            self._idle.set()


class NotRun(Exception):
    """Marks a job that was skipped because its queue was given up or the consumer closes."""


class TaskWorkers:
    """Up to `count` handlers at once on the loop; a worker lives while there are jobs."""

    def __init__(
        self,
        count: int,
        finish: Finish,
        start: Callable[[Any, str], object],
        begin: Begin | None = None,
    ) -> None:
        """`start(coroutine, name)` runs a worker in the background."""
        self._count = count
        self._finish = finish
        self._begin = begin
        self._start = start
        self._waiting = Waiting()
        self._workers = 0
        self._running: dict[asyncio.Task[Any], Job] = {}
        self._starting = False
        self._closing = False
        self._idle: asyncio.Event | None = None

    @property
    def pending(self) -> int:
        """Jobs waiting, and workers at work."""
        return len(self._waiting) + self._workers

    def submit(
        self, process_queue: ProcessQueue, messages: Sequence[LazyMessage], handler: Handler, batch: int
    ) -> None:
        """Have workers handle messages, `batch` in each call."""
        if not self._closing:
            self._waiting.add(process_queue, messages, handler, batch)
            self._add_worker()  # those at work may be waiting for something

    def resize(self, count: int) -> None:
        """Run up to `count` handlers at once from now on."""
        self._count = count
        self._add_worker()

    def rebatch(self, batch: int, *, takes_lists: bool) -> None:
        """Hand out `batch` messages at a time from now on, as lists or one by one."""
        self._waiting.takes_lists = takes_lists
        self._waiting.rebatch(batch)

    def forget_given_up(self) -> None:
        """Let go of what waits and belongs to queues that were given up."""
        self._waiting.forget_given_up()

    def cancel_older(self, limit_ms: int) -> int:
        """Cancel handlers that began before `limit_ms` (epoch milliseconds); how many."""
        late = [(task, job) for task, job in self._running.items() if job.messages[0].started_ms <= limit_ms]
        for task, job in late:
            if not job.timed_out:
                job.timed_out = True
                task.cancel()
        return len(late)

    async def close(self, timeout: float) -> bool:
        """Start no more handlers, wait up to `timeout` seconds for running ones; whether all ended."""
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
        me, running, monotonic = asyncio.current_task(), self._running, time.monotonic
        assert me is not None
        try:
            started = monotonic()
            turn_ends = started + _TURN_SECONDS
            while not self._closing and self._workers <= self._count and (job := self._waiting.take()):
                if not self._starting:
                    self._add_worker()  # runs when this handler waits for something
                job.process_queue.began(started)
                running[me] = job
                if self._begin is not None:
                    self._begin(job)
                try:
                    job.result = result = await job.handler(job.argument())
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
