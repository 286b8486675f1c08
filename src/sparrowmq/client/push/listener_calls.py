"""Calls of a consumer's queue listener: one at a time, without delaying the rebalance."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from sparrowmq.client.base.callables import call

if TYPE_CHECKING:
    from sparrowmq.client.base.settings import ConsumerSettings, QueueListener
    from sparrowmq.client.base.tasks import TaskGroup
    from sparrowmq.client.cluster.instance import ClientInstance
    from sparrowmq.core.message import MessageQueue

log = logging.getLogger("sparrowmq.client")


class ListenerCalls:
    """The listener of one member of `group`, if it has one. `owned` are the member's queues.

    A member whose broker assigns queues does not know which queues there are.
    """

    def __init__(
        self,
        group: str,
        settings: ConsumerSettings,
        instance: ClientInstance,
        tasks: TaskGroup,
        owned: Callable[[], Collection[MessageQueue]],
    ) -> None:
        self._group = group
        self._listener = settings.queue_listener
        self._instance = instance
        self._tasks = tasks
        self._owned = owned
        self._asks_broker = settings.server_assignment
        self._untold: dict[str, None] = {}  # topics in order
        self._teller: asyncio.Task[None] | None = None

    def tell(self, topics: Collection[str]) -> None:
        """Call the listener soon, for one topic after the other."""
        if self._listener is None:
            return
        self._untold.update(dict.fromkeys(sorted(topics)))
        if self._teller is None or self._teller.done():
            self._teller = self._tasks.start(self._tell(self._listener), "queue listener")

    async def _tell(self, listener: QueueListener) -> None:
        while self._untold:
            topic = next(iter(self._untold))
            del self._untold[topic]
            route = self._instance.routes.get(topic)
            every = [] if route is None or self._asks_broker else route.subscribe_queues(topic)
            mine = [queue for queue in self._owned() if queue.topic == topic]
            try:
                await call(listener, topic, every, mine)
            except Exception:
                log.exception("the queue listener of group %s failed for %s", self._group, topic)
