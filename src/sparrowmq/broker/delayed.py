"""Everything of a broker that makes messages wait: send-back, delay levels, timed messages, recall.

It wires these parts to the store, runs their tasks and keeps their progress on disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Any

from sparrowmq.broker.periodic import repeat
from sparrowmq.broker.recall import Recalls
from sparrowmq.broker.rerouting import PRECISION_MS
from sparrowmq.broker.schedule import Schedule
from sparrowmq.broker.send_back import DirectRetry, SendBack
from sparrowmq.broker.timer import TimerService
from sparrowmq.core.errors import StoreError
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.store.config_file import ConfigFile
from sparrowmq.store.delay_offsets import DelayOffsets
from sparrowmq.store.timers import Timers
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.broker.groups import GroupTable
    from sparrowmq.broker.inner import InnerStore
    from sparrowmq.broker.topics import TopicTable
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings import BrokerSettings
    from sparrowmq.store.message_store import MessageStore

log = logging.getLogger("sparrowmq.broker")


class DelayedMessages:
    """The waiting messages of one broker. `retries` judges sends to retry topics.

    Raises the `StoreError` family when what is on disk about them cannot be used.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        inner: InnerStore,
        topics: TopicTable,
        groups: GroupTable,
        clock: Clock,
        pool: Executor,
        *,
        topic_made: Callable[[], None],
        is_locked: Callable[[str], bool],
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._occasional = OccasionalLog(log)
        config = settings.store_path_root_dir / "config"
        self._offsets = DelayOffsets.load(ConfigFile(config / "delayOffset.json"), clock)
        self.schedule = Schedule(store, inner, self._offsets, settings.delay_levels, clock)
        self.retries = DirectRetry(groups, is_locked=is_locked)
        self._send_back = SendBack(settings, inner, topics, groups, clock, topic_made=topic_made)
        self._recalls = Recalls(settings, inner, topics, clock)
        self._store = store
        self._timers: Timers | None = None
        self.timer: TimerService | None = None
        if settings.timer_wheel_enable:
            root, file_bytes = settings.store_path_root_dir, settings.mapped_file_size_timer_log
            self._timers = Timers.open(root, file_bytes, clock, clean=store.recovery.clean)
            window = settings.timer_roll_window_slot * PRECISION_MS
            self.timer = TimerService(inner, self._timers, clock, window_ms=window)

    def runtime(self) -> dict[str, str]:
        """What the broker tells about messages that wait (broker:16.1)."""
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
            Code.CONSUMER_SEND_MSG_BACK: self._send_back.handle,
            Code.RECALL_MESSAGE: self._recalls.handle,
        }

    def start(self) -> list[asyncio.Task[None]]:
        """Begin delivering; call on the loop. The tasks are the caller's to cancel."""
        saving = self._settings.flush_delay_offset_interval / 1000
        tasks = [
            asyncio.create_task(self.schedule.run()),
            asyncio.create_task(repeat(saving, self._save, "saving the levels' progress", self._occasional)),
        ]
        if self.timer is not None:
            flushing = self._settings.timer_flush_interval_ms / 1000
            tasks += [
                asyncio.create_task(self.timer.run()),
                asyncio.create_task(repeat(flushing, self._save_timers, "saving timers", self._occasional)),
            ]
        return tasks

    async def _save(self) -> None:
        unsaved = self._offsets.unsaved()
        if unsaved is not None:
            await self._write(partial(self._offsets.write, unsaved))

    async def _save_timers(self) -> None:
        assert self._timers is not None
        gone = self._timers.log.drop_before(self._store.min_position)
        check = self._timers.unsaved()
        if check is not None:
            await self._write(partial(self._timers.write, check))
        for path in gone:
            await asyncio.get_running_loop().run_in_executor(self._pool, path.unlink)

    async def _write(self, progress: Callable[[], None]) -> None:
        """Write progress once what was delivered is on disk: a power cut must not lose only the latter."""

        def work() -> None:
            self._store.flush()
            progress()

        await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Keep the progress; call after the tasks ended. What cannot be written is logged."""
        try:
            self._offsets.save()
        except StoreError as error:
            log.error("the last progress of the delay levels is lost, messages will come again: %s", error)
        try:
            if self._timers is not None:
                self._timers.close()
        except StoreError as error:
            log.error("the last progress of the timers is lost, messages will come again: %s", error)
