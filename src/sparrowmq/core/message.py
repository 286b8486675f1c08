"""Messages and queues, as users send and receive them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, Final, Self

import msgspec

from sparrowmq.core.errors import InvalidMessageError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

PROPERTY_KEYS: Final = "KEYS"
PROPERTY_TAGS: Final = "TAGS"
PROPERTY_WAIT: Final = "WAIT"
PROPERTY_DELAY: Final = "DELAY"
PROPERTY_UNIQ_KEY: Final = "UNIQ_KEY"
PROPERTY_RETRY_TOPIC: Final = "RETRY_TOPIC"
PROPERTY_ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
PROPERTY_CONSUME_START_TIME: Final = "CONSUME_START_TIME"
PROPERTY_MIN_OFFSET: Final = "MIN_OFFSET"
PROPERTY_MAX_OFFSET: Final = "MAX_OFFSET"
PROPERTY_MSG_REGION: Final = "MSG_REGION"
PROPERTY_TRACE_ON: Final = "TRACE_ON"
PROPERTY_CLUSTER: Final = "CLUSTER"
PROPERTY_POP_CK: Final = "POP_CK"
PROPERTY_TRANSACTION_PREPARED: Final = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP: Final = "PGROUP"
PROPERTY_TRANSACTION_ID: Final = "__transactionId__"
PROPERTY_CHECK_IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PROPERTY_RECONSUME_TIME: Final = "RECONSUME_TIME"
PROPERTY_MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
PROPERTY_CORRELATION_ID: Final = "CORRELATION_ID"
PROPERTY_REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
PROPERTY_TTL: Final = "TTL"
PROPERTY_MESSAGE_TYPE: Final = "MSG_TYPE"
PROPERTY_ARRIVE_TIME: Final = "ARRIVE_TIME"
PROPERTY_TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
PROPERTY_TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
PROPERTY_START_DELIVER_TIME: Final = "__STARTDELIVERTIME"
PROPERTY_INSTANCE_ID: Final = "INSTANCE_ID"
PROPERTY_SHARDING_KEY: Final = "__SHARDINGKEY"
"""The ordering key of a message; RocketMQ 5 calls it the message group."""
PROPERTY_INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
PROPERTY_PRODUCER: Final = "SPARROW_PRODUCER"
"""The idempotent producer of a message, see `protocol.producer_mark`; a SparrowMQ property."""
PROPERTY_SEQUENCE: Final = "SPARROW_SEQUENCE"
"""The message's number among that producer's messages to its queue; a SparrowMQ property."""
PROPERTY_ENDED_TOPIC: Final = "SPARROW_ENDED_TOPIC"
"""The topic of a record that idempotent producers have ended, see `protocol.producer_mark`."""
PROPERTY_END_NOTE: Final = "SPARROW_END_NOTE"
"""The note in such a record."""
PROPERTY_ERROR: Final = "SPARROW_ERROR"
"""The handler's error, in a retried or dead message, see `failure_text`; a SparrowMQ property."""
ERROR_CHARS_MAX: Final = 300
MESSAGE_TYPE_REPLY: Final = "reply"

SYSTEM_PROPERTIES: Final = frozenset(
    """KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID
    ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY
    EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME POP_CK POP_CK_OFFSET 1ST_POP_TIME
    TRAN_PREPARED_QUEUE_OFFSET DUP_INFO INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME
    PUSH_REPLY_TIME CLUSTER MSG_TYPE INNER_NUM INNER_BASE INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET
    TIMER_DELIVER_MS TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS
    TIMER_ROLL_TIMES TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL TRANSACTION_CHECK_TIMES
    CHECK_IMMUNITY_TIME_IN_SECONDS __SHARDINGKEY DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID
    __transactionId__ __CRC32# SPARROW_PRODUCER SPARROW_SEQUENCE SPARROW_ENDED_TOPIC SPARROW_END_NOTE
    SPARROW_ERROR""".split()
)
"""Property names reserved by RocketMQ (remoting:5.7) and for idempotent producers; users cannot set them.
"""

POP_MAX: Final = 32
"""Maximum number of messages of one POP."""
BODY_BYTES_MAX: Final = 4 * 1024 * 1024
PROPERTIES_BYTES_MAX: Final = 32767
COPY_BYTES_MAX: Final = 1024
"""Maximum size that delays, checks of transactions, retries and dead letters may add to the properties of a
message; a send must leave room for it.
"""


def failure_text(text: str) -> str:
    """An error text as a property value: one line of at most `ERROR_CHARS_MAX` characters."""
    line = "".join(char if char.isprintable() else " " for char in text[: 4 * ERROR_CHARS_MAX])
    line = " ".join(line.split())
    return line if len(line) <= ERROR_CHARS_MAX else f"{line[: ERROR_CHARS_MAX - 1]}…"


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic on one broker. Orders by topic, broker name, queue id (client:Z-04)."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"


