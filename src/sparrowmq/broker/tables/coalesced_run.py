"""One run of a job (save of a table, registration) for all callers that requested it before it began."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class SharedRun:
    """Runs `job` on request, one run at a time. Belongs to the loop."""

    def __init__(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._job = job
        self._run: asyncio.Task[None] | None = None
        self._begun = 0

    async def join(self) -> None:
        """Wait for a complete run that begins after this call; raises that run's exceptions.

        Cancelling the call does not end the run: others may wait for it.
        """
        wanted = self._begun + 1
        begun = 0
        while begun < wanted:
            if self._run is None or self._run.done():  # done, but its callbacks have not run yet
                self._begun += 1
                self._run = asyncio.create_task(self._job())
                self._run.add_done_callback(self._ended)
            begun, run = self._begun, self._run
            try:
                await asyncio.shield(run)
            except Exception:
                if begun >= wanted:
                    raise

    def _ended(self, run: asyncio.Task[None]) -> None:
        if self._run is run:
            self._run = None
        if not run.cancelled():
            run.exception()  # callers that still wait have the exception
