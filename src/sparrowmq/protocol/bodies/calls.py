"""Requests from brokers to clients with their answers, and information about groups for tools (remoting:4.7,
4.8).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any, Final, Self

import msgspec
from msgspec import field

from sparrowmq.core.message import MessageQueue
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies.base import Body, Int32, Int64, convert
from sparrowmq.protocol.bodies.clients import WireSubscription, wire_subscription
from sparrowmq.protocol.bodies.stats import ConsumeStats
from sparrowmq.protocol.bodies.tables import SubscriptionGroupConfig
from sparrowmq.protocol.java_json import WireQueue, dumps, dumps_object_keys, loads, queue_of_key, wire_queue


class _WireOffset(Body, frozen=True):
    broker_name: str
    offset: Int64
    queue_id: Int32
    topic: str


class _WireOffsets(Body, frozen=True):
    offset_table: dict[str, Int64] | list[_WireOffset] = field(default_factory=dict)


class ResetOffsetBody(msgspec.Struct, frozen=True):
    """The new offset of each queue (response to 222, request 220)."""

    offset_table: dict[MessageQueue, int] = field(default_factory=dict)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The body in JSON `data`, as a map or as C++'s list; raises `JavaJsonError` or `BodyError`."""
        table = _WireOffsets.decode(data).offset_table
        if isinstance(table, list):
            return cls({MessageQueue(one.topic, one.broker_name, one.queue_id): one.offset for one in table})
        return cls({queue_of_key(key): offset for key, offset in table.items()})

    def encode(self, *, as_list: bool = False) -> bytes:
        """Compact JSON: a map with object keys, or the list that C++ clients understand."""
        if not as_list:
            return dumps({"offsetTable": msgspec.Raw(dumps_object_keys(self.offset_table))})
        rows = [
            {"brokerName": q.broker_name, "offset": offset, "queueId": q.queue_id, "topic": q.topic}
            for q, offset in self.offset_table.items()
        ]
        return dumps({"offsetTable": rows})

    @classmethod
    def encoding(
        cls, offsets: Iterable[tuple[MessageQueue, int]], *, as_list: bool = False
    ) -> Generator[None, None, bytes]:
        """The same as `encode`, one queue per step, because a topic may have 65,536."""
        parts = []
        for queue, offset in offsets:
            whole = cls({queue: offset}).encode(as_list=as_list)
            parts.append(whole[len(_OFFSETS) + 1 : -2])
            yield
        opened, closed = (b"[", b"]}") if as_list else (b"{", b"}}")
        return b"".join((_OFFSETS, opened, b",".join(parts), closed))


_OFFSETS: Final = b'{"offsetTable":'


class _WireStatus(Body, frozen=True):
    consumer_table: dict[str, dict[str, Int64]] = field(default_factory=dict)
    message_queue_table: dict[str, Int64] = field(default_factory=dict)


class ConsumerStatusBody(msgspec.Struct, frozen=True):
    """Offsets in a client's memory (221), or in each client's, by client id (223)."""

    queues: dict[MessageQueue, int] = field(default_factory=dict)
    clients: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The body in JSON `data`; raises `JavaJsonError` or `BodyError`."""
        wire = _WireStatus.decode(data)
        return cls(
            _offsets(wire.message_queue_table),
            {client_id: _offsets(table) for client_id, table in wire.consumer_table.items()},
        )

    def encode(self) -> bytes:
        """Compact JSON with object keys."""
        clients = {name: msgspec.Raw(dumps_object_keys(table)) for name, table in self.clients.items()}
        queues = msgspec.Raw(dumps_object_keys(self.queues))
        return dumps({"consumerTable": clients, "messageQueueTable": queues})


def _offsets(table: Mapping[str, int]) -> dict[MessageQueue, int]:
    return {queue_of_key(key): offset for key, offset in table.items()}


class ProcessQueueInfo(Body, frozen=True):
    """One queue of a consumer. Times are epoch milliseconds; `droped` is Java's spelling."""

    cached_msg_count: Int64 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_size_in_mib: Int64 = field(default=0, name="cachedMsgSizeInMiB")
    commit_offset: Int64 = 0
    dropped: bool = field(default=False, name="droped")
    last_consume_timestamp: Int64 = 0
    last_lock_timestamp: Int64 = 0
    last_pull_timestamp: Int64 = 0
    locked: bool = False
    transaction_msg_count: Int64 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_min_offset: Int64 = 0
    try_unlock_times: Int64 = 0


