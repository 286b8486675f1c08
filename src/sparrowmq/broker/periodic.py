"""Work that a broker repeats as long as it lives, whatever goes wrong in one round."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from sparrowmq.core.errors import SparrowError
from sparrowmq.transport.occasional import OccasionalLog

Work = Callable[[], Awaitable[None] | None]


async def repeat(interval: float, work: Work, what: str, occasional: OccasionalLog) -> None:
    """Call `work` every `interval` seconds until cancelled.

    An exception is logged and does not end it: without its housekeeping a broker would hold pulls for ever.
    """
    while True:  # until cancelled by close
        await asyncio.sleep(interval)
        try:
            result = work()
            if result is not None:
                await result
        except Exception as error:
            trace = None if isinstance(error, SparrowError | OSError) else error
            text = f"{what} failed and is tried again in {interval:g} s: {type(error).__name__}: {error}"
            occasional.write(logging.ERROR, what, text, error=trace)
