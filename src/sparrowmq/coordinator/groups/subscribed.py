"""The queues of the topics that a group's members subscribe to, from routes, refreshed periodically."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from sparrowmq.coordinator.groups.moves import ManagedCluster
from sparrowmq.core.errors import CoordinatorError, NoRouteError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import RETRY_PREFIX
from sparrowmq.protocol.managed import QUEUES_MAX
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.coordinator")

ROUTE_SECONDS: Final = 2.0
"""Maximum age of a topic's list of queues when a plan is made."""


class Subscribed:
    """The queues of one group."""

    def __init__(self, group: str, cluster: ManagedCluster, monotonic: Callable[[], float]) -> None:
        self._group = group
        self._cluster = cluster
        self._monotonic = monotonic
        self._routes: dict[str, tuple[float, list[MessageQueue]]] = {}
        self._occasional = OccasionalLog(log)

    def forget(self) -> None:
        """Ask for all of them again."""
        self._routes.clear()

    async def queues(self, topics: Iterable[frozenset[str]]) -> list[MessageQueue]:
        """Queues of all these topics. A topic that no broker has (yet) has no queues. Raises
        `SparrowError`.
        """
        found: list[MessageQueue] = []
        for topic in sorted(frozenset().union(*topics)):
            asked, queues = self._routes.get(topic, (-ROUTE_SECONDS, []))
            if self._monotonic() - asked >= ROUTE_SECONDS:
                try:
                    route = await self._cluster.topic_route(topic)
                    self._check(len(found) + route.readable, topic)
                    queues = route.subscribe_queues(topic)
                except NoRouteError:
                    level = logging.DEBUG if topic.startswith(RETRY_PREFIX) else logging.WARNING
                    text = f"no broker serves topic {topic}, which group {self._group} subscribes to"
                    self._occasional.write(level, f"route {topic}", text)
                    queues = []
                self._routes[topic] = self._monotonic(), queues
            found += queues
            self._check(len(found), topic)
        return found

    def _check(self, count: int, topic: str) -> None:
        """Raise `CoordinatorError` if there are more queues than a managed group may have."""
        if count > QUEUES_MAX:
            raise CoordinatorError(
                f"with topic {topic} the members of group {self._group} subscribe to {count} queues; the "
                f"limit of a managed group is {QUEUES_MAX}. Subscribe to fewer, or use managed=False",
                what=topic,
                value=count,
                limit=QUEUES_MAX,
            )
