"""One run of a job for all who asked before it began: saves of a table, registrations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class SharedRun:
    """Runs `job` when asked, one run at a time. Belongs to the loop."""

    def __init__(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._job = job
        self._run: asyncio.Task[None] | None = None
        self._begun = 0

    async def join(self) -> None:
        """Wait for a whole run that begins after this call; raises what that run raises.

        Cancelling the call does not end the run: others may wait for it.
        """
        wanted = self._begun + 1
        begun = 0
        while begun < wanted:
            if self._run is None or self._run.done():  # done, and its callbacks are still to come
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
            run.exception()  # whoever waits has it; perhaps nobody does any more
