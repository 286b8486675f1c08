"""SparrowMQ: Apache RocketMQ for Python and Spark people.

The synchronous client is here; the asyncio one, with the same names, in `sparrowmq.aio`:

    import sparrowmq as mq

    with mq.Producer("orders", namesrv="127.0.0.1:9876") as producer:
        producer.send(mq.Message("TopicTest", b"hello", tags="TagA", keys=["k1"]))

Importing starts nothing and reads nothing; names are loaded when first used, so that servers do not load the
client. Logging goes to loggers below `sparrowmq`, which are not set up: a program that configures none sees
warnings on standard error, a handler that raised for example, as Python shows them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparrowmq.client.admin_policies import (
        GroupPolicies,
        GroupPolicy,
        PauseRule,
        QueueGrant,
    )
    from sparrowmq.client.admin_types import (
        AccessGrant,
        AccessUser,
        BrokerStatus,
        BrokerTopics,
        DeadLetterStatus,
        GroupConnections,
        GroupMemberInfo,
        HoldStatus,
        MemberStatus,
        QueueProgress,
        QueueStatus,
        Rate,
        Rates,
    )
    from sparrowmq.client.hooks import (
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
        RpcHook,
        SendContext,
        SendHook,
        SendMode,
    )
    from sparrowmq.client.lifecycle import (
        State,
    )
    from sparrowmq.client.outcomes import (
        ConsumeResult,
        Retry,
    )
    from sparrowmq.client.publish import (
        select_by_hash,
        select_by_random,
    )
    from sparrowmq.client.pull_schedule import (
        PullContext,
    )
    from sparrowmq.client.request_reply import (
        create_reply_message,
    )
    from sparrowmq.client.sending import (
        split_batch,
    )
    from sparrowmq.client.settings import (
        ClientSettings,
        ConsumerSettings,
        ProducerSettings,
        PullSettings,
    )
    from sparrowmq.client.sync_base import (
        DeliveredMessage,
    )
    from sparrowmq.client.sync_generated import (
        Admin,
        Producer,
        PullConsumer,
        PullSchedule,
        PushConsumer,
    )
    from sparrowmq.client.transaction import (
        HalfMessage,
        TransactionListener,
        TransactionResult,
        TransactionState,
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
        NoRouteError,
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
    "BrokerError",
    "BrokerStatus",
    "BrokerTopics",
    "ByConfig",
    "ByMachineRoom",
    "CheckForbiddenContext",
    "CheckForbiddenHook",
    "ClientError",
    "ClientSettings",
    "ConnectError",
    "ConnectionLostError",
    "ConsistentHash",
    "ConsumeContext",
    "ConsumeHook",
    "ConsumeResult",
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
    "MachineRoomNearby",
    "MemberStatus",
    "Message",
    "MessageQueue",
    "MessageType",
    "NoNameServerError",
    "NoRouteError",
    "PauseRule",
    "Producer",
    "ProducerSettings",
    "ProtocolError",
    "PullConsumer",
    "PullContext",
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
    "ReplyTimeoutError",
    "RequestTimeoutError",
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
    "SparrowError",
    "Sql",
    "State",
    "StoreError",
    "TooManyRequestsError",
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
    "sparrowmq.client.sync_generated": "Admin Producer PullConsumer PullSchedule PushConsumer",
    "sparrowmq.client.hooks": (
        "CheckForbiddenContext CheckForbiddenHook ConsumeContext ConsumeHook "
        "EndTransactionContext EndTransactionHook FilterMessageContext "
        "FilterMessageHook Hook MessageType RpcHook SendContext SendHook SendMode"
    ),
    "sparrowmq.client.request_reply": "create_reply_message",
    "sparrowmq.client.sending": "split_batch",
    "sparrowmq.client.transaction": "HalfMessage TransactionListener TransactionResult TransactionState",
    "sparrowmq.client.sync_base": "DeliveredMessage",
    "sparrowmq.client.settings": "ClientSettings ConsumerSettings ProducerSettings PullSettings",
    "sparrowmq.client.pull_schedule": "PullContext",
    "sparrowmq.client.lifecycle": "State",
    "sparrowmq.client.outcomes": "ConsumeResult Retry",
    "sparrowmq.client.publish": "select_by_hash select_by_random",
    "sparrowmq.client.admin_policies": "GroupPolicies GroupPolicy PauseRule QueueGrant",
    "sparrowmq.client.admin_types": (
        "AccessGrant AccessUser BrokerStatus BrokerTopics DeadLetterStatus GroupConnections GroupMemberInfo "
        "HoldStatus MemberStatus "
        "QueueProgress QueueStatus Rate Rates"
    ),
    "sparrowmq.core.message": "Message MessageQueue ReceivedMessage",
    "sparrowmq.core.results": "PullResult PullStatus RawBatch SendResult SendStatus",
    "sparrowmq.core.errors": (
        "AllocationError BrokerError ClientError ConnectError ConnectionLostError GroupTakenError "
        "InvalidExpressionError InvalidMessageError InvalidNameError InvalidStateError "
        "NoNameServerError NoRouteError ProtocolError ReplyTimeoutError RequestTimeoutError "
        "SequenceTooOldError SettingsError "
        "SparrowError StoreError TooManyRequestsError TransportError"
    ),
    "sparrowmq.core.allocation": (
        "AllocateStrategy Averagely AveragelyByCircle ByConfig ByMachineRoom ConsistentHash "
        "MachineRoomNearby RoomResolver"
    ),
    "sparrowmq.core.subscription": "Sql",
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """A public name, from the module that has it."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
