"""The file of a table with many concurrent changes: one save serves all callers that wait.

When clients start, hundreds of topics and groups are created. A save writes and flushes the whole table in a
worker thread; changes made in the meantime wait for the next save. Nothing waits for changes that clients
repeat automatically; they are saved soon after.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from sparrowmq.broker.tables.coalesced_run import SharedRun
from sparrowmq.core.clock import Sleep
from sparrowmq.core.errors import StoreError
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.store.tables.config_file import ConfigFile

log = logging.getLogger("sparrowmq.broker")
SOON_SECONDS: Final = 0.1
"""How long changes without a waiting caller are gathered."""
SHARE_MAX: Final = 0.2
"""The fraction of time that saves without a waiting caller may take."""
RETRY_SECONDS: Final = 5.0
"""Interval before a failed background save is tried again."""

S = TypeVar("S")


class TableFile(Generic[S]):
    """Saves of one table.

    `snapshot` returns the current table and is called on the loop; `content` converts it to the file's
    object, in any thread. `on_disk` is the last saved snapshot; `settled` is called when it changes.
    Everything belongs to the loop.
    """

    def __init__(
        self,
        file: ConfigFile,
        snapshot: Callable[[], S],
        content: Callable[[S], dict[str, Any]],
        *,
        pool: Executor | None = None,
        settled: Callable[[], None] = lambda: None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._sleep = sleep
        self.on_disk = snapshot()
        self._file = file
        self._snapshot = snapshot
        self._content = content
        self._pool = pool
        self._settled = settled
        self._changes = 0
        self._saved = 0
        self._written = 0
        self._writing = threading.Lock()
        self._sharing = SharedRun(self._save)
        self._wake = asyncio.Event()
        self._occasional = OccasionalLog(log)

    @property
    def is_saved(self) -> bool:
        """Whether all changes are on disk."""
        return self._saved == self._changes

    def changed(self) -> None:
        """The table changed: `run` saves it soon."""
        self._changes += 1
        self._wake.set()

    def save(self, snapshot: S | None = None) -> None:
        """Write the current table, or the given snapshot, and wait for the disk. Raises `StoreError`."""
        number, table = self._changes + 1, self._snapshot() if snapshot is None else snapshot
        self._write(number, table)
        self._changes = number
        self._note(number, table)

    async def saved(self) -> None:
        """Wait until all current changes are on disk; callers share a save.

        Raises `StoreError` when the save that includes them fails.
        """
        if not self.is_saved:
            await self._sharing.join()

    async def run(self) -> None:
        """Save changes soon, but not too often, until cancelled; a failure is logged and retried."""
        while True:  # until cancelled by the broker's close
            await self._wake.wait()
            await self._sleep(SOON_SECONDS)
            self._wake.clear()
            started = perf_counter()
            try:
                await self.saved()
            except StoreError as error:
                text = f"{self._file.path.name} cannot be saved; retrying: {error}"
                self._occasional.write(logging.ERROR, "unsaved", text)
                await self._sleep(RETRY_SECONDS)
                self._wake.set()
            else:
                await self._sleep((perf_counter() - started) * (1 / SHARE_MAX - 1))

    async def _save(self) -> None:
        number, snapshot = self._changes, self._snapshot()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._pool, self._write, number, snapshot)
        self._note(number, snapshot)

    def _write(self, number: int, snapshot: S) -> None:
        """Write a snapshot unless a later one is already written."""
        content = self._content(snapshot)
        with self._writing:
            if number > self._written:
                self._file.save(content)
                self._written = number

    def _note(self, number: int, snapshot: S) -> None:
        if number > self._saved:
            self._saved = number
            self.on_disk = snapshot
            self._settled()
