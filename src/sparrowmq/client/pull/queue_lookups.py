"""Queries of a pull consumer about queues, without reading them: offsets and times (client:E-43, E-55)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime

from sparrowmq.client.base.former_arguments import search_time
from sparrowmq.client.cluster.addresses import resolve_namesrv
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.consumer.queue_reader import QueueReader
from sparrowmq.client.pull.topic_watch import TopicListener, TopicWatch
from sparrowmq.core.errors import NoRouteError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_topic


class QueueLookups(ABC):
    """The part of `PullConsumer` that queries queues."""

    _reader: QueueReader
    _watch: TopicWatch

    @abstractmethod
    def _running(self) -> ClientInstance:
        """The client; raises `InvalidStateError` unless it runs."""

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of `topic`, sorted; asks a name server each time. Raises `NoRouteError`."""
        instance = self._running()
        check_topic(topic)
        route = await instance.update_route(topic)
        if route is None:
            raise NoRouteError(
                f"no broker serves topic {topic!r}; create it first (`sparrow topic create {topic}`) or "
                "check the name",
                topic=topic,
            )
        return route.subscribe_queues(topic)

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """The writable queues of `topic`. Otherwise like `queues`."""
        await self.queues(topic)
        route = self._running().routes.get(topic)
        return [] if route is None else route.publish_queues(topic)

    def update_name_servers(self, namesrv: str) -> None:
        """Use these name servers from now on: `host:port`, several separated by `;`."""
        self._running().name_servers.replace(resolve_namesrv(namesrv))

    async def min_offset(self, queue: MessageQueue) -> int:
        """The smallest stored offset."""
        return await self._reader.ask(queue, lambda brokers, at: brokers.min_offset(at, queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset of the next message."""
        return await self._reader.ask(queue, lambda brokers, at: brokers.max_offset(at, queue))

    async def search_offset(
        self,
        queue: MessageQueue,
        timestamp: datetime | int | None = None,
        *,
        timestamp_ms: int | None = None,
    ) -> int:
        """The offset of the first message stored at or after `timestamp`, an aware datetime or epoch
        milliseconds. `timestamp_ms` is a former name of `timestamp`.
        """
        time_ms = search_time(timestamp, timestamp_ms)
        return await self._reader.ask(queue, lambda brokers, at: brokers.search_offset(at, queue, time_ms))

    async def earliest_time(self, queue: MessageQueue) -> int | None:
        """Epoch milliseconds of the oldest stored message; None when there is none."""
        found = await self._reader.ask(queue, lambda brokers, at: brokers.earliest_store_time(at, queue))
        return None if found < 0 else found

    def watch_topic(self, topic: str, listener: TopicListener) -> None:
        """Call `listener` with (topic, queues) when the number of the topic's queues changes.

        The check runs every `topic_check_interval` seconds. May be called before or after the start.
        """
        check_topic(topic)
        self._watch.add(topic, listener)

    async def _look(self) -> None:
        await self._watch.look(self._running())
