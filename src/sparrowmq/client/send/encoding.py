"""Encoding of messages as send requests, and decoding of their answers (client:B.3, B.9).

Sends are the hot path, so the constant part of the header is encoded once per queue (`SendTarget`); per
message only ids, times and properties are added, JSON-escaped. Members are written in Java's order, `code`
first, because brokers recognise sends by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from sparrowmq.client.send.message_checks import (
    check_body,
    check_flag,
    check_is_message,
    check_ordering_key,
    check_tag,
    check_user_property,
    keys_text,
)
from sparrowmq.core.errors import BrokerError, InvalidMessageError, ProtocolError
from sparrowmq.core.message import (
    BODY_BYTES_MAX,
    MESSAGE_TYPE_REPLY,
    PROPERTIES_BYTES_MAX,
    PROPERTY_DELAY,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_KEYS,
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_MESSAGE_TYPE,
    PROPERTY_RECONSUME_TIME,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT,
    Message,
    MessageQueue,
)
from sparrowmq.core.names import RETRY_PREFIX
from sparrowmq.core.results import SendResult, SendStatus
from sparrowmq.protocol import headers
from sparrowmq.protocol.batch import BATCH_FIXED_BYTES, BatchItem, encode_batch
from sparrowmq.protocol.codes import VERSION, RequestCode
from sparrowmq.protocol.frame import Command, frame
from sparrowmq.protocol.producer_mark import HEADER_FIELD
from sparrowmq.protocol.sysflag import TRANSACTION_PREPARED

_encode_json = msgspec.json.Encoder().encode
_decode_text = msgspec.json.Decoder(str).decode
UNIQUE_KEY_ROOM: Final = "0" * 56
"""Length of the longest unique key (client:B-84)."""
_TAIL: Final = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION


class SendTarget:
    """One queue a producer sends to, with its master's address and the constant parts of its headers."""

    __slots__ = ("_batch_head", "_single_head", "_template", "address", "queue")

    def __init__(
        self,
        queue: MessageQueue,
        address: str,
        *,
        group: str,
        create_topic_key: str,
        create_topic_queues: int,
        unit_mode: bool = False,
    ) -> None:
        self.queue = queue
        self.address = address
        self._template = (group, create_topic_key, create_topic_queues, unit_mode)
        fields = {
            "a": group,
            "b": queue.topic,
            "c": create_topic_key,
            "d": str(create_topic_queues),
            "e": str(queue.queue_id),
            "j": "0",
            "k": _java_bool(unit_mode),
            "n": queue.broker_name,
        }
        fixed = _encode_json(fields)[:-1]
        self._single_head = b'{"code":%d,"extFields":%b,"m":"false",' % (RequestCode.SEND_MESSAGE_V2, fixed)
        self._batch_head = b'{"code":%d,"extFields":%b,"m":"true",' % (RequestCode.SEND_BATCH_MESSAGE, fixed)

    def request(self, outgoing: Outgoing, opaque: int, flag: int = 0) -> bytes:
        """The complete frame that sends `outgoing` to this queue as request `opaque`."""
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

    def command(self, outgoing: Outgoing) -> Command:
        """The same request as a command, for hooks; also for replies and messages to retry topics."""
        group, create_topic_key, create_topic_queues, unit_mode = self._template
        system = outgoing.system or {}
        code = RequestCode.SEND_BATCH_MESSAGE if outgoing.is_batch else RequestCode.SEND_MESSAGE_V2
        if system.get(PROPERTY_MESSAGE_TYPE) == MESSAGE_TYPE_REPLY:
            code = RequestCode.SEND_REPLY_MESSAGE_V2
        times = most = None
        if outgoing.topic.startswith(RETRY_PREFIX):  # the broker reads the retry counts from the header
            times, most = system.get(PROPERTY_RECONSUME_TIME), system.get(PROPERTY_MAX_RECONSUME_TIMES)
        header = headers.SendMessageRequest(
            producer_group=group,
            topic=self.queue.topic,
            default_topic=create_topic_key,
            default_topic_queue_nums=create_topic_queues,
            queue_id=self.queue.queue_id,
            sys_flag=outgoing.sys_flag,
            born_timestamp=outgoing.born_timestamp,
            flag=outgoing.flag,
            properties=_decode_text(outgoing.properties),
            reconsume_times=0 if times is None else int(times),
            unit_mode=unit_mode,
            max_reconsume_times=None if most is None else int(most),
            batch=outgoing.is_batch,
            broker_name=self.queue.broker_name,
        )
        ext = headers.send_v2_to_ext(header)
        return Command(
            code, ext={**ext, HEADER_FIELD: "true"} if outgoing.is_numbered else ext, body=outgoing.body
        )


