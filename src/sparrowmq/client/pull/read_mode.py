"""The read mode of a pull consumer: subscribed, assigned or registered, but only one of them.

Pure: it decides which calls are allowed and keeps their arguments. `PullMember` acts on it (client:E-10, E-21
to E-23).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum

from sparrowmq.client.base.settings import QueueListener
from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import InvalidStateError, SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_topic
from sparrowmq.core.subscription import TAG, Expression, SubscriptionData
from sparrowmq.protocol.filter import parse_expression


class Mode(Enum):
    """How a consumer gets its queues; the first call decides."""

    NONE = "nothing yet"
    SUBSCRIBE = "subscribe"
    ASSIGN = "assign"
    REGISTER = "register_topic"


class PullPlan:
    """Topics, expressions, queues and listeners of one pull consumer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.mode = Mode.NONE
        self.listener: QueueListener | None = None
        """The only listener of registered topics (client:E-10)."""
        self.listeners: dict[str, QueueListener] = {}
        """Listeners of subscribed topics."""
        self.assigned: tuple[MessageQueue, ...] = ()
        self._data: dict[str, SubscriptionData] = {}
        self._automatic: dict[str, None] = {}  # topics in order
        self._expressions: dict[str, SubscriptionData] = {}
        self._instead: dict[str, str] = {}
        self._own: dict[str, SubscriptionData] = {}  # original subscriptions where tags replace them

    def __repr__(self) -> str:
        return f"<PullPlan {self.mode.value} {', '.join(self.topics)}>"

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics whose routes are needed; with `assign` those of the queues."""
        if self.mode is Mode.ASSIGN:
            return tuple(dict.fromkeys(queue.topic for queue in self.assigned))
        return (*self._data, *self._automatic)

    @property
    def shared(self) -> tuple[str, ...]:
        """Topics whose queues are divided among the members; empty with `assign`."""
        return () if self.mode is Mode.ASSIGN else self.topics

    @property
    def announced(self) -> tuple[SubscriptionData, ...]:
        """The subscriptions in heartbeats: without topics that were pulled but not registered, and empty with
        `assign` (client:E-06, E-09, E-44).
        """
        return () if self.mode is Mode.ASSIGN else tuple(self._data.values())

    def subscribe(self, topic: str, expression: Expression, listener: QueueListener | None) -> None:
        """Subscribe, or replace a subscription.

        Raises `InvalidStateError` after `assign` or `register_topic`, `InvalidNameError` or
        `InvalidExpressionError`.
        """
        check_topic(topic)
        data = parse_expression(topic, expression, self._clock.now_ms())
        self._enter(Mode.SUBSCRIBE)
        self._put(topic, data)
        self.listeners.pop(topic, None)
        if listener is not None:
            self.listeners[topic] = listener

    def unsubscribe(self, topic: str) -> None:
        """Remove a topic; does nothing when it was not subscribed."""
        self._data.pop(topic, None)
        self._own.pop(topic, None)
        self.listeners.pop(topic, None)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Replace the assigned queues. Raises `SettingsError` for none, `InvalidStateError` after
        `subscribe` or `register_topic`.
        """
        chosen = tuple(dict.fromkeys(queues))
        if not chosen:
            raise SettingsError(
                "assign needs at least one queue; to stop reading, use `unsubscribe` or close", "queues"
            )
        for queue in chosen:
            check_topic(queue.topic)
        self._enter(Mode.ASSIGN)
        self.assigned = chosen

    def filter_assigned(self, topic: str, expression: Expression) -> None:
        """Filter the messages of assigned queues of `topic`, by default `*` (client:E-23)."""
        check_topic(topic)
        self._expressions[topic] = parse_expression(topic, expression, self._clock.now_ms())

    def register(self, topic: str, listener: QueueListener | None) -> None:
        """Take a share of the queues of a topic. `listener` replaces the consumer's listener."""
        check_topic(topic)
        self._enter(Mode.REGISTER)
        self._automatic.pop(topic, None)
        self._put(topic, SubscriptionData(topic))
        if listener is not None:
            self.listener = listener

    def replace_tags(self, instead: Mapping[str, str]) -> None:
        """Filter by these expressions, by topic, instead of the subscribed or registered ones; topics not
        included return to their original expression. Raises `InvalidExpressionError`.
        """
        before, self._instead = self._instead, dict(instead)
        for topic, known in list(self._data.items()):
            if before.get(topic) != self._instead.get(topic):
                own = self._own.pop(topic, known)
                self._put(topic, replace(own, version=max(self._clock.now_ms(), known.version + 1)))

    def _put(self, topic: str, own: SubscriptionData) -> None:
        known = self._data.get(topic)
        if known is not None and known != own:
            own = replace(own, version=max(own.version, known.version + 1))  # brokers use the latest version
        tags = self._instead.get(topic)
        if tags is None:
            self._data[topic] = own
        else:
            self._own[topic] = own
            self._data[topic] = parse_expression(topic, tags, own.version)

    def note_pull(self, topic: str) -> bool:
        """A queue of `topic` is read by offset: with registered topics this topic is shared too, but not
        announced (client:E-06). Returns whether it is new.
        """
        if self.mode is not Mode.REGISTER or topic in self._data or topic in self._automatic:
            return False
        self._automatic.setdefault(topic)
        return True

    def subscription(self, topic: str) -> SubscriptionData:
        """How messages of `topic` are filtered."""
        table = self._expressions if self.mode is Mode.ASSIGN else self._data
        return table.get(topic) or SubscriptionData(topic)

    def pull_filter(self, topic: str) -> SubscriptionData:
        """The same for a pull, which sends the complete subscription: tags have version 0 there
        (client:E-07).
        """
        found = self.subscription(topic)
        return replace(found, version=0) if found.expression_type == TAG else found

    def listener_of(self, topic: str) -> QueueListener | None:
        """The listener for the assigned queues of `topic`."""
        return self.listener if self.mode is Mode.REGISTER else self.listeners.get(topic)

    def _enter(self, mode: Mode) -> None:
        if self.mode not in (Mode.NONE, mode):
            raise InvalidStateError(
                f"this pull consumer reads by {self.mode.value}() and cannot change to {mode.value}(); "
                f"create another one for that",
                what=mode.value,
                value=self.mode.value,
            )
        self.mode = mode
