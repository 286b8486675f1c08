"""JSON bodies of requests and answers: Java's member names on the wire, Python's in code (remoting:4).

Every body has `decode(data)` and `encode()`. Decoding accepts what real peers send: missing members, nulls,
numbers as strings, enumeration members as ordinals, bare integer and object keys, references. Encoding is
compact and includes every member that Java needs. `decode` raises `JavaJsonError` on text that is not JSON
and `BodyError` on JSON that does not fit. Bodies are frozen; `msgspec.structs.replace` makes changed copies.

Names are loaded on first use, because a client needs only a few of them.
"""

from typing import TYPE_CHECKING

from sparrowmq.core.lazy import lazy_names, names_by_module

if TYPE_CHECKING:
    from sparrowmq.protocol.bodies.calls import (
        BrokerConsumeStats,
        ConsumeMessageDirectlyResult,
        ConsumerRunningInfo,
        ConsumerStatusBody,
        ConsumeStatus,
        ConsumeTimeSpans,
        CorrectionOffsets,
        GroupForbidden,
        GroupSubscription,
        ProcessQueueInfo,
        ProducerInfo,
        ProducerTable,
        QueueTimeSpan,
        ResetOffsetBody,
        SubscriptionGroupList,
        time_span,
    )
    from sparrowmq.protocol.bodies.clients import (
        AssignmentRequest,
        Assignments,
        CheckClientBody,
        ConnectionInfo,
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
        check_client_body,
        wire_queues,
    )
    from sparrowmq.protocol.bodies.registration import (
        PackedRegistration,
        RegisterBrokerBody,
        decode_register_body,
    )
    from sparrowmq.protocol.bodies.replication import HaStatus
    from sparrowmq.protocol.bodies.routes import (
        ClusterInfo,
        member_group_to_json,
        route_from_json,
        route_from_request,
        route_to_json,
    )
    from sparrowmq.protocol.bodies.stats import (
        BrokerStatsData,
        BrokerStatsItem,
        ConsumeStats,
        OffsetWrapper,
        TopicOffset,
        TopicStatsTable,
    )
    from sparrowmq.protocol.bodies.tables import (
        BrokerTopicTable,
        ConsumerList,
        DataVersion,
        GroupList,
        KVTable,
        MasterTopicTable,
        OffsetTable,
        ProducerNumbers,
        ProducersEnd,
        RetentionHold,
        RetentionHoldList,
        SubscriptionGroupConfig,
        SubscriptionGroupTable,
        TopicConfig,
        TopicConfigList,
        TopicConfigTable,
        TopicList,
    )

__all__ = [
    "AssignmentRequest",
    "Assignments",
    "BrokerConsumeStats",
    "BrokerStatsData",
    "BrokerStatsItem",
    "BrokerTopicTable",
    "CheckClientBody",
    "ClusterInfo",
    "ConnectionInfo",
    "ConsumeFromWhere",
    "ConsumeMessageDirectlyResult",
    "ConsumeStats",
    "ConsumeStatus",
    "ConsumeTimeSpans",
    "ConsumeType",
    "ConsumerConnection",
    "ConsumerData",
    "ConsumerList",
    "ConsumerRunningInfo",
    "ConsumerStatusBody",
    "CorrectionOffsets",
    "DataVersion",
    "GroupForbidden",
    "GroupList",
    "GroupSubscription",
    "HaStatus",
    "HeartbeatData",
    "KVTable",
    "LockBatchRequestBody",
    "LockBatchResponseBody",
    "MasterTopicTable",
    "MessageModel",
    "OffsetTable",
    "OffsetWrapper",
    "PackedRegistration",
    "ProcessQueueInfo",
    "ProducerConnection",
    "ProducerData",
    "ProducerInfo",
    "ProducerNumbers",
    "ProducerTable",
    "ProducersEnd",
    "QueueTimeSpan",
    "RegisterBrokerBody",
    "ResetOffsetBody",
    "RetentionHold",
    "RetentionHoldList",
    "SubscriptionGroupConfig",
    "SubscriptionGroupList",
    "SubscriptionGroupTable",
    "TopicConfig",
    "TopicConfigList",
    "TopicConfigTable",
    "TopicList",
    "TopicOffset",
    "TopicStatsTable",
    "check_client_body",
    "decode_register_body",
    "member_group_to_json",
    "route_from_json",
    "route_from_request",
    "route_to_json",
    "time_span",
    "wire_queues",
]

_HOMES = {
    "sparrowmq.protocol.bodies.calls": (
        "BrokerConsumeStats ConsumeMessageDirectlyResult ConsumerRunningInfo ConsumerStatusBody "
        "ConsumeStatus ConsumeTimeSpans CorrectionOffsets GroupForbidden GroupSubscription "
        "ProcessQueueInfo ProducerInfo ProducerTable QueueTimeSpan ResetOffsetBody "
        "SubscriptionGroupList time_span"
    ),
    "sparrowmq.protocol.bodies.clients": (
        "AssignmentRequest Assignments CheckClientBody ConnectionInfo ConsumeFromWhere "
        "ConsumerConnection ConsumerData ConsumeType HeartbeatData LockBatchRequestBody "
        "LockBatchResponseBody MessageModel ProducerConnection ProducerData check_client_body "
        "wire_queues"
    ),
    "sparrowmq.protocol.bodies.registration": ("PackedRegistration RegisterBrokerBody decode_register_body"),
    "sparrowmq.protocol.bodies.replication": "HaStatus",
    "sparrowmq.protocol.bodies.routes": (
        "ClusterInfo member_group_to_json route_from_json route_from_request route_to_json"
    ),
    "sparrowmq.protocol.bodies.stats": (
        "BrokerStatsData BrokerStatsItem ConsumeStats OffsetWrapper TopicOffset TopicStatsTable"
    ),
    "sparrowmq.protocol.bodies.tables": (
        "BrokerTopicTable ConsumerList DataVersion GroupList KVTable MasterTopicTable OffsetTable "
        "ProducersEnd ProducerNumbers RetentionHold RetentionHoldList SubscriptionGroupConfig "
        "SubscriptionGroupTable TopicConfig TopicConfigList TopicConfigTable TopicList"
    ),
}
_MODULES = names_by_module(_HOMES)

__getattr__ = lazy_names(globals(), _MODULES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
