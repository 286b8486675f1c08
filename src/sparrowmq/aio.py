"""SparrowMQ for asyncio: the names of `sparrowmq`, with `async` methods.

Objects belong to the event loop on which they are started. Values, errors and settings are those of
`sparrowmq`. Names are loaded on first use: a program loads only the parts of the client that it needs.
"""

from typing import TYPE_CHECKING

from sparrowmq import _MODULES as _SYNC_MODULES
from sparrowmq import __all__ as __all__
from sparrowmq.core.lazy import lazy_names

if TYPE_CHECKING:
    from sparrowmq import AccessGrant as AccessGrant
    from sparrowmq import AccessUser as AccessUser
    from sparrowmq import AllocateStrategy as AllocateStrategy
    from sparrowmq import AllocationError as AllocationError
    from sparrowmq import Averagely as Averagely
    from sparrowmq import AveragelyByCircle as AveragelyByCircle
    from sparrowmq import BrokerClient as BrokerClient
    from sparrowmq import BrokerClients as BrokerClients
    from sparrowmq import BrokerError as BrokerError
    from sparrowmq import BrokerStatus as BrokerStatus
    from sparrowmq import BrokerTopics as BrokerTopics
    from sparrowmq import ByConfig as ByConfig
    from sparrowmq import ByMachineRoom as ByMachineRoom
    from sparrowmq import CheckForbiddenContext as CheckForbiddenContext
    from sparrowmq import CheckForbiddenHook as CheckForbiddenHook
    from sparrowmq import ClientError as ClientError
    from sparrowmq import ClientSettings as ClientSettings
    from sparrowmq import ClusterInfo as ClusterInfo
    from sparrowmq import ConnectError as ConnectError
    from sparrowmq import ConnectionLostError as ConnectionLostError
    from sparrowmq import ConsistentHash as ConsistentHash
    from sparrowmq import ConsumeContext as ConsumeContext
    from sparrowmq import ConsumeHook as ConsumeHook
    from sparrowmq import ConsumeResult as ConsumeResult
    from sparrowmq import ConsumerRunningInfo as ConsumerRunningInfo
    from sparrowmq import ConsumerSettings as ConsumerSettings
    from sparrowmq import DeadLetterStatus as DeadLetterStatus
    from sparrowmq import EndTransactionContext as EndTransactionContext
    from sparrowmq import EndTransactionHook as EndTransactionHook
    from sparrowmq import FilterMessageContext as FilterMessageContext
    from sparrowmq import FilterMessageHook as FilterMessageHook
    from sparrowmq import GroupConnections as GroupConnections
    from sparrowmq import GroupMemberInfo as GroupMemberInfo
    from sparrowmq import GroupPolicies as GroupPolicies
    from sparrowmq import GroupPolicy as GroupPolicy
    from sparrowmq import GroupTakenError as GroupTakenError
    from sparrowmq import HalfMessage as HalfMessage
    from sparrowmq import HoldStatus as HoldStatus
    from sparrowmq import Hook as Hook
    from sparrowmq import InvalidExpressionError as InvalidExpressionError
    from sparrowmq import InvalidMessageError as InvalidMessageError
    from sparrowmq import InvalidNameError as InvalidNameError
    from sparrowmq import InvalidStateError as InvalidStateError
    from sparrowmq import ListedEntry as ListedEntry
    from sparrowmq import MachineRoomNearby as MachineRoomNearby
    from sparrowmq import MemberStatus as MemberStatus
    from sparrowmq import Message as Message
    from sparrowmq import MessageQueue as MessageQueue
    from sparrowmq import MessageType as MessageType
    from sparrowmq import NameServerStatus as NameServerStatus
    from sparrowmq import NoNameServerError as NoNameServerError
    from sparrowmq import NoRoomError as NoRoomError
    from sparrowmq import NoRouteError as NoRouteError
    from sparrowmq import OffsetStore as OffsetStore
    from sparrowmq import PauseRule as PauseRule
    from sparrowmq import PopContext as PopContext
    from sparrowmq import PopHook as PopHook
    from sparrowmq import PoppedMessage as PoppedMessage
    from sparrowmq import ProducerFencedError as ProducerFencedError
    from sparrowmq import ProducerSettings as ProducerSettings
    from sparrowmq import ProducerState as ProducerState
    from sparrowmq import PromotionPlan as PromotionPlan
    from sparrowmq import ProtocolError as ProtocolError
    from sparrowmq import PullContext as PullContext
    from sparrowmq import PullLoopContext as PullLoopContext
    from sparrowmq import PullLoopHook as PullLoopHook
    from sparrowmq import PullResult as PullResult
    from sparrowmq import PullSettings as PullSettings
    from sparrowmq import PullStatus as PullStatus
    from sparrowmq import QueueGrant as QueueGrant
    from sparrowmq import QueueProgress as QueueProgress
    from sparrowmq import QueueStatus as QueueStatus
    from sparrowmq import Rate as Rate
    from sparrowmq import Rates as Rates
    from sparrowmq import RawBatch as RawBatch
    from sparrowmq import ReceivedMessage as ReceivedMessage
    from sparrowmq import ReplicaOrders as ReplicaOrders
    from sparrowmq import ReplicaState as ReplicaState
    from sparrowmq import ReplicationStatus as ReplicationStatus
    from sparrowmq import ReplyTimeoutError as ReplyTimeoutError
    from sparrowmq import RequestTimeoutError as RequestTimeoutError
    from sparrowmq import ResentLetter as ResentLetter
    from sparrowmq import Retry as Retry
    from sparrowmq import RoomResolver as RoomResolver
    from sparrowmq import RpcHook as RpcHook
    from sparrowmq import SendContext as SendContext
    from sparrowmq import SendHook as SendHook
    from sparrowmq import SendMode as SendMode
    from sparrowmq import SendResult as SendResult
    from sparrowmq import SendStatus as SendStatus
    from sparrowmq import SequenceTooOldError as SequenceTooOldError
    from sparrowmq import SettingsError as SettingsError
    from sparrowmq import SettleContext as SettleContext
    from sparrowmq import SlaveStatus as SlaveStatus
    from sparrowmq import SparrowError as SparrowError
    from sparrowmq import Sql as Sql
    from sparrowmq import State as State
    from sparrowmq import StoreError as StoreError
    from sparrowmq import SubscriptionGroupConfig as SubscriptionGroupConfig
    from sparrowmq import TooManyRequestsError as TooManyRequestsError
    from sparrowmq import TopicConfig as TopicConfig
    from sparrowmq import TopicRoute as TopicRoute
    from sparrowmq import Trace as Trace
    from sparrowmq import TransactionListener as TransactionListener
    from sparrowmq import TransactionResult as TransactionResult
    from sparrowmq import TransactionState as TransactionState
    from sparrowmq import TransportError as TransportError
    from sparrowmq import create_reply_message as create_reply_message
    from sparrowmq import select_by_hash as select_by_hash
    from sparrowmq import select_by_random as select_by_random
    from sparrowmq import split_batch as split_batch
    from sparrowmq.client.admin.admin import Admin as Admin
    from sparrowmq.client.producer.producer import Producer as Producer
    from sparrowmq.client.pull.pull_consumer import PullConsumer as PullConsumer
    from sparrowmq.client.pull.pull_schedule import PullSchedule as PullSchedule
    from sparrowmq.client.push.consumer import Consumer as Consumer
    from sparrowmq.client.push.message_stream import DeliveredMessage as DeliveredMessage
    from sparrowmq.client.push.push_consumer import PushConsumer as PushConsumer
    from sparrowmq.client.simple.simple_consumer import SimpleConsumer as SimpleConsumer

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
