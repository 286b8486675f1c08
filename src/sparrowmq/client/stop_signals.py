"""Signals that end a process in peace: the first one closes the clients that asked for it.

Signals belong to the process, so there is one table of them. What handled a signal before handles it again
once it came or nobody waits for it any more: a second Ctrl-C does what Ctrl-C always did.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from sparrowmq.core.errors import InvalidStateError

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

Begin = Callable[[], bool]
"""Begins to close something. Runs inside a signal handler, so it must not wait. False: nothing to close."""


class StopSignals:
    """Who is to be closed by which signal, in the process that said so."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._waiting: dict[int, list[Begin]] = {}
        self._before: dict[int, Any] = {}

    def __repr__(self) -> str:
        waiting = {signal.Signals(number).name: len(found) for number, found in self._waiting.items()}
        return f"<StopSignals {waiting}>"

    def add(self, numbers: Sequence[int], begin: Begin) -> None:
        """Have `begin` called at the first of these signals.

        Raises `InvalidStateError` outside the main thread, which is the only one that gets signals.
        """
        if threading.current_thread() is not threading.main_thread():
            raise InvalidStateError(
                f"signals reach the main thread only, this is {threading.current_thread().name}; call "
                "close_on_signals there, or close the consumer from a handler of your own"
            )
        if self._pid != os.getpid():  # what was said before a fork is said for the parent
            self._pid = os.getpid()
            self._waiting.clear()
        for number in numbers:
            self._waiting.setdefault(number, []).append(begin)
            if signal.getsignal(number) != self._told:
                self._before[number] = signal.signal(number, self._told)

    def remove(self, begin: Begin) -> None:
        """Forget `begin`. For any thread; handlers are put back in the main thread only, or when needed."""
        is_main = threading.current_thread() is threading.main_thread()
        for number, waiting in list(self._waiting.items()):
            if begin in waiting:
                waiting.remove(begin)
            if not waiting and is_main:
                del self._waiting[number]
                self._put_back(number)

    def _told(self, number: int, frame: object) -> None:
        """A signal came. When nobody here has something to close it does what it did before."""
        waiting = self._waiting.pop(number, [])
        self._put_back(number)
        begun = [begin() for begin in waiting] if self._pid == os.getpid() else []
        if not any(begun):
            signal.raise_signal(number)

    def _put_back(self, number: int) -> None:
        before = self._before.pop(number, None)
        if signal.getsignal(number) == self._told:
            signal.signal(number, signal.SIG_DFL if before is None else before)


stop_signals: Final = StopSignals()
"""The process's own."""
