"""When the log is flushed to disk, and who waits for it (broker:2.6).

`ASYNC_FLUSH` flushes every `flushIntervalCommitLog`; nobody waits. `SYNC_FLUSH` flushes as soon as a send
waits; all sends that arrived in the meantime share one flush. The fsync itself runs in a worker thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from time import perf_counter
from typing import TYPE_CHECKING, Final

from sparrowmq.core.clock import Sleep
from sparrowmq.core.errors import StoreBusyError, StoreError
from sparrowmq.core.figures.histogram import Histogram
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.store.message_store import MessageStore

log = logging.getLogger("sparrowmq.broker")
WAITING_MAX: Final = 10_000
"""Maximum number of chunks that wait for a group commit, as in the reference; above it, sends get
SYSTEM_BUSY."""
WAITING_BYTES_MAX: Final = 32 * 1024 * 1024
"""Maximum size of the answers to these chunks, in bytes."""

FLUSH_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds of the counted durations of flushes, in seconds."""
BUSY_SECONDS: Final = 0.1
"""Pause before a flush is repeated that failed for lack of file descriptors."""

Flushed = Callable[[bool], None]
"""Called on the loop with True once flushed, with False after a timeout or a disk failure.

After a timeout it is called again, with True, if the flush succeeds later.
"""


class Flusher:
    """Runs the flushes of one store. `failed` holds the error that made the disk unusable."""

    def __init__(
        self,
        store: MessageStore,
        pool: Executor,
        *,
        sync: bool,
        interval: float,
        timeout: float,
        queue_interval: float,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._sleep = sleep
        self._store = store
        self._pool = pool
        self.sync = sync
        self._interval = interval
        self._timeout = timeout
        self._queue_interval = queue_interval
        self._waiting: deque[tuple[int, float, Flushed, int]] = deque()
        self._waiting_bytes = 0
        self._late: deque[tuple[int, Flushed]] = deque()
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._occasional = OccasionalLog(log)
        self.failed: Exception | None = None
        self.times = Histogram(FLUSH_BOUNDS)
        """Durations of the successful flushes of the log, in seconds."""

    def start(self) -> None:
        """Begin flushing; call on the loop."""
        run = self._group_commits if self.sync else self._interval_flushes
        self._tasks = [asyncio.create_task(run()), asyncio.create_task(self._queue_flushes())]

    @property
    def waiting(self) -> int:
        """Number of chunks that wait for a flush."""
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        """Whether the limit of waiting chunks is reached, including those that have timed out."""
        return len(self._waiting) + len(self._late) >= WAITING_MAX or self._waiting_bytes >= WAITING_BYTES_MAX

    def after(self, position: int, done: Flushed, size: int = 0) -> None:
        """Call `done` when the log is on disk up to `position`, or after `timeout` seconds.

        `size` is the memory that `done` uses until then, in bytes.
        """
        deadline = asyncio.get_running_loop().time() + self._timeout
        self._waiting.append((position, deadline, done, size))
        self._waiting_bytes += size
        self._wake.set()

    async def close(self) -> None:
        """Stop, flush once more, and release all waiters."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._flush()
        self._release(everybody=True)

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            self.times.add(await loop.run_in_executor(self._pool, self._timed_flush))
        except StoreBusyError as error:
            self._occasional.write(
                logging.ERROR, "busy", f"flushing the commit log failed; retrying: {error}"
            )
            await self._sleep(BUSY_SECONDS)
        except Exception as error:
            if self.failed is None:
                trace = None if isinstance(error, OSError | StoreError) else error
                text = "the commit log cannot be flushed; the broker accepts no more messages: %s"
                log.error(text, error, exc_info=trace)
            self.failed = error

    def _timed_flush(self) -> float:
        began = perf_counter()
        self._store.flush()
        return perf_counter() - began

    async def _interval_flushes(self) -> None:
        while True:  # until cancelled by close
            await self._sleep(self._interval)
            await self._flush()

    async def _queue_flushes(self) -> None:
        loop = asyncio.get_running_loop()
        while True:  # until cancelled by close
            await self._sleep(self._queue_interval)
            try:
                await loop.run_in_executor(self._pool, self._store.flush_queues)
            except Exception as error:
                trace = None if isinstance(error, OSError | StoreError) else error
                text = f"the consume queues cannot be flushed: {error}"
                self._occasional.write(logging.ERROR, "queues", text, error=trace)

    async def _group_commits(self) -> None:
        while True:  # until cancelled by close
            await self._wake.wait()
            self._wake.clear()
            while self._waiting or self._late:
                await self._flush()
                self._release()

    def _release(self, *, everybody: bool = False) -> None:
        flushed = self._store.flushed_position
        now = asyncio.get_running_loop().time()
        waiting, late = self._waiting, self._late
        hopeless = everybody or self.failed is not None
        while late and (hopeless or late[0][0] <= flushed):
            position, done = late.popleft()
            if position <= flushed:
                self._call(done, on_disk=True)
        while waiting:
            position, deadline, done, size = waiting[0]
            on_disk = position <= flushed
            if not (on_disk or hopeless or deadline <= now):
                break
            waiting.popleft()
            self._waiting_bytes -= size
            self._call(done, on_disk=on_disk)
            if not on_disk and not hopeless:
                late.append((position, done))

    def _call(self, done: Flushed, *, on_disk: bool) -> None:
        try:
            done(on_disk)
        except Exception as error:  # an error of one connection must not affect the others
            text = "error while answering flushed messages"
            self._occasional.write(logging.ERROR, "answering", text, error=error)
