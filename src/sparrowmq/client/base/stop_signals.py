"""Signals that end a process gracefully: the first one closes the registered clients.

Signals belong to the process, so there is one table of them. The previous handler is restored when the signal
has arrived or no client is registered any more, so a second Ctrl-C has its usual effect.
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
"""Starts to close something. Runs inside a signal handler, so it must not wait. Returns False if there is
nothing to close.
"""


class StopSignals:
    """What each signal closes, and the process that registered it."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._waiting: dict[int, list[Begin]] = {}
        self._before: dict[int, Any] = {}

    def __repr__(self) -> str:
        waiting = {signal.Signals(number).name: len(found) for number, found in self._waiting.items()}
        return f"<StopSignals {waiting}>"

    def add(self, numbers: Sequence[int], begin: Begin) -> None:
        """Call `begin` at the first of these signals.

        Raises `InvalidStateError` outside the main thread, the only one that can set signal handlers.
        """
        if threading.current_thread() is not threading.main_thread():
            raise InvalidStateError(
                f"only the main thread receives signals, and this is {threading.current_thread().name}; "
                f"call close_on_signals there, or close the consumer in your own signal handler"
            )
        if self._pid != os.getpid():  # entries from before a fork belong to the parent
            self._pid = os.getpid()
            self._waiting.clear()
        for number in numbers:
            self._waiting.setdefault(number, []).append(begin)
            if signal.getsignal(number) != self._told:
                self._before[number] = signal.signal(number, self._told)

    def remove(self, begin: Begin) -> None:
        """Remove `begin`. Any thread may call it; only the main thread restores handlers, others leave that
        for later.
        """
        is_main = threading.current_thread() is threading.main_thread()
        for number, waiting in list(self._waiting.items()):
            if begin in waiting:
                waiting.remove(begin)
            if not waiting and is_main:
                del self._waiting[number]
                self._put_back(number)

    def _told(self, number: int, frame: object) -> None:
        """Handle a signal. If there is nothing to close in this process, the previous handler is called."""
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
"""The table of this process."""
