"""Keeps the garbage collector of Spark's workers from visiting every object after each task.

The daemon that reuses a worker collects garbage after each task. Almost all objects belong to modules and
shared clients, which stay: visiting them takes 35 ms, more than a small task.
"""

from __future__ import annotations

import gc
import sys
from typing import Any, Final

from sparrowmq.loops.event_loop import loop_thread

_DAEMON: Final = "pyspark.daemon"


class Tasks:
    """Number of tasks that this process has started."""

    def __init__(self) -> None:
        self._begun = 0

    def begin(self, main: Any) -> bool:
        """Count a task of a process whose main module is `main`; return whether all current objects were
        frozen.

        Spark's workers freeze at the second task, when everything is loaded and garbage was just collected,
        and again whenever the number of tasks has doubled, for later objects. Reference counting is not
        affected: only cycles created between a collection and a freeze, a few for each of these tasks, are
        never freed.
        """
        self._begun += 1
        spec = getattr(main, "__spec__", None)
        if spec is None or spec.name != _DAEMON or self._begun < 2 or self._begun & (self._begun - 1):
            return False
        gc.freeze()
        return True


def task_begins() -> None:
    """Call this where a task begins to read or write."""
    loop_thread().kept(Tasks).begin(sys.modules.get("__main__"))
