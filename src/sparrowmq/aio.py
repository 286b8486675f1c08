"""SparrowMQ for asyncio: the names of `sparrowmq`, with `async` methods.

Objects belong to the event loop on which they are started. Values, errors and settings are those of
`sparrowmq`. Names are loaded on first use: a program loads only the parts of the client that it needs.
"""

from typing import TYPE_CHECKING

from sparrowmq import _MODULES as _SYNC_MODULES
from sparrowmq.core.lazy import lazy_names

if TYPE_CHECKING:
    from sparrowmq.client.admin.admin import (
        Admin,
    )
    from sparrowmq.client.admin.policies import (
        GroupPolicies,
        GroupPolicy,
        PauseRule,
        QueueGrant,
    )
    from sparrowmq.client.admin.promotion import PromotionPlan
    from sparrowmq.client.admin.replicas import (
        ReplicaOrders,
        ReplicaState,
    )
    from sparrowmq.client.admin.types import (
        AccessGrant,
        AccessUser,
        BrokerClient,
        BrokerClients,
        BrokerStatus,
        BrokerTopics,
        ClusterInfo,
        ConsumerRunningInfo,
        DeadLetterStatus,
        GroupConnections,
        GroupMemberInfo,
        HoldStatus,
        ListedEntry,
        MemberStatus,
        NameServerStatus,
        ProducerState,
        QueueProgress,
        QueueStatus,
        Rate,
        Rates,
        ReplicationStatus,
        ResentLetter,
        SlaveStatus,
        SubscriptionGroupConfig,
        TopicConfig,
        Trace,
    )
    from sparrowmq.client.base.hooks import (
        CheckForbiddenContext,
        CheckForbiddenHook,
        ConsumeContext,
        ConsumeHook,
        EndTransactionContext,
        EndTransactionHook,
        FilterMessageContext,
        FilterMessageHook,
        Hook,
        MessageType,
        PopContext,
        PopHook,
        PullLoopContext,
        PullLoopHook,
        RpcHook,
        SendContext,
        SendHook,
        SendMode,
        SettleContext,
    )
    from sparrowmq.client.base.lifecycle import (
        State,
    )
    from sparrowmq.client.base.offset_store_protocol import (
        OffsetStore,
    )
    from sparrowmq.client.base.settings import (
        ClientSettings,
        ConsumerSettings,
        ProducerSettings,
        PullSettings,
    )
    from sparrowmq.client.cluster.pop_calls import (
        PoppedMessage,
    )
    from sparrowmq.client.cluster.request_reply import (
        create_reply_message,
    )
    from sparrowmq.client.consumer.outcomes import (
        ConsumeResult,
        Retry,
    )
    from sparrowmq.client.producer.producer import (
        Producer,
    )
    from sparrowmq.client.producer.transaction import (
        HalfMessage,
        TransactionListener,
        TransactionResult,
        TransactionState,
    )
    from sparrowmq.client.pull.pull_consumer import (
        PullConsumer,
    )
    from sparrowmq.client.pull.pull_schedule import (
        PullContext,
        PullSchedule,
    )
    from sparrowmq.client.push.consumer import (
        Consumer,
    )
    from sparrowmq.client.push.message_stream import (
        DeliveredMessage,
    )
    from sparrowmq.client.push.push_consumer import (
        PushConsumer,
    )
    from sparrowmq.client.send.encoding import (
        split_batch,
    )
    from sparrowmq.client.send.queue_selection import (
        select_by_hash,
        select_by_random,
    )
    from sparrowmq.client.simple.simple_consumer import (
        SimpleConsumer,
    )
    from sparrowmq.core.allocation import (
        AllocateStrategy,
        Averagely,
        AveragelyByCircle,
        ByConfig,
        ByMachineRoom,
        ConsistentHash,
        MachineRoomNearby,
        RoomResolver,
    )
    from sparrowmq.core.errors import (
        AllocationError,
        BrokerError,
        ClientError,
        ConnectError,
        ConnectionLostError,
        GroupTakenError,
        InvalidExpressionError,
        InvalidMessageError,
        InvalidNameError,
        InvalidStateError,
        NoNameServerError,
        NoRoomError,
        NoRouteError,
        ProducerFencedError,
        ProtocolError,
        ReplyTimeoutError,
        RequestTimeoutError,
        SequenceTooOldError,
        SettingsError,
        SparrowError,
        StoreError,
        TooManyRequestsError,
        TransportError,
    )
    from sparrowmq.core.message import (
        Message,
        MessageQueue,
        ReceivedMessage,
    )
    from sparrowmq.core.results import (
        PullResult,
        PullStatus,
        RawBatch,
        SendResult,
        SendStatus,
    )
    from sparrowmq.core.route import TopicRoute
    from sparrowmq.core.subscription import (
        Sql,
    )

