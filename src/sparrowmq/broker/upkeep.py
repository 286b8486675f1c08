"""A broker's upkeep, wired together: index, queries, cleaning, statistics, runtime info, settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.broker.cleaning import Cleaner
from sparrowmq.broker.holding import Holds
from sparrowmq.broker.indexing import Indexer
from sparrowmq.broker.maintenance import Maintenance, Settings
from sparrowmq.broker.periodic import repeat
from sparrowmq.broker.queries import Queries
from sparrowmq.broker.runtime_info import RuntimeInfo
from sparrowmq.broker.stats import BrokerStats
from sparrowmq.protocol.codes import RequestCode as Code

if TYPE_CHECKING:
    from sparrowmq.broker.pulling import PullPath
    from sparrowmq.broker.topics import TopicTable
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings import BrokerSettings
    from sparrowmq.store.config_file import ConfigFile
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.offsets import ConsumerOffsets
    from sparrowmq.transport.occasional import OccasionalLog

FIRST_CLEANING_SECONDS: Final = 60.0
"""How long a broker is up before it deletes anything (broker:2.7)."""


class Upkeep:
    """What keeps a broker usable, and the handlers of those who look at it.

    `waiting` tells of delayed messages; `changed` is told the new settings when an operator changed some;
    `holds` is where holds are kept.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        pulling: PullPath,
        *,
        pool: Executor,
        clock: Clock,
        waiting: Callable[[], dict[str, str]],
        changed: Callable[[BrokerSettings], None],
        occasional: OccasionalLog,
        holds: ConfigFile,
    ) -> None:
        self._settings = settings
        self._store = store
        self._changed = changed
        self._occasional = occasional
        self._task: asyncio.Task[None] | None = None
        self.indexer = Indexer(store)
        self.holds = Holds(holds, store, topics, offsets, clock)
        self.cleaner = Cleaner(settings, store, pool, clock, self.holds.held)
        self.stats = BrokerStats(settings.broker_cluster_name, store, pulling, clock)
        self.info = RuntimeInfo(settings, store, self.stats, clock, waiting)
        self._queries = Queries(settings, store, self.indexer)
        self._live = Settings(settings, self._apply, clock)
        self._maintenance = Maintenance(
            store, topics, offsets, pulling, cleaner=self.cleaner, stats=self.stats, info=self.info
        )

    def start(self) -> None:
        """Begin to index and to clean; call on the loop."""
        self.indexer.start()
        self._task = asyncio.create_task(self._clean())

    def tick(self) -> None:
        """What is due each second."""
        self.stats.tick()

    async def close(self) -> None:
        """Stop both."""
        await self.indexer.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _clean(self) -> None:
        interval = self._settings.clean_resource_interval / 1000
        await asyncio.sleep(min(FIRST_CLEANING_SECONDS, 6 * interval))

        async def work() -> None:
            await self.cleaner.clean()

        await repeat(interval, work, "deleting expired files", self._occasional)

    def _apply(self, settings: BrokerSettings) -> None:
        self.cleaner.settings = settings
        self._queries.settings = settings
        self._store.index.enabled = settings.message_index_enable
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
        }
