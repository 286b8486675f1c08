"""SparrowMQ for asyncio: the names of `sparrowmq`, with `async` methods.

Objects belong to the event loop they are started on. Values, errors and settings are those of `sparrowmq`.
"""

from sparrowmq.client.admin import (
    Admin,
)
from sparrowmq.client.admin_types import (
    BrokerStatus,
    GroupConnections,
    GroupMemberInfo,
    QueueProgress,
    QueueStatus,
)
from sparrowmq.client.delivery import (
    DeliveredMessage,
)
from sparrowmq.client.lifecycle import (
    State,
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
from sparrowmq.client.settings import (
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    PullSettings,
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
    InvalidExpressionError,
    InvalidMessageError,
    InvalidNameError,
    InvalidStateError,
    NoNameServerError,
    NoRouteError,
    ProtocolError,
    RequestTimeoutError,
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

__all__ = [
    "Admin",
    "AllocateStrategy",
    "AllocationError",
    "Averagely",
    "AveragelyByCircle",
    "BrokerError",
    "BrokerStatus",
    "ByConfig",
    "ByMachineRoom",
    "ClientError",
    "ClientSettings",
    "ConnectError",
    "ConnectionLostError",
    "ConsistentHash",
    "ConsumerSettings",
    "DeliveredMessage",
    "GroupConnections",
    "GroupMemberInfo",
    "InvalidExpressionError",
    "InvalidMessageError",
    "InvalidNameError",
    "InvalidStateError",
    "MachineRoomNearby",
    "Message",
    "MessageQueue",
    "NoNameServerError",
    "NoRouteError",
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
    "QueueProgress",
    "QueueStatus",
    "RawBatch",
    "ReceivedMessage",
    "RequestTimeoutError",
    "RoomResolver",
    "SendResult",
    "SendStatus",
    "SettingsError",
    "SparrowError",
    "State",
    "StoreError",
    "TooManyRequestsError",
    "TransportError",
    "select_by_hash",
    "select_by_random",
]
