"""Typed header fields of requests and answers. Java's camelCase names appear only here.

On the wire every field is a string in `extFields` (remoting:1.3). `from_ext` converts them to a typed header,
`to_ext` does the reverse. Names are Java's class names without "Header"; fields are those of remoting:2.
Unknown fields are ignored. Times are epoch milliseconds; `broker_name` is the optional `bname` that 5.x
clients add.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import field

from sparrowmq.core.errors import HeaderError

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

BULK_BYTES_MAX: Final = 8 * 1024 * 1024
"""The maximum of `bulk_bytes`."""


class Header(msgspec.Struct, gc=False, rename="camel"):
    """Base of all typed headers."""


H = TypeVar("H", bound=msgspec.Struct)


@lru_cache(maxsize=512)
def _wire_fields(type_: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    return tuple((info.name, info.encode_name) for info in msgspec.structs.fields(type_))


@lru_cache(maxsize=512)
def _booleans(type_: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(
        info.encode_name for info in msgspec.structs.fields(type_) if info.type in (bool, bool | None)
    )


def from_ext(type_: type[H], ext: Mapping[str, str]) -> H:
    """The header of type `type_` in `ext`.

    Numbers are range-checked as Java's int and long; for booleans `true` in any case is true and everything
    else is false. Raises `HeaderError` naming the field and its value when a required field is missing or a
    number is invalid.
    """
    fields: Mapping[str, object] = ext
    for name in _booleans(type_):
        if name in ext:
            fields = {**fields, name: ext[name].lower() == "true"}
    try:
        return msgspec.convert(fields, type_, strict=False)
    except msgspec.ValidationError:
        raise _refusal(type_, fields) from None


def _refusal(type_: type[msgspec.Struct], fields: Mapping[str, object]) -> HeaderError:
    """The error for the first field that is missing or cannot be converted."""
    for name, info in ((one.encode_name, one) for one in msgspec.structs.fields(type_)):
        if name not in fields:
            if info.required:
                return HeaderError(f"{type_.__name__}: the required field {name!r} is missing", what=name)
            continue
        try:
            msgspec.convert(fields[name], info.type, strict=False)
        except msgspec.ValidationError as error:
            value = str(fields[name])[:80]
            text = f"{type_.__name__}: the field {name!r} is {value!r}: {error}"
            return HeaderError(text, what=name, value=value)
    raise AssertionError(f"{type_.__name__} has fields that cannot be converted together")


def to_ext(header: msgspec.Struct) -> dict[str, str]:
    """The header's fields as sent on the wire: wire names and texts; None is omitted."""
    ext = {}
    for name, wire_name in _wire_fields(type(header)):
        value = getattr(header, name)
        if value is True:
            ext[wire_name] = "true"
        elif value is False:
            ext[wire_name] = "false"
        elif value is not None:
            ext[wire_name] = str(value)
    return ext


# --- Sending ---------------------------------------------------------------------------------------------


class SendMessageRequest(Header, kw_only=True):
    """SEND_MESSAGE (10) and, with one-letter field names, SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320).

    Only `batch` determines whether the body is a batch. `queue_id` below 0 lets the broker choose.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 = 0
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    batch: bool = False
    broker_name: str | None = field(default=None, name="bname")


_LETTERS: Final = dict(
    zip("abcdefghijklmn", (wire for _, wire in _wire_fields(SendMessageRequest)), strict=True)
)
_NAMES: Final = {name: letter for letter, name in _LETTERS.items()}


def send_from_v2(ext: Mapping[str, str]) -> SendMessageRequest:
    """A send from the fields `a` to `n` of codes 310, 320 and 325; errors as in `from_ext`."""
    return from_ext(SendMessageRequest, {_LETTERS[name]: ext[name] for name in ext if name in _LETTERS})


def send_v2_to_ext(header: SendMessageRequest) -> dict[str, str]:
    """A send as the fields `a` to `n`."""
    return {_NAMES[name]: value for name, value in to_ext(header).items()}


class SendMessageResponse(Header, kw_only=True):
    """Where a message was stored. `msg_id` is the offset message id, comma-joined for a batch."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    region_id: str | None = field(default=None, name="MSG_REGION")
    trace_on: str | None = field(default=None, name="TRACE_ON")


# --- Consuming -------------------------------------------------------------------------------------------


class PullMessageRequest(Header, kw_only=True):
    """PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361).

    `sys_flag`: 1 commit `commit_offset`, 2 may be held for `suspend_timeout_millis`, 4 `subscription` is
    given. SparrowMQ's extensions, which other brokers ignore: `bulk_bytes`, the maximum bytes of the
    response, up to `BULK_BYTES_MAX`; `generation`, under which a member of a managed group has the queue;
    `birth` of the topic to which the offsets belong, 0 if that is unknown and asked for.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    sub_version: Int64
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    bulk_bytes: Int32 | None = None
    generation: Int64 | None = None
    birth: Int64 | None = None
    broker_name: str | None = field(default=None, name="bname")


class PullMessageResponse(Header, kw_only=True):
    """The next offset; all four offsets are mandatory for codes 0, 19, 20 and 21 (remoting:2.4)."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None
    birth: Int64 | None = None


