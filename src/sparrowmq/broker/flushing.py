"""When the log is forced to disk, and who waits for it (broker:2.6).

`ASYNC_FLUSH` flushes every `flushIntervalCommitLog`; nobody waits. `SYNC_FLUSH` flushes as soon as somebody
waits, all that arrived meanwhile as one group. The fsync itself runs in a worker thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import StoreBusyError, StoreError
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.store.message_store import MessageStore

log = logging.getLogger("sparrowmq.broker")
WAITING_MAX: Final = 10_000
"""Chunks that may wait for a group commit, as the reference's send queue; beyond it sends get SYSTEM_BUSY."""

BUSY_SECONDS: Final = 0.1
"""Pause before a flush for which the system had no open file left is tried again."""

Flushed = Callable[[bool], None]
"""Called on the loop with True once flushed, with False when the time ran out or the disk failed.

After the time ran out it is called once more, with True, if the flush succeeds in the end.
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
    ) -> None:
        self._store = store
        self._pool = pool
        self.sync = sync
        self._interval = interval
        self._timeout = timeout
        self._queue_interval = queue_interval
        self._waiting: deque[tuple[int, float, Flushed]] = deque()
        self._late: deque[tuple[int, Flushed]] = deque()
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._occasional = OccasionalLog(log)
        self.failed: Exception | None = None

    def start(self) -> None:
        """Begin flushing; call on the loop."""
        run = self._group_commits if self.sync else self._interval_flushes
        self._tasks = [asyncio.create_task(run()), asyncio.create_task(self._queue_flushes())]

    @property
    def busy(self) -> bool:
        """Whether as many chunks wait as may."""
        return len(self._waiting) >= WAITING_MAX

    def after(self, position: int, done: Flushed) -> None:
        """Call `done` when the log is on disk up to `position`, or when `timeout` seconds have passed."""
        deadline = asyncio.get_running_loop().time() + self._timeout
        self._waiting.append((position, deadline, done))
        self._wake.set()

    async def close(self) -> None:
        """Stop, flush once more, release everybody who waits."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._flush()
        self._release(everybody=True)

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._pool, self._store.flush)
        except StoreBusyError as error:
            self._occasional.write(logging.ERROR, "busy", f"the log is flushed later: {error}")
            await asyncio.sleep(BUSY_SECONDS)
        except Exception as error:
            if self.failed is None:
                trace = None if isinstance(error, OSError | StoreError) else error
                text = "the commit log cannot be flushed, no more messages are taken: %s"
                log.error(text, error, exc_info=trace)
            self.failed = error

    async def _interval_flushes(self) -> None:
        while True:  # until cancelled by close
            await asyncio.sleep(self._interval)
            await self._flush()

    async def _queue_flushes(self) -> None:
        loop = asyncio.get_running_loop()
        while True:  # until cancelled by close
            await asyncio.sleep(self._queue_interval)
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
            position, deadline, done = waiting[0]
            on_disk = position <= flushed
            if not (on_disk or hopeless or deadline <= now):
                break
            waiting.popleft()
            self._call(done, on_disk=on_disk)
            if not on_disk and not hopeless:
                late.append((position, done))

    def _call(self, done: Flushed, *, on_disk: bool) -> None:
        try:
            done(on_disk)
        except Exception as error:  # of one connection: the others still wait for theirs
            text = "a fault while answering flushed messages"
            self._occasional.write(logging.ERROR, "answering", text, error=error)