class Outgoing:
    """A checked and encoded message (or batch), the same for every attempt."""

    is_numbered = False
    """Whether an idempotent producer numbered it, see `client.send.sequences`."""

    __slots__ = (
        "body",
        "born_timestamp",
        "flag",
        "is_batch",
        "is_plain",
        "key",
        "message_id",
        "properties",
        "source",
        "sys_flag",
        "system",
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
        source: Message | Sequence[Message] = (),
        system: Mapping[str, str] | None = None,
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
        self.source = source
        """The user's messages; empty for an already encoded batch."""
        self.system = system
        """RocketMQ's system properties except id and wait flag, or None."""
        first = source if isinstance(source, Message) else next(iter(source), None)
        self.key = None if first is None else first.key
        """The ordering key, which chooses the queue; None if any queue will do. For a batch, the key of its
        first message: the others have the same, or the caller chose the queue.
        """
        self.is_plain = system is None
        """Whether it is a normal message: no delay or delivery time, no transaction, no request, no reply.
        Only plain sends use the fast path, and an idempotent producer sends only these.
        """

    @property
    def messages(self) -> Sequence[Message]:
        """The user's messages, for hooks."""
        return (self.source,) if isinstance(self.source, Message) else self.source

    @property
    def uncompressed_bytes(self) -> int:
        """Bytes of the body before compression."""
        return len(self.source.body) if isinstance(self.source, Message) else len(self.body)

    @property
    def needs_command(self) -> bool:
        """Whether `SendTarget.command` must make the request."""
        return self.system is not None and (
            PROPERTY_MESSAGE_TYPE in self.system or self.topic.startswith(RETRY_PREFIX)
        )

    @property
    def is_timer(self) -> bool:
        """Whether it uses a delivery time that brokers before 5.0 do not support."""
        return self.system is not None and (
            PROPERTY_TIMER_DELAY_MS in self.system or PROPERTY_TIMER_DELIVER_MS in self.system
        )

    def changed(
        self,
        *,
        body: bytes | None = None,
        properties: bytes | None = None,
        kind: type[Outgoing] | None = None,
    ) -> Outgoing:
        """A copy with another body, property string or kind."""
        return (kind or type(self))(
            self.topic,
            self.body if body is None else body,
            self.properties if properties is None else properties,
            self.message_id,
            self.born_timestamp,
            self.flag,
            self.sys_flag,
            self.is_batch,
            self.source,
            self.system,
        )

    @property
    def size(self) -> int:
        """Approximate memory that a send of this message needs, in bytes."""
        return len(self.body) + len(self.properties)


def property_text(message: Message, unique_key: str, system: Mapping[str, str] | None = None) -> str:
    """The property string of a message to send (remoting:5.3); `system` are RocketMQ's system properties.

    Raises `InvalidMessageError` when tags, keys or a user property are not text, a user property is reserved
    or blank, or one of them holds 0x01 or 0x02 (client:B-10), for a tag that no consumer can subscribe or a
    key that no query finds, and for an ordering key that is not text or blank.
    """
    text = (
        f"{PROPERTY_UNIQ_KEY}\x01{unique_key}\x02{PROPERTY_WAIT}\x01{_java_bool(message.wait_store_ok)}\x02"
    )
    entries = 2
    if message.tags:
        check_tag(message)
        text += f"{PROPERTY_TAGS}\x01{message.tags}\x02"
        entries += 1
    if message.keys and (keys := keys_text(message)):
        text += f"{PROPERTY_KEYS}\x01{keys}\x02"
        entries += 1
    if message.key is not None:
        check_ordering_key(message)
        text += f"{PROPERTY_SHARDING_KEY}\x01{message.key}\x02"
        entries += 1
    if system is not None:
        for name, value in system.items():
            text += f"{name}\x01{value}\x02"
            entries += 1
    if message.properties:
        for name, value in message.properties.items():
            check_user_property(name, value)
            text += f"{name}\x01{value}\x02"
            entries += 1
    if text.count("\x01") != entries or text.count("\x02") != entries:
        raise InvalidMessageError(
            f"tags, keys and properties of a message to {message.topic!r} must not hold the characters 0x01 "
            "and 0x02",
            part="properties",
        )
    if len(text) * 3 > PROPERTIES_BYTES_MAX and (size := len(text.encode())) > PROPERTIES_BYTES_MAX:
        raise InvalidMessageError(
            f"the properties of a message to {message.topic!r} take {size} bytes, the limit is "
            f"{PROPERTIES_BYTES_MAX}; move data to the body",
            limit=PROPERTIES_BYTES_MAX,
            part="properties",
        )
    return text


def _java_bool(value: bool) -> str:
    return "true" if value else "false"


def system_properties(message: Message) -> dict[str, str] | None:
    """RocketMQ's system properties of a message: its delivery time, and properties set by helpers.

    None when there are none. Raises `InvalidMessageError` when more than one delivery time is given or one is
    not a valid number (client:B-08, B-104, B-105).
    """
    if (
        message.system is None
        and message.delay_level is None
        and message.delay is None
        and message.deliver_at is None
    ):
        return None
    found = {} if message.system is None else dict(message.system)
    if message.key is not None:
        found.pop(PROPERTY_SHARDING_KEY, None)
    if "/" in found.get(PROPERTY_INNER_MULTI_DISPATCH, ""):
        raise InvalidMessageError(
            f"{PROPERTY_INNER_MULTI_DISPATCH}={found[PROPERTY_INNER_MULTI_DISPATCH]!r} must not hold '/'",
            part=PROPERTY_INNER_MULTI_DISPATCH,
        )
    given = [
        name
        for name, value in (
            ("delay_level", message.delay_level),
            ("delay", message.delay),
            ("deliver_at", message.deliver_at),
        )
        if value is not None
    ]
    if len(given) > 1:
        raise InvalidMessageError(
            f"{' and '.join(given)} of a message to {message.topic!r} both set the time of delivery; give "
            f"one of them",
            part=" and ".join(given),
        )
    if message.delay_level is not None:
        level = message.delay_level
        if not isinstance(level, int) or isinstance(level, bool) or not 0 <= level < 2**31:
            raise InvalidMessageError(
                f"delay_level={level!r} must be a whole number; 1 is the first level", part="delay_level"
            )
        if level:
            found[PROPERTY_DELAY] = str(level)
    if message.delay is not None:
        found[PROPERTY_TIMER_DELAY_MS] = str(_milliseconds("delay", message.delay))
    if message.deliver_at is not None:
        found[PROPERTY_TIMER_DELIVER_MS] = str(_moment_ms(message.deliver_at))
    return found or None


def _moment_ms(moment: datetime | float) -> int:
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise InvalidMessageError(
                f"deliver_at={moment!r} has no time zone; give an aware datetime or epoch seconds",
                part="deliver_at",
            )
        return _milliseconds("deliver_at", moment.timestamp())
    return _milliseconds("deliver_at", moment)


def _milliseconds(name: str, seconds: float) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e12:
        raise InvalidMessageError(f"{name}={seconds!r} must be a number of seconds, 0 or more", part=name)
    return round(seconds * 1000)


def outgoing_single(message: Message, unique_key: str, now_ms: int, bytes_max: int) -> Outgoing:
    """A single message, checked and encoded; not compressed yet."""
    check_body(message, bytes_max)
    if message.flag:
        check_flag(message)
    sys_flag, system = 0, system_properties(message)
    if system is not None:
        unique_key = system.pop(PROPERTY_UNIQ_KEY, unique_key)
        if system.get(PROPERTY_TRANSACTION_PREPARED) == "true":
            sys_flag = TRANSACTION_PREPARED
        system = system or None
    topic = message.topic
    properties = escaped(property_text(message, unique_key, system), topic)
    return Outgoing(
        topic, message.body, properties, unique_key, now_ms, message.flag, sys_flag, False, message, system
    )


def escaped(text: str, topic: str) -> bytes:
    """A property string as a JSON string. Raises `InvalidMessageError` on text that UTF-8 cannot encode."""
    try:
        return _encode_json(text)
    except UnicodeEncodeError as error:
        raise _not_utf8(error, topic) from None


def _not_utf8(error: UnicodeEncodeError, topic: str) -> InvalidMessageError:
    wrong = error.object[error.start : error.end]
    return InvalidMessageError(
        f"tags, keys or properties of a message to {topic!r} have {wrong!r}, which UTF-8 cannot encode: "
        f"{error.reason}",
        part="properties",
    )


def outgoing_batch(
    messages: list[Message], unique_keys: list[str], batch_key: str, now_ms: int, bytes_max: int
) -> Outgoing:
    """Several messages as one batch request (client:B-72 to B-75).

    Raises `InvalidMessageError` when there are no messages, when they differ in topic, `key` or
    `wait_store_ok`, have a delay level, go to a retry topic, or exceed `bytes_max` bytes in total.
    """
    if not messages:
        raise InvalidMessageError("a batch needs at least one message", part="batch")
    for message in messages:
        check_is_message(message)
    first = messages[0]
    if first.topic.startswith(RETRY_PREFIX):
        raise InvalidMessageError(
            f"a batch cannot go to the retry topic {first.topic!r}; send one by one", part="topic"
        )
    items = []
    for message, key in zip(messages, unique_keys, strict=True):
        if message.topic != first.topic:
            raise InvalidMessageError(
                f"a batch has one topic, but this one has {first.topic!r} and {message.topic!r}; split it",
                part="topic",
            )
        if message.wait_store_ok != first.wait_store_ok:
            raise InvalidMessageError(
                "all messages of a batch must have the same wait_store_ok", part="wait_store_ok"
            )
        if message.key != first.key:
            raise InvalidMessageError(
                f"a batch goes to one queue, but has the keys {first.key!r} and {message.key!r}; split it, "
                f"or send the messages singly with linger",
                part="key",
            )
        if message.delay_level:
            raise InvalidMessageError(
                f"messages of a batch cannot have delay levels, but one has {message.delay_level}; send it "
                f"alone",
                part="delay_level",
            )
        items.append(batch_item(message, key, bytes_max))
    body = encode_batch(items)
    if len(body) > bytes_max:
        raise InvalidMessageError(
            f"a batch of {len(messages)} messages to {first.topic!r} takes {len(body)} bytes, the limit is "
            f"{bytes_max}; send smaller batches (`split_batch`)",
            part="batch",
            limit=bytes_max,
        )
    return outgoing_items(messages, unique_keys, body, batch_key, now_ms)


def may_linger(message: Message) -> bool:
    """Whether a single send may be combined with others in a batch: a plain message without a user-defined id
    that does not go to a retry topic. Raises `InvalidMessageError` as a send does.
    """
    return not message.topic.startswith(RETRY_PREFIX) and system_properties(message) is None


def batch_item(message: Message, unique_key: str, bytes_max: int) -> BatchItem:
    """One member of a batch, checked and encoded."""
    check_body(message, bytes_max)
    check_flag(message)
    text = property_text(message, unique_key, system_properties(message))
    return message.flag, message.body, _utf8(text, message.topic)


def outgoing_items(
    messages: Sequence[Message], unique_keys: Sequence[str], body: bytes, batch_key: str, now_ms: int
) -> Outgoing:
    """A batch of compatible messages encoded in `body`; with an empty `batch_key` the batch has no id."""
    first = messages[0]
    text = f"{PROPERTY_WAIT}\x01{_java_bool(first.wait_store_ok)}\x02"
    if batch_key:
        text = f"{PROPERTY_UNIQ_KEY}\x01{batch_key}\x02{text}"
    message_id = ",".join(unique_keys)
    return Outgoing(
        first.topic, body, _encode_json(text), message_id, now_ms, is_batch=True, source=tuple(messages)
    )


def split_batch(
    messages: Iterable[Message], *, bytes_max: int = BODY_BYTES_MAX, count_max: int = 1024
) -> Iterator[list[Message]]:
    """Groups of `messages`, in order, that each fit one batch of `bytes_max` encoded bytes.

    A new group also begins where topic, `key` or `wait_store_ok` change, and after `count_max` messages. A
    message with a delay level forms a group alone. A message that is too large also forms a group alone, and
    its send is refused. Batches of 1 MiB perform better at brokers than batches at the limit.

    >>> [len(group) for group in split_batch([Message("T", b"x" * 300)] * 5, bytes_max=1000)]
    [2, 2, 1]
    """
    group: list[Message] = []
    size = 0
    for message in messages:
        needed = _item_bytes(message)
        if group and (
            size + needed > bytes_max
            or len(group) >= count_max
            or message.topic != group[0].topic
            or message.wait_store_ok != group[0].wait_store_ok
            or message.key != group[0].key
            or message.delay_level
            or group[0].delay_level
        ):
            yield group
            group, size = [], 0
        group.append(message)
        size += needed
    if group:
        yield group


def _item_bytes(message: Message) -> int:
    """Maximum encoded size of one member of a batch."""
    text = property_text(message, UNIQUE_KEY_ROOM, system_properties(message))
    return BATCH_FIXED_BYTES + len(message.body) + len(_utf8(text, message.topic))


def outgoing_encoded_batch(
    topic: str, body: bytes, count: int, batch_key: str, now_ms: int, bytes_max: int
) -> Outgoing:
    """A batch with an already encoded body. Raises `InvalidMessageError` on an empty or oversized one."""
    if count < 1 or not body:
        raise InvalidMessageError(f"a batch needs at least one message, {topic!r} gets {count}", part="batch")
    if len(body) > bytes_max:
        raise InvalidMessageError(
            f"a batch of {count} messages to {topic!r} takes {len(body)} bytes, the limit is {bytes_max}; "
            "send smaller batches",
            part="batch",
            limit=bytes_max,
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
    """The result from a broker's response. Raises `BrokerError` when the message was not stored.

    Raises `ProtocolError` when a success response lacks id, queue or offset.
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
            f"missing or wrong: {error}",
            what="answer",
            value=target.address,
        ) from None
    queue = target.queue
    if queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
    message_id = outgoing.message_id
    if outgoing.is_batch:
        message_id = fields.get("batchUniqId") or message_id
    return SendResult(
        status,
        message_id,
        offset_id,
        queue,
        queue_offset,
        fields.get("transactionId"),
        fields.get("recallHandle"),
        fields.get("MSG_REGION", "DefaultRegion"),
        fields.get("TRACE_ON") != "false",
    )
