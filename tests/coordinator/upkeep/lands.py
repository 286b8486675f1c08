"""Landscapes of fake clusters."""

from __future__ import annotations

from typing import Any

from sparrowmq.coordinator.upkeep.landscape import BrokerTables, Ends, Landscape
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig

NAMES = "10.0.0.1:9876"


def topic(name: str, queues: int = 8, perm: int = 6, **more: Any) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm, **more)


def group(name: str, retries: int = 16) -> SubscriptionGroupConfig:
    return SubscriptionGroupConfig(group_name=name, retry_max_times=retries)


def broker(
    name: str,
    topics: list[TopicConfig],
    groups: list[SubscriptionGroupConfig],
    offsets: dict[tuple[str, str, int], int] | None = None,
    *,
    cluster: str = "C",
    static: tuple[str, ...] = (),
) -> BrokerTables:
    """`offsets` are by group, topic and queue."""
    table: dict[str, dict[MessageQueue, int]] = {}
    for (of, on, number), offset in (offsets or {}).items():
        table.setdefault(of, {})[MessageQueue(on, name, number)] = offset
    return BrokerTables(
        name,
        cluster,
        {one.topic_name: one for one in topics},
        frozenset(static),
        {one.group_name: one for one in groups},
        table,
    )


def land(
    *brokers: BrokerTables,
    listed: dict[str, set[str]] | None = None,
    ends: dict[tuple[str, str, int], tuple[int, int]] | None = None,
    failed: dict[str, str] | None = None,
) -> Landscape:
    """By default the name server lists everything that exists. `ends` are by topic, broker and queue."""
    found: dict[str, list[Ends]] = {}
    for (on, name, number), (first, following) in (ends or {}).items():
        found.setdefault(on, []).append(Ends(MessageQueue(on, name, number), first, following))
    every = {topic for one in brokers for topic in one.topics}
    hidden = frozenset({*(one.name for one in brokers), "C", "C_REPLY_TOPIC"})
    return Landscape(brokers, {NAMES: every} if listed is None else listed, found, hidden, failed or {})
