"""From a message to the bytes of a send request, and from the answer to a result (client:B.3, B.9).

Sends are the hot path, so the constant part of the header is encoded once per queue (`SendTarget`); per
message only ids, times and properties are added, JSON-escaped. Members come in the order Java writes them,
`code` first, because brokers recognise sends by it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from sparrowmq.core.errors import BrokerError, InvalidMessageError, ProtocolError
from sparrowmq.core.message import (
    PROPERTIES_BYTES_MAX,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT,
    SYSTEM_PROPERTIES,
    Message,
    MessageQueue,
)
from sparrowmq.core.names import RETRY_PREFIX
from sparrowmq.core.results import SendResult, SendStatus
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.codes import VERSION, RequestCode
from sparrowmq.protocol.frame import Command, frame

_encode_json = msgspec.json.Encoder().encode
_TAIL: Final = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION


class SendTarget:
    """One queue a producer sends to, with its master's address and the constant parts of its headers."""

    __slots__ = ("_batch_head", "_single_head", "address", "queue")

    def __init__(
        self,
        queue: MessageQueue,
        address: str,
        *,
        group: str,
        create_topic_key: str,
        create_topic_queues: int,
    ) -> None:
        self.queue = queue
        self.address = address
        fields = {
            "a": group,
            "b": queue.topic,
            "c": create_topic_key,
            "d": str(create_topic_queues),
            "e": str(queue.queue_id),
            "j": "0",
            "k": "false",
            "n": queue.broker_name,
        }
        fixed = _encode_json(fields)[:-1]
        self._single_head = b'{"code":%d,"extFields":%b,"m":"false",' % (RequestCode.SEND_MESSAGE_V2, fixed)
        self._batch_head = b'{"code":%d,"extFields":%b,"m":"true",' % (RequestCode.SEND_BATCH_MESSAGE, fixed)

    def request(self, outgoing: Outgoing, opaque: int, flag: int = 0) -> bytes:
        """The whole frame that sends `outgoing` to this queue as request `opaque`."""
        header = b'%b"f":"%d","g":"%d","h":"%d","i":%b},"flag":%d,"language":"PYTHON","opaque":%d%b' % (
            self._batch_head if outgoing.is_batch else self._single_head,
            outgoing.sys_flag,
            outgoing.born_timestamp,
            outgoing.flag,
            outgoing.properties,
            flag,
            opaque,
            _TAIL,
        )
        return frame(header, outgoing.body)


class Outgoing:
    """A checked and encoded message (or batch), the same for every try."""

    __slots__ = (
        "body",
        "born_timestamp",
        "flag",
        "is_batch",
        "message_id",
        "properties",
        "sys_flag",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        body: bytes,
        properties: bytes,
        message_id: str,
        born_timestamp: int,
        flag: int = 0,
        sys_flag: int = 0,
        is_batch: bool = False,
    ) -> None:
        self.topic = topic
        self.body = body
        self.properties = properties
        """The property string as a JSON string, quotes included."""
        self.message_id = message_id
        self.born_timestamp = born_timestamp
        self.flag = flag
        self.sys_flag = sys_flag
        self.is_batch = is_batch

    @property
    def size(self) -> int:
        """Bytes that a send of this holds in memory, about."""
        return len(self.body) + len(self.properties)


def property_text(message: Message, unique_key: str) -> str:
    """The property string of a message to send (remoting:5.3).

    Raises `InvalidMessageError` when tags, keys or a user property are not text, a user property is reserved
    or blank, or one of them holds 0x01 or 0x02 (client:B-10).
    """
    text = (
        f"{PROPERTY_UNIQ_KEY}\x01{unique_key}\x02{PROPERTY_WAIT}\x01{_java_bool(message.wait_store_ok)}\x02"
    )
    entries = 2
    if message.tags:
        if not isinstance(message.tags, str):
            raise InvalidMessageError(
                f"the tag of a message to {message.topic!r} must be text, not {type(message.tags).__name__}"
            )
        text += f"{PROPERTY_TAGS}\x01{message.tags}\x02"
        entries += 1
    if message.keys and (keys := _keys_text(message)):
        text += f"{PROPERTY_KEYS}\x01{keys}\x02"
        entries += 1
    if message.properties:
        for name, value in message.properties.items():
            _check_user_property(name, value)
            text += f"{name}\x01{value}\x02"
            entries += 1
    if text.count("\x01") != entries or text.count("\x02") != entries:
        raise InvalidMessageError(
            f"tags, keys and properties of a message to {message.topic!r} must not hold the characters 0x01 "
            "and 0x02"
        )
    if len(text) * 3 > PROPERTIES_BYTES_MAX and (size := len(text.encode())) > PROPERTIES_BYTES_MAX:
        raise InvalidMessageError(
            f"the properties of a message to {message.topic!r} take {size} bytes, the limit is "
            f"{PROPERTIES_BYTES_MAX}; move data to the body"
        )
    return text


def _keys_text(message: Message) -> str:
    try:
        return message.keys_text
    except TypeError:
        raise InvalidMessageError(
            f"the keys of a message to {message.topic!r} must be text or several texts, not {message.keys!r}"
        ) from None


def _java_bool(value: bool) -> str:
    return "true" if value else "false"


def _check_user_property(name: str, value: str) -> None:
    if name in SYSTEM_PROPERTIES:
        raise InvalidMessageError(f"the property {name!r} is RocketMQ's own; choose another name")
    if not isinstance(name, str) or not isinstance(value, str):
        raise InvalidMessageError(f"the property {name!r}={value!r} is not text; properties are str to str")
    if not name.strip() or not value.strip():
        raise InvalidMessageError(f"the property {name!r}={value!r} is blank; readers would drop it")


