"""What brokers know of clients: heartbeats, connections, locks (remoting:4.2, 4.3, 4.7)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Self, TypeVar

import msgspec
from msgspec import field

from sparrowmq.core.errors import BodyError, InvalidExpressionError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.subscription import TAG, SubscriptionData
from sparrowmq.protocol.bodies.base import Body, Int32, Int64
from sparrowmq.protocol.filter import parse_tags
from sparrowmq.protocol.java_json import WireQueue, wire_queue


class ConsumeType(StrEnum):
    """How a group consumes; the order is that of Java's ordinals."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """Whether members share messages or each gets all."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    """Where a group without offset starts; the middle three are Java's deprecated names."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


E = TypeVar("E", bound=StrEnum)


def _member(kind: type[E], value: str | int) -> E:
    """An enumeration member by name or, as C++ writes it, by ordinal."""
    members = list(kind)
    text = str(value)
    if text.isascii() and text.isdigit() and len(text) < 3 and int(text) < len(members):
        return members[int(text)]
    try:
        return kind(text)
    except ValueError:
        raise BodyError(f"{text[:80]!r} is no {kind.__name__}; known: {', '.join(members)}") from None


class WireSubscription(Body, frozen=True):
    """What a consumer wants of one topic, as heartbeats and filter checks say it."""

    class_filter_mode: bool = False
    code_set: list[Any] = field(default_factory=list)
    expression_type: str = TAG
    sub_string: str = "*"
    sub_version: Int64 = 0
    tags_set: list[str] = field(default_factory=list)
    topic: str = ""

    def core(self) -> SubscriptionData:
        """Tag codes are not taken over: C++ and Go send wrong ones, so they are made from the tags.

        A class filter means every message: there are no filter servers to run it (broker:14.1, client:D-09).
        """
        if self.class_filter_mode:
            return SubscriptionData(self.topic, self.sub_string, version=self.sub_version)
        if self.expression_type != TAG:
            return SubscriptionData(
                topic=self.topic,
                expression=self.sub_string,
                version=self.sub_version,
                expression_type=self.expression_type,
            )
        if self.tags_set:
            tags = frozenset(self.tags_set)
            return SubscriptionData(self.topic, self.sub_string, tags, self.sub_version)
        try:
            return parse_tags(self.topic, self.sub_string, self.sub_version)
        except InvalidExpressionError as error:
            raise BodyError(str(error)) from None


def wire_subscription(data: SubscriptionData) -> WireSubscription:
    """A subscription as it goes over the wire, sorted."""
    return WireSubscription(
        code_set=sorted(data.codes),
        expression_type=data.expression_type,
        sub_string=data.expression,
        sub_version=data.version,
        tags_set=sorted(data.tags),
        topic=data.topic,
    )


class CheckClientBody(Body, frozen=True):
    """CHECK_CLIENT_CONFIG (46): would the broker take this subscription?"""

    client_id: str = ""
    group: str = ""
    namespace: str = ""
    subscription_data: WireSubscription | None = None


def check_client_body(group: str, client_id: str, data: SubscriptionData) -> bytes:
    """The body of CHECK_CLIENT_CONFIG (46)."""
    return CheckClientBody(
        client_id=client_id, group=group, subscription_data=wire_subscription(data)
    ).encode()


class _WireProducer(Body, frozen=True):
    group_name: str


class _WireConsumer(Body, frozen=True):
    consume_from_where: str | int = 0
    consume_type: str | int = 1
    group_name: str = ""
    message_model: str | int = 1
    subscription_data_set: list[WireSubscription] = field(default_factory=list)
    unit_mode: bool = False


class _WireHeartbeat(Body, frozen=True):
    client_id: str = field(name="clientID")
    consumer_data_set: list[_WireConsumer] = field(default_factory=list)
    heartbeat_fingerprint: Int32 = 0
    producer_data_set: list[_WireProducer] = field(default_factory=list)
    without_sub: bool = False


class ProducerData(msgspec.Struct, frozen=True):
    """A producer group of a client."""

    group: str


class ConsumerData(msgspec.Struct, frozen=True):
    """A consumer group of a client and what it subscribes to."""

    group: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscriptions: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


def _consumer(wire: _WireConsumer) -> ConsumerData:
    if not wire.group_name:
        raise BodyError("a heartbeat's consumer has no groupName")
    return ConsumerData(
        group=wire.group_name,
        consume_type=_member(ConsumeType, wire.consume_type),
        message_model=_member(MessageModel, wire.message_model),
        consume_from_where=_member(ConsumeFromWhere, wire.consume_from_where),
        subscriptions=tuple(subscription.core() for subscription in wire.subscription_data_set),
        unit_mode=wire.unit_mode,
    )


