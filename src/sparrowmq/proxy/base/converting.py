"""Messages of the gRPC API as brokers store them, and stored messages as the API shows them."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sparrowmq.core.errors import CompressedBodyError, InvalidMessageError, ProxyRefusal
from sparrowmq.core.message import (
    PROPERTY_CHECK_IMMUNITY,
    PROPERTY_DELAY,
    PROPERTY_KEYS,
    PROPERTY_POP_CK,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQ_KEY,
    SYSTEM_PROPERTIES,
    ReceivedMessage,
)
from sparrowmq.core.names import namespace_of, without_namespace
from sparrowmq.protocol import properties as property_string
from sparrowmq.protocol.compression import decompress
from sparrowmq.protocol.sysflag import COMPRESSED, TRANSACTION_PREPARED
from sparrowmq.proxy.base.checks import check_key, check_message_group, check_tag, has_control
from sparrowmq.proxy.base.limits import (
    BODY_BYTES_MAX,
    DELAY_MS_MAX,
    RECOVERY_SECONDS_MAX,
    USER_PROPERTIES_MAX,
    USER_PROPERTY_BYTES_MAX,
)
from sparrowmq.proxy.definition.messages import Code, DigestType, Encoding, MessageType, v2

PROPERTY_TRACE_CONTEXT: Final = "TRACE_CONTEXT"
PROPERTY_BORN_HOST: Final = "__BORNHOST"
PROPERTY_BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
PROPERTY_RECONSUME_TIME: Final = "RECONSUME_TIME"
PROPERTY_DLQ_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
PROPERTY_DLQ_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
RESERVED: Final = SYSTEM_PROPERTIES | {PROPERTY_TRACE_CONTEXT, PROPERTY_BORN_HOST, PROPERTY_BORN_TIMESTAMP}
"""Names that are not allowed for user properties. The API shows these in other fields or not at all."""
BYTES_OF_WEIGHT: Final = 16 * 1024
"""To copy and digest so many takes as long as to make one small message."""
MILLIS_DIGITS_MAX: Final = 18
"""Digits of the longest time that is read from a property."""
TIME_MS_MIN: Final = -62_135_596_800_000
TIME_MS_MAX: Final = 253_402_300_799_999
"""The years 1 to 9999: clients cannot read a `Timestamp` outside of them."""
ATTEMPTS_MAX: Final = 2**31 - 1

_DELAYS: Final = (PROPERTY_DELAY, PROPERTY_TIMER_DELIVER_MS, PROPERTY_TIMER_DELAY_SEC)
_GZIP: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS


class StoredForm(NamedTuple):
    """A message in the form for brokers: body, property string, flags, times, unique key."""

    body: bytes
    properties: bytes
    sys_flag: int
    born_timestamp: int
    message_id: str
    message_group: str
    message_type: str


def _not_stored(field: str) -> ProxyRefusal:
    return ProxyRefusal(
        Code.NOT_IMPLEMENTED, f"the message has a {field}, which this proxy does not store; send it without"
    )


def to_stored(message: Any, topic: str, born_host: str, now_ms: int) -> StoredForm:
    """Check a message that a client sends, and convert it. Raises `ProxyRefusal`.

    The producer group of the API's messages is the topic, because the API has no such groups; brokers ask
    clients that publish to the topic how a transaction ended.
    """
    system = message.system_properties
    body = _body(message.body, system.body_encoding)
    if system.lite_topic or system.HasField("priority"):
        raise _not_stored("lite_topic" if system.lite_topic else "priority")
    message_id, kind, sys_flag = system.message_id, "NORMAL", 0
    if not message_id.strip():
        raise ProxyRefusal(Code.ILLEGAL_MESSAGE_ID, "the message id is empty")
    found = _user_properties(message.user_properties, system.tag, system.keys)
    found[PROPERTY_UNIQ_KEY] = message_id
    if system.message_type == MessageType.TRANSACTION:
        sys_flag = TRANSACTION_PREPARED
        found[PROPERTY_TRANSACTION_PREPARED] = "true"
        if system.HasField("orphaned_transaction_recovery_duration"):
            found[PROPERTY_CHECK_IMMUNITY] = _recovery_seconds(system)
    if system.HasField("delivery_timestamp"):
        found[PROPERTY_TIMER_DELIVER_MS] = str(_deliver_ms(system.delivery_timestamp, now_ms))
        kind = "DELAY"
    if attempt := system.delivery_attempt:
        found[PROPERTY_RECONSUME_TIME] = str(attempt)
    found[PROPERTY_PRODUCER_GROUP] = topic
    if group := system.message_group:
        check_message_group(group)
        found[PROPERTY_SHARDING_KEY] = group
        kind = kind if kind == "DELAY" else "FIFO"
    if trace := system.trace_context:
        found[PROPERTY_TRACE_CONTEXT] = trace
    told = system.born_host
    if host := told if told.strip() else born_host:
        found[PROPERTY_BORN_HOST] = host
    born = _millis(system.born_timestamp) if system.HasField("born_timestamp") else now_ms
    found[PROPERTY_BORN_TIMESTAMP] = str(born)
    try:
        properties = property_string.encode(found)
    except InvalidMessageError as error:
        raise ProxyRefusal(Code.MESSAGE_PROPERTIES_TOO_LARGE, str(error)) from None
    if sys_flag:
        # Brokers give up half messages by the age that this time gives them, and a client's clock may be
        # wrong.
        born, kind = now_ms, "TRANSACTION"
    return StoredForm(body, properties, sys_flag, born, message_id, group, kind)


def type_of(properties: Mapping[str, str]) -> str:
    """The type of a message as the topic attribute `message.type` names it."""
    if properties.get(PROPERTY_TRANSACTION_PREPARED) == "true":
        return "TRANSACTION"
    if any(name in properties for name in _DELAYS):
        return "DELAY"
    return "FIFO" if PROPERTY_SHARDING_KEY in properties else "NORMAL"


def check_type(topic: str, allowed: str, found: str) -> None:
    """Refuse a message of a type that the topic's attribute does not allow."""
    if allowed not in ("MIXED", found):
        raise ProxyRefusal(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"the topic {topic!r} takes messages of type {allowed}, this one is {found}; send it to a topic "
            f"with the attribute +message.type={found}",
        )


