"""Where handlers run: a bounded set of threads for plain functions, of tasks for `async def` ones.

Neither costs a task, thread or wake-up per message: workers take jobs from one queue until it is empty, and
the results of threads come back to the loop in groups.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from sparrowmq.client.process_queue import ProcessQueue
from sparrowmq.core.message import PROPERTY_CONSUME_START_TIME, ReceivedMessage

Handler = Callable[[Any], Any]
"""Takes a message, or a list of them with `batch` above 1; returning means done, raising means retry."""

_TURN_SECONDS: Final = 0.005
"""Async workers let the rest of the loop run at least this often."""


class Job:
    """Messages of one queue to be handled by one call, all of them or none done."""

    __slots__ = ("handler", "messages", "process_queue", "takes_list")

    def __init__(
        self,
        process_queue: ProcessQueue,
        messages: Sequence[ReceivedMessage],
        handler: Handler,
        takes_list: bool,
    ) -> None:
        self.process_queue = process_queue
        self.messages = messages
        self.handler = handler
        self.takes_list = takes_list

    def argument(self) -> Any:
        """What the handler gets; notes the time at which it got it (client:D-44)."""
        now = str(time.time_ns() // 1_000_000)
        for message in self.messages:
            message.properties[PROPERTY_CONSUME_START_TIME] = now
        return list(self.messages) if self.takes_list else self.messages[0]


Finish = Callable[[Job, BaseException | None], None]
"""Called on the loop for every job that ran, with what its handler raised. Not called for dropped queues."""


class TopicHandler:
    """A user's handler, and whether calling it gives something to await."""

    __slots__ = ("call", "is_async")

    def __init__(self, call: Handler) -> None:
        self.call = call
        method = getattr(call, "__call__", None)  # noqa: B004 - the method itself is looked at
        self.is_async = inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(method)


class ThreadWorkers:
    """Up to `count` daemon threads, started when first needed."""

    def __init__(self, count: int, name: str, finish: Finish) -> None:
        self._count = count
        self._name = name
        self._finish = finish
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._results: deque[tuple[Job, BaseException | None]] = deque()
        self._announced = False
        self._threads: list[threading.Thread] = []
        self._closing = False
        self._pending = 0
        self._idle: asyncio.Event | None = None

    @property
    def pending(self) -> int:
        """Jobs waiting or running."""
        return self._pending

    def submit(self, job: Job) -> None:
        """Have a thread run `job`."""
        self._pending += 1
        if len(self._threads) < min(self._count, self._pending):
            self._start_thread()
        self._jobs.put(job)

    async def close(self, timeout: float) -> bool:
        """Start no more handlers, wait up to `timeout` seconds for running ones; whether all ended.

        Threads cannot be interrupted: a handler that goes on afterwards has its result thrown away.
        """
        self._closing = True
        if self._pending:
            self._idle = asyncio.Event()
            try:
                await asyncio.wait_for(self._idle.wait(), timeout)
            except TimeoutError:
                pass
        for _ in self._threads:
            self._jobs.put(None)
        return not self._pending

    def _start_thread(self) -> None:
        thread = threading.Thread(
            target=self._work, name=f"{self._name}-{len(self._threads) + 1}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            error: BaseException | None = None
            if self._closing or job.process_queue.dropped:
                error = _NotRun()
            else:
                try:
                    if inspect.iscoroutine(result := job.handler(job.argument())):
                        result.close()
                        raise TypeError("a plain handler gave a coroutine; write it with `async def`")
                except BaseException as raised:
                    error = raised
            self._results.append((job, error))
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
            job, error = results.popleft()
            self._pending -= 1
            if not isinstance(error, _NotRun):
                self._finish(job, error)
        if self._idle is not None and not self._pending:
            self._idle.set()


class _NotRun(Exception):
    """Marks a job that was skipped because its queue was given up or the consumer closes."""


class TaskWorkers:
    """Up to `count` handlers at once on the loop; a worker lives while there are jobs."""

    def __init__(self, count: int, finish: Finish, start: Callable[[Any, str], object]) -> None:
        """`start(coroutine, name)` runs a worker in the background."""
        self._count = count
        self._finish = finish
        self._start = start
        self._loop = asyncio.get_running_loop()
        self._jobs: deque[Job] = deque()
        self._workers = 0
        self._starting = False
        self._closing = False
        self._idle: asyncio.Event | None = None

    @property
    def pending(self) -> int:
        """Jobs waiting, and workers at work."""
        return len(self._jobs) + self._workers

    def submit(self, job: Job) -> None:
        """Have a worker run `job`."""
        self._jobs.append(job)
        if not self._starting and self._workers < self._count:
            self._add_worker()  # those at work may be waiting for something

    async def close(self, timeout: float) -> bool:
        """Start no more handlers, wait up to `timeout` seconds for running ones; whether all ended."""
        self._closing = True
        self._jobs.clear()
        if self._workers:
            self._idle = asyncio.Event()
            try:
                await asyncio.wait_for(self._idle.wait(), timeout)
            except TimeoutError:
                pass
        return not self._workers

    def _add_worker(self) -> None:
        self._workers += 1
        self._starting = True
        self._start(self._work(), "handlers")

    async def _work(self) -> None:
        self._starting = False
        try:
            turn_ends = self._loop.time() + _TURN_SECONDS
            while self._jobs and not self._closing:
                job = self._jobs.popleft()
                if job.process_queue.dropped:
                    continue
                if self._jobs and not self._starting and self._workers < self._count:
                    self._add_worker()  # runs when this handler waits for something
                error: BaseException | None = None
                try:
                    await job.handler(job.argument())
                except Exception as raised:
                    error = raised
                except asyncio.CancelledError as raised:
                    task = asyncio.current_task()
                    if task is None or task.cancelling():
                        raise
                    error = raised
                self._finish(job, error)
                if self._loop.time() >= turn_ends:
                    await asyncio.sleep(0)
                    turn_ends = self._loop.time() + _TURN_SECONDS
        finally:
            self._workers -= 1
            if self._idle is not None and not self._workers:
                self._idle.set()
