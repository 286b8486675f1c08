"""Checks of a message to send.

Consumers must be able to name its tag, and queries must find its keys.
"""

from __future__ import annotations

from sparrowmq.core.errors import InvalidMessageError
from sparrowmq.core.message import PROPERTY_SHARDING_KEY, SYSTEM_PROPERTIES, Message, is_key, split_keys
from sparrowmq.core.subscription import TAG_SEPARATOR


def check_is_message(message: object) -> None:
    """Raise `InvalidMessageError` unless it is a `Message` (client:B-04)."""
    if not isinstance(message, Message):
        raise InvalidMessageError(
            f"send a Message, not {type(message).__name__}; to forward a received message, send "
            f"Message(topic, received.body, tags=received.tags, keys=received.keys)",
            part="message",
        )


def check_body(message: Message, bytes_max: int) -> None:
    """Raise `InvalidMessageError` unless the body is bytes, not empty and within the limit (client:B-07)."""
    body = message.body
    if not isinstance(body, bytes):
        raise InvalidMessageError(
            f"the body must be bytes, not {type(body).__name__}; encode it first", part="body"
        )
    if not body:
        raise InvalidMessageError(
            f"the body of a message to {message.topic!r} is empty; RocketMQ requires at least one byte",
            part="body",
        )
    if len(body) > bytes_max:
        raise InvalidMessageError(
            f"the body of a message to {message.topic!r} has {len(body)} bytes, the limit is {bytes_max}; "
            "send it in parts, or raise message_bytes_max here and maxMessageSize at the brokers",
            limit=bytes_max,
            part="body",
        )


def check_flag(message: Message) -> None:
    """Raise `InvalidMessageError` unless the application's flag fits its 32 bits in a record."""
    flag = message.flag
    if not isinstance(flag, int) or not -(2**31) <= flag < 2**31:
        raise InvalidMessageError(
            f"the flag {flag!r} of a message to {message.topic!r} must be an integer of 32 bits", part="flag"
        )


def check_tag(message: Message) -> None:
    """Raise `InvalidMessageError` for a tag that is no text or that no subscription can name."""
    tag = message.tags
    if not isinstance(tag, str):
        raise InvalidMessageError(
            f"the tag of a message to {message.topic!r} must be text, not {type(tag).__name__}", part="tag"
        )
    if tag.strip() != tag or TAG_SEPARATOR in tag:
        raise InvalidMessageError(
            f"the tag {tag!r} of a message to {message.topic!r} cannot be subscribed: subscriptions separate "
            f"tags with '{TAG_SEPARATOR}' and ignore white space around them; send a tag without either",
            part="tag",
        )


def keys_text(message: Message) -> str:
    """The keys as they are stored. Raises `InvalidMessageError` for one that is stored as several or that
    nobody finds.
    """
    try:
        text = message.keys_text
    except TypeError:
        raise InvalidMessageError(
            f"the keys of a message to {message.topic!r} must be text or several texts, not {message.keys!r}",
            part="keys",
        ) from None
    if not all(map(is_key, split_keys(text))) or (
        not isinstance(message.keys, str) and any(" " in key for key in message.keys)
    ):
        raise InvalidMessageError(
            f"the keys {message.keys!r} of a message to {message.topic!r} have white space in a key; a blank "
            "separates keys, and a key with other white space is not found: send keys without it",
            part="keys",
        )
    return text


def check_ordering_key(message: Message) -> None:
    """Raise `InvalidMessageError` for an ordering key that is not text, is blank or is given twice."""
    key = message.key
    if not isinstance(key, str):
        raise InvalidMessageError(
            f"the key {key!r} of a message to {message.topic!r} must be a str, not {type(key).__name__}; "
            f"convert it first",
            part="key",
        )
    if not key.strip():
        raise InvalidMessageError(
            f"the key {key!r} of a message to {message.topic!r} is blank; leave it out to use any queue",
            part="key",
        )
    if message.system is not None and message.system.get(PROPERTY_SHARDING_KEY, key) != key:
        raise InvalidMessageError(
            f"a message to {message.topic!r} has the key {key!r}, and another one in its system properties",
            part=PROPERTY_SHARDING_KEY,
        )


def check_user_property(name: str, value: str) -> None:
    """Raise `InvalidMessageError` for a property that users may not set (client:B-10)."""
    if name in SYSTEM_PROPERTIES:
        raise InvalidMessageError(f"the property {name!r} is RocketMQ's own; choose another name", part=name)
    if not isinstance(name, str) or not isinstance(value, str):
        raise InvalidMessageError(
            f"the property {name!r}={value!r} is not text; properties are str to str", part=name
        )
    if not name.strip() or not value.strip():
        raise InvalidMessageError(
            f"the property {name!r}={value!r} is blank; receivers would lose it", part=name
        )