__all__ = [
    "AccessGrant",
    "AccessUser",
    "Admin",
    "AllocateStrategy",
    "AllocationError",
    "Averagely",
    "AveragelyByCircle",
    "BrokerClient",
    "BrokerClients",
    "BrokerError",
    "BrokerStatus",
    "BrokerTopics",
    "ByConfig",
    "ByMachineRoom",
    "CheckForbiddenContext",
    "CheckForbiddenHook",
    "ClientError",
    "ClientSettings",
    "ClusterInfo",
    "ConnectError",
    "ConnectionLostError",
    "ConsistentHash",
    "ConsumeContext",
    "ConsumeHook",
    "ConsumeResult",
    "Consumer",
    "ConsumerRunningInfo",
    "ConsumerSettings",
    "DeadLetterStatus",
    "DeliveredMessage",
    "EndTransactionContext",
    "EndTransactionHook",
    "FilterMessageContext",
    "FilterMessageHook",
    "GroupConnections",
    "GroupMemberInfo",
    "GroupPolicies",
    "GroupPolicy",
    "GroupTakenError",
    "HalfMessage",
    "HoldStatus",
    "Hook",
    "InvalidExpressionError",
    "InvalidMessageError",
    "InvalidNameError",
    "InvalidStateError",
    "ListedEntry",
    "MachineRoomNearby",
    "MemberStatus",
    "Message",
    "MessageQueue",
    "MessageType",
    "NameServerStatus",
    "NoNameServerError",
    "NoRoomError",
    "NoRouteError",
    "OffsetStore",
    "PauseRule",
    "PopContext",
    "PopHook",
    "PoppedMessage",
    "Producer",
    "ProducerFencedError",
    "ProducerSettings",
    "ProducerState",
    "PromotionPlan",
    "ProtocolError",
    "PullConsumer",
    "PullContext",
    "PullLoopContext",
    "PullLoopHook",
    "PullResult",
    "PullSchedule",
    "PullSettings",
    "PullStatus",
    "PushConsumer",
    "QueueGrant",
    "QueueProgress",
    "QueueStatus",
    "Rate",
    "Rates",
    "RawBatch",
    "ReceivedMessage",
    "ReplicaOrders",
    "ReplicaState",
    "ReplicationStatus",
    "ReplyTimeoutError",
    "RequestTimeoutError",
    "ResentLetter",
    "Retry",
    "RoomResolver",
    "RpcHook",
    "SendContext",
    "SendHook",
    "SendMode",
    "SendResult",
    "SendStatus",
    "SequenceTooOldError",
    "SettingsError",
    "SettleContext",
    "SimpleConsumer",
    "SlaveStatus",
    "SparrowError",
    "Sql",
    "State",
    "StoreError",
    "SubscriptionGroupConfig",
    "TooManyRequestsError",
    "TopicConfig",
    "TopicRoute",
    "Trace",
    "TransactionListener",
    "TransactionResult",
    "TransactionState",
    "TransportError",
    "create_reply_message",
    "select_by_hash",
    "select_by_random",
    "split_batch",
]

_MODULES = {
    **_SYNC_MODULES,
    "Admin": "sparrowmq.client.admin.admin",
    "Consumer": "sparrowmq.client.push.consumer",
    "DeliveredMessage": "sparrowmq.client.push.message_stream",
    "Producer": "sparrowmq.client.producer.producer",
    "PullConsumer": "sparrowmq.client.pull.pull_consumer",
    "PullSchedule": "sparrowmq.client.pull.pull_schedule",
    "PushConsumer": "sparrowmq.client.push.push_consumer",
    "SimpleConsumer": "sparrowmq.client.simple.simple_consumer",
}

__getattr__ = lazy_names(globals(), _MODULES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