class HeartbeatData(msgspec.Struct, frozen=True):
    """What a client tells every broker each 30 s (34, remoting:4.2).

    With `without_sub` the subscriptions are left out because they did not change.
    """

    client_id: str
    producers: tuple[ProducerData, ...] = ()
    consumers: tuple[ConsumerData, ...] = ()
    fingerprint: int = 0
    without_sub: bool = False

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The heartbeat in JSON `data`; raises `JavaJsonError` or `BodyError`."""
        wire = _WireHeartbeat.decode(data)
        return cls(
            client_id=wire.client_id,
            producers=tuple(ProducerData(producer.group_name) for producer in wire.producer_data_set),
            consumers=tuple(_consumer(consumer) for consumer in wire.consumer_data_set),
            fingerprint=wire.heartbeat_fingerprint,
            without_sub=wire.without_sub,
        )

    def encode(self) -> bytes:
        """Compact JSON; both sets are always present, as Java demands."""
        return _WireHeartbeat(
            client_id=self.client_id,
            consumer_data_set=[
                _WireConsumer(
                    consume_from_where=consumer.consume_from_where.value,
                    consume_type=consumer.consume_type.value,
                    group_name=consumer.group,
                    message_model=consumer.message_model.value,
                    subscription_data_set=[wire_subscription(data) for data in consumer.subscriptions],
                    unit_mode=consumer.unit_mode,
                )
                for consumer in self.consumers
            ],
            heartbeat_fingerprint=self.fingerprint,
            producer_data_set=[_WireProducer(producer.group) for producer in self.producers],
            without_sub=self.without_sub,
        ).encode()


class Connection(Body, frozen=True):
    """One connected client."""

    client_addr: str
    client_id: str
    language: str = "OTHER"
    version: Int32 = 0


class ProducerConnection(Body, frozen=True):
    """Connections of a producer group (204)."""

    connection_set: list[Connection] = field(default_factory=list)


class _WireConsumerConnection(Body, frozen=True):
    connection_set: list[Connection] = field(default_factory=list)
    consume_from_where: str | int = 0
    consume_type: str | int = 1
    message_model: str | int = 1
    subscription_table: dict[str, WireSubscription] = field(default_factory=dict)


class ConsumerConnection(msgspec.Struct, frozen=True):
    """Connections and subscriptions of a consumer group (203)."""

    connections: list[Connection] = field(default_factory=list)
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The body in JSON `data`; raises `JavaJsonError` or `BodyError`."""
        wire = _WireConsumerConnection.decode(data)
        return cls(
            wire.connection_set,
            _member(ConsumeType, wire.consume_type),
            _member(MessageModel, wire.message_model),
            _member(ConsumeFromWhere, wire.consume_from_where),
            {topic: subscription.core() for topic, subscription in wire.subscription_table.items()},
        )

    def encode(self) -> bytes:
        """Compact JSON."""
        return _WireConsumerConnection(
            self.connections,
            self.consume_from_where.value,
            self.consume_type.value,
            self.message_model.value,
            {topic: wire_subscription(data) for topic, data in self.subscriptions.items()},
        ).encode()


class LockBatchRequestBody(Body, frozen=True):
    """Queues to lock (41) or unlock (42).

    `generations` is SparrowMQ's own: those of `mq_set`, one by one, for a member of a managed group.
    """

    client_id: str
    consumer_group: str
    mq_set: list[WireQueue] = field(default_factory=list)
    only_this_broker: bool = False
    generations: list[Int64] | None = None

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues as core values."""
        return [wire.queue() for wire in self.mq_set]


class LockBatchResponseBody(Body, frozen=True):
    """Queues the client holds now."""

    lock_ok_mq_set: list[WireQueue] = field(name="lockOKMQSet", default_factory=list)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues as core values."""
        return [wire.queue() for wire in self.lock_ok_mq_set]


def wire_queues(queues: list[MessageQueue]) -> list[WireQueue]:
    """Queues as the lock bodies hold them."""
    return [wire_queue(queue) for queue in queues]


class AssignmentRequest(Body, frozen=True):
    """Asks a broker which queues of a topic a member reads (400)."""

    client_id: str
    consumer_group: str
    strategy_name: str
    topic: str
    message_model: str = MessageModel.CLUSTERING.value


class _WireAssignment(Body, frozen=True):
    message_queue: WireQueue | None = None
    mode: str = "PULL"


class Assignments(Body, frozen=True):
    """The answer to 400; without a list the member keeps what it has."""

    message_queue_assignments: list[_WireAssignment] | None = None

    @classmethod
    def of(cls, queues: Iterable[MessageQueue]) -> Self:
        """The answer that has a member read `queues`."""
        return cls([_WireAssignment(wire_queue(queue)) for queue in queues])

    @property
    def pairs(self) -> list[tuple[MessageQueue, str]] | None:
        """Each queue with the mode in which it is read: `PULL` or `POP`."""
        found = self.message_queue_assignments
        if found is None:
            return None
        return [(one.message_queue.queue(), one.mode) for one in found if one.message_queue is not None]
