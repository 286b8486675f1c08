"""The properties that record a mirrored message's origin, and the rows that a batch sends. Pure.

    SPARROW_MIRROR_CHAIN   the clusters it came through, the first one first: "paris,tokyo"
    SPARROW_MIRROR_ORIGIN  where it stood in the last of them: "tokyo/broker-a/3/17" is offset 17 of queue 3
    SPARROW_MIRROR_BORN    when it was born in the first of them, epoch milliseconds

A message whose chain holds the target is not sent there: so no ring of mirrors sends anything round.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import PROPERTY_SHARDING_KEY, SYSTEM_PROPERTIES, MessageQueue
from sparrowmq.core.names import RETRY_PREFIX, is_system_topic

CHAIN: Final = "SPARROW_MIRROR_CHAIN"
ORIGIN: Final = "SPARROW_MIRROR_ORIGIN"
BORN: Final = "SPARROW_MIRROR_BORN"
SCHEMA: Final = (
    "topic string, broker string, queue_id int, queue_offset bigint, msg_id string, tags string, "
    "keys string, born_timestamp timestamp, properties map<string,string>, body binary"
)
"""The source's columns that a mirror reads."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class Origin:
    """The position of a message in the cluster it was copied from, in a topic of the same name."""

    cluster: str
    broker: str
    queue_id: int
    offset: int

    def __str__(self) -> str:
        return f"{self.cluster}/{self.broker}/{self.queue_id}/{self.offset}"

    def queue(self, topic: str) -> MessageQueue:
        """Its queue there."""
        return MessageQueue(topic, self.broker, self.queue_id)


def parse_origin(text: str | None) -> Origin | None:
    """The inverse of `str(origin)`; None for a message without a valid origin."""
    head, _, offset = (text or "").rpartition("/")
    head, _, queue_id = head.rpartition("/")
    cluster, _, broker = head.partition("/")
    if not (cluster and broker and queue_id.isdecimal() and offset.isdecimal()):
        return None
    return Origin(cluster, broker, int(queue_id), int(offset))


def check_name(what: str, name: str) -> None:
    """Raises `SettingsError` for a cluster name that a chain cannot contain."""
    if _NAME.fullmatch(name) is None:
        raise SettingsError(
            f"{what}={name!r}: a cluster's name in a mirror must have 1 to 64 letters, digits, '_', '.' "
            f"and '-'",
            what,
            name,
        )


def check_topic(topic: str) -> None:
    """Raises `SettingsError` for a topic that is not mirrored."""
    if topic.startswith(RETRY_PREFIX):
        raise SettingsError(
            f"topic {topic!r} is not mirrored: its messages belong to consumers of the source cluster",
            "topics",
            topic,
            what="retry topic",
        )
    if is_system_topic(topic):
        text = f"topic {topic!r} is a system topic of RocketMQ and is not mirrored"
        raise SettingsError(text, "topics", topic, what="system topic")


def came_through(target: str) -> str:
    """A condition: the message was in cluster `target` before."""
    return f"coalesce(array_contains(split({_property(CHAIN)}, ','), {_text(target)}), false)"


def sink_expressions(source: str) -> tuple[str, ...]:
    """The columns to send for rows of cluster `source` that are joined with `mapping_sql`, as expressions."""
    reserved = ", ".join(_text(name) for name in sorted({*SYSTEM_PROPERTIES, CHAIN, ORIGIN, BORN}))
    own = (
        f"map({_text(CHAIN)}, concat_ws(',', {_property(CHAIN)}, {_text(source)}), "
        f"{_text(ORIGIN)}, concat_ws('/', {_text(source)}, broker, queue_id, queue_offset), "
        f"{_text(BORN)}, coalesce({_property(BORN)}, cast(unix_millis(born_timestamp) as string)))"
    )
    users = f"map_filter({_PROPERTIES}, (name, value) -> name not in ({reserved}))"
    return (
        "topic",
        "target_broker as broker",
        "target_queue as queue_id",
        "body",
        "tags",
        "keys",
        "msg_id",
        f"{_property(PROPERTY_SHARDING_KEY)} as sharding_key",
        f"map_concat({users}, {own}) as properties",
    )


def mapping_sql(mapping: Mapping[MessageQueue, MessageQueue]) -> str:
    """A query whose rows are the target queue of each source queue."""
    rows = ", ".join(
        f"({_text(queue.topic)}, {_text(queue.broker_name)}, {queue.queue_id}, "
        f"{_text(target.broker_name)}, {target.queue_id})"
        for queue, target in sorted(mapping.items())
    )
    return f"select * from values {rows} as m(topic, broker, queue_id, target_broker, target_queue)"


_PROPERTIES: Final = "coalesce(properties, cast(map() as map<string,string>))"


def _property(name: str) -> str:
    return f"try_element_at(properties, {_text(name)})"


def _text(value: str) -> str:
    """An SQL literal."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
