"""Names of topics and groups: prefixes, reserved names, validators (broker:6.2, client:B-02 to B-06)."""

from __future__ import annotations

import re
from typing import Final

from sparrowmq.core.errors import InvalidNameError

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
TOPIC_CHARS_MAX: Final = 127
RETRY_TOPIC_CHARS_MAX: Final = 255
GROUP_CHARS_MAX: Final = 120
TEMPLATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"

SYSTEM_TOPICS: Final = frozenset(
    {
        TEMPLATE_TOPIC,
        SCHEDULE_TOPIC,
        "BenchmarkTest",
        HALF_TOPIC,
        "RMQ_SYS_TRACE_TOPIC",
        OP_HALF_TOPIC,
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
SEND_FORBIDDEN_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")
_DEFAULT_GROUPS: Final = frozenset({"DEFAULT_PRODUCER", "DEFAULT_CONSUMER"})


def retry_topic(group: str) -> str:
    """The topic a group's failed messages come back on."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """The topic a group's dead letters go to."""
    return DLQ_PREFIX + group


def is_system_topic(topic: str) -> bool:
    """Whether RocketMQ reserves the name (broker:6.1)."""
    return topic in SYSTEM_TOPICS or topic.startswith("rmq_sys_")


def is_system_group(group: str) -> bool:
    """Whether RocketMQ reserves the group."""
    return group in SYSTEM_GROUPS or group.startswith("CID_RMQ_SYS_")


def _check(kind: str, name: str, limit: int) -> None:
    if not name or name.isspace():
        raise InvalidNameError(f"the {kind} is blank; give it a name")
    if len(name) > limit:
        raise InvalidNameError(
            f"the {kind} {name[:40]!r}… has {len(name)} characters, the limit is {limit}; shorten it"
        )
    if not _LEGAL.fullmatch(name):
        raise InvalidNameError(f"the {kind} {name!r} may only have letters, digits, '%', '|', '_' and '-'")


def _check_type(kind: str, name: object) -> None:
    if not isinstance(name, str):
        raise InvalidNameError(f"the {kind} must be text, not {type(name).__name__} ({name!r})")


def check_topic(topic: str) -> None:
    """Raise `InvalidNameError` unless `topic` is a legal name."""
    _check_type("topic", topic)
    prefixed = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    _check("topic", topic, RETRY_TOPIC_CHARS_MAX if prefixed else TOPIC_CHARS_MAX)


def check_topic_for_send(topic: str) -> None:
    """Raise `InvalidNameError` unless clients may send to `topic`."""
    check_topic(topic)
    if topic in SEND_FORBIDDEN_TOPICS:
        raise InvalidNameError(f"the topic {topic!r} is RocketMQ's own; clients may not send to it")


def check_group(group: str) -> None:
    """Raise `InvalidNameError` unless `group` is legal and not one of the default names."""
    _check_type("group", group)
    _check("group", group, GROUP_CHARS_MAX)
    if group in _DEFAULT_GROUPS:
        raise InvalidNameError(f"the group {group!r} is a placeholder; choose a name of your own")
