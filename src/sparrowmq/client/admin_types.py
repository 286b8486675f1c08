"""What `Admin` tells about clusters, topics and groups."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparrowmq.core.message import MessageQueue
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies import ConsumerRunningInfo, TopicConfig


@dataclass(frozen=True, slots=True)
class DeadLetterStatus:
    """How many dead letters a group has."""

    group: str
    messages: int


@dataclass(frozen=True, slots=True)
class HoldStatus:
    """Messages of a topic that one broker keeps until a group has consumed them.

    `messages` wait for it, the oldest since `oldest_ms` (epoch milliseconds, None without any). `overrun`
    says why the hold gave way, and is empty while it holds.
    """

    topic: str
    broker_name: str
    group: str
    hours: int
    size_max: int
    messages: int
    oldest_ms: int | None
    overrun: str


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """One queue: oldest stored offset, next offset, epoch milliseconds of the last message (0: none)."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_update_ms: int

    @property
    def messages(self) -> int:
        """How many messages are stored."""
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True)
class BrokerTopics:
    """The topics of one broker by name, and those of them that are static: their queues are parts of queues
    that go over several brokers (RocketMQ 5 alone has them).
    """

    configs: dict[str, TopicConfig]
    static: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """One broker of a cluster; id 0 is the master.

    `runtime` holds what the broker tells about itself (remoting:2.7, code 28), empty when it did not answer
    or does not know the question; `error` says why.
    """

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    runtime: dict[str, str] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Rate:
    """What was counted in a time: the sum, how much a second, how much on average each time."""

    total: int
    per_second: float
    average: float


@dataclass(frozen=True, slots=True)
class Rates:
    """The same over the last minute, hour and day."""

    minute: Rate
    hour: Rate
    day: Rate


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """A group's place in one queue. `last_timestamp_ms` is the store time of the last consumed message."""

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    last_timestamp_ms: int
    pull_offset: int = 0
    """Next offset the broker was asked for."""

    @property
    def in_flight(self) -> int:
        """Messages that were pulled and are not consumed yet."""
        return max(0, self.pull_offset - self.consumer_offset)

    @property
    def lag(self) -> int:
        """Messages that wait to be consumed."""
        return self.broker_offset - self.consumer_offset


@dataclass(frozen=True, slots=True)
class GroupMemberInfo:
    """One connected member of a consumer group."""

    client_id: str
    address: str
    language: str
    version: int


@dataclass(frozen=True, slots=True)
class GroupConnections:
    """Members and subscriptions of a consumer group that is online."""

    members: list[GroupMemberInfo]
    subscriptions: dict[str, SubscriptionData]
    consume_type: str
    message_model: str
    consume_from: str


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """What a member of a group tells about itself (code 307), or why it did not."""

    client_id: str
    info: ConsumerRunningInfo | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class AccessUser:
    """A user of 5.x access control; a super user may do everything, one that is not enabled nothing."""

    name: str
    super_user: bool
    enabled: bool


@dataclass(frozen=True, slots=True)
class AccessGrant:
    """What a user may (`allow`) or may not do with a resource, from `sources` or, without any, everywhere.

    A grant by `default` counts only where none of the user's others speaks.
    """

    user: str
    resource: str
    actions: tuple[str, ...]
    sources: tuple[str, ...] = ()
    allow: bool = True
    default: bool = False
