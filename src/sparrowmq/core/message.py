"""Messages and queues: what users send and receive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

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
PROPERTY_INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
PROPERTY_PRODUCER: Final = "SPARROW_PRODUCER"
"""Which idempotent producer a message came from, see `protocol.producer_mark`; ours."""
PROPERTY_SEQUENCE: Final = "SPARROW_SEQUENCE"
"""Its number among that producer's messages to its queue; ours."""
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
    __transactionId__ __CRC32# SPARROW_PRODUCER SPARROW_SEQUENCE""".split()
)
"""Property names that belong to RocketMQ (remoting:5.7) and to idempotent producers; users cannot set them.
"""

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
PROPERTIES_BYTES_MAX: Final = 32767


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic on one broker. Orders by topic, broker name, queue id (client:Z-04)."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"


@dataclass(slots=True)
class Message:
    """A message to send: topic, body, one tag, keys, user properties and the application's flag.

    `keys` may be one string or several; RocketMQ joins them with blanks. `properties` are the user's own:
    reserved names are refused when the message is sent.

    At most one of three says when consumers may have it: `delay_level` (1 is the first of the broker's table,
    by default 1 s; client:B-104), `delay` in seconds, or `deliver_at`, a moment in epoch seconds or an aware
    datetime. Brokers before 5.0 know levels only; 5.x ones wait up to three days (client:B-105).

    `system` holds properties that belong to RocketMQ; `create_reply_message` and its like fill it. With
    `UNIQ_KEY` there a message that is sent alone has that id in place of a new one.
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

    @property
    def keys_text(self) -> str:
        """The keys as RocketMQ stores them: joined with one blank."""
        return self.keys if isinstance(self.keys, str) else " ".join(self.keys)


@dataclass(slots=True)
class ReceivedMessage:
    """A message as a consumer gets it.

    `message_id` is the producer's unique id (`UNIQ_KEY`) or, without one, the offset id. `properties` has
    every property, RocketMQ's own included. Times are epoch milliseconds.
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
        """The producer's unique id, else the offset id."""
        return self.properties.get(PROPERTY_UNIQ_KEY) or self.offset_message_id

    @property
    def tags(self) -> str | None:
        """The tag, or None."""
        return self.properties.get(PROPERTY_TAGS)

    @property
    def keys(self) -> list[str]:
        """The keys, split at blanks."""
        return self.properties.get(PROPERTY_KEYS, "").split()
