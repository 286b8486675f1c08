"""Changes that wait for the disk or take long: they run in a thread, one after the other, and always
complete.

A change works on a copy and publishes it with one assignment, so the loop sees the table before or after the
change, never in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Generic, TypeVar

T = TypeVar("T")


class ChangeQueue(Generic[T]):
    """Runs the changes of one table in the order of the requests. Belongs to the loop."""

    def __init__(self, pool: Executor | None = None) -> None:
        self._pool = pool
        self._turn = asyncio.Lock()
        self._running: set[asyncio.Task[T]] = set()

    def __repr__(self) -> str:
        return f"<Changes {len(self._running)} running>"

    def run(self, change: Callable[[], T]) -> T | Awaitable[T]:
        """Run a change and return the result of `change`, or an awaitable of it; runs at once where no loop
        runs. Raises its exceptions.

        The change continues even if its caller stops waiting: otherwise the next one could begin before it
        has ended.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return change()
        return asyncio.shield(self._begin(change))

    def _begin(self, change: Callable[[], T]) -> asyncio.Task[T]:
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._one(loop, change), name="a change on disk")
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def _one(self, loop: asyncio.AbstractEventLoop, change: Callable[[], T]) -> T:
        async with self._turn:
            return await loop.run_in_executor(self._pool, change)

    def _ended(self, task: asyncio.Task[T]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # its caller has the exception, if it still waits
