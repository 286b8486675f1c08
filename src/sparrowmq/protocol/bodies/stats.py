"""Offsets and rates, in tables keyed by queue (remoting:4.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, TypeVar

import msgspec
from msgspec import field

from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies.base import Body, Int64, convert
from sparrowmq.protocol.java_json import dumps, dumps_object_keys, queue_of_key

T = TypeVar("T")


class OffsetWrapper(Body, frozen=True):
    """A group's progress in one queue; its lag is `broker_offset - consumer_offset`."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    last_timestamp: Int64 = 0
    pull_offset: Int64 = 0


class TopicOffset(Body, frozen=True):
    """First and next offset of one queue, and the store time of its last message."""

    last_update_timestamp: Int64 = 0
    max_offset: Int64 = 0
    min_offset: Int64 = 0


class _WireTable(Body, frozen=True):
    consume_tps: float = 0.0
    offset_table: dict[str, dict[str, Any]] = field(default_factory=dict)
    topic_put_tps: float = 0.0


def _queue_table(table: Mapping[str, Any], type_: type[T]) -> dict[MessageQueue, T]:
    return {queue_of_key(key): convert(value, type_) for key, value in table.items()}


class BrokerStatsItem(Body, frozen=True):
    """Sum, rate per second and average over a period."""

    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body, frozen=True):
    """Rates of the last minute, hour and day (315)."""

    stats_minute: BrokerStatsItem = BrokerStatsItem()
    stats_hour: BrokerStatsItem = BrokerStatsItem()
    stats_day: BrokerStatsItem = BrokerStatsItem()


class ConsumeStats(msgspec.Struct, frozen=True):
    """A group's progress in every queue (208)."""

    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode JSON `data`. Raises `JavaJsonError` or `BodyError`."""
        return cls._of(_WireTable.decode(data))

    @classmethod
    def read(cls, value: Any) -> Self:
        """The same from decoded JSON, as part of another body."""
        return cls._of(convert(value, _WireTable))

    @classmethod
    def _of(cls, wire: _WireTable) -> Self:
        return cls(_queue_table(wire.offset_table, OffsetWrapper), wire.consume_tps)

    def encode(self) -> bytes:
        """Compact JSON with object keys."""
        table = msgspec.Raw(dumps_object_keys(self.offset_table))
        return dumps({"consumeTps": self.consume_tps, "offsetTable": table})


class TopicStatsTable(msgspec.Struct, frozen=True):
    """Offsets of every queue of a topic (202)."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode JSON `data`. Raises `JavaJsonError` or `BodyError`."""
        wire = _WireTable.decode(data)
        return cls(_queue_table(wire.offset_table, TopicOffset), wire.topic_put_tps)

    def encode(self) -> bytes:
        """Compact JSON with object keys."""
        table = msgspec.Raw(dumps_object_keys(self.offset_table))
        return dumps({"offsetTable": table, "topicPutTps": self.topic_put_tps})