BY_PLACE: Final = attrgetter("topic", "broker_name", "queue_id")
"""A sort key for large numbers of queues: the same order, three times as fast."""


@dataclass(slots=True)
class Message:
    """A message to send: topic, body, one tag, keys, user properties and the application's flag.

    `key` is the ordering key: messages with equal keys go to one queue, unless the send names a queue or a
    selector. `keys` are for look-up; they may be one string or several, which RocketMQ joins with blanks.
    `properties` are the user's properties; reserved names are refused when the message is sent.

    At most one of three fields delays delivery: `delay_level` (1 is the first of the broker's table, by
    default 1 s; client:B-104), `delay` in seconds, or `deliver_at`, a time in epoch seconds or an aware
    datetime. Brokers before 5.0 only support levels; 5.x ones delay up to three days (client:B-105).

    `system` has RocketMQ's system properties; helpers such as `create_reply_message` set it. With `UNIQ_KEY`
    in it, a single message gets that id instead of a new one.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | Iterable[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    wait_store_ok: bool = True
    delay_level: int | None = None
    delay: float | None = None
    deliver_at: datetime | float | None = None
    system: Mapping[str, str] | None = field(default=None, repr=False)
    key: str | None = None

    @classmethod
    def of_json(cls, topic: str, value: Any, **fields: Any) -> Self:
        """A message whose body is `value` as JSON; `fields` are the others, such as `key`.

        Dataclasses, datetimes, UUIDs and decimals are values, too. `ReceivedMessage.json` reads it. Raises
        TypeError for what has no JSON.
        """
        return cls(topic, msgspec.json.encode(value), **fields)

    @classmethod
    def of_text(cls, topic: str, text: str, **fields: Any) -> Self:
        """A message whose body is `text` in UTF-8; `fields` are the others."""
        return cls(topic, text.encode(), **fields)

    @property
    def keys_text(self) -> str:
        """The keys as RocketMQ stores them: joined with one blank."""
        return self.keys if isinstance(self.keys, str) else " ".join(self.keys)


def split_keys(text: str) -> list[str]:
    """The keys in a property `KEYS`: only the blank separates them, no other white space."""
    return [key for key in text.split(" ") if key]


def is_key(text: str) -> bool:
    """Whether queries find a message by this key: it is not empty and has no white space."""
    return text.split() == [text]


@dataclass(slots=True)
class ReceivedMessage:
    """A received message.

    `message_id` is the producer's unique id (`UNIQ_KEY`) or, without one, the offset id. `properties` has all
    properties, including RocketMQ's. `text` and `json` decode the body. `stored_at` and `born_at`
    are datetimes, `store_timestamp` and `born_timestamp` the same times in epoch milliseconds.
    """

    queue: MessageQueue
    queue_offset: int
    physical_offset: int
    topic: str
    body: bytes
    properties: dict[str, str]
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    store_size: int
    prepared_transaction_offset: int
    offset_message_id: str

    @property
    def message_id(self) -> str:
        """The producer's unique id, or else the offset id."""
        return self.properties.get(PROPERTY_UNIQ_KEY) or self.offset_message_id

    @property
    def tags(self) -> str | None:
        """The tag, or None."""
        return self.properties.get(PROPERTY_TAGS)

    @property
    def key(self) -> str | None:
        """The ordering key, or None."""
        return self.properties.get(PROPERTY_SHARDING_KEY)

    @property
    def keys(self) -> list[str]:
        """The keys, split at blanks, as brokers split them for queries."""
        return split_keys(self.properties.get(PROPERTY_KEYS, ""))

    @property
    def stored_at(self) -> datetime:
        """When the broker stored it, by the broker's clock; in UTC."""
        return _EPOCH + timedelta(milliseconds=self.store_timestamp)

    @property
    def born_at(self) -> datetime:
        """When the producer made it, by the producer's clock; in UTC."""
        return _EPOCH + timedelta(milliseconds=self.born_timestamp)

    @property
    def text(self) -> str:
        """The body as text. Raises `InvalidMessageError` when it is not UTF-8."""
        try:
            return self.body.decode()
        except UnicodeDecodeError as error:
            raise self._unreadable("UTF-8", error) from error

    def json(self, into: type[Any] | Any = Any) -> Any:
        """The body's JSON as a value, or as an object of class `into`, such as a dataclass.

        Raises `InvalidMessageError` when it is not JSON, or does not fit `into`.
        """
        try:
            return msgspec.json.decode(self.body, type=into)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._unreadable("JSON" if into is Any else f"JSON of {into}", error) from error

    def _unreadable(self, what: str, error: Exception) -> InvalidMessageError:
        return InvalidMessageError(
            f"the body of message {self.message_id} of {self.queue}, offset {self.queue_offset}, is not "
            f"{what}: {error}; read its bytes in `body`",
            part="body",
        )
