"""The queues of the topics that a group's members subscribe, as routes say; asked for now and then."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from sparrowmq.coordinator.groups.moves import Cluster
from sparrowmq.core.errors import NoRouteError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import RETRY_PREFIX
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.coordinator")

ROUTE_SECONDS: Final = 2.0
"""How old the queues of a topic may be that a plan is made of."""


class Subscribed:
    """One group's."""

    def __init__(self, group: str, cluster: Cluster, monotonic: Callable[[], float]) -> None:
        self._group = group
        self._cluster = cluster
        self._monotonic = monotonic
        self._routes: dict[str, tuple[float, list[MessageQueue]]] = {}
        self._occasional = OccasionalLog(log)

    def forget(self) -> None:
        """Ask for all of them again."""
        self._routes.clear()

    async def queues(self, topics: Iterable[frozenset[str]]) -> list[MessageQueue]:
        """Queues of all these topics. A topic nobody serves (yet) has none. Raises `SparrowError`."""
        found: list[MessageQueue] = []
        for topic in sorted(frozenset().union(*topics)):
            asked, queues = self._routes.get(topic, (-ROUTE_SECONDS, []))
            if self._monotonic() - asked >= ROUTE_SECONDS:
                try:
                    queues = (await self._cluster.topic_route(topic)).subscribe_queues(topic)
                except NoRouteError:
                    level = logging.DEBUG if topic.startswith(RETRY_PREFIX) else logging.WARNING
                    text = f"no broker serves topic {topic}, which group {self._group} subscribes to"
                    self._occasional.write(level, f"route {topic}", text)
                    queues = []
                self._routes[topic] = self._monotonic(), queues
            found += queues
        return found
