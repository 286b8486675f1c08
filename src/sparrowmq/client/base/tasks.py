"""Background tasks of clients: periodic work that continues after errors, and tasks whose unexpected end is
logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from sparrowmq.core.clock import Sleep
from sparrowmq.core.errors import SparrowError

log = logging.getLogger("sparrowmq.client")

_CANCELS_MAX: Final = 3
_CANCEL_SECONDS: Final = 1.0
"""Seconds that a cancelled task may take before it is cancelled again."""


async def run_every(
    interval: float,
    work: Callable[[], Awaitable[object]],
    *,
    sleep: Sleep,
    first: float | None = None,
    name: str = "",
) -> None:
    """Call `work` every `interval` seconds, first after `first` seconds, until cancelled; `sleep` does the
    waiting.

    An exception is logged and does not end the schedule (client:Z-07).
    """
    delay = interval if first is None else first
    while True:  # the owner cancels it when it closes
        await sleep(delay)
        delay = interval
        try:
            await work()
        except SparrowError as error:
            log.warning("%s failed; retrying in %g s: %s", name or work, interval, error)
        except Exception:
            log.exception("%s failed; retrying in %g s", name or work, interval)


class TaskGroup:
    """The background tasks of one object.

    The first task that ends with an exception is reported to `on_death`, so no error goes unnoticed. `close`
    cancels the remaining tasks.
    """

    def __init__(self, on_death: Callable[[str, BaseException], object]) -> None:
        self._on_death = on_death
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run `work` in the background."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def drain(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for the current tasks."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout)

    async def close(self) -> None:
        """Cancel all tasks except the calling one and wait until they have ended, at most 3 s.

        Cancellation is repeated: the awaited event may occur at the same moment and win, and users' handlers
        may catch the cancellation.
        """
        mine = asyncio.current_task()
        left = {task for task in self._tasks if task is not mine}
        for _ in range(_CANCELS_MAX):
            for task in left:
                task.cancel()
            if left:
                _, left = await asyncio.wait(left, timeout=_CANCEL_SECONDS)
        if left:
            names = ", ".join(sorted(task.get_name() for task in left))
            log.warning("tasks ignored cancellation and were abandoned: %s", names)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_death(task.get_name(), error)
