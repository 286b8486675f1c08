"""What a request needs under 5.x access control: resources and actions (remoting:7.3).

The table is that of the reference's header classes. Where the reference checks nothing, for a request without
an annotated header, ours asks for an action on the cluster: reading needs Get, everything else Update.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sparrowmq.core.names import INNER_TOPICS, RETRY_PREFIX
from sparrowmq.protocol.bodies import HeartbeatData, LockBatchRequestBody, SubscriptionGroupConfig
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.frame import Command


@dataclass(frozen=True, slots=True)
class Need:
    """A resource and the actions of which one must be granted."""

    kind: str
    name: str
    actions: frozenset[str]


def _actions(*names: str) -> frozenset[str]:
    return frozenset(names)


PUB: Final = _actions("Pub")
SUB: Final = _actions("Sub")
GET: Final = _actions("Get")
UPDATE: Final = _actions("Update")
SUB_GET: Final = _actions("Sub", "Get")
SUB_UPDATE: Final = _actions("Sub", "Update")

_FIELDS: Final[dict[int, tuple[frozenset[str], tuple[tuple[str, str], ...]]]] = {
    10: (PUB, (("Topic", "topic"),)),
    310: (PUB, (("Topic", "b"),)),
    320: (PUB, (("Topic", "b"),)),
    370: (PUB, (("Topic", "topic"),)),
    37: (PUB, (("Topic", "topic"),)),
    36: (SUB, (("Group", "group"),)),
    11: (SUB, (("Topic", "topic"), ("Group", "consumerGroup"))),
    361: (SUB, (("Topic", "topic"), ("Group", "consumerGroup"))),
    12: (SUB_GET, (("Topic", "topic"),)),
    14: (SUB_GET, (("Topic", "topic"), ("Group", "consumerGroup"))),
    15: (SUB_UPDATE, (("Topic", "topic"), ("Group", "consumerGroup"))),
    35: (SUB, (("Group", "consumerGroup"),)),
    38: (SUB_GET, (("Group", "consumerGroup"),)),
    17: (_actions("Create"), (("Topic", "topic"),)),
    215: (_actions("Delete"), (("Topic", "topic"),)),
    207: (_actions("Delete"), (("Group", "groupName"),)),
    29: (GET, (("Topic", "topic"),)),
    30: (GET, (("Topic", "topic"),)),
    31: (GET, (("Topic", "topic"),)),
    32: (GET, (("Topic", "topic"),)),
    33: (GET, (("Topic", "topic"),)),
    202: (GET, (("Topic", "topic"),)),
    203: (GET, (("Group", "consumerGroup"),)),
    208: (GET, (("Group", "consumerGroup"), ("Topic", "topic"))),
    222: (UPDATE, (("Group", "group"), ("Topic", "topic"))),
    223: (GET, (("Topic", "topic"), ("Group", "group"))),
    300: (GET, (("Topic", "topic"),)),
    303: (GET, (("Topic", "topic"), ("Group", "group"))),
    307: (GET, (("Group", "consumerGroup"),)),
    309: (SUB, (("Group", "consumerGroup"), ("Topic", "topic"))),
    314: (UPDATE, (("Group", "destGroup"), ("Topic", "topic"))),
    321: (GET, (("Topic", "topic"), ("Group", "consumerGroup"))),
    323: (UPDATE, (("Topic", "topic"),)),
    343: (GET, (("Group", "group"),)),
    345: (GET, (("Group", "group"), ("Topic", "topic"))),
    351: (GET, (("Topic", "topic"),)),
    352: (GET, (("Group", "group"),)),
    353: (UPDATE, (("Group", "group"), ("Topic", "topic"))),
}
"""Actions, and which header fields name resources. A retry topic counts as its group."""

_MAY_BE_NOTHING: Final = frozenset({34, 35, 37, 46, 324, 325})
"""Who is known may do this: producers' heartbeats, their farewells, ends of 4.9 transactions, replies."""
_READING: Final = frozenset(
    {21, 26, 28, 43, 45, 52, 60, 61, 201, 204, 224, 305, 315, 317, 322, 328, 400, 402, 901, 907}
    | {3004, 3005, 3009, 3010}
    | {90103, 90203}
)


def needs(command: Command, cluster: str) -> list[Need]:
    """What the request needs at a broker of `cluster`; nothing for what every known user may do.

    Raises the `ProtocolError` family for a body that cannot be read.
    """
    code = command.code
    found = _from_body(command) if code in _BODIES else _from_fields(command)
    if not found and code not in _MAY_BE_NOTHING:
        reading = code in _READING or (code in _FIELDS and _FIELDS[code][0] == GET)
        return [Need("Cluster", cluster, GET if reading else UPDATE)]
    return [_or_cluster(need, cluster) for need in found]


def topic_need(code: int, topic: str, cluster: str) -> Need:
    """What a request about one stored message needs of the topic it was sent to; see `placed`."""
    if topic.startswith(RETRY_PREFIX):
        return Need("Group", topic[len(RETRY_PREFIX) :], SUB_GET)
    return _or_cluster(Need("Topic", topic, _PLACED.get(code, SUB_GET)), cluster)


_PLACED: Final[dict[int, frozenset[str]]] = {
    Code.END_TRANSACTION: PUB,
    Code.RESUME_CHECK_HALF_MESSAGE: UPDATE,
}


def _or_cluster(need: Need, cluster: str) -> Need:
    """Inner topics hold messages of every topic: they are the cluster's."""
    if need.kind != "Topic" or need.name not in INNER_TOPICS:
        return need
    reading = need.actions & {"Sub", "Get"}
    return Need("Cluster", cluster, GET if reading else UPDATE)


def _from_fields(command: Command) -> list[Need]:
    actions, fields = _FIELDS.get(command.code, (GET, ()))
    found = []
    for kind, name in fields:
        value = command.ext.get(name)
        if not value:
            continue
        if kind == "Topic" and value.startswith(RETRY_PREFIX) and command.code in (10, 310, 320):
            found.append(Need("Group", value[len(RETRY_PREFIX) :], SUB))
        elif value.startswith(RETRY_PREFIX):
            found.append(Need("Group", value[len(RETRY_PREFIX) :], actions))
        else:
            found.append(Need(kind, value, actions))
    return list(dict.fromkeys(found))


def _from_body(command: Command) -> list[Need]:
    if command.code == Code.HEART_BEAT:
        found = []
        for consumer in HeartbeatData.decode(command.body).consumers:
            found.append(Need("Group", consumer.group, SUB))
            found += _topics((data.topic for data in consumer.subscriptions), SUB)
        return list(dict.fromkeys(found))
    if command.code == Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
        config = SubscriptionGroupConfig.decode(command.body)
        return [Need("Group", config.group_name, _actions("Create"))]
    locks = LockBatchRequestBody.decode(command.body)
    group = [Need("Group", locks.consumer_group, SUB)] if locks.consumer_group else []
    return list(dict.fromkeys((*group, *_topics((queue.topic for queue in locks.queues), SUB))))


def _topics(names: Iterable[str], actions: frozenset[str]) -> list[Need]:
    wanted = dict.fromkeys(names)
    return [
        Need("Group", name[len(RETRY_PREFIX) :], actions)
        if name.startswith(RETRY_PREFIX)
        else Need("Topic", name, actions)
        for name in wanted
    ]


_BODIES: Final = frozenset(
    {Code.HEART_BEAT, Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP}
)
