"""Assembles a broker's housekeeping: index, queries, cleaning, statistics, runtime info, settings."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.broker.admin.maintenance import Maintenance, SettingsRequests
from sparrowmq.broker.admin.queries import Queries
from sparrowmq.broker.admin.runtime_info import RuntimeInfo
from sparrowmq.broker.admin.stats import BrokerStats
from sparrowmq.broker.base.periodic import repeat
from sparrowmq.broker.housekeeping.cleaning import Cleaner
from sparrowmq.broker.housekeeping.indexing import Indexer
from sparrowmq.broker.housekeeping.retention_holds import Holds
from sparrowmq.broker.housekeeping.unread import UnreadDeletions
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.store.tables.config_file import ConfigFile
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.broker.admin.deletions import Deletions
    from sparrowmq.broker.admin.producer_ends import ProducerEnds
    from sparrowmq.broker.base.periodic import Background
    from sparrowmq.broker.members.filters import ConsumerFilters
    from sparrowmq.broker.pull.pull_path import PullPath
    from sparrowmq.broker.tables.shared_tables import SharedTables
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.store.message_store import MessageStore

log = logging.getLogger("sparrowmq.broker")
FIRST_CLEANING_SECONDS: Final = 60.0
"""How long a broker must be up before it deletes anything (broker:2.7)."""


class Upkeep:
    """Housekeeping of a broker, and the handlers for monitoring it.

    `waiting` reports on delayed messages and the loop; `changed` is called with the new settings when an
    operator changes some.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        tables: SharedTables,
        pulling: PullPath,
        deletions: Deletions,
        producer_ends: ProducerEnds,
        background: Background,
        *,
        filters: ConsumerFilters,
        waiting: Callable[[], dict[str, str]],
        changed: Callable[[BrokerSettings], None],
    ) -> None:
        clock, pool, sleep = background.clock, background.pool, background.sleep
        topics, offsets = tables.topics, tables.offsets
        self._sleep = sleep
        self._settings = settings
        self._store = store
        self._changed = changed
        self._occasional = OccasionalLog(log)
        self._task: asyncio.Task[None] | None = None
        self.indexer = Indexer(store, sleep=sleep)
        holds = ConfigFile(settings.store_path_root_dir / "config" / "retentionHolds.json")
        self.holds = Holds(holds, store, topics, offsets, clock, pool)
        self.unread = UnreadDeletions(store, offsets)
        self.cleaner = Cleaner(settings, store, pool, clock, self.holds.held, unread=self.unread, sleep=sleep)
        self.stats = BrokerStats(settings.broker_cluster_name, store, pulling, clock)
        self.info = RuntimeInfo(settings, store, self.stats, clock, waiting)
        self._ends = producer_ends
        self._queries = Queries(settings, store, self.indexer, tables.clients, filters.get)
        self._live = SettingsRequests(settings, self._apply, clock)
        self._maintenance = Maintenance(
            store, topics, offsets, deletions, cleaner=self.cleaner, stats=self.stats, info=self.info
        )

    def start(self) -> None:
        """Begin indexing and cleaning; call on the loop."""
        self.indexer.start()
        self._task = asyncio.create_task(self._clean())

    def tick(self) -> None:
        """Work that is due each second."""
        self.stats.tick()

    async def close(self) -> None:
        """Stop both."""
        await self.indexer.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _clean(self) -> None:
        interval = self._settings.clean_resource_interval / 1000
        await self._sleep(min(FIRST_CLEANING_SECONDS, 6 * interval))

        async def work() -> None:
            await self.cleaner.clean()

        await repeat(interval, work, "deleting expired files", self._occasional, sleep=self._sleep)

    def _apply(self, settings: BrokerSettings) -> None:
        self.cleaner.apply(settings)
        self._queries.apply(settings)
        self._store.index.switch(on=settings.message_index_enable)
        self._changed(settings)

    def handlers(self) -> dict[int, Any]:
        """Handlers by request code."""
        return {
            Code.QUERY_MESSAGE: self._queries.by_key,
            Code.VIEW_MESSAGE_BY_ID: self._queries.by_offset,
            Code.QUERY_CONSUME_QUEUE: self._queries.entries,
            Code.GET_BROKER_CONFIG: self._live.get,
            Code.UPDATE_BROKER_CONFIG: self._live.update,
            Code.GET_BROKER_RUNTIME_INFO: self._maintenance.runtime_info,
            Code.GET_ALL_CONSUMER_OFFSET: self._maintenance.all_offsets,
            Code.CLEAN_EXPIRED_CONSUMEQUEUE: self._maintenance.clean_expired_queues,
            Code.VIEW_BROKER_STATS_DATA: self._maintenance.stats_data,
            Code.CLEAN_UNUSED_TOPIC: self._maintenance.clean_unused_topics,
            Code.DELETE_EXPIRED_COMMITLOG: self._maintenance.delete_expired_log,
            Code.PUT_RETENTION_HOLD: self.holds.put,
            Code.DELETE_RETENTION_HOLD: self.holds.delete,
            Code.GET_RETENTION_HOLDS: self.holds.list,
            Code.END_PRODUCERS: self._ends.end,
        }
