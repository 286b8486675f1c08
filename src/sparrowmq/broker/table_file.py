"""The file of a table that many change at once: one save keeps the changes of all who wait.

Topics and groups come in hundreds when clients start. A save writes the whole table and forces it to disk, so
it runs in a worker thread, and what changes meanwhile waits for the next one. Nobody waits for what comes
back by itself; it is saved soon after.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from sparrowmq.broker.sharing import SharedRun
from sparrowmq.core.errors import StoreError
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.store.config_file import ConfigFile

log = logging.getLogger("sparrowmq.broker")
SOON_SECONDS: Final = 0.1
"""How long changes that nobody waits for are gathered."""
SHARE_MAX: Final = 0.2
"""The part of the time that saves nobody waits for may take."""
RETRY_SECONDS: Final = 5.0
"""When such a save is tried again after the disk refused it."""

S = TypeVar("S")


class TableFile(Generic[S]):
    """Saves of one table.

    `snapshot` gives the table as it is, to be called on the loop; `content` makes the file's object of it, in
    any thread. `on_disk` is the snapshot that was saved last; `settled` is called when it changed. Everything
    belongs to the loop.
    """

    def __init__(
        self,
        file: ConfigFile,
        snapshot: Callable[[], S],
        content: Callable[[S], dict[str, Any]],
        *,
        pool: Executor | None = None,
        settled: Callable[[], None] = lambda: None,
    ) -> None:
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
        """Whether all that changed is on disk."""
        return self._saved == self._changes

    def changed(self) -> None:
        """The table changed: `run` saves it soon."""
        self._changes += 1
        self._wake.set()

    def save(self, snapshot: S | None = None) -> None:
        """Write the table as it is, or as it is to be, and wait for the disk. Raises `StoreError`."""
        number, table = self._changes + 1, self._snapshot() if snapshot is None else snapshot
        self._write(number, table)
        self._changes = number
        self._note(number, table)

    async def saved(self) -> None:
        """Wait until all changes up to now are on disk; many callers share a save.

        Raises `StoreError` when the save that has them fails.
        """
        if not self.is_saved:
            await self._sharing.join()

    async def run(self) -> None:
        """Save what changed, soon and not too often, until cancelled; a failure is logged and tried again."""
        while True:  # until cancelled by the broker's close
            await self._wake.wait()
            await asyncio.sleep(SOON_SECONDS)
            self._wake.clear()
            started = perf_counter()
            try:
                await self.saved()
            except StoreError as error:
                text = f"{self._file.path.name} cannot be saved now and is tried again: {error}"
                self._occasional.write(logging.ERROR, "unsaved", text)
                await asyncio.sleep(RETRY_SECONDS)
                self._wake.set()
            else:
                await asyncio.sleep((perf_counter() - started) * (1 / SHARE_MAX - 1))

    async def _save(self) -> None:
        number, snapshot = self._changes, self._snapshot()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._pool, self._write, number, snapshot)
        self._note(number, snapshot)

    def _write(self, number: int, snapshot: S) -> None:
        """Write a snapshot unless a later one is there already."""
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