def _body(body: bytes, encoding: int) -> bytes:
    """The body as it is stored: not compressed, so that clients of each kind can read it."""
    if not body:
        raise ProxyRefusal(Code.MESSAGE_BODY_EMPTY, "the message body is empty")
    if encoding == Encoding.GZIP:
        codec = zlib.decompressobj(_GZIP_WINDOW)
        try:
            plain = codec.decompress(body, BODY_BYTES_MAX + 1)
        except zlib.error as error:
            raise ProxyRefusal(Code.MESSAGE_CORRUPTED, f"the body is not valid GZIP: {error}") from None
        if not codec.eof and len(plain) <= BODY_BYTES_MAX:
            raise ProxyRefusal(Code.MESSAGE_CORRUPTED, "the GZIP data of the body is incomplete")
        body = plain
    if len(body) > BODY_BYTES_MAX:
        raise ProxyRefusal(
            Code.MESSAGE_BODY_TOO_LARGE, f"the body is larger than the limit of {BODY_BYTES_MAX} bytes"
        )
    return body


def _user_properties(user: Any, tag: str, keys: Any) -> dict[str, str]:
    """User properties, tag and keys, checked."""
    if not user and not tag and not keys:
        return {}
    if len(user) > USER_PROPERTIES_MAX:
        raise ProxyRefusal(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"{len(user)} user properties, the limit is {USER_PROPERTIES_MAX}",
        )
    found: dict[str, str] = dict(user)
    for name, value in found.items():
        if name in RESERVED:
            raise ProxyRefusal(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the property name {name!r} is RocketMQ's own"
            )
        if has_control(name) or has_control(value):
            raise ProxyRefusal(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the property {name!r} has a control character"
            )
    size = sum(len(name.encode()) + len(value.encode()) for name, value in found.items())
    if tag:
        check_tag(tag)
        found[PROPERTY_TAGS] = tag
    for key in keys:
        check_key(key)
    if keys:
        found[PROPERTY_KEYS] = " ".join(keys)
    size += len(tag.encode()) + sum(len(key.encode()) for key in keys)
    if size > USER_PROPERTY_BYTES_MAX:
        raise ProxyRefusal(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"user properties, tag and keys have {size} bytes, the limit is {USER_PROPERTY_BYTES_MAX}",
        )
    return found