class QueueRequest(Header, kw_only=True):
    """A query about one queue."""

    topic: str
    queue_id: Int32
    broker_name: str | None = field(default=None, name="bname")


class QueryConsumerOffsetRequest(QueueRequest, kw_only=True):
    """QUERY_CONSUMER_OFFSET (14). Code 22 answers a group without offset. `birth` 0 asks for it."""

    consumer_group: str
    set_zero_if_not_found: bool | None = None
    birth: Int64 | None = None


class UpdateConsumerOffsetRequest(QueueRequest, kw_only=True):
    """UPDATE_CONSUMER_OFFSET (15), mostly one-way. `generation` and `birth` as in a pull."""

    consumer_group: str
    commit_offset: Int64
    generation: Int64 | None = None
    birth: Int64 | None = None


class OffsetResponse(Header, kw_only=True):
    """A queue offset."""

    offset: Int64


class QueryConsumerOffsetResponse(OffsetResponse):
    """The group's next offset."""

    birth: Int64 | None = None


class GetMaxOffsetRequest(QueueRequest, kw_only=True):
    """GET_MAX_OFFSET (30)."""

    committed: bool = True


class GetMaxOffsetResponse(OffsetResponse):
    """The offset the next message will get."""


class GetMinOffsetRequest(QueueRequest):
    """GET_MIN_OFFSET (31)."""


class GetMinOffsetResponse(OffsetResponse):
    """The smallest stored offset."""


