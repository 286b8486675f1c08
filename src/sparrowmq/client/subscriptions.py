"""What a consumer subscribes to, and which handler a topic has (client:D.3)."""

from __future__ import annotations

from sparrowmq.client.workers import Handler, TopicHandler
from sparrowmq.core.clock import Clock
from sparrowmq.core.names import check_topic, retry_topic
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.filter import parse_tags


class Subscriptions:
    """Subscriptions of one group, its retry topic included (client:D-05)."""

    def __init__(self, group: str, clock: Clock) -> None:
        self._clock = clock
        self._handlers: dict[str, TopicHandler | None] = {}
        retry = retry_topic(group)
        self._retry = retry
        self._data = {retry: SubscriptionData(retry, version=clock.now_ms())}

    def __repr__(self) -> str:
        return f"<Subscriptions {', '.join(self.topics)}>"

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics, the retry topic last."""
        return (*(topic for topic in self._data if topic != self._retry), self._retry)

    @property
    def data(self) -> tuple[SubscriptionData, ...]:
        """All subscriptions, for heartbeats."""
        return tuple(self._data.values())

    def add(self, topic: str, expression: str, handler: Handler | None) -> None:
        """Subscribe, or replace what was subscribed; the version is now."""
        check_topic(topic)
        self._data[topic] = parse_tags(topic, expression, self._clock.now_ms())
        self._handlers[topic] = None if handler is None else TopicHandler(handler)

    def remove(self, topic: str) -> None:
        """Forget a topic; nothing happens when it was not subscribed."""
        if topic != self._retry:
            self._data.pop(topic, None)
            self._handlers.pop(topic, None)

    def find(self, topic: str) -> SubscriptionData | None:
        """The subscription of `topic`."""
        return self._data.get(topic)

    def handler(self, topic: str) -> TopicHandler | None:
        """The handler of `topic`; None when its messages are iterated over."""
        return self._handlers.get(topic)
