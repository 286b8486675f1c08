"""Headers of transactions, of requests from brokers to clients, and of queries about clients (remoting:2.6).

As in `headers`: fields are strings on the wire, names are Java's class names without "Header".
"""

from __future__ import annotations

from typing import Final

from msgspec import field

from sparrowmq.protocol.headers import Header, Int32, Int64

HOLD_HOURS_MAX: Final = 24 * 366
HOLD_SIZE_MAX: Final = 2**62
"""Limits of a hold, at clients, brokers and the coordinator."""

# --- Transactions ----------------------------------------------------------------------------------------


class EndTransactionRequest(Header, kw_only=True):
    """END_TRANSACTION (37), mostly one-way.

    `commit_or_rollback` is 0 unknown, 8 commit, 12 rollback. `tran_state_table_offset` is the half message's
    queue offset, `commit_log_offset` its physical offset, `msg_id` its unique key.
    """

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str | None = None
    transaction_id: str | None = None
    topic: str | None = None
    broker_name: str | None = field(default=None, name="bname")


class CheckTransactionStateRequest(Header, kw_only=True):
    """CHECK_TRANSACTION_STATE (39), broker to producer, one-way; the body is the half message.

    `msg_id` and `transaction_id` are the unique key, `topic` is the half topic.
    """

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
    broker_name: str | None = field(default=None, name="bname")


class ResumeCheckHalfMessageRequest(Header, kw_only=True):
    """RESUME_CHECK_HALF_MESSAGE (323); `msg_id` is an offset message id."""

    msg_id: str
    topic: str | None = None


# --- Request and reply -----------------------------------------------------------------------------------


class ReplyMessageRequest(Header, kw_only=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326), broker to client; the body is the reply's. Hosts are `ip:port`."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Int64


# --- Offsets of groups -----------------------------------------------------------------------------------


class ResetOffsetRequest(Header, kw_only=True):
    """INVOKE_BROKER_TO_RESET_OFFSET (222) and, to clients, RESET_CONSUMER_CLIENT_OFFSET (220).

    `timestamp` is epoch milliseconds, -1 for the end. With `queue_id` 0 or more only one queue moves, to
    `offset` unless that is -1. Without `is_force` offsets only move back.
    """

    topic: str
    group: str
    timestamp: Int64
    is_force: bool = False
    queue_id: Int32 = -1
    offset: Int64 | None = None


class GetConsumerStatusRequest(Header, kw_only=True):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223) and, to clients, GET_CONSUMER_STATUS_FROM_CLIENT (221).

    `client_addr` is a client id; without it every member is asked.
    """

    topic: str
    group: str
    client_addr: str | None = None


class RetentionHoldRequest(Header, kw_only=True):
    """PUT_RETENTION_HOLD (90101) and, with the topic alone, DELETE_RETENTION_HOLD (90102); only SparrowMQ.

    `hours` is at least 1 and at most `HOLD_HOURS_MAX`, `size_max` at most `HOLD_SIZE_MAX`.
    """

    topic: str
    group: str = ""
    hours: int = 0
    size_max: int = 0


class EndProducersRequest(Header, kw_only=True):
    """END_PRODUCERS (90301), only SparrowMQ: end the epochs before `epoch` of a producer family.

    With `epoch` 0 nothing changes. `note` is stored for later queries. With `producer` and `queue_id`, the
    answer has the state of that producer in that queue.
    """

    topic: str
    family: str
    epoch: int = 0
    note: str = ""
    producer: str = ""
    queue_id: int = 0


class CloneGroupOffsetRequest(Header, kw_only=True):
    """CLONE_GROUP_OFFSET (314); without `topic` every topic of the source group."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class QueryCorrectionOffsetRequest(Header, kw_only=True):
    """QUERY_CORRECTION_OFFSET (308); `filter_groups` is comma-joined."""

    topic: str
    compare_group: str
    filter_groups: str | None = None


class QueryConsumeTimeSpanRequest(Header, kw_only=True):
    """QUERY_CONSUME_TIME_SPAN (303)."""

    topic: str
    group: str


# --- Groups and clients ----------------------------------------------------------------------------------


class ProxiedClientRequest(Header, kw_only=True):
    """REGISTER_PROXIED_CLIENT (90501), with a heartbeat as its body, and UNREGISTER_PROXIED_CLIENT (90502);
    only SparrowMQ. Address (`host:port`), language and version are those of the proxy's client.
    """

    client_id: str = field(default="", name="clientID")
    consumer_group: str = ""
    client_address: str = ""
    language: str = ""
    client_version: Int32 = 0


class CheckTopicRightRequest(Header, kw_only=True):
    """CHECK_TOPIC_RIGHT (90503), only SparrowMQ: whether the caller may use a topic in any way."""

    topic: str


class GetConsumerRunningInfoRequest(Header, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO (307), to the broker and from there to the client."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyRequest(Header, kw_only=True):
    """CONSUME_MESSAGE_DIRECTLY (309); `msg_id` is an offset message id. The broker adds the last three."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    topic: str | None = None
    broker_name: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


class QuerySubscriptionByConsumerRequest(Header, kw_only=True):
    """QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    group: str
    topic: str


class UpdateGroupForbiddenRequest(Header, kw_only=True):
    """UPDATE_AND_GET_GROUP_FORBIDDEN (353); without `readable` it is only a query."""

    group: str
    topic: str
    readable: bool | None = None


class GetBrokerConsumeStatsRequest(Header, kw_only=True):
    """GET_BROKER_CONSUME_STATS (317); with `is_order` only ordered topics."""

    is_order: bool = False
