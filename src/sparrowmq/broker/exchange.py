"""What clients and tools want of each other through the broker: transactions, locks, replies, calls.

It wires these parts to the store and runs their tasks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.broker.client_calls import ClientCalls
from sparrowmq.broker.group_tools import GroupTools
from sparrowmq.broker.locks import QueueLocks
from sparrowmq.broker.periodic import repeat
from sparrowmq.broker.replies import Replies
from sparrowmq.broker.transactions import Transactions
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.broker.clients import ClientTable
    from sparrowmq.broker.groups import GroupTable
    from sparrowmq.broker.inner import InnerStore
    from sparrowmq.broker.pulling import PullPath
    from sparrowmq.broker.topics import TopicTable
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings import BrokerSettings
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.offsets import ConsumerOffsets

log = logging.getLogger("sparrowmq.broker")
LOCK_SWEEP_SECONDS: Final = 10.0
GATHERED_SECONDS: Final = 15.0
"""How long changes of groups are gathered when members are not told at once (broker:10.3)."""


class Exchange:
    """These parts of one broker. `locks` is also asked who consumes in order."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        inner: InnerStore,
        topics: TopicTable,
        groups: GroupTable,
        clients: ClientTable,
        offsets: ConsumerOffsets,
        pulling: PullPath,
        clock: Clock,
        *,
        store_host: bytes,
        address: str,
        locks: QueueLocks,
    ) -> None:
        self._settings = settings
        self._occasional = OccasionalLog(log)
        self.locks = locks
        self.transactions = Transactions(
            settings, store, inner, clients, offsets, clock, store_host=store_host
        )
        self._replies = Replies(settings, inner, topics, clients, clock, store_host=store_host)
        self._calls = ClientCalls(settings, store, topics, groups, clients, offsets, wake=pulling.wake_reset)
        self._tools = GroupTools(settings, store, topics, groups, clients, offsets, clock, address=address)

    def handlers(self) -> dict[int, Any]:
        """The request codes answered here."""
        calls, tools = self._calls, self._tools
        return {
            Code.END_TRANSACTION: self.transactions.ends.handle,
            Code.RESUME_CHECK_HALF_MESSAGE: self.transactions.resume,
            Code.LOCK_BATCH_MQ: self.locks.lock,
            Code.UNLOCK_BATCH_MQ: self.locks.unlock,
            Code.SEND_REPLY_MESSAGE: self._replies.handle,
            Code.SEND_REPLY_MESSAGE_V2: self._replies.handle,
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
        """Begin checking transactions and clearing locks; call on the loop. The tasks are the caller's."""
        interval = self._settings.transaction_check_interval / 1000
        tasks = [
            repeat(interval, self.transactions.check, "checking transactions", self._occasional),
            repeat(LOCK_SWEEP_SECONDS, self.locks.drop_expired, "clearing queue locks", self._occasional),
        ]
        if not self._settings.real_time_notify_consumer_change:
            tasks.append(repeat(GATHERED_SECONDS, tell_changes, "telling of changes", self._occasional))
        return [asyncio.create_task(task) for task in tasks]
