"""Work that a broker repeats until it stops, even if one round fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from sparrowmq.core.clock import Clock, Sleep
from sparrowmq.core.errors import SparrowError
from sparrowmq.transport.occasional import OccasionalLog

Work = Callable[[], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Background:
    """What background work needs: a clock, a pool for blocking calls, and the sleep between rounds."""

    clock: Clock
    pool: Executor
    sleep: Sleep = asyncio.sleep


async def repeat(
    interval: float, work: Work, what: str, occasional: OccasionalLog, *, sleep: Sleep = asyncio.sleep
) -> None:
    """Call `work` every `interval` seconds until cancelled; `sleep` waits.

    An exception is logged and does not end the loop: without housekeeping, a broker would hold pulls forever.
    """
    task = asyncio.current_task()
    if task is not None:
        task.set_name(what)
    while True:  # until cancelled by close
        await sleep(interval)
        try:
            result = work()
            if result is not None:
                await result
        except Exception as error:
            trace = None if isinstance(error, SparrowError | OSError) else error
            text = f"{what} failed; retrying in {interval:g} s: {type(error).__name__}: {error}"
            occasional.write(logging.ERROR, what, text, error=trace)
