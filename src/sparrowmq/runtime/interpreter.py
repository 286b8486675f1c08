"""Settings of the Python interpreter of a server: neither the garbage collector nor other threads block its
loop for long.

A full collection traverses all containers and blocks the interpreter: 0.2 s with 60,000 groups, more with
10,000 connections. So objects that survived a long collection are frozen: later collections ignore them and
only traverse newer objects. Frozen objects are freed as usual when nothing refers to them any more; only
cycles among them remain. So servers break their cycles themselves (checked by
`tests/runtime/test_interpreter.py`), and once a day, when the process is idle, everything is unfrozen and
collected.

The switch interval of threads is shorter than the default: a thread that computes, for example to save a
large table, must release the interpreter often, because a loop needs it several times to answer one request.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Final

from sparrowmq.core.clock import Sleep

log = logging.getLogger("sparrowmq.runtime")

THRESHOLDS: Final = (2_000, 10, 4)
"""New containers until the youngest generation is collected; collections of one generation until that of the
next. So there are at most about 100,000 new containers between two full collections, and a middle one handles
20,000.
"""
FREEZE_SECONDS: Final = 0.01
"""A full collection that takes longer freezes the surviving objects."""
THAW_SECONDS: Final = 86_400.0
QUIET_SHARE: Final = 0.02
"""A process that computed at most this share of the last second counts as idle."""


SWITCH_SECONDS: Final = 0.0005
"""How long a thread may compute while another waits for the interpreter; Python's default is 0.005."""


class Interpreter:
    """Keeps collections short and threads fair while the process serves: from `begin` to `end`.

    `frozen` counts the freezes since the last complete collection.
    """

    def __init__(self, *, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._began = 0.0
        self._before: tuple[tuple[int, int, int], float] | None = None
        self.frozen = 0

    def begin(self) -> None:
        """Freeze all current objects, which live until the end."""
        if self._before is None:
            self._before = gc.get_threshold(), sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_SECONDS)
            gc.set_threshold(*THRESHOLDS)
            gc.freeze()
            gc.callbacks.append(self._collecting)

    def end(self) -> None:
        """Restore the previous settings."""
        if self._before is not None:
            thresholds, interval = self._before
            gc.callbacks.remove(self._collecting)
            gc.set_threshold(*thresholds)
            sys.setswitchinterval(interval)
            gc.unfreeze()
            self._before = None

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        """Called by the interpreter before and after each collection."""
        if info["generation"] != 2:
            return
        if phase == "start":
            self._began = self._clock()
        elif self._clock() - self._began > FREEZE_SECONDS:
            gc.freeze()
            self.frozen += 1

    def thaw(self) -> int:
        """Unfreeze and collect everything, which may take long. Returns how many containers in cycles were
        freed.
        """
        gc.unfreeze()
        freed = gc.collect()
        gc.freeze()
        self.frozen = 0
        return freed

    async def run(self, *, period: float = THAW_SECONDS, sleep: Sleep = asyncio.sleep) -> None:
        """Thaw at the first quiet moment after each `period`, in seconds, until cancelled."""
        while True:  # until cancelled
            await sleep(period)
            while self.frozen and not await _is_quiet():
                pass
            if self.frozen:
                log.info(
                    "%d containers in reference cycles were freed while the server was idle", self.thaw()
                )


async def _is_quiet() -> bool:
    """Whether the process is idle during the next second."""
    began = process_time()
    await asyncio.sleep(1)
    return process_time() - began <= QUIET_SHARE