class ConsumeStatus(Body, frozen=True):
    """Rates of one topic in a consumer; `RT` in milliseconds."""

    consume_failed_msgs: Int64 = 0
    consume_failed_tps: float = field(default=0.0, name="consumeFailedTPS")
    consume_ok_tps: float = field(default=0.0, name="consumeOKTPS")
    consume_rt: float = field(default=0.0, name="consumeRT")
    pull_rt: float = field(default=0.0, name="pullRT")
    pull_tps: float = field(default=0.0, name="pullTPS")


class _WireRunningInfo(Body, frozen=True):
    jstack: str | None = None
    mq_pop_table: dict[str, Any] = field(default_factory=dict)
    mq_table: dict[str, dict[str, Any]] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    subscription_set: list[WireSubscription] = field(default_factory=list)
    user_consumer_info: dict[str, str] = field(default_factory=dict)


class ConsumerRunningInfo(msgspec.Struct, frozen=True):
    """A consumer's state (307): settings as text, subscriptions, queues, rates and, if asked, stacks."""

    properties: dict[str, str] = field(default_factory=dict)
    subscriptions: tuple[SubscriptionData, ...] = ()
    queues: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    statuses: dict[str, ConsumeStatus] = field(default_factory=dict)
    jstack: str | None = None

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The body in JSON `data`; raises `JavaJsonError` or `BodyError`. Go's `dropped` is accepted."""
        wire = _WireRunningInfo.decode(data)
        queues = {}
        for key, members in wire.mq_table.items():
            if "dropped" in members:
                members["droped"] = members["dropped"]
            queues[queue_of_key(key)] = convert(members, ProcessQueueInfo)
        return cls(
            wire.properties,
            tuple(one.core() for one in wire.subscription_set),
            queues,
            wire.status_table,
            wire.jstack,
        )

    def encode(self) -> bytes:
        """Compact JSON with object keys; empty tables are included, as tools expect."""
        members: dict[str, Any] = {} if self.jstack is None else {"jstack": self.jstack}
        members |= {
            "mqPopTable": {},
            "mqTable": msgspec.Raw(dumps_object_keys(self.queues)),
            "properties": self.properties,
            "statusTable": self.statuses,
            "subscriptionSet": [wire_subscription(data) for data in self.subscriptions],
            "userConsumerInfo": {},
        }
        return dumps(members)


class ConsumeMessageDirectlyResult(Body, frozen=True):
    """The result of a handler for one message (309). `consume_result` is a name such as `CR_SUCCESS`."""

    auto_commit: bool = True
    consume_result: str = "CR_SUCCESS"
    order: bool = False
    remark: str | None = None
    spent_time_mills: Int64 = 0

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The body in JSON `data`; raises `JavaJsonError` or `BodyError`. Go's numbers become names."""
        value = loads(data)
        if isinstance(value, dict) and isinstance(number := value.get("consumeResult"), int):
            value["consumeResult"] = CONSUME_RESULTS[number] if 0 <= number < 6 else str(number)
        return convert(value, cls)


CONSUME_RESULTS = (
    "CR_SUCCESS",
    "CR_LATER",
    "CR_ROLLBACK",
    "CR_COMMIT",
    "CR_THROW_EXCEPTION",
    "CR_RETURN_NULL",
)
"""Results of a handler by the number Go sends."""


