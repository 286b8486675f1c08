"""The traffic of a cluster, in few requests: offsets of all groups, ends of queues, brokers' own figures.

An interface and its implementation on the client's public names: it works with Apache's brokers as well.
Topics that no group reads are queried in
turn, a few at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from sparrowmq.aio import BrokerStatus, QueueProgress
from sparrowmq.coordinator.cluster.asking import each
from sparrowmq.coordinator.cluster.offsets import GroupOffsets, store_time
from sparrowmq.core.message import MessageQueue

ENDS_SECONDS: Final = 4.0
"""Time limit of the queries of topics that no group reads."""
AGES_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class FlowSample:
    """Result of one query. `places` has the offsets of all groups by group, `ends` the next offsets of the
    topics queried this time; `topics` are all topics. `failed` are masters that did not report offsets, `at`
    is monotonic seconds. `firsts` are first offsets, of queues in which a group may be before them.
    """

    at: float
    now_ms: int
    places: Mapping[str, Sequence[QueueProgress]] = field(default_factory=dict)
    ends: Mapping[str, Mapping[MessageQueue, int]] = field(default_factory=dict)
    topics: frozenset[str] = frozenset()
    brokers: Sequence[BrokerStatus] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    firsts: Mapping[MessageQueue, int] = field(default_factory=dict)


class FlowView(Protocol):
    """The queries of the service `history`. Everything raises `SparrowError`."""

    async def look(self, topics_at_once: int) -> FlowSample:
        """Run one query; it includes a limited number of topics that no group reads."""

    async def stored_ms(self, places: Sequence[tuple[MessageQueue, int]]) -> dict[MessageQueue, int]:
        """When the messages at some offsets were stored; unknown ones are omitted."""

    async def close(self) -> None:
        """Close the connections."""


class Flow:
    """The cluster of some name servers. Connects on first use."""

    def __init__(self, offsets: GroupOffsets) -> None:
        self._offsets = offsets
        self._clients = offsets.clients
        self._turn = ""
        """The topic that was queried last, in the order of names."""

    def __repr__(self) -> str:
        return f"<Flow {self._clients.namesrv}>"

    async def look(self, topics_at_once: int) -> FlowSample:
        """Run one query. Raises `SparrowError` if brokers or topics cannot be listed."""
        admin, told = await self._clients.admin(), await self._offsets.all(0.0)
        places = told.groups
        topics = frozenset(await admin.topics.list())
        read = {one.queue.topic for rows in places.values() for one in rows}
        alone = self._next(sorted(topics - read), topics_at_once)
        ends: dict[str, Mapping[MessageQueue, int]] = {}

        async def ask(topic: str) -> None:
            ends[topic] = {one.queue: one.max_offset for one in await admin.topics.status(topic)}

        await each(alone, ask, {}, seconds=ENDS_SECONDS, vanish=True)
        firsts = await self._offsets.firsts.of(admin, (one for rows in places.values() for one in rows))
        return FlowSample(told.at, told.now_ms, places, ends, topics, told.brokers, told.failed, firsts)

    async def stored_ms(self, places: Sequence[tuple[MessageQueue, int]]) -> dict[MessageQueue, int]:
        """Reads one message of each."""
        reader = await self._clients.reader()
        offsets = {str(queue): (queue, offset) for queue, offset in places}

        async def ask(name: str) -> int:
            return await store_time(reader, *offsets[name])

        found = await each(offsets, ask, {}, seconds=AGES_SECONDS)
        return {offsets[name][0]: at for name, at in found.items() if at}

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._offsets.close()
        await self._clients.close()

    def _next(self, alone: Sequence[str], count: int) -> list[str]:
        """The topics that are next."""
        turned = [*(one for one in alone if one > self._turn), *(one for one in alone if one <= self._turn)]
        chosen = turned[:count]
        self._turn = chosen[-1] if chosen else ""
        return chosen
