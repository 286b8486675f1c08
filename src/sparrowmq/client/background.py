"""The event loop behind the synchronous classes: one per process, on a daemon thread, made when first needed.

After a fork the child has none of the parent's threads, so it gets a loop of its own when it asks for one.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from sparrowmq.core.errors import InvalidStateError
from sparrowmq.transport.loop import new_event_loop

T = TypeVar("T")

_EXIT_SECONDS: Final = 1.0
"""How long leaving the interpreter may wait for tasks of objects that were never closed."""
_SIGNAL_SECONDS: Final = 1.0
"""How long a waiting thread may overlook a signal, or that the loop has ended."""


_ENDED: Final = (
    "SparrowMQ's loop has ended because the interpreter exits; close clients before: use `with`, or register "
    "their close with atexit after making them"
)


class BackgroundLoop:
    """A loop on its own thread, and calls into it from other threads."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = new_event_loop()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="sparrowmq", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<BackgroundLoop pid={self.pid} {'stopped' if self.has_ended else 'running'}>"

    @property
    def has_ended(self) -> bool:
        """Whether the loop was stopped: nothing that is given to it would ever run."""
        return self._ended or not self._thread.is_alive()

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs on this loop's thread."""
        return threading.get_ident() == self._thread.ident

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs on the loop. A signal that interrupts the wait cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return self._result(future)
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
        return self._result(future)

    def _result(self, future: concurrent.futures.Future[T]) -> T:
        while True:  # ends with the call or the loop; the pauses let signals in that came between two waits
            try:
                return future.result(_SIGNAL_SECONDS)
            except TimeoutError:
                if future.done():
                    return future.result()
                if self.has_ended:
                    raise InvalidStateError(_ENDED) from None

    def stop(self) -> None:
        """Cancel what still runs and end the thread, within a second or so."""
        if self.pid != os.getpid() or not self._thread.is_alive():
            return
        try:
            asyncio.run_coroutine_threadsafe(_cancel_all(), self.loop).result(_EXIT_SECONDS)
        except (concurrent.futures.TimeoutError, concurrent.futures.CancelledError):
            pass  # what does not end is cut off with the process
        self._ended = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_EXIT_SECONDS)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


async def _cancel_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_EXIT_SECONDS / 2)


class _Holder:
    """The process's loop, if there is one, and its end when the interpreter exits."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.current: BackgroundLoop | None = None
        self.prepared = False

    def prepare(self) -> None:
        """Ask to be told of forks and of the interpreter's exit; call it while holding the lock."""
        if not self.prepared:
            self.prepared = True
            atexit.register(self.at_exit)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self.after_fork)

    def after_fork(self) -> None:
        self.lock = threading.Lock()
        self.current = None

    def at_exit(self) -> None:
        if self.current is not None:
            self.current.stop()


_holder = _Holder()


def background_loop() -> BackgroundLoop:
    """This process's loop, started when first asked for."""
    current = _holder.current
    if current is not None:
        return current
    with _holder.lock:
        if _holder.current is None:
            _holder.prepare()
            _holder.current = BackgroundLoop()
        return _holder.current


def prepare_exit() -> None:
    """Put the loop's end before what else is done at exit so far.

    Functions that are registered with atexit from now on run earlier than that, so they can use the loop.
    """
    with _holder.lock:
        _holder.prepare()


def check_caller(pid: int, what: object) -> BackgroundLoop:
    """The loop for a call to `what`, which was made in process `pid`.

    Raises `InvalidStateError` after a fork, and where waiting would never end: on the loop's own thread, and
    when the interpreter exits and has ended the loop.
    """
    if pid != os.getpid():
        raise InvalidStateError(
            f"{what!r} was made in another process (pid {pid}, this is {os.getpid()}); make a new "
            "one after the fork"
        )
    background = background_loop()
    if background.is_current_thread:
        raise InvalidStateError(
            f"{what!r} was called on SparrowMQ's own loop, where it would wait for itself: use "
            "sparrowmq.aio in async handlers, or make the handler a plain function"
        )
    if background.has_ended:
        raise InvalidStateError(_ENDED)
    return background
