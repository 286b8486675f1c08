"""A fake cluster to explore: one broker `a` with the topic `T` and the groups `mine` and `theirs`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from tests.coordinator.cluster import asked
from tests.coordinator.services.watched import MadeUp

from sparrowmq import aio
from sparrowmq.client.admin.types import (
    AccessGrant,
    AccessUser,
    BrokerClient,
    BrokerClients,
    BrokerStatus,
    DeadLetterStatus,
    GroupConnections,
    GroupMemberInfo,
    HoldStatus,
    ListedEntry,
    MemberStatus,
    NameServerStatus,
    QueueProgress,
    QueueStatus,
    Rate,
    Rates,
    ReplicationStatus,
    ResentLetter,
    SlaveStatus,
)
from sparrowmq.coordinator.cluster.explorer import PRODUCER_GROUP, Explorer
from sparrowmq.coordinator.cluster.survey import SurveyView
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import NoRouteError
from sparrowmq.core.message import Message, MessageQueue, ReceivedMessage
from sparrowmq.core.results import PullResult, PullStatus, RawBatch, SendResult, SendStatus
from sparrowmq.core.route import BrokerData, QueueData, TopicRoute
from sparrowmq.core.subscription import Expression, SubscriptionData
from sparrowmq.protocol import properties
from sparrowmq.protocol.bodies import ConsumerRunningInfo
from sparrowmq.protocol.bodies.replicas import ReplicaState
from sparrowmq.protocol.filter import parse_expression
from sparrowmq.protocol.managed import GroupPolicies, GroupPolicy, QueueGrant
from sparrowmq.protocol.record import encode_record
from sparrowmq.protocol.trace import Trace

QUEUE = MessageQueue("T", "a", 0)


def message(
    offset: int = 0, *, stored: int = 2000, body: bytes = b"body", topic: str = "T"
) -> ReceivedMessage:
    """A message in the only queue."""
    return ReceivedMessage(
        queue=MessageQueue(topic, "a", 0),
        queue_offset=offset,
        physical_offset=offset * 100,
        topic=topic,
        body=body,
        properties={"UNIQ_KEY": f"id-{offset}", "KEYS": "k", "TAGS": "t"},
        flag=0,
        sys_flag=0,
        born_timestamp=stored - 1,
        born_host="127.0.0.1:5",
        store_timestamp=stored,
        store_host="127.0.0.1:6",
        reconsume_times=0,
        store_size=100,
        prepared_transaction_offset=0,
        offset_message_id=f"offset-{offset}",
    )


class MadeUpParts:
    """The parts of a made-up `Admin`: `admin.topics.list` is its method `topics_list`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return MadeUpPart(self, name)


class MadeUpPart:
    def __init__(self, admin: object, name: str) -> None:
        self._admin = admin
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._admin, f"{self._name}_{name}")


