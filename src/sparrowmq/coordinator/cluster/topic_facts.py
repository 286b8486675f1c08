"""What a topic takes on disk, what its brokers delete of it next, who sent to it last, and who reads it.

Brokers do not report the size of a topic, nor who sends to one. The size is estimated from the sizes of its
newest records, and senders are known by the newest message of some queues. It works with Apache's brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sparrowmq.aio import Admin, GroupMemberInfo, PullConsumer, QueueStatus
from sparrowmq.coordinator.cluster.asking import each
from sparrowmq.coordinator.cluster.reading import read
from sparrowmq.coordinator.upkeep.cleaning import Cut, next_cut
from sparrowmq.coordinator.upkeep.logs import BrokerLog, LogSample, complete
from sparrowmq.core.errors import BrokerError, SparrowError
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from sparrowmq.protocol.bodies import TopicConfig

SAMPLED_QUEUES: Final = 8
"""Number of queues of a broker, or of a topic, whose newest messages are read."""
SAMPLED_RECORDS: Final = 32
"""Number of the newest records of a queue whose sizes are read."""
CUT_QUEUES: Final = 256
"""Queues of a broker that are asked how many messages a deletion removes; of more it is unknown."""
USERS_MAX: Final = 100
"""Groups of a topic that are asked for their lag and members; further ones are counted."""
SECONDS: Final = 5.0
NORMAL: Final = "normal"
"""The kind of topics that users create."""


@dataclass(frozen=True, slots=True)
class TopicSender:
    """Who sent the newest messages of `queues` queues, the last at `last_ms`; by the address of the
    connection. `client_id` is empty when no producer is connected from there now.
    """

    address: str
    last_ms: int
    queues: int
    client_id: str = ""
    language: str = ""
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicReader:
    """A group of a topic: messages of the topic that it has not read, and how many members are online; None
    if unknown.
    """

    group: str
    unread: int | None
    members: int | None


@dataclass(frozen=True, slots=True)
class TopicKept:
    """What a broker keeps of a topic: messages, and about how many bytes of log they take.

    Messages stored before `before_ms` go in the hour that begins at `deletes_ms`, `deleted` of this topic;
    both are None when nothing expires by then. What is unknown is None; for a broker whose disk could not be
    read (`is_known` is false), these are the rules and times.
    """

    broker: str
    messages: int
    bytes: int | None
    reserved_hours: int | None
    delete_hours: Sequence[int] | None
    oldest_ms: int | None
    deletes_ms: int | None
    before_ms: int | None
    deleted: int | None
    is_known: bool


def topic_view(name: str, configs: Mapping[str, TopicConfig]) -> dict[str, Any]:
    """A topic as lists show it."""
    perms = {one.perm for one in configs.values()}
    return {
        "topic": name,
        "kind": kind_of(name),
        "brokers": sorted(configs),
        "queues": sum(max(one.read_queue_nums, one.write_queue_nums) for one in configs.values()),
        "perm": perms.pop() if len(perms) == 1 else None,
        "type": next((one.attributes["message.type"] for one in configs.values()
                      if "message.type" in one.attributes), "NORMAL"),
    }  # fmt: skip


def kind_of(topic: str) -> str:
    """The kind of a topic, by its name: normal, retry, dead or system. Pure."""
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DLQ_PREFIX):
        return "dead"
    return "system" if is_system_topic(topic) else NORMAL


def next_cuts(logs: Sequence[BrokerLog], samples: Mapping[str, Sequence[LogSample]]) -> dict[str, Cut | None]:
    """The next deletion of each broker, from samples of its log. Pure; takes milliseconds for each broker."""
    return {log.name: next_cut(log, complete(log, samples.get(log.name, ()))) for log in logs}


async def kept_at(
    admin: Admin, broker: str, queues: Sequence[QueueStatus], log: BrokerLog | None, cut: Cut | None
) -> TopicKept:
    """What one broker keeps of a topic with these queues."""
    rules = None if log is None else log.rules
    return TopicKept(
        broker,
        sum(one.messages for one in queues),
        await sampled_bytes(admin, queues),
        None if rules is None else rules.reserved_hours,
        None if rules is None else sorted(rules.delete_hours),
        None if log is None or not log.earliest_ms else log.earliest_ms,
        None if cut is None else cut.at,
        None if cut is None else cut.before_ms,
        0 if cut is None else await deleted_messages(admin, queues, cut),
        log is not None,
    )


async def sampled_bytes(admin: Admin, queues: Sequence[QueueStatus]) -> int | None:
    """About how many bytes of log the messages of some queues of a broker take; None if no record could be
    read.
    """
    sizes: list[int] = []
    for one in newest_queues(queues):
        begin = max(one.min_offset, one.max_offset - SAMPLED_RECORDS)
        try:
            entries = await admin.topics.entries(one.queue, begin, SAMPLED_RECORDS)
        except BrokerError:
            continue
        sizes += [entry.size for entry in entries if entry.size > 0]
    return estimated(sum(one.messages for one in queues), sizes)


async def deleted_messages(admin: Admin, queues: Sequence[QueueStatus], cut: Cut) -> int | None:
    """How many messages of some queues of a broker its next deletion removes; None if unknown."""
    stored = {str(one.queue): one for one in queues if one.messages > 0}
    if len(stored) > CUT_QUEUES:
        return None
    failed: dict[str, str] = {}

    async def look(name: str) -> int:
        one = stored[name]
        first = await admin.topics.search_offset(one.queue, cut.before_ms)
        return max(0, min(first, one.max_offset) - one.min_offset)

    found = await each(stored, look, failed, seconds=SECONDS)
    return None if failed else sum(found.values())


async def last_senders(
    admin: Admin, reader: PullConsumer, queues: Sequence[QueueStatus], brokers: Iterable[str]
) -> list[TopicSender]:
    """Who sent the newest messages of some queues, the latest first."""
    newest = []
    for one in newest_queues(queues):
        batch = await read(reader, one.queue, one.max_offset - 1, count=1)
        newest += list(batch.messages)
    producers: dict[str, list[GroupMemberInfo]] = {}
    for broker in brokers:
        try:
            known = await admin.brokers.producers(broker)
        except SparrowError:
            continue  # its senders are shown by their addresses
        for group, members in (known or {}).items():
            producers.setdefault(group, []).extend(members)
    return senders_of(newest, producers)


async def readers_of(admin: Admin, topic: str, groups: Sequence[str]) -> list[TopicReader]:
    """The groups of a topic with what they have not read of it, and their members; at most `USERS_MAX`."""
    failed: dict[str, str] = {}

    async def look(group: str) -> TopicReader:
        progress = await admin.groups.progress(group, topic)
        connections = await admin.groups.connections(group)
        reads = connections is not None and topic in connections.subscriptions
        members = len(connections.members) if connections is not None and reads else 0
        return TopicReader(group, sum(max(0, one.lag) for one in progress), members)

    asked = list(groups)[:USERS_MAX]
    found = await each(asked, look, failed, seconds=SECONDS)
    return [found.get(one) or TopicReader(one, None, None) for one in asked]


def newest_queues(queues: Sequence[QueueStatus]) -> list[QueueStatus]:
    """The queues that got messages last, at most `SAMPLED_QUEUES`. Pure."""
    stored = sorted((one for one in queues if one.messages > 0), key=lambda one: -one.last_update_ms)
    return stored[:SAMPLED_QUEUES]


def estimated(messages: int, sizes: Sequence[int]) -> int | None:
    """Bytes of so many messages, from the sizes of some; None without any. Pure."""
    if not messages:
        return 0
    return round(messages * sum(sizes) / len(sizes)) if sizes else None


def senders_of(
    newest: Sequence[ReceivedMessage], producers: Mapping[str, Sequence[GroupMemberInfo]]
) -> list[TopicSender]:
    """Senders by address, with the producers that are connected from there. Pure."""
    groups: dict[str, set[str]] = {}
    connected: dict[str, GroupMemberInfo] = {}
    for group, members in producers.items():
        for one in members:
            connected[one.address] = one
            groups.setdefault(one.address, set()).add(group)
    times: dict[str, int] = {}
    queues: dict[str, set[MessageQueue]] = {}
    for message in newest:
        times[message.born_host] = max(times.get(message.born_host, 0), message.store_timestamp)
        queues.setdefault(message.born_host, set()).add(message.queue)
    found = []
    for address, at in sorted(times.items(), key=lambda one: (-one[1], one[0])):
        client = connected.get(address)
        found.append(
            TopicSender(
                address,
                at,
                len(queues[address]),
                client.client_id if client is not None else "",
                client.language if client is not None else "",
                tuple(sorted(groups.get(address, ()))),
            )
        )
    return found
