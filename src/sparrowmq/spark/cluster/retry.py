"""How long tasks wait for an unavailable broker: the same for reads and writes (`brokerTimeoutMs`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from sparrowmq.core.backoff import Backoff
from sparrowmq.core.clock import Sleep
from sparrowmq.core.errors import SparrowError
from sparrowmq.loops.event_loop import loop_thread
from sparrowmq.spark.cluster.faults import Occasionally

log = logging.getLogger("sparrowmq.spark")

BACKOFF: Final = Backoff(first=0.05, most=5.0)
WARN_SECONDS: Final = 5.0
"""Total seconds of pauses after which a warning is logged; shorter ones are usual when a broker restarts."""


class _Complaints(Occasionally):
    """The warnings of all calls in a process."""


class Retries:
    """The pauses between the attempts of one call, for up to `seconds` from its start. `if_lost` is the next
    step if the broker is lost for good. `sleep` waits, `now` is the clock.
    """

    def __init__(
        self,
        seconds: float,
        now: Callable[[], float] = monotonic,
        sleep: Sleep = asyncio.sleep,
        *,
        if_lost: str = "sparrow spark lost-broker",
    ) -> None:
        self._seconds = seconds
        self._if_lost = if_lost
        self._now = now
        self._sleep = sleep
        self._began = now()
        self._delays = BACKOFF.delays()

    async def pause(self, what: str, problem: SparrowError) -> None:
        """Wait before the next attempt of `what`. Raises `problem` if that would be past the deadline."""
        waited, delay = self._now() - self._began, next(self._delays)
        if waited + delay > self._seconds:
            problem.add_note(
                f"{what} was given up after {waited:.1f} s; option brokerTimeoutMs is "
                f"{1000 * self._seconds:.0f}. Nothing is lost: restart the broker and then the query, or "
                f"increase the option. If the broker is lost for good: {self._if_lost}"
            )
            raise problem
        if waited < WARN_SECONDS:
            log.info("%s failed and is retried: %s", what, problem)
        else:
            loop_thread().kept(_Complaints).warn(
                "%s has failed for %.0f s and is retried for at most %.0f s (option brokerTimeoutMs): %s",
                what,
                waited,
                self._seconds,
                problem,
            )
        await self._sleep(delay)
