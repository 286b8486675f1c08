"""JSON bodies of requests and answers: Java's member names on the wire, Python's in code (remoting:4).

Every body has `decode(data)` and `encode()`. Reading takes what real peers send: missing members, nulls,
numbers as strings, enumeration members as ordinals, bare integer and object keys, references. Writing is
compact and has every member Java needs. `decode` raises `JavaJsonError` on text that is not JSON and
`BodyError` on JSON that does not fit. Bodies are frozen; `msgspec.structs.replace` makes changed copies.
"""

from sparrowmq.protocol.bodies.clients import (
    Connection,
    ConsumeFromWhere,
    ConsumerConnection,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageModel,
    ProducerConnection,
    ProducerData,
    wire_queues,
)
from sparrowmq.protocol.bodies.registration import RegisterBrokerBody, decode_register_body
from sparrowmq.protocol.bodies.routes import ClusterInfo, member_group_to_json, route_from_json, route_to_json
from sparrowmq.protocol.bodies.stats import ConsumeStats, OffsetWrapper, TopicOffset, TopicStatsTable
from sparrowmq.protocol.bodies.tables import (
    ConsumerList,
    DataVersion,
    GroupList,
    KVTable,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigTable,
    TopicList,
)

__all__ = [
    "ClusterInfo",
    "Connection",
    "ConsumeFromWhere",
    "ConsumeStats",
    "ConsumeType",
    "ConsumerConnection",
    "ConsumerData",
    "ConsumerList",
    "DataVersion",
    "GroupList",
    "HeartbeatData",
    "KVTable",
    "LockBatchRequestBody",
    "LockBatchResponseBody",
    "MessageModel",
    "OffsetWrapper",
    "ProducerConnection",
    "ProducerData",
    "RegisterBrokerBody",
    "SubscriptionGroupConfig",
    "SubscriptionGroupTable",
    "TopicConfig",
    "TopicConfigTable",
    "TopicList",
    "TopicOffset",
    "TopicStatsTable",
    "decode_register_body",
    "member_group_to_json",
    "route_from_json",
    "route_to_json",
    "wire_queues",
]
