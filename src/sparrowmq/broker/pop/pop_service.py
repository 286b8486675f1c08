"""Wires all parts of POP at one broker, runs their tasks and wakes waiting requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.broker.base.periodic import repeat
from sparrowmq.broker.pop.acks import AckRequests
from sparrowmq.broker.pop.in_flight import PopsInFlight
from sparrowmq.broker.pop.notifications import Notifications
from sparrowmq.broker.pop.order import OrderTable
from sparrowmq.broker.pop.pop_checks import PopChecks
from sparrowmq.broker.pop.pop_path import PopPath
from sparrowmq.broker.pop.pop_state import PopState
from sparrowmq.broker.pop.replay import replay
from sparrowmq.broker.pop.revive import Reviver
from sparrowmq.broker.pop.revive_log import ReviveLog
from sparrowmq.core.errors import StoreError
from sparrowmq.core.randomness import RANDOM
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.store.tables.config_file import ConfigFile
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.slices import shared

if TYPE_CHECKING:
    from sparrowmq.broker.base.internal_store import InnerStore
    from sparrowmq.broker.base.periodic import Background
    from sparrowmq.broker.delay.timer import TimerService
    from sparrowmq.broker.pop.wakes import WaitingRequests
    from sparrowmq.broker.tables.shared_tables import SharedTables
    from sparrowmq.broker.tables.topics import TopicTable
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue

log = logging.getLogger("sparrowmq.broker")
LOOK_SECONDS: Final = 0.05
"""How often requests that wait are checked for their deadline."""


class PopService:
    """POP at one broker. `timer` is None where timed messages are off; POP is then refused.

    `took` counts what was handed out: queue, group, messages, bytes, and the offset after the last one.
    `is_managed` says whether a coordinator plans a group. `random` chooses the first queue of a POP. Raises
    the `StoreError` family when its table cannot be read.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        inner: InnerStore,
        tables: SharedTables,
        waiting: WaitingRequests,
        timer: TimerService | None,
        background: Background,
        *,
        took: Callable[[ConsumeQueue, str, int, int, int], None],
        is_managed: Callable[[str], bool],
        random: Random = RANDOM,
    ) -> None:
        clock = background.clock
        self._settings = settings
        self._background = background
        self._occasional = OccasionalLog(log)
        self.waiting = waiting
        config = settings.store_path_root_dir / "config"
        self.order = OrderTable(ConfigFile(config / "consumerOrderInfo.json"))
        self.order.end_if(partial(_is_over, tables.topics))
        revive_log = ReviveLog(settings, clock, store_host=store.store_host)
        replay(store, inner, tables, self.order, revive_log)
        self._checks = PopChecks(
            settings,
            tables.topics,
            tables.groups,
            is_managed=is_managed,
            invisible_max=revive_log.invisible_max,
        )
        self.in_flight = PopsInFlight()
        state = PopState(revive_log, self.order, waiting, self.in_flight)
        self._acks = AckRequests(tables, inner, state, clock)
        self._notifications = Notifications(tables, self._checks, state, clock)
        self._path = PopPath(
            settings, store, tables, self._checks, inner, state, clock, took=took, random=random
        )
        self.reviver: Reviver | None = None
        if timer is not None:
            v2 = settings.enable_retry_topic_v2
            self.reviver = Reviver(store, inner, tables, revive_log, timer, background, v2=v2)

    def handlers(self) -> dict[int, Any]:
        """The request codes answered here."""
        return {
            Code.POP_MESSAGE: self._path.handle,
            Code.ACK_MESSAGE: self._acks.ack,
            Code.BATCH_ACK_MESSAGE: self._acks.batch,
            Code.CHANGE_MESSAGE_INVISIBLETIME: self._acks.change_invisible_time,
            Code.NOTIFICATION: self._notifications.notify,
            Code.POLLING_INFO: self._notifications.polling_info,
        }

    def apply(self, settings: BrokerSettings) -> None:
        """Apply changed settings."""
        self._checks.apply(settings)

    def forget_topic(self, topic: str) -> None:
        """A topic is deleted: its messages that were handed out neither count nor block its queues."""
        self.order.end(topic)
        self.in_flight.end(topic)

    def start(self) -> list[asyncio.Task[None]]:
        """Begin to serve; call on the loop. The caller cancels the tasks."""
        saving, sleep = self._settings.flush_consumer_offset_interval / 1000, self._background.sleep
        work = [
            repeat(LOOK_SECONDS, self.waiting.look, "waiting POPs", self._occasional, sleep=sleep),
            repeat(saving, self._save, "saving ordered hand-outs", self._occasional, sleep=sleep),
        ]
        if self.reviver is not None:
            work.append(self.reviver.run())
        return [asyncio.create_task(one) for one in work]

    async def _save(self) -> None:
        self.order.drop_unused(self._background.clock.now_ms())
        unsaved = await shared().result(self.order.collecting())
        if unsaved is not None:
            write = partial(self.order.write, unsaved)
            await asyncio.get_running_loop().run_in_executor(self._background.pool, write)

    def save(self) -> None:
        """Save the ordered hand-outs; call after the tasks ended. Write errors are logged."""
        try:
            unsaved = self.order.unsaved()
            if unsaved is not None:
                self.order.write(unsaved)
        except StoreError as error:
            log.error(
                "recent ordered hand-outs were not saved; their messages will be delivered again: %s", error
            )


def _is_over(topics: TopicTable, topic: str, pop_time: int) -> bool:
    """Whether a hand-out is of a topic that was deleted: a crash may have kept it."""
    found = topics.get(topic)
    return found is None or found.is_younger(pop_time)
