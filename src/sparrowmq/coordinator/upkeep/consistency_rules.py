"""Differences between brokers, name servers and the database, and their repairs. Pure.

Only complete data is compared: nothing is reported as missing while a broker does not answer. Static topics
(RocketMQ 5) are excluded, because their queues and offsets are intentionally parts of others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from sparrowmq.coordinator.records.findings import Finding, Repair
from sparrowmq.coordinator.upkeep.landscape import BrokerTables, Ends, Landscape
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import DLQ_PREFIX, RETRY_PREFIX, is_system_group, is_system_topic
from sparrowmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig

SYSTEM_PREFIX: Final = "RMQ_SYS_"
SHOWN: Final = 5
"""Number of names that a text lists before it only counts the others."""


def look(
    land: Landscape,
    roles: Collection[tuple[str, str, str]] = (),
    limits: Collection[tuple[str, str]] = (),
) -> list[Finding]:
    """All differences. From the database: `roles` are (kind, object, person), `limits` (group, topic)."""
    return [
        *_topics_differ(land),
        *_groups_differ(land),
        *_listed_wrongly(land),
        *_offsets_of_nothing(land),
        *_offsets_outside(land),
        *_about_nothing(land, roles, limits),
    ]


def plain(config: TopicConfig | SubscriptionGroupConfig) -> dict[str, Any]:
    """A configuration as a JSON value."""
    found: dict[str, Any] = msgspec.to_builtins(config)
    return found


def _topics_differ(land: Landscape) -> Iterator[Finding]:
    for name in sorted({topic for broker in land.brokers for topic in broker.topics}):
        static = any(name in broker.static for broker in land.brokers)
        if static or not _ordinary(name, land) or name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            continue
        for brokers in _clusters(land):
            having = {one.name: one.topics[name] for one in brokers if name in one.topics}
            if not having:
                continue
            wanted = _wanted_topic(list(having.values()))
            for broker, config in having.items():
                if config == wanted:
                    continue
                what = _difference(plain(config), plain(wanted))
                yield Finding(
                    "topic-differs",
                    f"{name} {broker}",
                    f"the topic {name} on {broker} differs from the cluster's other brokers: {what}",
                    topic=name,
                    repair=Repair(
                        "set-topic",
                        {"topic": name, "broker": broker, "config": plain(wanted)},
                        {"config": plain(config)},
                    ),
                )


def _wanted_topic(configs: Sequence[TopicConfig]) -> TopicConfig:
    """The most frequent value, the wider one if there are two; never fewer queues than any broker has: they
    may contain messages.
    """
    counts = Counter(msgspec.json.encode(config, order="deterministic") for config in configs)
    most = max(
        configs, key=lambda one: (counts[msgspec.json.encode(one, order="deterministic")], _width(one))
    )
    return msgspec.structs.replace(
        most,
        read_queue_nums=max(one.read_queue_nums for one in configs),
        write_queue_nums=max(one.write_queue_nums for one in configs),
    )


def _width(config: TopicConfig) -> tuple[int, int, int]:
    return config.read_queue_nums, config.write_queue_nums, config.perm


def _groups_differ(land: Landscape) -> Iterator[Finding]:
    names = sorted({group for broker in land.brokers for group in broker.groups})
    for name in (one for one in names if not is_system_group(one)):
        for brokers in _clusters(land):
            having = [one.groups[name] for one in brokers if name in one.groups]
            counts = Counter(map(_text, having))
            wanted = max(having, key=lambda one: counts[_text(one)], default=None)
            for broker in brokers:
                if wanted is not None and broker.groups.get(name) != wanted:
                    yield _other_group(name, broker, wanted)


def _other_group(name: str, broker: BrokerTables, wanted: SubscriptionGroupConfig) -> Finding:
    config = broker.groups.get(name)
    if config is None:
        kind, before = "group-missing", None
        text = f"the group {name} is missing on {broker.name}, but other brokers of the cluster have it"
    else:
        kind, before = "group-differs", plain(config)
        what = _difference(before, plain(wanted))
        text = f"the group {name} on {broker.name} differs from the cluster's other brokers: {what}"
    arguments = {"group": name, "broker": broker.name, "config": plain(wanted)}
    repair = Repair("set-group", arguments, {"config": before})
    return Finding(kind, f"{name} {broker.name}", text, group=name, repair=repair)


def _text(config: TopicConfig | SubscriptionGroupConfig) -> bytes:
    return msgspec.json.encode(config, order="deterministic")


def _listed_wrongly(land: Landscape) -> Iterator[Finding]:
    existing = {topic for broker in land.brokers for topic in broker.topics}
    listed = {topic for topics in land.listed.values() for topic in topics}
    for name in sorted(one for one in listed | existing if _ordinary(one, land)):
        having = sorted(address for address, topics in land.listed.items() if name in topics)
        if name not in existing:
            if land.failed:
                continue
            yield Finding(
                "topic-of-no-broker",
                name,
                f"name servers list the topic {name}, which no broker has",
                topic=name,
                repair=Repair("unlist-topic", {"topic": name}, {"listed": having}),
            )
        elif len(having) < len(land.listed):
            missing = sorted(set(land.listed) - set(having))
            yield Finding(
                "topic-not-listed",
                name,
                f"{_some(missing)} does not list the topic {name}; brokers register at all name servers "
                f"every 30 s, so check that they can reach this one",
                topic=name,
            )


def _offsets_of_nothing(land: Landscape) -> Iterator[Finding]:
    for broker in land.brokers:
        gone: defaultdict[str, dict[str, dict[str, int]]] = defaultdict(dict)
        for group, offsets in broker.offsets.items():
            for queue, offset in offsets.items():
                if queue.topic not in broker.topics and _ordinary(queue.topic, land):
                    gone[queue.topic].setdefault(group, {})[str(queue.queue_id)] = offset
        for topic, of_groups in sorted(gone.items()):
            yield Finding(
                "offsets-of-no-topic",
                f"{topic} {broker.name}",
                f"{broker.name} has offsets of {_some(sorted(of_groups))} on the topic {topic}, which it "
                f"no longer has",
                topic=topic,
                repair=Repair("clear-topic", {"topic": topic, "broker": broker.name}, {"offsets": of_groups}),
            )


def _offsets_outside(land: Landscape) -> Iterator[Finding]:
    ends: dict[MessageQueue, Ends] = {one.queue: one for of in land.ends.values() for one in of}
    for broker in land.brokers:
        for group, offsets in sorted(broker.offsets.items()):
            for queue, offset in sorted(offsets.items()):
                end = ends.get(queue)
                if end is None or queue.topic in broker.static or end.first <= offset <= end.next:
                    continue
                yield _outside(group, end, offset)


def _outside(group: str, end: Ends, offset: int) -> Finding:
    queue = end.queue
    if offset < end.first:
        kind, to = "offset-below", end.first
        text = (
            f"{end.first - offset} messages were deleted before the group read them: its offset is "
            f"{offset}, and the queue begins at {end.first}"
        )
    else:
        kind, to = "offset-beyond", end.next
        text = f"the group's offset is {offset}, past the queue's end {end.next}: it will miss new messages"
    arguments = {
        "group": group,
        "topic": queue.topic,
        "broker": queue.broker_name,
        "queue_id": queue.queue_id,
        "offset": to,
    }
    return Finding(
        kind,
        f"{group} {queue.topic} {queue.broker_name} {queue.queue_id}",
        f"{group} on queue {queue.queue_id} of {queue.topic} on {queue.broker_name}: {text}",
        group,
        queue.topic,
        repair=Repair("set-offset", arguments, {"offset": offset}),
    )


def _about_nothing(
    land: Landscape, roles: Collection[tuple[str, str, str]], limits: Collection[tuple[str, str]]
) -> Iterator[Finding]:
    if land.failed:
        return
    existing = {
        "topic": {topic for broker in land.brokers for topic in broker.topics},
        "group": {group for broker in land.brokers for group in broker.groups},
    }
    for kind, name, person in sorted(roles):
        if name not in existing[kind]:
            yield Finding(
                "role-of-nothing",
                f"{kind} {name} {person}",
                f"{person} has a role for the {kind} {name}, which no broker has",
                name if kind == "group" else "",
                name if kind == "topic" else "",
                repair=Repair("drop-role", {"kind": kind, "object": name, "person": person}, {}),
            )
    for group, topic in sorted(limits):
        if group not in existing["group"]:
            yield Finding(
                "limit-of-nothing",
                f"{group} {topic}",
                f"there is a limit for the group {group}, which no broker has",
                group,
                repair=Repair("drop-limit", {"group": group, "topic": topic}, {}),
            )


def _clusters(land: Landscape) -> list[list[BrokerTables]]:
    found: defaultdict[str, list[BrokerTables]] = defaultdict(list)
    for broker in land.brokers:
        found[broker.cluster].append(broker)
    return [found[name] for name in sorted(found)]


def _ordinary(topic: str, land: Landscape) -> bool:
    return not (is_system_topic(topic) or topic in land.hidden or topic.upper().startswith(SYSTEM_PREFIX))


def _difference(has: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={has.get(name)} instead of {wanted[name]}"
        for name in wanted
        if has.get(name) != wanted[name]
    )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
