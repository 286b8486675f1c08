"""SparrowMQ for asyncio: the names of `sparrowmq`, with `async` methods.

Objects belong to the event loop they are started on. Values, errors and settings are those of `sparrowmq`.
"""

from sparrowmq.client.admin import (
    Admin,
)
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
from sparrowmq.client.delivery import (
    DeliveredMessage,
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
from sparrowmq.client.producer import (
    Producer,
)
from sparrowmq.client.publish import (
    select_by_hash,
    select_by_random,
)
from sparrowmq.client.pull_consumer import (
    PullConsumer,
)
from sparrowmq.client.pull_schedule import (
    PullContext,
    PullSchedule,
)
from sparrowmq.client.push_consumer import (
    PushConsumer,
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
