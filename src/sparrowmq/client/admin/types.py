"""Results of `Admin` about clusters, topics and groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sparrowmq.core.message import MessageQueue
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies import ClusterInfo as ClusterInfo
from sparrowmq.protocol.bodies import ConsumerRunningInfo as ConsumerRunningInfo
from sparrowmq.protocol.bodies import SubscriptionGroupConfig as SubscriptionGroupConfig
from sparrowmq.protocol.bodies import TopicConfig as TopicConfig
from sparrowmq.protocol.trace import Trace as Trace


@dataclass(frozen=True, slots=True)
class DeadLetterStatus:
    """Number of dead letters of a group."""

    group: str
    messages: int


@dataclass(frozen=True, slots=True)
class ResentLetter:
    """What became of a dead letter that was to be sent again.

    `outcome`: `sent`, and then `new_id` is the offset message id of the copy; `refused`, or `skipped` without
    an attempt, for the `reason`; or `missing`: the group has no dead letter with this id.
    """

    message_id: str
    outcome: Literal["sent", "refused", "skipped", "missing"]
    new_id: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class HoldStatus:
    """Messages of a topic that one broker keeps until a group has consumed them.

    `messages` wait for it, the oldest since `oldest_ms` (epoch milliseconds, None without any). `overrun` is
    the reason why the hold was overridden, empty while it is effective.
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
class ProducerState:
    """What a queue has of an idempotent producer: the numbers 0 to `last` of `epoch`, from offset `begins_at`
    on.
    """

    epoch: int
    last: int
    begins_at: int


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
class ListedEntry:
    """An entry of a consume queue as a broker lists it. `physical_offset` and `size` say where in the log its
    record is, in bytes; `tags_code` is the code of its tag.
    """

    offset: int
    physical_offset: int
    size: int
    tags_code: int


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

    `runtime` is the broker's runtime information (remoting:2.7, code 28), empty when it did not answer or
    does not support the request; `error` is the reason. `rival` is the address of another live broker that
    has the same name and id, as SparrowMQ's name servers report it: they change places in the routes.
    """

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    runtime: dict[str, str] = field(default_factory=dict)
    error: str | None = None
    rival: str = ""


@dataclass(frozen=True, slots=True)
class Rate:
    """A count over a period: the sum, the rate per second, the average per event."""

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
    """A group's progress in one queue. `last_timestamp_ms` is the store time of the last consumed message."""

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    last_timestamp_ms: int
    pull_offset: int = 0
    """Next offset that the group requested."""

    @property
    def in_flight(self) -> int:
        """Messages pulled but not consumed yet."""
        return max(0, self.pull_offset - self.consumer_offset)

    @property
    def lag(self) -> int:
        """Messages not consumed yet."""
        return self.broker_offset - self.consumer_offset


@dataclass(frozen=True, slots=True)
class GroupMemberInfo:
    """One connected member of a consumer group."""

    client_id: str
    address: str
    language: str
    version: int


@dataclass(frozen=True, slots=True)
class BrokerClient:
    """A client connected to a broker, with the groups it consumes and produces for. `version` is the number
    that its heartbeat has.
    """

    client_id: str
    address: str
    language: str
    version: int
    consumes: tuple[str, ...] = ()
    produces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerClients:
    """The clients of a broker; whether it reports producers, and how many groups were not requested."""

    clients: Sequence[BrokerClient]
    producers_known: bool = True
    groups_left: int = 0


@dataclass(frozen=True, slots=True)
class NameServerStatus:
    """What one name server has: topics, and broker addresses by broker name and id. `settings` is None if it
    does not report them. `runtime` is its runtime information; only SparrowMQ's have some.
    """

    address: str
    topics: frozenset[str]
    brokers: Mapping[str, Mapping[int, str]]
    settings: Mapping[str, str] | None = None
    runtime: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SlaveStatus:
    """A slave that is connected to its master: the position in the log that it has confirmed (None: none
    yet), by how many bytes that is behind the master, and whether it counts as in sync.
    """

    address: str
    position: int | None
    behind_bytes: int
    in_sync: bool


@dataclass(frozen=True, slots=True)
class ReplicationStatus:
    """A master with its slaves, or a slave with its master. `end` is the end of the broker's own log, in
    bytes.

    At a slave, `master` is the address that it copies from (empty: none), and `heard_ms` the epoch
    milliseconds at which it last got something from there (0: it is not connected, or does not say).
    """

    is_master: bool
    end: int
    slaves: Sequence[SlaveStatus] = ()
    master: str = ""
    heard_ms: int = 0


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
    """Running info of a group member (code 307), or the error."""

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

    A `default` grant applies only where no other grant of the user does.
    """

    user: str
    resource: str
    actions: tuple[str, ...]
    sources: tuple[str, ...] = ()
    allow: bool = True
    default: bool = False
