"""The event loop of a Spark process: one daemon thread that all clients of the process share.

Spark forks its workers and keeps them between tasks, so connections live here and survive from task to task
(spark:P-07). The pid is compared, because a forked child has the object but not the thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, TypeVar

T = TypeVar("T")

CALL_SECONDS: Final = 600.0
"""No call into the loop may take longer: every call has its own, shorter deadline."""


class LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name="sparrowmq-spark", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<LoopThread pid={self.pid} {'running' if self._thread.is_alive() else 'stopped'}>"

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T], timeout: float = CALL_SECONDS) -> T:
        """The result of a coroutine; it is cancelled when the caller stops waiting."""
        future = self.submit(work)
        try:
            return future.result(timeout)
        finally:
            future.cancel()

    def stop(self, timeout: float = 5.0) -> None:
        """End the thread after cancelling what runs. For tests; workers just die."""
        try:
            self.run(_cancel_all(), timeout)
        except (FutureTimeoutError, CancelledError):
            pass
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout)
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        if task is not None:
            task.cancel()
    await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)


_lock = threading.Lock()
_current: LoopThread | None = None


def loop_thread() -> LoopThread:
    """This process's loop, started when first asked for."""
    global _current
    with _lock:
        if _current is None or _current.pid != os.getpid():
            _current = LoopThread()
        return _current
