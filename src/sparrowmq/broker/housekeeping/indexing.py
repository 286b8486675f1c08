"""Keeps the key index close to the end of the log without delaying sends and reads.

Indexing a message costs more than storing or reading it. So the index is built in short slices with pauses:
it takes a small share of the loop's time while messages arrive and it is nearly up to date, or while messages
are read and none arrive; up to half when the loop has little else to do, or messages arrive and it is far
behind. A query by key first waits until the index is up to date.
"""

from __future__ import annotations

import asyncio
import logging
from math import exp
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Final

from sparrowmq.core.clock import Sleep
from sparrowmq.core.errors import StoreError
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.slices import shared

if TYPE_CHECKING:
    from collections.abc import Generator

    from sparrowmq.store.message_store import MessageStore

log = logging.getLogger("sparrowmq.broker")
SLICE_RECORDS: Final = 256
"""About a millisecond of work, the longest time that a request waits for it."""

IDLE_SECONDS: Final = 0.1
RETRY_SECONDS: Final = 5.0
CATCH_UP_SECONDS: Final = 10.0
"""How long a query waits for the index; the client waits 18 s (client:E-51)."""

SHARE_MIN: Final = 0.03
SHARE_BESIDE_READS: Final = 0.1
"""While no message is stored, the index does not fall further behind, so reads have priority at any lag."""
SHARE_MAX: Final = 0.5
IDLE_LOOP: Final = 0.25
"""A loop that is busy for less of the time than this, excluding indexing, has spare time for indexing."""
WORK_SECONDS: Final = 0.1
"""Approximate period over which the load of the loop is measured."""
NEAR_BYTES: Final = 256 * 1024 * 1024
"""About a million small messages: five seconds of work, within `CATCH_UP_SECONDS`."""

FAR_BYTES: Final = 2 * 1024 * 1024 * 1024


def share(behind: int, *, storing: bool, busy: float) -> float:
    """The fraction of time that indexing may take when it is this many bytes behind the log.

    `storing`: messages were stored since the last slice. `busy` is the fraction of time that the loop works
    on other tasks, 0 to 1.
    """
    if not storing:
        return SHARE_MAX if busy < IDLE_LOOP else SHARE_BESIDE_READS
    if behind <= NEAR_BYTES:
        return SHARE_MIN
    part = min(1.0, (behind - NEAR_BYTES) / (FAR_BYTES - NEAR_BYTES))
    return SHARE_MIN + part * (SHARE_MAX - SHARE_MIN)


class Busyness:
    """Load of a thread between indexing slices, with the most weight on the last tenth of a second."""

    def __init__(self) -> None:
        self.part = 0.0
        """The fraction of time, 0 to 1."""

    def note(self, worked: float, passed: float) -> None:
        """Record that the thread worked `worked` of the `passed` seconds."""
        if passed > 0:
            weight = 1 - exp(-passed / WORK_SECONDS)
            self.part += weight * (min(1.0, worked / passed) - self.part)


class Indexer:
    """Keeps the index of one store up to date with its log."""

    def __init__(self, store: MessageStore, *, sleep: Sleep = asyncio.sleep) -> None:
        self._sleep = sleep
        self._store = store
        self._task: asyncio.Task[None] | None = None
        self._occasional = OccasionalLog(log)

    def start(self) -> None:
        """Begin; call on the loop."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop indexing; the store indexes the remaining records."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        end, busy = -1, Busyness()
        while True:  # until cancelled by close
            started = perf_counter()
            storing, end = end != self._store.position, self._store.position
            behind = self._slice()
            ended, worked = perf_counter(), thread_time()
            if behind is None:
                await self._sleep(RETRY_SECONDS)
            elif behind == 0:
                await self._sleep(IDLE_SECONDS)
            else:
                part = share(behind, storing=storing, busy=busy.part)
                await self._sleep((ended - started) * (1 - part) / part)
            busy.note(thread_time() - worked, perf_counter() - ended)

    def _slice(self) -> int | None:
        """Index some records; returns how many bytes remain, None when the disk fails."""
        try:
            return self._store.follow_index(SLICE_RECORDS)
        except StoreError as error:
            self._occasional.write(logging.ERROR, "index", f"indexing of keys is delayed: {error}")
            return None

    async def catch_up(self) -> bool:
        """Index all messages stored before the call; False when that takes too long or the disk fails."""
        return await shared().result(self._catch_up())

    def _catch_up(self) -> Generator[None, None, bool]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CATCH_UP_SECONDS
        end = self._store.position
        while self._store.index.enabled and self._store.index.place.position < end:
            if self._slice() is None or loop.time() > deadline:
                return False
            yield
        return True
