"""SparrowMQ: a message queue for Python and Spark, compatible with Apache RocketMQ.

The synchronous client is here; the asyncio one, with the same names, in `sparrowmq.aio`:

    import sparrowmq as mq

    with mq.Producer("orders", name_server="127.0.0.1:9876") as producer:
        producer.send(mq.Message("TopicTest", b"hello", tags="TagA", keys=["k1"]))

Importing the package starts nothing and reads nothing; names are loaded on first use, so that servers do not
load the client. Logging uses loggers below `sparrowmq`, which are not configured: without logging
configuration, a program sees warnings on standard error, as usual in Python.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from sparrowmq.client.producer.transaction import (
        HalfMessage,
        TransactionListener,
        TransactionResult,
        TransactionState,
    )
    from sparrowmq.client.pull.pull_schedule import (
        PullContext,
    )
    from sparrowmq.client.send.encoding import (
        split_batch,
    )
    from sparrowmq.client.send.queue_selection import (
        select_by_hash,
        select_by_random,
    )
    from sparrowmq.client.sync.sync_base import (
        DeliveredMessage,
    )
    from sparrowmq.client.sync.sync_generated import (
        Admin,
        Consumer,
        Producer,
        PullConsumer,
        PullSchedule,
        PushConsumer,
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

_HOMES = {
    "sparrowmq.client.sync.sync_generated": (
        "Admin Consumer Producer PullConsumer PullSchedule PushConsumer SimpleConsumer"
    ),
    "sparrowmq.client.base.hooks": (
        "CheckForbiddenContext CheckForbiddenHook ConsumeContext ConsumeHook "
        "EndTransactionContext EndTransactionHook FilterMessageContext "
        "FilterMessageHook Hook MessageType PopContext PopHook PullLoopContext PullLoopHook "
        "RpcHook SendContext SendHook SendMode SettleContext"
    ),
    "sparrowmq.client.cluster.request_reply": "create_reply_message",
    "sparrowmq.client.send.encoding": "split_batch",
    "sparrowmq.client.producer.transaction": (
        "HalfMessage TransactionListener TransactionResult TransactionState"
    ),
    "sparrowmq.client.sync.sync_base": "DeliveredMessage",
    "sparrowmq.client.cluster.pop_calls": "PoppedMessage",
    "sparrowmq.client.base.settings": "ClientSettings ConsumerSettings ProducerSettings PullSettings",
    "sparrowmq.client.pull.pull_schedule": "PullContext",
    "sparrowmq.client.base.lifecycle": "State",
    "sparrowmq.client.base.offset_store_protocol": "OffsetStore",
    "sparrowmq.client.consumer.outcomes": "ConsumeResult Retry",
    "sparrowmq.client.send.queue_selection": "select_by_hash select_by_random",
    "sparrowmq.client.admin.policies": "GroupPolicies GroupPolicy PauseRule QueueGrant",
    "sparrowmq.client.admin.promotion": "PromotionPlan",
    "sparrowmq.client.admin.replicas": "ReplicaOrders ReplicaState",
    "sparrowmq.client.admin.types": (
        "AccessGrant AccessUser BrokerClient BrokerClients BrokerStatus BrokerTopics ClusterInfo "
        "ConsumerRunningInfo DeadLetterStatus GroupConnections GroupMemberInfo HoldStatus ListedEntry "
        "MemberStatus NameServerStatus ProducerState QueueProgress QueueStatus Rate Rates ReplicationStatus "
        "ResentLetter SlaveStatus SubscriptionGroupConfig TopicConfig Trace"
    ),
    "sparrowmq.core.message": "Message MessageQueue ReceivedMessage",
    "sparrowmq.core.results": "PullResult PullStatus RawBatch SendResult SendStatus",
    "sparrowmq.core.errors": (
        "AllocationError BrokerError ClientError ConnectError ConnectionLostError GroupTakenError "
        "InvalidExpressionError InvalidMessageError InvalidNameError InvalidStateError "
        "NoNameServerError NoRouteError ProducerFencedError ProtocolError ReplyTimeoutError "
        "RequestTimeoutError SequenceTooOldError SettingsError "
        "SparrowError StoreError NoRoomError TooManyRequestsError TransportError"
    ),
    "sparrowmq.core.allocation": (
        "AllocateStrategy Averagely AveragelyByCircle ByConfig ByMachineRoom ConsistentHash "
        "MachineRoomNearby RoomResolver"
    ),
    "sparrowmq.core.route": "TopicRoute",
    "sparrowmq.core.subscription": "Sql",
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """A public name, from the module that has it."""
    # As `core.lazy` does it; nothing of ours is imported before Ctrl-C is seen to (`cli.start`).
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
