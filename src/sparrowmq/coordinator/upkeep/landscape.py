"""The topics, groups and offsets of brokers and name servers at one time. Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig


class Loss(NamedTuple):
    """Messages of a topic on one broker that will be deleted before a group has read them."""

    group: str
    topic: str
    broker: str
    messages: int


class Ends(NamedTuple):
    """A queue's oldest offset, its next one, and when its last message was stored (0: none)."""

    queue: MessageQueue
    first: int
    next: int
    last_ms: int = 0


@dataclass(frozen=True, slots=True)
class BrokerTables:
    """One master: its topics, which of them are static, its groups, and committed offsets by group."""

    name: str
    cluster: str
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    static: frozenset[str] = frozenset()
    groups: Mapping[str, SubscriptionGroupConfig] = field(default_factory=dict)
    offsets: Mapping[str, Mapping[MessageQueue, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Landscape:
    """Result of one query. `listed` has the topics of each name server, `hidden` the topics that RocketMQ
    creates for brokers and clusters; `failed` maps brokers and topics that could not be queried to the error.
    """

    brokers: Sequence[BrokerTables] = ()
    listed: Mapping[str, set[str]] = field(default_factory=dict)
    ends: Mapping[str, Sequence[Ends]] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Use:
    """Producers and consumers: ends of each topic's queues, online groups and their members by topic (0 for
    broadcasting ones), the sum of committed offsets by topic, and for each group whether it is online.
    """

    ends: Mapping[str, Sequence[Ends]] = field(default_factory=dict)
    readers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    progress: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, bool] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
