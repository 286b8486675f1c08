"""Services between clients through the broker: transactions, locks, replies, calls.

It connects these parts to the store and runs their tasks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.broker.admin.client_calls import ClientCalls
from sparrowmq.broker.admin.group_tools import GroupTools
from sparrowmq.broker.base.periodic import repeat
from sparrowmq.broker.members.locks import LockTable
from sparrowmq.broker.send.replies import Replies
from sparrowmq.broker.transactions.check_back import CheckBack, anybody
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.broker.admin.progress import ConsumerProgress
    from sparrowmq.broker.base.internal_store import InnerStore
    from sparrowmq.broker.base.periodic import Background
    from sparrowmq.broker.pull.pull_path import PullPath
    from sparrowmq.broker.tables.shared_tables import SharedTables
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.transport.connection import Connection

log = logging.getLogger("sparrowmq.broker")
LOCK_SWEEP_SECONDS: Final = 10.0
GATHERED_SECONDS: Final = 15.0
"""How long group changes are gathered when members are not notified at once (broker:10.3)."""


class Exchange:
    """The parts of one broker for these services.

    `address` is that for clients. `locks` also knows which groups consume in order. `may_check` says whether
    a producer may be asked about the half messages of a topic. `current` returns the settings with the
    changes that operators made since the start.
    """

    def __init__(
        self,
        current: Callable[[], BrokerSettings],
        store: MessageStore,
        inner: InnerStore,
        tables: SharedTables,
        pulling: PullPath,
        background: Background,
        progress: ConsumerProgress,
        *,
        address: str,
        locks: LockTable,
        may_check: Callable[[Connection, str], bool] = anybody,
    ) -> None:
        clock, settings = background.clock, current()
        self._sleep = background.sleep
        self._settings = settings
        self._occasional = OccasionalLog(log)
        self.locks = locks
        self.transactions = CheckBack(
            current, store, inner, tables.clients, tables.offsets, clock, may_check=may_check
        )
        self.replies = Replies(settings, inner, tables, clock, store_host=store.store_host)
        self.calls = ClientCalls(settings, store, tables, wake=pulling.wake_reset)
        self.tools = GroupTools(settings, store, tables, progress, clock, address=address)

    def handlers(self) -> dict[int, Any]:
        """The request codes answered here."""
        calls, tools = self.calls, self.tools
        return {
            Code.END_TRANSACTION: self.transactions.ends.handle,
            Code.RESUME_CHECK_HALF_MESSAGE: self.transactions.resume,
            Code.LOCK_BATCH_MQ: self.locks.lock,
            Code.UNLOCK_BATCH_MQ: self.locks.unlock,
            Code.SEND_REPLY_MESSAGE: self.replies.handle,
            Code.SEND_REPLY_MESSAGE_V2: self.replies.handle,
            Code.INVOKE_BROKER_TO_RESET_OFFSET: calls.reset,
            Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: calls.status,
            Code.GET_CONSUMER_RUNNING_INFO: calls.running_info,
            Code.CONSUME_MESSAGE_DIRECTLY: calls.consume_directly,
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: tools.put_all,
            Code.QUERY_CONSUME_TIME_SPAN: tools.time_spans,
            Code.QUERY_CORRECTION_OFFSET: tools.corrections,
            Code.CLONE_GROUP_OFFSET: tools.clone,
            Code.GET_BROKER_CONSUME_STATS: tools.stats_of_all,
            Code.GET_ALL_PRODUCER_INFO: tools.producers,
            Code.QUERY_SUBSCRIPTION_BY_CONSUMER: tools.subscription,
            Code.UPDATE_AND_GET_GROUP_FORBIDDEN: tools.forbidden,
        }

    def start(self, tell_changes: Callable[[], None]) -> list[asyncio.Task[None]]:
        """Begin checking transactions and clearing locks; call on the loop. The caller owns the tasks."""
        interval = self._settings.transaction_check_interval / 1000
        tasks = [
            repeat(
                LOCK_SWEEP_SECONDS,
                self.locks.drop_expired,
                "clearing queue locks",
                self._occasional,
                sleep=self._sleep,
            ),
        ]
        if not self._settings.is_slave:
            tasks.append(
                repeat(
                    interval,
                    self.transactions.check,
                    "checking transactions",
                    self._occasional,
                    sleep=self._sleep,
                )
            )
        if not self._settings.real_time_notify_consumer_change:
            tasks.append(
                repeat(
                    GATHERED_SECONDS, tell_changes, "telling of changes", self._occasional, sleep=self._sleep
                )
            )
        return [asyncio.create_task(task) for task in tasks]
