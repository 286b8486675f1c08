"""Writing consumer offsets to disk, behind the log."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from sparrowmq.broker.tables.coalesced_run import SharedRun

if TYPE_CHECKING:
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.tables.consumer_offsets import ConsumerOffsets


class OffsetSaving:
    """Saves the offsets of one broker, in `pool`."""

    def __init__(self, offsets: ConsumerOffsets, store: MessageStore, pool: Executor) -> None:
        self._offsets = offsets
        self._store = store
        self._pool = pool
        self._sharing = SharedRun(self.save)

    async def join(self) -> None:
        """Save all changes made before this call; concurrent callers share a write. Raises `StoreError`."""
        await self._sharing.join()

    async def save(self) -> None:
        """Write the offsets after the log is on disk. A message that was sent back for a retry is before its
        group's offset, so a power failure must not keep the offset and lose the retry.
        """
        unsaved, store = self._offsets.unsaved(), self._store
        if unsaved is None:
            return

        def work() -> None:
            store.flush()
            self._offsets.write(unsaved)

        await asyncio.get_running_loop().run_in_executor(self._pool, work)
