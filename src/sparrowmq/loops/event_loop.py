"""Event loops: uvloop if it is installed, otherwise asyncio's. Also the one loop of a process that runs in a
thread.

The latter is for callers outside of asyncio: one per process, on a daemon thread, created on first use. The
synchronous classes and Spark's drivers and workers share it, so clients and their connections outlive the
calls and tasks that use them. After a fork, the child has none of the parent's threads, so it creates its own
loop on first use.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from sparrowmq.core.errors import InvalidStateError

T = TypeVar("T")

CALL_SECONDS: Final = 600.0
"""Default time limit of a call; its work has a shorter deadline."""
_EXIT_SECONDS: Final = 1.0
"""How long interpreter exit may wait for tasks of objects that were never closed."""
_SIGNAL_SECONDS: Final = 1.0
"""How long a waiting thread may take to notice a signal or the end of the loop."""

ENDED: Final = (
    "SparrowMQ's loop has ended because the interpreter exits; close clients before: use `with`, or register "
    "their close with atexit after making them"
)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new loop that is neither set nor running."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on a new loop until it ends, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


class LoopThread:
    """A loop on its own thread, and calls into it from other threads."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = new_event_loop()
        self._ended = False
        self._kept: dict[type, Any] = {}
        self._thread = threading.Thread(target=self._run, name="sparrowmq", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<LoopThread pid={self.pid} {'stopped' if self.has_ended else 'running'}>"

    @property
    def has_ended(self) -> bool:
        """Whether the loop was stopped, so that new work would never run."""
        return self._ended or not self._thread.is_alive()

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs on this loop's thread."""
        return threading.get_ident() == self._thread.ident

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = CALL_SECONDS) -> T:
        """The result of a coroutine that runs on the loop.

        It is cancelled when a signal interrupts the wait, and when it takes longer than `timeout` seconds;
        then TimeoutError is raised. Use None for work with its own end. Raises `InvalidStateError` on the
        loop's own thread, which would wait for itself.
        """
        if self.is_current_thread:
            work.close()
            raise InvalidStateError("this is the loop's own thread, which would wait for itself: use await")
        future = self.submit(work)
        try:
            return self._result(future, timeout)
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        """The result of a plain function that is called on the loop."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def work() -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        self.loop.call_soon_threadsafe(work)
        return self._result(future, None)

    def _result(self, future: concurrent.futures.Future[T], timeout: float | None) -> T:
        end = None if timeout is None else time.monotonic() + timeout
        while True:  # ends with the call, its timeout or the loop; waiting in steps lets signals in
            left = _SIGNAL_SECONDS if end is None else min(_SIGNAL_SECONDS, end - time.monotonic())
            try:
                return future.result(max(0.0, left))
            except TimeoutError:
                if future.done():
                    return future.result()
                if self.has_ended:
                    raise InvalidStateError(ENDED) from None
                if end is not None and time.monotonic() >= end:
                    raise TimeoutError(f"a call took longer than {timeout:g} s and was cancelled") from None

    def kept(self, kind: type[T]) -> T:
        """The single object of a class that lives as long as this loop, created on first use."""
        if kind not in self._kept:
            self._kept.setdefault(kind, kind())
        found: T = self._kept[kind]
        return found

    def stop(self) -> None:
        """Cancel running tasks and end the thread, within about a second."""
        if self.pid != os.getpid() or not self._thread.is_alive():
            return
        try:
            self.submit(_cancel_all()).result(_EXIT_SECONDS)
        except (concurrent.futures.TimeoutError, concurrent.futures.CancelledError):
            pass  # remaining tasks end with the process
        self._ended = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_EXIT_SECONDS)

    def close(self) -> None:
        """Stop and free the loop; it accepts no more work. For tests; processes just end."""
        self.stop()
        self.loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


async def _cancel_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_EXIT_SECONDS / 2)


class _Process:
    """The process's loop, if there is one, and its end when the interpreter exits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: LoopThread | None = None
        self._prepared = False

    def loop(self) -> LoopThread:
        """The loop, started on first use."""
        current = self._current
        if current is not None:
            return current
        with self._lock:
            if self._current is None:
                self._prepare()
                self._current = LoopThread()
            return self._current

    def prepare(self) -> None:
        """Register for forks and for the interpreter's exit."""
        with self._lock:
            self._prepare()

    def _prepare(self) -> None:
        if not self._prepared:
            self._prepared = True
            atexit.register(self._at_exit)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self._current = None

    def _at_exit(self) -> None:
        if self._current is not None:
            self._current.stop()


_process: Final = _Process()


def loop_thread() -> LoopThread:
    """This process's loop, started on first use."""
    return _process.loop()


def prepare_exit() -> None:
    """Register the loop's end so that it runs before the exit functions registered so far.

    Functions that are registered with atexit from now on run earlier than that, so they can use the loop.
    """
    _process.prepare()
