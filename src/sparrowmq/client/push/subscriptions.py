"""The subscriptions of a consumer, and the handler of each topic (client:D.3)."""

from __future__ import annotations

from dataclasses import replace

from sparrowmq.client.push.values import Decode
from sparrowmq.client.push.workers import Handler, TopicHandler
from sparrowmq.core.clock import Clock
from sparrowmq.core.names import check_topic, retry_topic
from sparrowmq.core.subscription import Expression, SubscriptionData
from sparrowmq.protocol.filter import parse_expression


class Subscriptions:
    """The subscriptions of one group, including its retry topic if it has one (client:D-05, D-06)."""

    def __init__(self, group: str, clock: Clock, *, has_retry: bool = True) -> None:
        self._clock = clock
        self._handlers: dict[str, TopicHandler | None] = {}
        retry = retry_topic(group)
        self._retry = retry
        self._data: dict[str, SubscriptionData] = {}
        self._expressions: dict[str, Expression] = {}
        self._instead: dict[str, str] = {}
        if has_retry:
            self._data[retry] = SubscriptionData(retry, version=clock.now_ms())

    def __repr__(self) -> str:
        return f"<Subscriptions {', '.join(self.topics)}>"

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics; the retry topic is the last."""
        retry = (self._retry,) if self._retry in self._data else ()
        return (*(topic for topic in self._data if topic != self._retry), *retry)

    @property
    def data(self) -> tuple[SubscriptionData, ...]:
        """All subscriptions, for heartbeats."""
        return tuple(self._data.values())

    def add(
        self, topic: str, expression: Expression, handler: Handler | None, decode: Decode | None = None
    ) -> None:
        """Subscribe, or replace a subscription; its version is the current time."""
        check_topic(topic)
        parse_expression(topic, expression, 0)
        self._handlers[topic] = None if handler is None else TopicHandler(handler, decode)
        self._expressions[topic] = expression
        self._renew(topic)

    def remove(self, topic: str) -> None:
        """Remove a topic; does nothing if it is not subscribed."""
        if topic != self._retry:
            self._data.pop(topic, None)
            self._handlers.pop(topic, None)
            self._expressions.pop(topic, None)

    def replace_tags(self, instead: dict[str, str]) -> None:
        """Replace the subscribed expressions of these topics; other topics return to their subscribed
        expressions. Raises `InvalidExpressionError`.
        """
        before, self._instead = self._instead, dict(instead)
        for topic in self._expressions:
            if before.get(topic) != self._instead.get(topic):
                self._renew(topic)

    def _renew(self, topic: str) -> None:
        known = self._data.get(topic)
        version = max(self._clock.now_ms(), 0 if known is None else known.version + 1)
        expression = self._instead.get(topic, self._expressions[topic])
        self._data[topic] = parse_expression(topic, expression, version)

    def touch(self, topic: str) -> None:
        """Give a subscription a new version, because this member's queues of the topic changed
        (client:C-39).
        """
        data = self._data.get(topic)
        if data is not None:
            self._data[topic] = replace(data, version=max(self._clock.now_ms(), data.version + 1))

    @property
    def is_empty(self) -> bool:
        """Whether no topic except the retry topic is subscribed."""
        return not any(topic != self._retry for topic in self._data)

    @property
    def has_handlers(self) -> bool:
        """Whether handlers process messages of any topic, rather than iteration."""
        return any(handler is not None for handler in self._handlers.values())

    @property
    def has_loop_topics(self) -> bool:
        """Whether iteration gets the messages of any topic."""
        return any(handler is None for handler in self._handlers.values())

    def find(self, topic: str) -> SubscriptionData | None:
        """The subscription of `topic`."""
        return self._data.get(topic)

    def handler(self, topic: str) -> TopicHandler | None:
        """The handler of `topic`; None when its messages are iterated."""
        return self._handlers.get(topic)