class ProducerInfo(Body, frozen=True):
    """One producer's connection; `remote_ip` is Java's `/host:port`, the time epoch milliseconds."""

    client_id: str
    remote_ip: str = field(default="", name="remoteIP")
    language: str = "OTHER"
    version: Int32 = 0
    last_update_timestamp: Int64 = 0


class ProducerTable(Body, frozen=True):
    """All producers by group (328)."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


class QueueTimeSpan(Body, frozen=True):
    """Store times of a queue's first, last and last consumed message, epoch ms; the delay in ms (303)."""

    message_queue: WireQueue
    min_time_stamp: Int64 = 0
    max_time_stamp: Int64 = 0
    consume_time_stamp: Int64 = 0
    delay_time: Int64 = 0


class ConsumeTimeSpans(Body, frozen=True):
    """The time spans of a group's queues (303)."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


class CorrectionOffsets(Body, frozen=True):
    """Other groups' lowest offsets by queue id; 2^63-1 where the compared group is behind (308)."""

    correction_offsets: dict[int, Int64] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Compact JSON with bare keys."""
        return dumps({"correctionOffsets": self.correction_offsets}, bare_keys=True)


class GroupSubscription(msgspec.Struct, frozen=True):
    """A group's subscription of a topic (345)."""

    group: str
    topic: str
    subscription: SubscriptionData | None = None

    def encode(self) -> bytes:
        """Compact JSON; a missing subscription is omitted."""
        members: dict[str, Any] = {"group": self.group, "topic": self.topic}
        if self.subscription is not None:
            members["subscriptionData"] = wire_subscription(self.subscription)
        return dumps(members)


class GroupForbidden(Body, frozen=True):
    """Whether a group may pull a topic (353)."""

    group: str
    topic: str
    readable: bool = True


class SubscriptionGroupList(Body, frozen=True):
    """Several groups to create or change (225)."""

    group_config_list: list[SubscriptionGroupConfig] = field(default_factory=list)


class _WireBrokerStats(Body, frozen=True):
    broker_addr: str = ""
    consume_stats_list: list[dict[str, list[dict[str, Any]]]] = field(default_factory=list)


class BrokerConsumeStats(msgspec.Struct, frozen=True):
    """The lag of every group of a broker (317): statistics of each topic by group, and their sums."""

    broker_address: str
    groups: dict[str, list[ConsumeStats]] = field(default_factory=dict)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The body in JSON `data`; raises `JavaJsonError` or `BodyError`."""
        wire = _WireBrokerStats.decode(data)
        groups: dict[str, list[ConsumeStats]] = {}
        for entry in wire.consume_stats_list:
            for name, tables in entry.items():
                groups.setdefault(name, []).extend(map(ConsumeStats.read, tables))
        return cls(wire.broker_addr, groups)

    def encode(self) -> bytes:
        """Compact JSON."""
        steps = self.encode_in_steps()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return bytes(end.value)

    def encode_in_steps(self) -> Generator[None, None, bytes]:
        """The same with one step per table, so that the loop is not blocked."""
        behind = in_flight = 0
        groups: list[dict[str, list[msgspec.Raw]]] = []
        for name, statistics in self.groups.items():
            tables = []
            for one in statistics:
                for row in one.offset_table.values():
                    behind += row.broker_offset - row.consumer_offset
                    in_flight += max(0, row.pull_offset - row.consumer_offset)
                tables.append(msgspec.Raw(one.encode()))
                yield
            groups.append({name: tables})
        return dumps(
            {
                "brokerAddr": self.broker_address,
                "consumeStatsList": groups,
                "totalDiff": behind,
                "totalInflightDiff": in_flight,
            }
        )


def time_span(queue: MessageQueue, first: int, last: int, consumed: int, delay: int) -> QueueTimeSpan:
    """A row of `ConsumeTimeSpans`."""
    return QueueTimeSpan(wire_queue(queue), first, last, consumed, delay)
