"""Calling what applications give: a coroutine function on the loop, a plain function in a thread.

Nothing that they raise ends the loop, which others run on as well: what would end a program (SystemExit and
the like) is a fault of the function. Only Ctrl-C stays what it is.
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
    """Whether calling it gives something to await: `async def`, also as the `__call__` of an object."""
    method = getattr(function, "__call__", None)  # noqa: B004 - the method itself is looked at
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method)


def kept(raised: BaseException) -> BaseException:
    """What a user's coroutine raised, to be kept as its outcome. Raises Ctrl-C, and what ends a coroutine."""
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
    """What an awaitable of a user gives; SystemExit and the like come out as RuntimeError."""
    try:
        return await outcome
    except Exception:
        raise
    except BaseException as raised:
        raise _fault(kept(raised)) from raised


async def call(
    function: Callable[..., Awaitable[None] | None], *arguments: Any, threads: CallThreads | None = None
) -> None:
    """Call it and wait for the end; raises what it raises, but RuntimeError for SystemExit and the like.

    A plain function runs in one of `threads`, by default in one of its own; what it returns is awaited if it
    can be. Threads are daemons: one that never ends keeps no program from its end.
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
    """Up to `count` daemon threads that make calls for coroutines which wait for them."""

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
        """Call `function`, which must not raise, in a thread; the future is done when it returned."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._busy += 1
        if self._threads < min(self._count, self._busy):
            self._threads += 1
            name = f"{self._name}-{self._threads}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._calls.put((function, future))
        return future

    async def result(self, function: Callable[[], T]) -> T:
        """What `function` returns or raises, called in a thread; not called when its caller gave up before.

        What would end a program (SystemExit and the like) is a RuntimeError: it came from a user's function.
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
        """Have `count` threads from now on."""
        for _ in range(self._threads - count):
            self._calls.put(None)
        self._threads = min(self._threads, count)
        self._count = count

    def close(self) -> None:
        """End the threads when they are done with what they do."""
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
                    return  # the loop is closed: nobody waits

    def _collect(self) -> None:
        self._announced = False
        for _ in range(len(self._ended)):
            future = self._ended.popleft()
            self._busy -= 1
            if not future.done():
                future.set_result(None)
