"""Checks of names and times in requests: topics, groups, tags, keys. Refusals have the API's codes. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from sparrowmq.core.errors import InvalidExpressionError, InvalidNameError, ProxyRefusal
from sparrowmq.core.names import check_group, check_topic, is_system_group, is_system_topic
from sparrowmq.core.subscription import SQL92, SubscriptionData
from sparrowmq.protocol.filter import parse_tags
from sparrowmq.proxy.base.limits import FILTER_CHARS_MAX, INVISIBLE_MS_MAX, MESSAGE_GROUP_BYTES_MAX
from sparrowmq.proxy.definition.messages import Code, FilterType

NAMES_KEPT: Final = 1024
"""Legal names of topics, and as many of groups, that are not checked again."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def has_control(text: str) -> bool:
    """Whether the text has a control character."""
    return _CONTROL.search(text) is not None


def topic_name(resource: Any) -> str:
    """The topic that a resource names. Refuses illegal names and RocketMQ's own topics."""
    name: str = resource.name
    _check_topic(name)
    return name


@lru_cache(maxsize=NAMES_KEPT)
def _check_topic(name: str) -> None:
    try:
        check_topic(name)
    except InvalidNameError as error:
        raise ProxyRefusal(Code.ILLEGAL_TOPIC, str(error)) from None
    if is_system_topic(name):
        raise ProxyRefusal(Code.ILLEGAL_TOPIC, f"the topic {name!r} is RocketMQ's own")


def group_name(resource: Any) -> str:
    """The consumer group that a resource names. Refuses illegal names and RocketMQ's own groups."""
    name: str = resource.name
    _check_group(name)
    return name


@lru_cache(maxsize=NAMES_KEPT)
def _check_group(name: str) -> None:
    try:
        check_group(name)
    except InvalidNameError as error:
        raise ProxyRefusal(Code.ILLEGAL_CONSUMER_GROUP, str(error)) from None
    if is_system_group(name):
        raise ProxyRefusal(Code.ILLEGAL_CONSUMER_GROUP, f"the group {name!r} is RocketMQ's own")


def check_tag(tag: str) -> None:
    """Refuse a tag of blanks, with `|` or with a control character."""
    if tag and not tag.strip():
        raise ProxyRefusal(Code.ILLEGAL_MESSAGE_TAG, "the tag is blank")
    if "|" in tag:
        raise ProxyRefusal(Code.ILLEGAL_MESSAGE_TAG, f"the tag {tag!r} has '|', which separates tags")
    if has_control(tag):
        raise ProxyRefusal(Code.ILLEGAL_MESSAGE_TAG, f"the tag {tag!r} has a control character")


def check_key(key: str) -> None:
    """Refuse a key of blanks or with a control character."""
    if key and not key.strip():
        raise ProxyRefusal(Code.ILLEGAL_MESSAGE_KEY, "a key is blank")
    if has_control(key):
        raise ProxyRefusal(Code.ILLEGAL_MESSAGE_KEY, f"the key {key!r} has a control character")


def check_message_group(name: str) -> None:
    """Refuse a message group of blanks, that is too long, or with a control character."""
    if not name.strip():
        raise ProxyRefusal(Code.ILLEGAL_MESSAGE_GROUP, "the message group is blank")
    size = len(name.encode())
    if size >= MESSAGE_GROUP_BYTES_MAX:
        raise ProxyRefusal(
            Code.ILLEGAL_MESSAGE_GROUP,
            f"the message group has {size} bytes, the limit is {MESSAGE_GROUP_BYTES_MAX - 1}",
        )
    if has_control(name):
        raise ProxyRefusal(Code.ILLEGAL_MESSAGE_GROUP, f"the message group {name!r} has a control character")


def invisible_ms(duration: Any, low: int = 0) -> int:
    """An invisible time in ms. Refuses one below `low` or above the limit."""
    found: int = duration.seconds * 1000 + duration.nanos // 1_000_000
    if not low <= found <= INVISIBLE_MS_MAX:
        raise ProxyRefusal(
            Code.ILLEGAL_INVISIBLE_TIME,
            f"the invisible time {found} ms is out of range: must be {low} to {INVISIBLE_MS_MAX} ms",
        )
    return found


def subscription(topic: str, expression: Any) -> SubscriptionData:
    """The subscription of a filter expression. Refuses a text that is too long, and a tag expression without
    a tag; brokers check SQL92.
    """
    text: str = expression.expression
    if len(text) > FILTER_CHARS_MAX:
        raise ProxyRefusal(
            Code.ILLEGAL_FILTER_EXPRESSION,
            f"the filter has {len(text)} characters, the limit is {FILTER_CHARS_MAX}",
        )
    if expression.type == FilterType.SQL:
        if not text.strip():
            raise ProxyRefusal(Code.ILLEGAL_FILTER_EXPRESSION, "the SQL92 filter is empty")
        return SubscriptionData(topic, text, expression_type=SQL92)
    try:
        return parse_tags(topic, text, 0)
    except InvalidExpressionError as error:
        raise ProxyRefusal(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from None
