"""Messages that users send by hand: a new one, or a stored one again. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sparrowmq.core.errors import RefusedError
from sparrowmq.core.message import SYSTEM_PROPERTIES, Message, ReceivedMessage
from sparrowmq.core.names import SEND_FORBIDDEN_TOPICS, is_system_topic
from sparrowmq.protocol.sysflag import COMPRESSED

DELAY_SECONDS_MAX: Final = 3 * 86_400
"""Maximum delay of RocketMQ's brokers."""


def check_target(topic: str) -> None:
    """Raise `RefusedError` (422) for a topic to which users must not send."""
    if topic in SEND_FORBIDDEN_TOPICS or is_system_topic(topic):
        raise RefusedError(f"the topic {topic[:255]} is RocketMQ's own; nothing is sent to it", status=422)


def written(
    topic: str,
    body: bytes,
    *,
    tags: str = "",
    keys: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    delay: float = 0.0,
) -> Message:
    """A message that a user wrote; `delay` in seconds. Raises `RefusedError` (422)."""
    check_target(topic)
    if not 0 <= delay <= DELAY_SECONDS_MAX:
        text = f"a delay has 0 to {DELAY_SECONDS_MAX} seconds, not {delay:g}"
        raise RefusedError(text, status=422)
    return Message(
        topic, body, tags=tags or None, keys=list(keys), properties=properties or {}, delay=delay or None
    )


def once_more(stored: ReceivedMessage) -> Message:
    """A stored message as a new one: with its body, tag, keys, ordering key and its sender's own properties,
    without those that brokers added. Raises `RefusedError` (422) when its body cannot be decoded.
    """
    check_target(stored.topic)
    if stored.sys_flag & COMPRESSED:
        text = "the message's body is damaged, or too large when decompressed; it is not sent again"
        raise RefusedError(text, status=422, what="body")
    own = {name: value for name, value in stored.properties.items() if name not in SYSTEM_PROPERTIES}
    return Message(
        stored.topic,
        stored.body,
        tags=stored.tags,
        keys=stored.keys,
        key=stored.key or None,
        properties=own,
        flag=stored.flag,
    )
