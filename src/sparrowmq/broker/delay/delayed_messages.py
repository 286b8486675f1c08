"""All parts of a broker that delay messages: send-back, delay levels, timed messages, recall.

It connects these parts to the store, runs their tasks and saves their progress.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sparrowmq.broker.base.periodic import repeat
from sparrowmq.broker.delay.recall import Recalls
from sparrowmq.broker.delay.rerouting import PRECISION_MS
from sparrowmq.broker.delay.schedule import Schedule
from sparrowmq.broker.delay.send_back import DirectRetry, SendBackRequests
from sparrowmq.broker.delay.timer import TimerService
from sparrowmq.core.errors import StoreError
from sparrowmq.files import disk
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.store.tables.config_file import ConfigFile
from sparrowmq.store.tables.delay_offsets import DelayOffsets
from sparrowmq.store.timers.timers import Timers, discard
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.broker.base.internal_store import InnerStore
    from sparrowmq.broker.base.periodic import Background
    from sparrowmq.broker.tables.shared_tables import SharedTables
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.store.message_store import MessageStore

log = logging.getLogger("sparrowmq.broker")


class DelayedMessages:
    """The delayed messages of one broker. `retries` decides about sends to retry topics. `current` returns
    the settings with the changes that operators made since the start.

    Raises the `StoreError` family when their data on disk cannot be used.
    """

    def __init__(
        self,
        current: Callable[[], BrokerSettings],
        store: MessageStore,
        inner: InnerStore,
        tables: SharedTables,
        background: Background,
        *,
        topic_made: Callable[[], None],
        is_locked: Callable[[str], bool],
    ) -> None:
        clock, sleep, settings = background.clock, background.sleep, current()
        topics = tables.topics
        self._sleep = sleep
        self._settings = settings
        self._pool = background.pool
        self._occasional = OccasionalLog(log)
        config = settings.store_path_root_dir / "config"
        self.offsets = DelayOffsets.load(ConfigFile(config / "delayOffset.json"), clock)
        self.schedule = Schedule(store, inner, self.offsets, clock, sleep=sleep)
        self.retries = DirectRetry(tables.groups, is_locked=is_locked)
        self.send_back = SendBackRequests(current, inner, tables, clock, topic_made=topic_made)
        self.recalls = Recalls(settings, inner, topics, clock)
        self._store = store
        self.timers: Timers | None = None
        self.timer: TimerService | None = None
        if settings.is_slave:
            discard(settings.store_path_root_dir)  # the master's checkpoint replaces them
        elif settings.timer_wheel_enable:
            root, file_bytes = settings.store_path_root_dir, settings.mapped_file_size_timer_log
            self.timers = Timers.open(root, file_bytes, clock)
            window = settings.timer_roll_window_slot * PRECISION_MS
            self.timer = TimerService(inner, self.timers, clock, window_ms=window, sleep=sleep)

    def runtime(self) -> dict[str, str]:
        """Runtime information about delayed messages (broker:16.1)."""
        found = {
            f"scheduleMessageOffset_{level}": f"{delivered},{end}"
            for level, (delivered, end) in sorted(self.schedule.progress().items())
        }
        if self.timer is not None:
            found["timerReadBehind"] = str(self.timer.behind_ms // 1000)
            found["timerCongestNum"] = str(self.timer.waiting)
        return found

    def handlers(self) -> dict[int, Any]:
        """The request codes answered here."""
        return {
            Code.CONSUMER_SEND_MSG_BACK: self.send_back.handle,
            Code.RECALL_MESSAGE: self.recalls.handle,
        }

    def start(self) -> list[asyncio.Task[None]]:
        """Begin delivering; call on the loop. The caller cancels the tasks."""
        saving = self._settings.flush_delay_offset_interval / 1000
        tasks = [
            asyncio.create_task(
                repeat(saving, self._save, "saving the levels' progress", self._occasional, sleep=self._sleep)
            ),
        ]
        if not self._settings.is_slave:
            tasks.append(asyncio.create_task(self.schedule.run()))
        if self.timer is not None:
            flushing = self._settings.timer_flush_interval_ms / 1000
            tasks += [
                asyncio.create_task(self.timer.run()),
                asyncio.create_task(
                    repeat(flushing, self._save_timers, "saving timers", self._occasional, sleep=self._sleep)
                ),
            ]
        return tasks

    async def _save(self) -> None:
        unsaved = self.offsets.unsaved()
        if unsaved is not None:
            await self._write(partial(self.offsets.write, unsaved))

    async def _save_timers(self) -> None:
        assert self.timers is not None
        gone = self.timers.log.drop_before(self._store.min_position)
        check = self.timers.unsaved()
        if check is not None:
            await self._write(partial(self.timers.write, check))
        for path in gone:
            await asyncio.get_running_loop().run_in_executor(
                self._pool, partial(disk.unlink, path, missing_ok=True)
            )

    async def _write(self, progress: Callable[[], None]) -> None:
        """Write progress once the delivered messages are on disk: it must not survive a power failure without
        them."""

        def work() -> None:
            self._store.flush()
            progress()

        await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Save the progress; call after the tasks ended. Write errors are logged."""
        try:
            self.offsets.save()
        except StoreError as error:
            log.error(
                "recent progress of the delay levels was not saved; messages will be delivered again: %s",
                error,
            )
        try:
            if self.timers is not None:
                self.timers.close()
        except StoreError as error:
            log.error(
                "recent progress of the timers was not saved; messages will be delivered again: %s", error
            )
