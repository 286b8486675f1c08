"""Checks of the tag and the keys of a message to send.

Consumers must be able to name the tag, and queries must find the keys.
"""

from __future__ import annotations

from sparrowmq.core.errors import InvalidMessageError
from sparrowmq.core.message import Message, is_key, split_keys
from sparrowmq.core.subscription import TAG_SEPARATOR


def check_tag(message: Message) -> None:
    """Raise `InvalidMessageError` for a tag that is no text or that no subscription can name."""
    tag = message.tags
    if not isinstance(tag, str):
        raise InvalidMessageError(
            f"the tag of a message to {message.topic!r} must be text, not {type(tag).__name__}"
        )
    if tag.strip() != tag or TAG_SEPARATOR in tag:
        raise InvalidMessageError(
            f"the tag {tag!r} of a message to {message.topic!r} cannot be subscribed: subscriptions separate "
            f"tags with '{TAG_SEPARATOR}' and ignore white space around them; send a tag without both"
        )


def keys_text(message: Message) -> str:
    """The keys as they are stored. Raises `InvalidMessageError` for one that is stored as several or that
    nobody finds.
    """
    try:
        text = message.keys_text
    except TypeError:
        raise InvalidMessageError(
            f"the keys of a message to {message.topic!r} must be text or several texts, not {message.keys!r}"
        ) from None
    if not all(map(is_key, split_keys(text))) or (
        not isinstance(message.keys, str) and any(" " in key for key in message.keys)
    ):
        raise InvalidMessageError(
            f"the keys {message.keys!r} of a message to {message.topic!r} have white space in a key; a blank "
            "separates keys, and a key with other white space is not found: send keys without it"
        )
    return text
