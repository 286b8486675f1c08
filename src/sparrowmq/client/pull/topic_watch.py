"""Notifies applications when the number of a topic's queues changes (client:E-42)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from sparrowmq.client.base.callables import call
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue

log = logging.getLogger("sparrowmq.client")

TopicListener = Callable[[str, list[MessageQueue]], Awaitable[None] | None]
"""Called with (topic, its current queues) after a change."""
CHECK_FIRST_SECONDS: Final = 10.0
"""Seconds until the first check (client:E-24)."""


class TopicWatch:
    """Topics with a listener, and their queues at the last check."""

    def __init__(self) -> None:
        self._listeners: dict[str, TopicListener] = {}
        self._known: dict[str, list[MessageQueue]] = {}

    def __repr__(self) -> str:
        return f"<TopicWatch {', '.join(self._listeners)}>"

    def add(self, topic: str, listener: TopicListener) -> None:
        """Watch a topic; a second listener replaces the first. The next check sets the initial queues."""
        self._listeners[topic] = listener

    async def look(self, instance: ClientInstance) -> None:
        """Query the route of every watched topic and call the listeners of those that changed.

        Topics whose route is currently unknown are skipped until the next check. Errors of listeners are
        logged.
        """
        for topic, listener in list(self._listeners.items()):
            try:
                route = await instance.update_route(topic)
            except SparrowError as error:
                log.warning("the queues of %s could not be checked: %s", topic, error)
                continue
            if route is None:
                log.warning("the queues of %s could not be checked: no broker serves it now", topic)
                continue
            queues = route.subscribe_queues(topic)
            before = self._known.setdefault(topic, queues)
            if before != queues:
                self._known[topic] = queues
                await _tell(listener, topic, queues)


async def _tell(listener: TopicListener, topic: str, queues: list[MessageQueue]) -> None:
    try:
        await call(listener, topic, list(queues))
    except Exception:
        log.exception("the listener for changes of topic %s failed", topic)