def _recovery_seconds(system: Any) -> str:
    seconds = system.orphaned_transaction_recovery_duration.seconds
    if not 0 <= seconds <= RECOVERY_SECONDS_MAX:
        raise ProxyRefusal(
            Code.BAD_REQUEST,
            f"the time until a transaction is checked is {seconds} s: must be 0 to {RECOVERY_SECONDS_MAX} s",
        )
    return str(seconds)


def _deliver_ms(timestamp: Any, now_ms: int) -> int:
    deliver = _millis(timestamp)
    if deliver - now_ms > DELAY_MS_MAX:
        raise ProxyRefusal(
            Code.ILLEGAL_DELIVERY_TIME,
            f"the delivery time is {deliver - now_ms} ms ahead, the limit is {DELAY_MS_MAX} ms",
        )
    return deliver


def _millis(timestamp: Any) -> int:
    found: int = timestamp.seconds * 1000 + timestamp.nanos // 1_000_000
    return found


def _told_millis(text: str) -> int | None:
    """A time that a producer set as a property; None if it is none."""
    return int(text) if text.isdecimal() and len(text) <= MILLIS_DIGITS_MAX else None


def _set_millis(target: Any, millis: int) -> None:
    millis = max(TIME_MS_MIN, min(millis, TIME_MS_MAX))
    target.seconds, target.nanos = millis // 1000, millis % 1000 * 1_000_000


# StoredForm messages


def resource(name: str) -> Any:
    """A topic or group as the API names it, with its namespace apart."""
    space = namespace_of(name)
    return v2.Resource(resource_namespace=space or "", name=without_namespace(space, name))


def readable_body(body: bytes, sys_flag: int) -> tuple[bytes, int]:
    """A stored body and its encoding, in a form that clients of the API can read.

    The API supports only GZIP, so bodies that remoting clients compressed otherwise are decompressed here. A
    body that cannot be decompressed is returned as stored.
    """
    if not sys_flag & COMPRESSED:
        return body, Encoding.IDENTITY
    if body.startswith(_GZIP):
        return body, Encoding.GZIP
    try:
        return decompress(body, sys_flag), Encoding.IDENTITY
    except CompressedBodyError:
        return body, Encoding.GZIP


def weight_of(size: int) -> int:
    """The weight of a message of so many bytes at the gate for turns: copies and digests take time."""
    return 1 + size // BYTES_OF_WEIGHT


def to_message(message: ReceivedMessage, topic: Any) -> Any:
    """A stored message as the API shows it; `topic` is its topic's `resource`."""
    properties = message.properties
    body, encoding = readable_body(message.body, message.sys_flag)
    found = v2.Message(topic=topic, body=body)
    own = [item for item in properties.items() if item[0] not in RESERVED]
    if own:
        found.user_properties.update(own)
    system = found.system_properties
    if tag := properties.get(PROPERTY_TAGS):
        system.tag = tag
    system.keys.extend(message.keys)
    system.message_id = message.message_id
    system.body_digest.type = DigestType.MD5
    system.body_digest.checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = encoding
    system.message_type = getattr(MessageType, type_of(properties))
    born = _told_millis(properties.get(PROPERTY_BORN_TIMESTAMP, ""))
    _set_millis(system.born_timestamp, message.born_timestamp if born is None else born)
    system.born_host = properties.get(PROPERTY_BORN_HOST) or message.born_host.rpartition(":")[0]
    _set_millis(system.store_timestamp, message.store_timestamp)
    system.store_host = message.store_host
    if (deliver := _told_millis(properties.get(PROPERTY_TIMER_DELIVER_MS, ""))) is not None:
        _set_millis(system.delivery_timestamp, deliver)
    if group := properties.get(PROPERTY_SHARDING_KEY):
        system.message_group = group
    if receipt := properties.get(PROPERTY_POP_CK):
        system.receipt_handle = receipt
    system.queue_id, system.queue_offset = message.queue.queue_id, message.queue_offset
    system.delivery_attempt = min(message.reconsume_times + 1, ATTEMPTS_MAX)
    if trace := properties.get(PROPERTY_TRACE_CONTEXT):
        system.trace_context = trace
    origin, origin_id = properties.get(PROPERTY_DLQ_TOPIC), properties.get(PROPERTY_DLQ_MESSAGE_ID)
    if origin and origin_id:
        system.dead_letter_queue.topic, system.dead_letter_queue.message_id = origin, origin_id
    return found
