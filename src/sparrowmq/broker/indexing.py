"""Keeps the key index close behind the log without getting in the way of those who send.

Filing a message costs about as much as storing it. So the index follows in short slices, with pauses: it
takes a small share of the loop's time while messages come in and it is close, and up to half when they pause
or it has fallen far behind. Whoever asks by key has it catch up first.
"""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import StoreError
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.store.message_store import MessageStore

log = logging.getLogger("sparrowmq.broker")
SLICE_RECORDS: Final = 256
"""About a millisecond of work: so long may a request wait for it."""

IDLE_SECONDS: Final = 0.1
RETRY_SECONDS: Final = 5.0
CATCH_UP_SECONDS: Final = 10.0
"""How long a query waits for the index; the client waits 18 s (client:E-51)."""

SHARE_MIN: Final = 0.03
SHARE_MAX: Final = 0.5
NEAR_BYTES: Final = 256 * 1024 * 1024
"""About a million small messages: five seconds of work, within `CATCH_UP_SECONDS`."""

FAR_BYTES: Final = 2 * 1024 * 1024 * 1024


def share(behind: int, *, quiet: bool) -> float:
    """The part of the time that filing may take when it is so many bytes of the log behind.

    `quiet`: nothing was stored since the last slice.
    """
    if quiet:
        return SHARE_MAX
    if behind <= NEAR_BYTES:
        return SHARE_MIN
    part = min(1.0, (behind - NEAR_BYTES) / (FAR_BYTES - NEAR_BYTES))
    return SHARE_MIN + part * (SHARE_MAX - SHARE_MIN)


class Indexer:
    """Has the index of one store follow its log."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._task: asyncio.Task[None] | None = None
        self._occasional = OccasionalLog(log)

    def start(self) -> None:
        """Begin; call on the loop."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop following; what is left is the store's to finish."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        end = -1
        while True:  # until cancelled by close
            started = perf_counter()
            quiet, end = end == self._store.position, self._store.position
            behind = self._slice()
            if behind is None:
                await asyncio.sleep(RETRY_SECONDS)
            elif behind == 0:
                await asyncio.sleep(IDLE_SECONDS)
            else:
                part = share(behind, quiet=quiet)
                await asyncio.sleep((perf_counter() - started) * (1 - part) / part)

    def _slice(self) -> int | None:
        """File some records; how many bytes are left, None when the disk refuses."""
        try:
            return self._store.follow_index(SLICE_RECORDS)
        except StoreError as error:
            self._occasional.write(logging.ERROR, "index", f"keys are filed later: {error}")
            return None

    async def catch_up(self) -> bool:
        """File all that was stored before the call; False when that takes too long, or the disk refuses."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CATCH_UP_SECONDS
        end = self._store.position
        while self._store.index.enabled and self._store.index.place.position < end:
            if self._slice() is None or loop.time() > deadline:
                return False
            await asyncio.sleep(0)
        return True
