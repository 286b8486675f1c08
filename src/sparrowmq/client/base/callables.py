"""Calls of application functions: coroutine functions on the loop, plain functions in a thread.

Their exceptions never end the shared event loop: exceptions that would end a program, such as SystemExit,
count as errors of the function. Only KeyboardInterrupt is passed on.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar, cast

T = TypeVar("T")


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it returns an awaitable: `async def`, also as the `__call__` of an object."""
    method = getattr(function, "__call__", None)  # noqa: B004 - the method itself is looked at
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method)


def kept(raised: BaseException) -> BaseException:
    """An application coroutine's exception, to keep as its result. Raises KeyboardInterrupt and what ends a
    coroutine.
    """
    if isinstance(raised, (KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)):
        raise raised
    return raised


def _fault(raised: BaseException) -> Exception:
    if isinstance(raised, Exception):
        return raised
    fault = RuntimeError(f"it raised {raised!r}")
    fault.__cause__ = raised
    return fault


async def awaited(outcome: Awaitable[T]) -> T:
    """The result of an application's awaitable. SystemExit and similar become RuntimeError."""
    try:
        return await outcome
    except Exception:
        raise
    except BaseException as raised:
        raise _fault(kept(raised)) from raised


async def call(
    function: Callable[..., Awaitable[None] | None], *arguments: Any, threads: CallThreads | None = None
) -> None:
    """Call it and wait for the result. Raises its exceptions, and RuntimeError for SystemExit and similar.

    A plain function runs in one of `threads`, or else in a new thread; an awaitable result is awaited.
    Threads are daemons, so one that never ends does not keep the program running.
    """
    if is_async(function):
        outcome = function(*arguments)
    else:
        chosen = threads or CallThreads(1, "sparrowmq-call")
        try:
            outcome = await chosen.result(partial(function, *arguments))
        finally:
            if threads is None:
                chosen.close()
    if inspect.isawaitable(outcome):
        await awaited(outcome)


class CallThreads:
    """Up to `count` daemon threads that run functions for coroutines."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[tuple[Callable[[], None], asyncio.Future[None]] | None]
        self._calls = queue.SimpleQueue()
        self._ended: deque[asyncio.Future[None]] = deque()
        self._announced = False
        self._threads = 0
        self._busy = 0

    def call(self, function: Callable[[], None]) -> asyncio.Future[None]:
        """Call `function`, which must not raise, in a thread; the future is done when it has returned."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._busy += 1
        if self._threads < min(self._count, self._busy):
            self._threads += 1
            name = f"{self._name}-{self._threads}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._calls.put((function, future))
        return future

    async def result(self, function: Callable[[], T]) -> T:
        """The result of `function`, called in a thread. It is not called if the caller was cancelled before.

        Raises its exceptions. Exceptions that would end a program (SystemExit and similar) become
        RuntimeError: they came from an application's function.
        """
        ended: list[tuple[T | None, BaseException | None]] = []

        def work() -> None:
            try:
                ended.append((function(), None))
            except BaseException as raised:
                ended.append((None, raised))

        await self.call(work)
        value, error = ended[0]
        if error is None:
            return cast("T", value)
        raise _fault(error)

    def resize(self, count: int) -> None:
        """Use `count` threads from now on."""
        for _ in range(self._threads - count):
            self._calls.put(None)
        self._threads = min(self._threads, count)
        self._count = count

    def close(self) -> None:
        """End the threads after their current calls."""
        self.resize(0)

    def _work(self) -> None:
        while (entry := self._calls.get()) is not None:
            function, future = entry
            if not future.cancelled():
                function()
            self._ended.append(future)
            if not self._announced:
                self._announced = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:
                    return  # the loop is closed, so nothing waits for the result

    def _collect(self) -> None:
        self._announced = False
        for _ in range(len(self._ended)):
            future = self._ended.popleft()
            self._busy -= 1
            if not future.done():
                future.set_result(None)
