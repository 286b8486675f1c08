"""Deletion of log files by age and disk usage (broker:2.7). `store.log.retention` decides; this module acts.

A file is first removed from the log, so that no new reader opens it, and then deleted in a thread. Current
readers keep their bytes, because a mapping outlives its file.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparrowmq.core.clock import Sleep
from sparrowmq.core.settings.text import parse_hours
from sparrowmq.files import disk
from sparrowmq.store.log.retention import MANUAL_PASSES, RetentionSettings, plan
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.broker.housekeeping.unread import Pair, UnreadDeletions, UnreadSpan
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.store.base.segments import Segment
    from sparrowmq.store.message_store import MessageStore

log = logging.getLogger("sparrowmq.broker")
QUEUES_A_TURN: Final = 50
"""Number of queues whose minimum is updated before other tasks get their turn on the loop."""


def retention(settings: BrokerSettings) -> RetentionSettings:
    """The broker's settings for message retention."""
    return RetentionSettings(
        reserved_hours=settings.file_reserved_time,
        delete_when=parse_hours("deleteWhen", settings.delete_when),
        used_max=settings.disk_max_used_space_ratio,
        forcibly=settings.clean_file_forcibly_enable,
        forcibly_above=settings.disk_space_clean_forcibly_ratio,
        batch_max=settings.delete_file_batch_max,
    )


class Cleaner:
    """Periodically deletes expired files."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        pool: Executor,
        clock: Clock,
        held: Callable[[], int | None] = lambda: None,
        *,
        unread: UnreadDeletions | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`held` returns the physical offset from which nothing may be deleted, or None. `unread` counts what
        groups had not consumed.
        """
        self._unread = unread
        self._held = held
        self._sleep = sleep
        self.settings = settings
        self._store = store
        self._pool = pool
        self._clock = clock
        self._manual = 0
        self._cleaning = asyncio.Lock()
        self._occasional = OccasionalLog(log)

    def apply(self, settings: BrokerSettings) -> None:
        """Apply changed settings."""
        self.settings = settings

    def ask(self) -> None:
        """Delete expired files at any hour, in the next passes (code 329)."""
        self._manual = MANUAL_PASSES

    async def clean(self) -> int:
        """One pass; returns how many log files were deleted. Raises OSError and `StoreError`."""
        async with self._cleaning:
            store = self._store
            now_ms = self._clock.now_ms()
            percent = store.used_percent()
            files = store.log_files()
            todo = plan(
                retention(self.settings),
                files,
                now_ms=now_ms,
                hour=time.localtime(now_ms / 1000).tm_hour,
                used_percent=percent,
                manual=self._manual > 0,
                held=self._held(),
            )
            self._manual = max(0, self._manual - 1)
            if not todo.files:
                return 0
            if todo.forced:
                text = (
                    f"messages are deleted before their retention time: {todo.reason}; free disk "
                    "space or shorten the retention"
                )
                self._occasional.write(logging.WARNING, "forced", text)
            try:
                done = await self._delete_log_files([file.base for file in files[1 : todo.files + 1]])
            finally:
                await self._follow()
            log.info("%d files of the commit log deleted: %s", done, todo.reason)
            return done

    async def _delete_log_files(self, ends: list[int]) -> int:
        """Delete the oldest files, which end at these positions; returns how many were deleted."""
        loop = asyncio.get_running_loop()
        for done, end in enumerate(ends):
            if done:
                await self._sleep(self.settings.delete_commit_log_files_interval / 1000)
            unread = await self._find_unread(end)
            segment = self._store.forget_log_file()
            try:
                await asyncio.shield(loop.run_in_executor(self._pool, _delete, [segment.path]))
            except OSError as error:
                self._take_back(segment, error)
                return done
            if self._unread is not None:
                for _ in self._unread.adding(unread):
                    await asyncio.sleep(0)
        return len(ends)

    async def _find_unread(self, end: int) -> dict[Pair, UnreadSpan]:
        """What groups have not consumed of the log before `end`; its records must still be there."""
        if self._unread is None:
            return {}
        steps = self._unread.finding(end)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                found: dict[Pair, UnreadSpan] = done.value
                return found
            await asyncio.sleep(0)

    def _take_back(self, segment: Segment, error: OSError) -> None:
        self._store.keep_log_file(segment)
        self._occasional.write(logging.ERROR, "delete", f"{segment.path} cannot be deleted: {error.strerror}")

    async def _follow(self) -> None:
        """Update queues and index to the log's new beginning (broker:2.7)."""
        store, loop = self._store, asyncio.get_running_loop()
        gone: list[Path] = []
        for number, queue in enumerate(store.all_queues()):
            gone += store.trim(queue)
            if number % QUEUES_A_TURN == QUEUES_A_TURN - 1:
                await asyncio.sleep(0)
        gone += store.trim_index()
        await asyncio.shield(loop.run_in_executor(self._pool, _delete, gone))


def _delete(paths: Iterable[Path]) -> None:
    """Delete files in order, durably: after a crash there is no gap between the remaining files."""
    for path in paths:
        disk.unlink(path, missing_ok=True)
        disk.sync_directory(path.parent)
