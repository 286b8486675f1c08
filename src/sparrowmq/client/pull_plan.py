"""What a pull consumer was asked to read: subscribed, assigned or registered, and never two of them.

Pure: it decides what calls may follow each other and keeps what they said. `PullMember` acts on it
(client:E-10, E-21 to E-23).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum

from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import InvalidStateError, SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_topic
from sparrowmq.core.subscription import TAG, Expression, SubscriptionData
from sparrowmq.protocol.filter import parse_expression

QueueListener = Callable[[str, list[MessageQueue], list[MessageQueue]], Awaitable[None] | None]
"""Told (topic, all queues, own queues) when the own queues of a topic changed (client:E-46)."""


class Mode(Enum):
    """How a consumer comes to its queues; the first call decides."""

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
        """THE listener of registered topics: there is one for all of them (client:E-10)."""
        self.listeners: dict[str, QueueListener] = {}
        """Listeners of subscribed topics."""
        self.assigned: tuple[MessageQueue, ...] = ()
        self._data: dict[str, SubscriptionData] = {}
        self._automatic: dict[str, None] = {}  # topics in order
        self._expressions: dict[str, SubscriptionData] = {}
        self._instead: dict[str, str] = {}
        self._own: dict[str, SubscriptionData] = {}  # what was subscribed where tags replace it

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
        """Topics whose queues are divided among the members; none with `assign`."""
        return () if self.mode is Mode.ASSIGN else self.topics

    @property
    def announced(self) -> tuple[SubscriptionData, ...]:
        """What heartbeats tell: not what was pulled without being registered, nothing with `assign`
        (client:E-06, E-09, E-44).
        """
        return () if self.mode is Mode.ASSIGN else tuple(self._data.values())

    def subscribe(self, topic: str, expression: Expression, listener: QueueListener | None) -> None:
        """Subscribe, or replace what was subscribed.

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
        """Forget a topic; nothing happens when it was not subscribed."""
        self._data.pop(topic, None)
        self._own.pop(topic, None)
        self.listeners.pop(topic, None)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Replace the assigned queues. Raises `SettingsError` for none, `InvalidStateError` after
        `subscribe` or `register_topic`.
        """
        chosen = tuple(dict.fromkeys(queues))
        if not chosen:
            raise SettingsError("assign needs at least one queue; `unsubscribe` or close ends reading")
        for queue in chosen:
            check_topic(queue.topic)
        self._enter(Mode.ASSIGN)
        self.assigned = chosen

    def filter_assigned(self, topic: str, expression: Expression) -> None:
        """Filter what assigned queues of `topic` give, `*` by default (client:E-23)."""
        check_topic(topic)
        self._expressions[topic] = parse_expression(topic, expression, self._clock.now_ms())

    def register(self, topic: str, listener: QueueListener | None) -> None:
        """Take part in the sharing of a topic. A listener that is given replaces the consumer's only one."""
        check_topic(topic)
        self._enter(Mode.REGISTER)
        self._automatic.pop(topic, None)
        self._put(topic, SubscriptionData(topic))
        if listener is not None:
            self.listener = listener

    def replace_tags(self, instead: Mapping[str, str]) -> None:
        """Filter by these expressions, by topic, in place of those subscribed or registered; what is left out
        is as before again. Raises `InvalidExpressionError`.
        """
        before, self._instead = self._instead, dict(instead)
        for topic, known in list(self._data.items()):
            if before.get(topic) != self._instead.get(topic):
                own = self._own.pop(topic, known)
                self._put(topic, replace(own, version=max(self._clock.now_ms(), known.version + 1)))

    def _put(self, topic: str, own: SubscriptionData) -> None:
        known = self._data.get(topic)
        if known is not None and known != own:
            own = replace(own, version=max(own.version, known.version + 1))  # brokers go by the latest
        tags = self._instead.get(topic)
        if tags is None:
            self._data[topic] = own
        else:
            self._own[topic] = own
            self._data[topic] = parse_expression(topic, tags, own.version)

    def note_pull(self, topic: str) -> bool:
        """A queue of `topic` is read by offset: with registered topics that one is shared, too, without
        being announced (client:E-06). Whether it is new.
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
        """The same for a pull, which sends it whole: tags have version 0 there (client:E-07)."""
        found = self.subscription(topic)
        return replace(found, version=0) if found.expression_type == TAG else found

    def listener_of(self, topic: str) -> QueueListener | None:
        """Who is told about the own queues of `topic`."""
        return self.listener if self.mode is Mode.REGISTER else self.listeners.get(topic)

    def _enter(self, mode: Mode) -> None:
        if self.mode not in (Mode.NONE, mode):
            raise InvalidStateError(
                f"this pull consumer reads by {self.mode.value}() and cannot change to {mode.value}(); make "
                "another one for that"
            )
        self.mode = mode
