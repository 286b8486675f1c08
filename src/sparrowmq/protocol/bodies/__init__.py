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
    from sparrowmq.protocol.bodies.calls import BrokerConsumeStats as BrokerConsumeStats
    from sparrowmq.protocol.bodies.calls import ConsumeMessageDirectlyResult as ConsumeMessageDirectlyResult
    from sparrowmq.protocol.bodies.calls import ConsumerRunningInfo as ConsumerRunningInfo
    from sparrowmq.protocol.bodies.calls import ConsumerStatusBody as ConsumerStatusBody
    from sparrowmq.protocol.bodies.calls import ConsumeStatus as ConsumeStatus
    from sparrowmq.protocol.bodies.calls import ConsumeTimeSpans as ConsumeTimeSpans
    from sparrowmq.protocol.bodies.calls import CorrectionOffsets as CorrectionOffsets
    from sparrowmq.protocol.bodies.calls import GroupForbidden as GroupForbidden
    from sparrowmq.protocol.bodies.calls import GroupSubscription as GroupSubscription
    from sparrowmq.protocol.bodies.calls import ProcessQueueInfo as ProcessQueueInfo
    from sparrowmq.protocol.bodies.calls import ProducerInfo as ProducerInfo
    from sparrowmq.protocol.bodies.calls import ProducerTable as ProducerTable
    from sparrowmq.protocol.bodies.calls import QueueTimeSpan as QueueTimeSpan
    from sparrowmq.protocol.bodies.calls import ResetOffsetBody as ResetOffsetBody
    from sparrowmq.protocol.bodies.calls import SubscriptionGroupList as SubscriptionGroupList
    from sparrowmq.protocol.bodies.calls import time_span as time_span
    from sparrowmq.protocol.bodies.clients import AssignmentRequest as AssignmentRequest
    from sparrowmq.protocol.bodies.clients import Assignments as Assignments
    from sparrowmq.protocol.bodies.clients import CheckClientBody as CheckClientBody
    from sparrowmq.protocol.bodies.clients import ConnectionInfo as ConnectionInfo
    from sparrowmq.protocol.bodies.clients import ConsumeFromWhere as ConsumeFromWhere
    from sparrowmq.protocol.bodies.clients import ConsumerConnection as ConsumerConnection
    from sparrowmq.protocol.bodies.clients import ConsumerData as ConsumerData
    from sparrowmq.protocol.bodies.clients import ConsumeType as ConsumeType
    from sparrowmq.protocol.bodies.clients import HeartbeatData as HeartbeatData
    from sparrowmq.protocol.bodies.clients import LockBatchRequestBody as LockBatchRequestBody
    from sparrowmq.protocol.bodies.clients import LockBatchResponseBody as LockBatchResponseBody
    from sparrowmq.protocol.bodies.clients import MessageModel as MessageModel
    from sparrowmq.protocol.bodies.clients import ProducerConnection as ProducerConnection
    from sparrowmq.protocol.bodies.clients import ProducerData as ProducerData
    from sparrowmq.protocol.bodies.clients import check_client_body as check_client_body
    from sparrowmq.protocol.bodies.clients import wire_queues as wire_queues
    from sparrowmq.protocol.bodies.registration import PackedRegistration as PackedRegistration
    from sparrowmq.protocol.bodies.registration import RegisterBrokerBody as RegisterBrokerBody
    from sparrowmq.protocol.bodies.registration import decode_register_body as decode_register_body
    from sparrowmq.protocol.bodies.replication import HaStatus as HaStatus
    from sparrowmq.protocol.bodies.routes import ClusterInfo as ClusterInfo
    from sparrowmq.protocol.bodies.routes import member_group_to_json as member_group_to_json
    from sparrowmq.protocol.bodies.routes import route_from_json as route_from_json
    from sparrowmq.protocol.bodies.routes import route_from_request as route_from_request
    from sparrowmq.protocol.bodies.routes import route_to_json as route_to_json
    from sparrowmq.protocol.bodies.stats import BrokerStatsData as BrokerStatsData
    from sparrowmq.protocol.bodies.stats import BrokerStatsItem as BrokerStatsItem
    from sparrowmq.protocol.bodies.stats import ConsumeStats as ConsumeStats
    from sparrowmq.protocol.bodies.stats import OffsetWrapper as OffsetWrapper
    from sparrowmq.protocol.bodies.stats import TopicOffset as TopicOffset
    from sparrowmq.protocol.bodies.stats import TopicStatsTable as TopicStatsTable
    from sparrowmq.protocol.bodies.tables import BrokerTopicTable as BrokerTopicTable
    from sparrowmq.protocol.bodies.tables import ConsumerList as ConsumerList
    from sparrowmq.protocol.bodies.tables import DataVersion as DataVersion
    from sparrowmq.protocol.bodies.tables import GroupList as GroupList
    from sparrowmq.protocol.bodies.tables import KVTable as KVTable
    from sparrowmq.protocol.bodies.tables import MasterTopicTable as MasterTopicTable
    from sparrowmq.protocol.bodies.tables import OffsetTable as OffsetTable
    from sparrowmq.protocol.bodies.tables import ProducerNumbers as ProducerNumbers
    from sparrowmq.protocol.bodies.tables import ProducersEnd as ProducersEnd
    from sparrowmq.protocol.bodies.tables import RetentionHold as RetentionHold
    from sparrowmq.protocol.bodies.tables import RetentionHoldList as RetentionHoldList
    from sparrowmq.protocol.bodies.tables import SubscriptionGroupConfig as SubscriptionGroupConfig
    from sparrowmq.protocol.bodies.tables import SubscriptionGroupTable as SubscriptionGroupTable
    from sparrowmq.protocol.bodies.tables import TopicConfig as TopicConfig
    from sparrowmq.protocol.bodies.tables import TopicConfigList as TopicConfigList
    from sparrowmq.protocol.bodies.tables import TopicConfigTable as TopicConfigTable
    from sparrowmq.protocol.bodies.tables import TopicList as TopicList

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
    return sorted({*globals(), *_MODULES})