def check_body(message: Message, bytes_max: int) -> None:
    """Raise `InvalidMessageError` unless the body is bytes, not empty and within the limit (client:B-07)."""
    body = message.body
    if not isinstance(body, bytes):
        raise InvalidMessageError(f"the body must be bytes, not {type(body).__name__}; encode it first")
    if not body:
        raise InvalidMessageError(
            f"the body of a message to {message.topic!r} is empty; RocketMQ takes at least one byte"
        )
    if len(body) > bytes_max:
        raise InvalidMessageError(
            f"the body of a message to {message.topic!r} has {len(body)} bytes, the limit is {bytes_max}; "
            "send it in parts, or raise message_bytes_max here and maxMessageSize at the brokers"
        )


def check_flag(message: Message) -> None:
    """Raise `InvalidMessageError` unless the application's flag fits the 32 bits that records have for it."""
    flag = message.flag
    if not isinstance(flag, int) or not -(2**31) <= flag < 2**31:
        raise InvalidMessageError(
            f"the flag {flag!r} of a message to {message.topic!r} must be an integer of 32 bits"
        )


def outgoing_single(message: Message, unique_key: str, now_ms: int, bytes_max: int) -> Outgoing:
    """A single message, checked and encoded; not compressed yet."""
    check_body(message, bytes_max)
    if message.flag:
        check_flag(message)
    properties = _escaped(property_text(message, unique_key), message.topic)
    return Outgoing(message.topic, message.body, properties, unique_key, now_ms, message.flag)


def _escaped(text: str, topic: str) -> bytes:
    try:
        return _encode_json(text)
    except UnicodeEncodeError as error:
        raise _not_utf8(error, topic) from None


def _not_utf8(error: UnicodeEncodeError, topic: str) -> InvalidMessageError:
    wrong = error.object[error.start : error.end]
    return InvalidMessageError(
        f"tags, keys or properties of a message to {topic!r} hold {wrong!r}, which UTF-8 cannot write: "
        f"{error.reason}"
    )


def outgoing_batch(
    messages: list[Message], unique_keys: list[str], batch_key: str, now_ms: int, bytes_max: int
) -> Outgoing:
    """Several messages as one batch request (client:B-72 to B-75).

    Raises `InvalidMessageError` when there are none, when they differ in topic or `wait_store_ok`, go to a
    retry topic, or take more than `bytes_max` bytes together.
    """
    if not messages:
        raise InvalidMessageError("a batch needs at least one message")
    first = messages[0]
    if first.topic.startswith(RETRY_PREFIX):
        raise InvalidMessageError(f"a batch cannot go to the retry topic {first.topic!r}; send one by one")
    items = []
    for message, key in zip(messages, unique_keys, strict=True):
        if message.topic != first.topic:
            raise InvalidMessageError(
                f"a batch has one topic, but this one has {first.topic!r} and {message.topic!r}; split it"
            )
        if message.wait_store_ok != first.wait_store_ok:
            raise InvalidMessageError("the messages of a batch must agree in wait_store_ok")
        check_body(message, bytes_max)
        check_flag(message)
        items.append((message.flag, message.body, _utf8(property_text(message, key), message.topic)))
    body = encode_batch(items)
    if len(body) > bytes_max:
        raise InvalidMessageError(
            f"a batch of {len(messages)} messages to {first.topic!r} takes {len(body)} bytes, the limit is "
            f"{bytes_max}; send smaller batches"
        )
    text = f"{PROPERTY_UNIQ_KEY}\x01{batch_key}\x02{PROPERTY_WAIT}\x01{_java_bool(first.wait_store_ok)}\x02"
    return Outgoing(first.topic, body, _encode_json(text), ",".join(unique_keys), now_ms, is_batch=True)


def outgoing_encoded_batch(
    topic: str, body: bytes, count: int, batch_key: str, now_ms: int, bytes_max: int
) -> Outgoing:
    """A batch whose body is encoded already. Raises `InvalidMessageError` on an empty or oversized one."""
    if count < 1 or not body:
        raise InvalidMessageError(f"a batch needs at least one message, {topic!r} gets {count}")
    if len(body) > bytes_max:
        raise InvalidMessageError(
            f"a batch of {count} messages to {topic!r} takes {len(body)} bytes, the limit is {bytes_max}; "
            "send smaller batches"
        )
    text = f"{PROPERTY_UNIQ_KEY}\x01{batch_key}\x02{PROPERTY_WAIT}\x01true\x02"
    return Outgoing(topic, body, _encode_json(text), batch_key, now_ms, is_batch=True)


def _utf8(text: str, topic: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise _not_utf8(error, topic) from None


_STATUS: Final = {int(status): status for status in SendStatus}


def send_result(answer: Command, outgoing: Outgoing, target: SendTarget) -> SendResult:
    """The result in a broker's answer. Raises `BrokerError` when the message was not stored.

    Raises `ProtocolError` when an answer that says stored lacks id, queue or offset.
    """
    status = _STATUS.get(answer.code)
    if status is None:
        what = f"send to {target.queue}"
        raise BrokerError(answer.code, answer.remark or "", address=target.address, request=what)
    fields = answer.ext
    try:
        offset_id, queue_id = fields["msgId"], int(fields["queueId"])
        queue_offset = int(fields["queueOffset"])
    except (KeyError, ValueError) as error:
        raise ProtocolError(
            f"{target.address} answered that a message is stored, but msgId, queueId or queueOffset is "
            f"missing or wrong: {error}"
        ) from None
    queue = target.queue
    if queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
    message_id = outgoing.message_id
    if outgoing.is_batch:
        message_id = fields.get("batchUniqId") or message_id
    return SendResult(status, message_id, offset_id, queue, queue_offset, fields.get("transactionId"))