class SearchOffsetRequest(QueueRequest, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP (29). `boundary_type`: LOWER (default) or UPPER, any case."""

    timestamp: Int64
    boundary_type: str | None = None


class SearchOffsetResponse(OffsetResponse):
    """The offset at the time."""


class GetEarliestMsgStoretimeRequest(QueueRequest):
    """GET_EARLIEST_MSG_STORETIME (32)."""


class GetEarliestMsgStoretimeResponse(Header, kw_only=True):
    """Store time of the queue's oldest message, -1 without one."""

    timestamp: Int64


class GetConsumerListByGroupRequest(Header, kw_only=True):
    """GET_CONSUMER_LIST_BY_GROUP (38)."""

    consumer_group: str


class NotifyConsumerIdsChangedRequest(Header, kw_only=True):
    """NOTIFY_CONSUMER_IDS_CHANGED (40), broker to client, one-way."""

    consumer_group: str


class UnregisterClientRequest(Header, kw_only=True):
    """UNREGISTER_CLIENT (35). C++ sends the unused group as an empty string."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class ConsumerSendMsgBackRequest(Header, kw_only=True):
    """CONSUMER_SEND_MSG_BACK (36). `delay_level`: 0 broker's choice, below 0 dead letter, otherwise that
    level.

    `generation` as in a pull. `sparrow_error` is the handler's error, a SparrowMQ extension.
    """

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    generation: Int64 | None = None
    sparrow_error: str | None = None
    broker_name: str | None = field(default=None, name="bname")


class RecallMessageRequest(Header, kw_only=True):
    """RECALL_MESSAGE (370). `recall_handle` comes from the response to the timed send."""

    topic: str
    recall_handle: str
    producer_group: str | None = None
    broker_name: str | None = field(default=None, name="bname")


class RecallMessageResponse(Header, kw_only=True):
    """The recall's marker is stored; `msg_id` is the recalled message's unique key."""

    msg_id: str
    region_id: str | None = field(default=None, name="MSG_REGION")


class ViewMessageRequest(Header, kw_only=True):
    """VIEW_MESSAGE_BY_ID (33). `offset` is the physical offset of an offset message id."""

    offset: Int64
    topic: str | None = None


class QueryMessageRequest(Header, kw_only=True):
    """QUERY_MESSAGE (12). `index_type`: K key (default), U unique key, T tag; the times limit the store time.

    The field `_UNIQUE_KEY_QUERY`, which is not part of the header, also requests a unique key.
    """

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    index_type: str | None = None
    last_key: str | None = None


class QueryMessageResponse(Header, kw_only=True):
    """Progress of the index: store time and physical offset of its newest message."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class QueryConsumeQueueRequest(Header, kw_only=True):
    """QUERY_CONSUME_QUEUE (321): `count` entries of a queue from offset `index` on."""

    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None


class ViewBrokerStatsDataRequest(Header, kw_only=True):
    """VIEW_BROKER_STATS_DATA (315)."""

    stats_name: str
    stats_key: str


class GetBrokerConfigResponse(Header, kw_only=True):
    """GET_BROKER_CONFIG (26): version of the settings, as JSON."""

    version: str


# --- Topics, groups and statistics -----------------------------------------------------------------------


class CreateTopicRequest(Header, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC (17). `attributes`: `+key=value,-key`. `sparrow_force`, ours: hide messages."""

    topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    default_topic: str = "TBW102"
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None
    sparrow_force: bool | None = None


class DeleteTopicRequest(Header, kw_only=True):
    """DELETE_TOPIC_IN_BROKER (215)."""

    topic: str


class DeleteTopicFromNamesrvRequest(Header, kw_only=True):
    """DELETE_TOPIC_IN_NAMESRV (216); with `cluster_name` only from that cluster's brokers."""

    topic: str
    cluster_name: str | None = None


class GetTopicConfigRequest(Header, kw_only=True):
    """GET_TOPIC_CONFIG (351)."""

    topic: str
    lo: bool | None = None


class GetTopicStatsInfoRequest(Header, kw_only=True):
    """GET_TOPIC_STATS_INFO (202)."""

    topic: str


class GetConsumeStatsRequest(Header, kw_only=True):
    """GET_CONSUME_STATS (208); `topic_list` joins several topics with `;`."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetConsumerConnectionListRequest(Header, kw_only=True):
    """GET_CONSUMER_CONNECTION_LIST (203)."""

    consumer_group: str


class GetProducerConnectionListRequest(Header, kw_only=True):
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    producer_group: str


class QueryTopicConsumeByWhoRequest(Header, kw_only=True):
    """QUERY_TOPIC_CONSUME_BY_WHO (300)."""

    topic: str


class QueryTopicsByConsumerRequest(Header, kw_only=True):
    """QUERY_TOPICS_BY_CONSUMER (343)."""

    group: str


class GetSubscriptionGroupConfigRequest(Header, kw_only=True):
    """GET_SUBSCRIPTIONGROUP_CONFIG (352)."""

    group: str


class DeleteSubscriptionGroupRequest(Header, kw_only=True):
    """DELETE_SUBSCRIPTIONGROUP (207); 4.9 calls `clean_offset` `removeOffset`."""

    group_name: str
    clean_offset: bool = False
    remove_offset: bool = False


# --- Name server -----------------------------------------------------------------------------------------


class BrokerRequest(Header, kw_only=True):
    """The broker that sends the request or that it is about."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class RegisterBrokerRequest(BrokerRequest, kw_only=True):
    """REGISTER_BROKER (103). `body_crc32` 0 means unchecked."""

    ha_server_addr: str
    compressed: bool = False
    body_crc32: Int32 = field(default=0, name="bodyCrc32")
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None


class RegisterBrokerResponse(Header, kw_only=True):
    """The first two are only for a slave whose master is known. `sparrow_rival` is the address of another
    live broker with this name and id, a SparrowMQ extension.
    """

    ha_server_addr: str | None = None
    master_addr: str | None = None
    sparrow_rival: str | None = None


class UnregisterBrokerRequest(BrokerRequest):
    """UNREGISTER_BROKER (104)."""


class QueryDataVersionRequest(BrokerRequest):
    """QUERY_DATA_VERSION (322)."""


class QueryDataVersionResponse(Header, kw_only=True):
    """Whether the name server's data version differs from the one sent."""

    changed: bool


class GetRouteInfoRequest(Header, kw_only=True):
    """GET_ROUTEINFO_BY_TOPIC (105)."""

    topic: str
    accept_standard_json_only: bool = False


class BrokerHeartbeatRequest(Header, kw_only=True):
    """BROKER_HEARTBEAT (904), one-way."""

    cluster_name: str
    broker_addr: str
    broker_name: str


class RegisterTopicRequest(Header, kw_only=True):
    """REGISTER_TOPIC_IN_NAMESRV (217); the body is a route without brokers."""

    topic: str


class WipeWritePermRequest(Header, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER (205)."""

    broker_name: str


class WipeWritePermResponse(Header, kw_only=True):
    """How many topics lost the write bit."""

    wipe_topic_count: Int32


class AddWritePermRequest(Header, kw_only=True):
    """ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str


class AddWritePermResponse(Header, kw_only=True):
    """How many topics got the write bit."""

    add_topic_count: Int32


class GetTopicsByClusterRequest(Header, kw_only=True):
    """GET_TOPICS_BY_CLUSTER (224)."""

    cluster: str


class GetBrokerMemberGroupRequest(Header, kw_only=True):
    """GET_BROKER_MEMBER_GROUP (901)."""

    cluster_name: str
    broker_name: str


class PutKVConfigRequest(Header, kw_only=True):
    """PUT_KV_CONFIG (100)."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequest(Header, kw_only=True):
    """GET_KV_CONFIG (101)."""

    namespace: str
    key: str


class GetKVConfigResponse(Header, kw_only=True):
    """The value."""

    value: str | None = None


class DeleteKVConfigRequest(Header, kw_only=True):
    """DELETE_KV_CONFIG (102)."""

    namespace: str
    key: str


class GetKVListByNamespaceRequest(Header, kw_only=True):
    """GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str
