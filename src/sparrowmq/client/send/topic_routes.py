"""The topics of one producer and their queues, looked up on first use, then refreshed (client:B.5)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from sparrowmq.client.base.settings import ProducerSettings
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.send.encoding import SendTarget
from sparrowmq.client.send.queue_selection import PublishInfo
from sparrowmq.core.errors import ClientError, NoRouteError, RequestTimeoutError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import TEMPLATE_TOPIC, check_topic_for_send
from sparrowmq.core.route import TopicRoute
from sparrowmq.transport.address import vip_address


class PublishTable:
    """Queues by topic for the producer of `group`. The fast path of sends reads `infos`."""

    def __init__(self, group: str, settings: ProducerSettings, instance: ClientInstance) -> None:
        self._group = group
        self._settings = settings
        self._instance = instance
        self._topics: set[str] = set()
        self.infos: dict[str, PublishInfo] = {}

    def __len__(self) -> int:
        return len(self._topics)

    def topics(self) -> Iterable[str]:
        """Topics with sends; they are refreshed for the producer's lifetime (client:B-19)."""
        if self._settings.compat == "4.9":
            return (self._settings.create_topic_key, *self._topics)  # 4.9 keeps its route fresh
        return tuple(self._topics)

    def route_changed(self, topic: str, route: TopicRoute) -> None:
        """Use the queues of a new route; the round robin continues where it was."""
        if topic not in self._topics:
            return
        settings, targets = self._settings, []
        for queue in route.publish_queues(topic):
            broker = route.broker(queue.broker_name)
            if broker is not None and broker.master is not None:
                targets.append(
                    SendTarget(
                        queue,
                        vip_address(broker.master) if settings.vip_channel else broker.master,
                        group=self._group,
                        create_topic_key=settings.create_topic_key,
                        create_topic_queues=settings.create_topic_queues,
                        unit_mode=settings.unit_mode,
                    )
                )
        previous = self.infos.get(topic)
        index = self._instance.rng.randrange(2**31) if previous is None else previous.index
        self.infos[topic] = PublishInfo(topic, targets, index)

    async def find(self, topic: str, deadline: float) -> PublishInfo:
        """The queues of `topic`, looked up at first use; an unknown topic gets the template's (client:B-17).

        `deadline` is loop time. Raises `NoRouteError`, `RequestTimeoutError`, `InvalidNameError`.
        """
        info = self.infos.get(topic)
        if info is not None and info.targets:
            return info
        if topic not in self._topics:
            check_topic_for_send(topic)
        self._topics.add(topic)
        try:
            async with asyncio.timeout_at(deadline):
                route = await self._ask(topic)
        except SparrowError:
            raise
        except TimeoutError:
            address = self._instance.name_servers.current
            raise RequestTimeoutError(
                f"the name server {address} did not return the route of {topic!r} in time; check that it "
                f"is running",
                address=address,
            ) from None
        info = self.infos.get(topic)
        if route is None or info is None or not info.targets:
            self._forget(topic, info)
            raise NoRouteError(
                f"no broker has a writable queue of topic {topic!r}; create it first "
                f"(`sparrow topic create {topic}`) or check that a broker is registered and writable",
                topic=topic,
            )
        return info

    async def _ask(self, topic: str) -> TopicRoute | None:
        route = self._instance.routes.get(topic)
        if route is not None:  # another client of this instance uses it
            self.route_changed(topic, route)
            if self.infos[topic].targets:
                return route
        route = await self._instance.update_route(topic)
        if route is None:
            settings = self._settings
            # 5.x always takes the queues of TBW102, whatever the header says (client:A-43, G-08)
            template = settings.create_topic_key if settings.compat == "4.9" else TEMPLATE_TOPIC
            route = await self._instance.update_route(
                topic, template_queues=settings.create_topic_queues, template=template
            )
        return route

    def _forget(self, topic: str, info: PublishInfo | None) -> None:
        """Stop refreshing a topic that never had a queue."""
        if info is None or not info.targets:
            self._topics.discard(topic)
            self.infos.pop(topic, None)


def target_of(info: PublishInfo, queue: MessageQueue) -> SendTarget:
    """The target for a queue that the caller chose. Raises `ClientError` or `NoRouteError`."""
    if queue.topic != info.topic:
        text = f"a message to {info.topic!r} cannot go to {queue}; topic and queue must agree"
        raise ClientError(text, what="queue", value=queue)
    target = info.find(queue)
    if target is None:
        raise NoRouteError(
            f"topic {info.topic!r} has no writable queue {queue}; it has {len(info.targets)} queues",
            topic=info.topic,
        )
    return target