class MadeUpAdmin(MadeUpParts):
    """Prepared answers of an `Admin`, and a record of its calls."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.traces: list[Trace] = []
        self.asked_places: list[str] = []
        self.copies: dict[str, list[ReceivedMessage]] = {}
        """What is found by a unique id, by topic."""
        self.ends = {"T": (0, 5)}
        self.runtime = {
            "brokerVersionDesc": "V5",
            "putTps": "1.5 1 1",
            "loopStallsLast": "[]",
            "loopStalls": "0",
        }

    async def name_servers_topics(self) -> dict[str, set[str]]:
        return {"n1": {"T"}}

    async def close(self) -> None:
        """Do nothing."""

    async def brokers_list(self) -> list[BrokerStatus]:
        return [
            BrokerStatus("c", "a", 0, "a:1", self.runtime),
            BrokerStatus("c", "a", 1, "a:2", {}, "it is down"),
        ]

    async def brokers_info(self, broker: str) -> dict[str, str]:
        return self.runtime

    async def brokers_settings(self, broker: str) -> dict[str, str]:
        return {"brokerName": "a"}

    async def brokers_stats(self, broker: str, name: str, key: str) -> Rates:
        return Rates(*[Rate(60, 1.0, 1.0)] * 3)

    async def topics_status(self, topic: str) -> list[QueueStatus]:
        if topic not in self.ends:
            raise NoRouteError(f"no broker serves {topic}")
        low, high = self.ends[topic]
        return [QueueStatus(MessageQueue(topic, "a", 0), low, high, 3000)]

    async def topics_route(self, topic: str) -> TopicRoute:
        brokers = (BrokerData("c", "a", {0: "a:1"}),)
        return TopicRoute((QueueData("a", 1, 1, 6),), brokers)

    async def topics_groups(self, topic: str) -> list[str]:
        return ["mine"]

    async def groups_progress(self, group: str, topic: str | None = None) -> list[QueueProgress]:
        return [QueueProgress(QUEUE, 5, 3, 2000)] if group != "%f%u%z%" and "'" not in group else []

    async def groups_connections(self, group: str) -> GroupConnections:
        found = {"T": SubscriptionData("T", "*")}
        member = GroupMemberInfo("one", "127.0.0.1:7", "PYTHON", 1)
        return GroupConnections(
            [member], found, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET"
        )

    async def holds_list(self) -> list[HoldStatus]:
        return [HoldStatus("T", "a", "mine", 24, 0, 2, 3000, "")]

    async def holds_set(self, topic: str, group: str, *, hours: int, size_max: int) -> None:
        self.done.append(f"hold {topic} {group} {hours} {size_max}")

    async def holds_delete(self, topic: str) -> None:
        self.done.append(f"release {topic}")

    async def policies_list(self, group: str) -> dict[str, GroupPolicies]:
        return {"a": GroupPolicies([GroupPolicy("mine", queues=[QueueGrant("T", "a", 0, 1, "one")])])}

    async def groups_rate(self, group: str) -> float:
        return 0.0

    async def groups_status(self, group: str, *, seconds: float) -> list[MemberStatus]:
        return [MemberStatus("one", ConsumerRunningInfo())]

    async def groups_member(self, group: str, client_id: str, *, stacks: bool = False) -> MemberStatus | None:
        return MemberStatus("one", ConsumerRunningInfo()) if client_id == "one" else None

    async def groups_clone_offsets(self, source: str, group: str, topic: str | None) -> None:
        self.done.append(f"clone {source} {group} {topic}")

    async def brokers_set_settings(self, broker: str, changes: Mapping[str, str]) -> None:
        self.done.append(f"settings {broker} {dict(changes)}")

    async def users_list(self, part: str = "") -> list[AccessUser]:
        return [AccessUser("alice", super_user=False, enabled=True)]

    async def users_create(self, user: str, password: str, **how: Any) -> None:
        self.done.append(f"create user {user}")

    async def users_update(self, user: str, **how: Any) -> None:
        self.done.append(f"update user {user}")

    async def users_delete(self, user: str) -> None:
        self.done.append(f"delete user {user}")

    async def users_grants(self, part: str = "") -> list[AccessGrant]:
        return [AccessGrant("alice", "Topic:T", ("Pub",))]

    async def users_grant(self, user: str, resources: list[str], actions: list[str], **how: Any) -> None:
        self.done.append(f"grant {user} {resources} {actions}")

    async def users_revoke(self, user: str, resource: str | None) -> None:
        self.done.append(f"revoke {user} {resource}")

    async def brokers_clients(self, broker: str) -> BrokerClients:
        return BrokerClients([BrokerClient("one", "1.2.3.4:5", "JAVA", 5, ("g",))])

    async def brokers_producers(self, broker: str) -> dict[str, list[GroupMemberInfo]]:
        return {"g": [GroupMemberInfo("one", "127.0.0.1:5", "JAVA", 5)]}

    async def brokers_replication(self, broker: str) -> ReplicationStatus:
        return ReplicationStatus(True, 900, [SlaveStatus("a:2", 800, 100, True)])

    async def replicas_state(self, broker_address: str) -> ReplicaState:
        return ReplicaState(
            cluster_name="c", broker_name="a", broker_id=0, address="a:1", ha_address="a:3", role="MASTER",
            state="SERVING", epoch=3,
        )  # fmt: skip

    async def topics_entries(self, queue: MessageQueue, offset: int, count: int) -> list[ListedEntry]:
        return [ListedEntry(number, number * 100, 100, 0) for number in range(offset, 5)]

    async def name_servers_status(self, address: str) -> NameServerStatus:
        return NameServerStatus(address, frozenset({"T"}), {"a": {0: "127.0.0.1:10911"}}, {"listenPort": "1"})

    async def messages_get(
        self, topic: str, message_id: str, *, decompress: bool = True
    ) -> ReceivedMessage | None:
        return None

    async def topics_search_offset(self, queue: MessageQueue, timestamp: int) -> int:
        return 1

    async def messages_query(self, topic: str, key: str, **limits: int) -> list[ReceivedMessage]:
        if limits.get("unique"):
            return self.copies.get(topic, [])
        return [message()] if key == "k" else []

    async def messages_trace(self, message_id: str, *, topic: str) -> list[Trace]:
        return self.traces

    async def groups_committed(self, group: str, queue: MessageQueue) -> int | None:
        return None

    async def dead_letters_groups(self) -> list[DeadLetterStatus]:
        return [DeadLetterStatus("mine", 1)]

    async def dead_letters_list(
        self, group: str, *, count: int, after: ReceivedMessage | None = None, decompress: bool = True
    ) -> list[ReceivedMessage]:
        return [] if after is not None else [message(topic="%DLQ%mine")]

    async def messages_get_by_offset_id(
        self, offset_message_id: str, *, decompress: bool = True
    ) -> ReceivedMessage | None:
        self.asked_places.append(offset_message_id)
        return message()

    async def dead_letters_resend_one(self, group: str, one: ReceivedMessage) -> str:
        self.done.append(f"resend {one.message_id}")
        return "offset-new"

    async def topics_create(self, name: str, **how: Any) -> None:
        self.done.append(f"create {name} {how}")

    async def topics_delete(self, name: str) -> None:
        self.done.append(f"delete {name}")

    async def dead_letters_resend(self, group: str, ids: Iterable[str]) -> list[ResentLetter]:
        self.done.append(f"resend {sorted(ids)}")
        return [ResentLetter(one, "sent" if one == "id-0" else "missing") for one in sorted(ids)]


class MadeUpReader:
    """What a consumer without a group reads: the given messages, by offset."""

    def __init__(self, stored: Mapping[int, ReceivedMessage] | None = None) -> None:
        self.stored = dict(stored or {number: message(number) for number in range(5)})
        self.asked: list[tuple[int, Expression]] = []
        self.step = 2

    async def close(self) -> None:
        """Do nothing."""

    async def min_offset(self, queue: MessageQueue) -> int:
        return min(self.stored, default=0)

    async def max_offset(self, queue: MessageQueue) -> int:
        return max(self.stored, default=-1) + 1

    async def pull(self, queue: MessageQueue, offset: int, *, max_messages: int) -> PullResult:
        found, onward, high = self._found(offset, max_messages)
        status = PullStatus.FOUND if found else PullStatus.NO_NEW_MESSAGE
        return PullResult(status, found, onward, 0, high)

    async def fetch_raw(
        self, queue: MessageQueue, offset: int, *, max_messages: int, max_bytes: int, expression: Expression
    ) -> RawBatch:
        """Filters only by tags."""
        self.asked.append((offset, expression))
        found, onward, high = self._found(offset, max_messages)
        wanted = parse_expression(queue.topic, expression, 0)
        data = b"".join(map(encoded, (one for one in found if wanted.matches(one.tags))))
        return RawBatch(PullStatus.FOUND if data else PullStatus.NO_NEW_MESSAGE, data, onward, 0, high)

    def _found(self, offset: int, most: int) -> tuple[list[ReceivedMessage], int, int]:
        high = max(self.stored, default=-1) + 1
        found = [self.stored[one] for one in sorted(self.stored) if one >= offset][: min(most, self.step)]
        return found, found[-1].queue_offset + 1 if found else offset, high


def encoded(one: ReceivedMessage) -> bytes:
    """A message as brokers store it."""
    host = bytes((127, 0, 0, 1, 0, 0, 0, 5))
    return encode_record(
        topic=one.topic.encode(),
        queue_id=one.queue.queue_id,
        queue_offset=one.queue_offset,
        physical_offset=one.physical_offset,
        body=one.body,
        properties=properties.encode(one.properties),
        flag=one.flag,
        sys_flag=one.sys_flag,
        born_timestamp=one.born_timestamp,
        born_host=host,
        store_timestamp=one.store_timestamp,
        store_host=host,
        reconsume_times=one.reconsume_times,
    )


class MadeUpProducer:
    """Messages that were sent manually."""

    def __init__(self, done: list[str] | None = None) -> None:
        self.sent: list[Message] = []
        self.done = [] if done is None else done

    async def close(self) -> None:
        """Do nothing."""

    async def send(self, message: Message, **how: Any) -> SendResult:
        self.sent.append(message)
        self.done.append(f"send {message.topic}")
        return SendResult(SendStatus.SEND_OK, "id-new", "offset-new", QUEUE, 7)


def explorer(
    survey: SurveyView,
    admin: MadeUpAdmin,
    reader: MadeUpReader | None = None,
    producer: MadeUpProducer | None = None,
) -> Explorer:
    """The routes' explorer, on the fake cluster."""
    made = Explorer(asked.offsets("n1:1"), MadeUp(), survey, SystemClock())
    made._clients.made_admin = cast(aio.Admin, admin)
    made._clients.made_reader = cast(aio.PullConsumer, reader or MadeUpReader())
    made._clients.made_producers[PRODUCER_GROUP] = cast(aio.Producer, producer or MadeUpProducer(admin.done))
    return made
