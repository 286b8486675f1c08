"""Which brokers have how many readable queues of a topic: what name servers say, remembered for seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from sparrowmq.core.errors import ProtocolError, TransportError
from sparrowmq.core.route import PERM_READ
from sparrowmq.protocol.bodies import route_from_json
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import GetRouteInfoRequest, to_ext

if TYPE_CHECKING:
    from sparrowmq.broker.tables.topics import TopicTable
    from sparrowmq.core.clock import Clock
    from sparrowmq.transport.client import RemotingClient

KEPT_SECONDS: Final = 5.0
ASK_SECONDS: Final = 3.0
ROUTES_MAX: Final = 10_000
"""Routes that are remembered; the oldest is forgotten."""

Readable = Mapping[str, int]
"""By broker name, the number of readable queues."""


class ReadableQueues(Protocol):
    """Knows the readable queues of topics, on all brokers of the cluster."""

    async def find(self, topic: str) -> Readable | None:
        """The readable queues of a topic by broker name; None if it is unknown now."""


class OwnQueues:
    """A broker without name servers knows its own queues only."""

    def __init__(self, broker_name: str, topics: TopicTable) -> None:
        self._broker_name = broker_name
        self._topics = topics

    async def find(self, topic: str) -> Readable | None:
        """The readable queues of a topic by broker name; None for an unknown topic."""
        found = self._topics.get(topic)
        if found is None:
            return None
        return {self._broker_name: found.config.read_queue_nums} if found.readable else {}


class RouteLookup:
    """Asks name servers, one after the other. Concurrent questions about a topic share an answer."""

    def __init__(self, client: RemotingClient, addresses: tuple[str, ...], clock: Clock) -> None:
        self._client = client
        self._addresses = addresses
        self._clock = clock
        self._known: dict[str, tuple[float, asyncio.Task[Readable | None]]] = {}

    async def find(self, topic: str) -> Readable | None:
        """The readable queues of a topic by broker name; None if no name server has it or answers."""
        now = self._clock.monotonic()
        kept = self._known.get(topic)
        if kept is None or now - kept[0] > KEPT_SECONDS:
            self._known.pop(topic, None)
            if len(self._known) >= ROUTES_MAX:
                del self._known[next(iter(self._known))]
            kept = self._known[topic] = (now, asyncio.get_running_loop().create_task(self._ask(topic)))
        return await asyncio.shield(kept[1])

    async def _ask(self, topic: str) -> Readable | None:
        ext = to_ext(GetRouteInfoRequest(topic=topic))
        for address in self._addresses:
            asked = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext=ext)
            try:
                answer = await self._client.call(address, asked, ASK_SECONDS)
                if answer.code != ResponseCode.SUCCESS:
                    continue
                route = route_from_json(answer.body)
            except (TransportError, ProtocolError):
                continue
            return {one.broker_name: one.read_queue_nums for one in route.queues if one.perm & PERM_READ}
        return None
