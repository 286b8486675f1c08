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
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
PRODUCER_ENDS_TOPIC: Final = "rmq_sys_SPARROW_PRODUCER_ENDS"
"""Where our brokers record which idempotent producers have ended."""
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
NAMESPACE_SEPARATOR: Final = "%"

SYSTEM_TOPICS: Final = frozenset(
    {
        TEMPLATE_TOPIC,
        SCHEDULE_TOPIC,
        "BenchmarkTest",
        HALF_TOPIC,
        "RMQ_SYS_TRACE_TOPIC",
        OP_HALF_TOPIC,
        GIVEN_UP_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
SEND_FORBIDDEN_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        PRODUCER_ENDS_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        GIVEN_UP_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
INNER_TOPICS: Final = frozenset(
    {SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TIMER_TOPIC, GIVEN_UP_TOPIC, PRODUCER_ENDS_TOPIC}
)
"""Internal topics of brokers, for delayed, timed and half messages, for messages given up, and for ends of
idempotent producers."""
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
_SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
_INSTANCE_ENDPOINT = re.compile(r"(?:\w+://)?(MQ_INST_\w+_\w+)\.")
_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")
_DEFAULT_GROUPS: Final = frozenset({"DEFAULT_PRODUCER", "DEFAULT_CONSUMER"})


def retry_topic(group: str) -> str:
    """The topic for retries of a group's failed messages."""
    return RETRY_PREFIX + group


def reply_topic(cluster: str) -> str:
    """The topic that stores replies to requests."""
    return f"{cluster}_REPLY_TOPIC"


def dlq_topic(group: str) -> str:
    """The topic for a group's dead letters."""
    return DLQ_PREFIX + group


def with_namespace(namespace: str | None, name: str) -> str:
    """The topic or group as brokers know it: `<namespace>%<name>`, with retry and DLQ prefixes in front.

    Unchanged: all names if there is no namespace, names that already have it, and RocketMQ's system topics
    and groups (client:B-121, B-122).
    """
    if not namespace or not name:
        return name
    prefix, rest = _split_prefix(name)
    if is_system_topic(name) or rest.startswith(_SYSTEM_GROUP_PREFIX) or _has_namespace(namespace, rest):
        return name
    return f"{prefix}{namespace}{NAMESPACE_SEPARATOR}{rest}"


def without_namespace(namespace: str | None, name: str) -> str:
    """The name without the namespace; a name of another namespace is unchanged (client:B-123)."""
    if not namespace:
        return name
    prefix, rest = _split_prefix(name)
    if not _has_namespace(namespace, rest):
        return name
    return prefix + rest[len(namespace) + 1 :]


def namespace_of(name: str) -> str | None:
    """The namespace of a topic or group: the text before the first `%` after the prefix."""
    if is_system_topic(name):
        return None
    space, separator, _ = _split_prefix(name)[1].partition(NAMESPACE_SEPARATOR)
    return space if separator and space else None


def namespace_of_endpoint(namesrv: str) -> str | None:
    """The instance id in a name server's address like `http://MQ_INST_1_x.host:80` (client:B-125)."""
    found = _INSTANCE_ENDPOINT.match(namesrv.strip())
    return found[1] if found else None


def check_namespace(namespace: str) -> None:
    """Raise `InvalidNameError` unless the namespace has legal characters and no `%`."""
    _check_type("namespace", namespace)
    _check("namespace", namespace, TOPIC_CHARS_MAX)
    if NAMESPACE_SEPARATOR in namespace:
        raise InvalidNameError(f"the namespace {namespace!r} must not have '%', which ends it in names")


def _split_prefix(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _has_namespace(namespace: str, rest: str) -> bool:
    return rest.startswith(namespace + NAMESPACE_SEPARATOR)


def is_system_topic(topic: str) -> bool:
    """Whether RocketMQ reserves the name (broker:6.1)."""
    return topic in SYSTEM_TOPICS or topic.startswith("rmq_sys_")


def is_system_group(group: str) -> bool:
    """Whether RocketMQ reserves the group."""
    return group in SYSTEM_GROUPS or group.startswith(_SYSTEM_GROUP_PREFIX)


def _check(kind: str, name: str, limit: int) -> None:
    if not name or name.isspace():
        raise InvalidNameError(f"the {kind} is blank; give it a name")
    if len(name) > limit:
        raise InvalidNameError(
            f"the {kind} {name[:40]!r}… has {len(name)} characters, the limit is {limit}; shorten it",
            what=kind,
            value=len(name),
            limit=limit,
        )
    if not _LEGAL.fullmatch(name):
        raise InvalidNameError(f"the {kind} {name!r} may only have letters, digits, '%', '|', '_' and '-'")


def _check_type(kind: str, name: object) -> None:
    if not isinstance(name, str):
        text = f"the {kind} must be text, not {type(name).__name__} ({name!r})"
        raise InvalidNameError(text, what=kind, value=name)


def check_topic(topic: str) -> None:
    """Raise `InvalidNameError` unless `topic` is a legal name."""
    _check_type("topic", topic)
    prefixed = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    _check("topic", topic, RETRY_TOPIC_CHARS_MAX if prefixed else TOPIC_CHARS_MAX)


def check_topic_for_send(topic: str) -> None:
    """Raise `InvalidNameError` unless clients may send to `topic`."""
    check_topic(topic)
    if topic in SEND_FORBIDDEN_TOPICS:
        text = f"the topic {topic!r} is RocketMQ's own; clients may not send to it"
        raise InvalidNameError(text, what="topic", value=topic)


def check_group(group: str) -> None:
    """Raise `InvalidNameError` unless `group` is legal and not one of the default names."""
    _check_type("group", group)
    _check("group", group, GROUP_CHARS_MAX)
    if group in _DEFAULT_GROUPS:
        text = f"the group {group!r} is a placeholder; choose a name of your own"
        raise InvalidNameError(text, what="group", value=group)
