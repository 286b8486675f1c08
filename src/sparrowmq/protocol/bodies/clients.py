"""What brokers know about clients: heartbeats, connections, locks (remoting:4.2, 4.3, 4.7)."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, Self, TypeVar

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
    """Whether members share messages or each member gets all."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    """Where a group without offsets starts; the middle three are Java's deprecated names."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


HEARTBEAT_ENTRIES_MAX: Final = 2000
"""Maximum groups and subscriptions in one heartbeat, because a broker processes them all at once."""

E = TypeVar("E", bound=StrEnum)


def _member(kind: type[E], value: str | int) -> E:
    """An enumeration member by name or, as C++ writes it, by ordinal."""
    text = str(value)
    found: E | None = _members(kind).get(text)
    if found is None:
        raise BodyError(f"{text[:80]!r} is not a {kind.__name__}; known: {', '.join(kind)}")
    return found


@lru_cache
def _members(kind: type[E]) -> dict[str, E]:
    """The enumeration members by all their texts; cached because a heartbeat may have 6,000."""
    ordinals = {text: member for at, member in enumerate(kind) for text in (str(at), f"{at:02d}")}
    return ordinals | {member.value: member for member in kind}


class WireSubscription(Body, frozen=True):
    """A consumer's subscription of one topic, in heartbeats and filter checks."""

    class_filter_mode: bool = False
    code_set: list[Any] = field(default_factory=list)
    expression_type: str = TAG
    sub_string: str = "*"
    sub_version: Int64 = 0
    tags_set: list[str] = field(default_factory=list)
    topic: str = ""

    def core(self) -> SubscriptionData:
        """Tag codes are computed from the tags, because C++ and Go send wrong ones.

        A class filter matches every message, because there are no filter servers (broker:14.1, client:D-09).
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
    """A subscription as sent on the wire, sorted."""
    return WireSubscription(
        code_set=sorted(data.codes),
        expression_type=data.expression_type,
        sub_string=data.expression,
        sub_version=data.version,
        tags_set=sorted(data.tags),
        topic=data.topic,
    )


class CheckClientBody(Body, frozen=True):
    """CHECK_CLIENT_CONFIG (46): asks whether the broker accepts this subscription."""

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


class ProducerData(msgspec.Struct, frozen=True, gc=False):
    """A producer group of a client."""

    group: str


class ConsumerData(msgspec.Struct, frozen=True, gc=False):
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


class HeartbeatData(msgspec.Struct, frozen=True, gc=False):
    """What a client sends to every broker every 30 s (34, remoting:4.2).

    With `without_sub` unchanged subscriptions are omitted.
    """

    client_id: str
    producers: tuple[ProducerData, ...] = ()
    consumers: tuple[ConsumerData, ...] = ()
    fingerprint: int = 0
    without_sub: bool = False

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The heartbeat in JSON `data`; raises `JavaJsonError` or `BodyError`, also when it exceeds the
        limits.
        """
        steps = cls.decoding(data)
        while True:  # ends: each step is a consumer
            try:
                next(steps)
            except StopIteration as end:
                found: Self = end.value
                return found

    @classmethod
    def decoding(cls, data: bytes) -> Generator[None, None, Self]:
        """The same, one consumer in each step."""
        wire = _WireHeartbeat.decode_request(data)
        count = len(wire.producer_data_set) + len(wire.consumer_data_set)
        count += sum(len(consumer.subscription_data_set) for consumer in wire.consumer_data_set)
        if count > HEARTBEAT_ENTRIES_MAX:
            raise BodyError(
                f"a heartbeat has {count} groups and subscriptions, the limit is {HEARTBEAT_ENTRIES_MAX}; "
                "use more clients"
            )
        consumers = []
        for consumer in wire.consumer_data_set:
            consumers.append(_consumer(consumer))
            yield
        return cls(
            client_id=wire.client_id,
            producers=tuple(ProducerData(producer.group_name) for producer in wire.producer_data_set),
            consumers=tuple(consumers),
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


class ConnectionInfo(Body, frozen=True):
    """One connected client."""

    client_addr: str
    client_id: str
    language: str = "OTHER"
    version: Int32 = 0


class ProducerConnection(Body, frozen=True):
    """Connections of a producer group (204)."""

    connection_set: list[ConnectionInfo] = field(default_factory=list)


class _WireConsumerConnection(Body, frozen=True):
    connection_set: list[ConnectionInfo] = field(default_factory=list)
    consume_from_where: str | int = 0
    consume_type: str | int = 1
    message_model: str | int = 1
    subscription_table: dict[str, WireSubscription] = field(default_factory=dict)


class ConsumerConnection(msgspec.Struct, frozen=True, gc=False):
    """Connections and subscriptions of a consumer group (203)."""

    connections: list[ConnectionInfo] = field(default_factory=list)
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

    `generations` is a SparrowMQ extension: those of `mq_set`, in the same order, for a member of a managed
    group.
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


PULL_MODE: Final = "PULL"
POP_MODE: Final = "POP"


class _WireAssignment(Body, frozen=True):
    message_queue: WireQueue | None = None
    mode: str = PULL_MODE


class Assignments(Body, frozen=True):
    """The response to 400; without a list the member keeps its queues."""

    message_queue_assignments: list[_WireAssignment] | None = None

    @classmethod
    def of(cls, queues: Iterable[MessageQueue], mode: str = PULL_MODE) -> Self:
        """The response that assigns `queues` to a member, to be read in this mode."""
        return cls([_WireAssignment(wire_queue(queue), mode) for queue in queues])

    @property
    def pairs(self) -> list[tuple[MessageQueue, str]] | None:
        """Each queue with its read mode: `PULL` or `POP`."""
        found = self.message_queue_assignments
        if found is None:
            return None
        return [(one.message_queue.queue(), one.mode) for one in found if one.message_queue is not None]
