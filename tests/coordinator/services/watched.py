"""A fake cluster as services see it, and one step of a service on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tests.coordinator.cluster.asked import observed

from sparrowmq.broker.members.fence import judge
from sparrowmq.client.admin.types import GroupConnections, GroupMemberInfo, MemberStatus
from sparrowmq.coordinator.cluster.fleet import Backlog, FleetBroker
from sparrowmq.coordinator.cluster.member_reports import MemberAnswers, Presence, StoredCounts
from sparrowmq.coordinator.cluster.view import GroupPosition, ObservedCluster, Seen
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.leases import rules
from sparrowmq.coordinator.leases import table as leases
from sparrowmq.coordinator.leases.holder import LeaseHolder
from sparrowmq.coordinator.leases.rules import LeaseTimes, Owner
from sparrowmq.coordinator.services.base import board
from sparrowmq.coordinator.services.base.runner import Service, Work
from sparrowmq.coordinator.services.base.schedule import RunReport, ServiceKind
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import BrokerError, ConnectError, NoRouteError, TransportError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.route import BrokerData, QueueData, TopicRoute
from sparrowmq.protocol.bodies import ConsumerRunningInfo
from sparrowmq.protocol.managed import GroupPolicies, GroupPolicy, QueueGrant


def queue(topic: str = "t", number: int = 0) -> MessageQueue:
    return MessageQueue(topic, "broker-a", number)


def place(lag: int, oldest_ms: int = 0, topic: str = "t", number: int = 0) -> GroupPosition:
    return GroupPosition(queue(topic, number), lag, oldest_ms)


class MadeUpKeeper:
    """A cluster for the planning of groups: topics with one queue at each of its brokers, policies as brokers
    take them, the name servers' values. `down` brokers take none; `refused` is what they say of accounts.
    """

    def __init__(self, brokers: Sequence[str] = ("a", "b")) -> None:
        self.policies = {name: dict[str, GroupPolicy]() for name in brokers}
        self.topics = {"T"}
        self.down: set[str] = set()
        self.values: dict[str, str] = {}
        self.refused = ""
        self.asked: list[dict[str, str]] = []

    async def topic_route(self, topic: str) -> TopicRoute:
        if topic not in self.topics:
            raise NoRouteError(f"no broker serves {topic}")
        queues = tuple(QueueData(name, 1, 1, 6) for name in self.policies)
        return TopicRoute(queues, tuple(BrokerData("c", name, {0: f"{name}:1"}) for name in self.policies))

    async def group_policies(self, group: str | None = None) -> dict[str, GroupPolicies]:
        found = {}
        for name, table in self.policies.items():
            if name in self.down:
                raise ConnectError(f"{name} is down")
            found[name] = GroupPolicies([one for one in table.values() if group in (None, one.group)])
        return found

    async def set_group_policy(
        self, policy: GroupPolicy, *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        assert broker is not None
        if broker in self.down:
            raise ConnectError(f"{broker} is down")
        wrong = judge(policy, self.policies[broker].get(policy.group), 0, broker)
        if wrong is not None:
            raise BrokerError(wrong.code, wrong.text)
        self.policies[broker][policy.group] = policy

    async def value(self, namespace: str, key: str) -> str | None:
        return self.values.get(key)

    async def put_value(self, namespace: str, key: str, value: str) -> None:
        self.values[key] = value

    async def delete_value(self, namespace: str, key: str) -> None:
        self.values.pop(key, None)

    async def group_connections(self, group: str) -> GroupConnections | None:
        return None

    async def consume_refusal(self, code: int, fields: Mapping[str, str], body: bytes) -> str:
        self.asked.append(dict(fields))
        return self.refused

    def owners(self, group: str) -> dict[MessageQueue, tuple[str, int]]:
        """Client id and generation of each queue, as its broker enforces them."""
        return {
            one.queue: (one.owner.rpartition("#")[0], one.generation)
            for name, table in self.policies.items()
            if group in table
            for one in table[group].queues
            if one.broker_name == name
        }

    def epochs(self, group: str) -> set[int]:
        """The epochs under which brokers have a group."""
        return {table[group].epoch for table in self.policies.values() if group in table}


class MadeUpFleet:
    """The brokers of a `ClusterView` with prepared answers, and a record of changes."""

    def __init__(self) -> None:
        super().__init__()
        self.there: list[FleetBroker] = []
        self.failing: dict[str, str] = {}
        """What calls about a broker, or about all (`*`), fail with."""
        self.permissions: dict[str, int] = {}
        self.alone: list[str] = []
        self.left = Backlog()
        self.written: list[str] = []

    def _checked(self, broker: str) -> None:
        if broker in self.failing:
            raise TransportError(self.failing[broker], address="broker")

    async def brokers(self) -> list[FleetBroker]:
        self._checked("*")
        return list(self.there)

    async def write(self, broker: str) -> None:
        self._checked(broker)
        self.written.append(broker)

    async def permission(self, broker: str) -> int:
        return self.permissions.get(broker, 6)

    async def set_permission(self, broker: str, permission: int) -> None:
        self._checked(broker)
        self.permissions[broker] = permission

    async def only_at(self, broker: str) -> list[str]:
        return self.alone

    async def backlog(self, broker: str) -> Backlog:
        return self.left


def member(name: str, *, error: str | None = None, **info: Any) -> MemberStatus:
    """A member with this report, or without one."""
    return MemberStatus(name, None if error else ConsumerRunningInfo(**info), error)


class MadeUpTelling:
    """The members of a `ClusterView` with prepared answers."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 1000.0
        """When members were asked."""
        self.fresh: list[float] = []
        """How old an answer might have been."""
        self.groups: dict[str, list[MemberStatus]] = {}
        self.groups_failed: dict[str, str] = {}
        self.connected: dict[str, dict[str, list[GroupMemberInfo]]] = {}
        self.loose: set[str] = set()
        self.ends: dict[str, int] = {}
        """How much is stored, by topic."""
        self.ends_failed: set[str] = set()
        self.granted: dict[str, list[QueueGrant]] = {}

    async def told(self, fresh_seconds: float = 0.0) -> MemberAnswers:
        self.fresh.append(fresh_seconds)
        return MemberAnswers(dict(self.groups), dict(self.groups_failed), self.at)

    async def presence(self) -> Presence:
        return Presence(dict(self.connected), dict(self.groups_failed), frozenset(self.loose))

    async def stored(self, prefix: str) -> StoredCounts:
        found = {
            topic.removeprefix(prefix): end for topic, end in self.ends.items() if topic.startswith(prefix)
        }
        return StoredCounts(found, {one.removeprefix(prefix) for one in self.ends_failed})

    async def grants(self) -> dict[str, list[QueueGrant]]:
        return self.granted


class MadeUp(MadeUpFleet, MadeUpTelling):
    """A `ClusterView` with prepared answers."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = Seen()
        self.routes: dict[str, Sequence[MessageQueue]] = {}
        self.lost: set[str] = set()
        """Topics whose route nobody can tell."""
        self.names = MadeUpKeeper()

    async def places(self, *, ages: bool, fresh_seconds: float = 0.0) -> Seen:
        return self.seen

    async def queues(self, topics: Iterable[str]) -> tuple[dict[str, frozenset[MessageQueue]], set[str]]:
        wanted = set(topics)
        return {one: frozenset(self.routes[one]) for one in wanted & set(self.routes)}, wanted & self.lost

    async def keeper(self) -> MadeUpKeeper:
        return self.names

    async def close(self) -> None:
        """Do nothing."""


def step(database: Database, service: Service, **options: int) -> RunReport:
    """One step of the service, as its leader; alarms whose condition is not seen resolve at once."""

    async def main() -> RunReport:
        owner, name = Owner("a" * 32, "one"), service.kind.name
        board.ensure(database, [service.kind])
        with database.write() as connection:
            leases.hand_over(connection, name, 0)
            epoch = leases.claim(connection, name, owner, 600_000)
        assert epoch is not None
        holder = LeaseHolder(database, name, owner, LeaseTimes(), SystemClock(), lambda: None)
        holder._candidate = rules.won(SystemClock().monotonic(), epoch, LeaseTimes())
        work = Work(database, holder, epoch, service.kind.defaults() | {"calm_checks": 1} | options)
        return await service.step(work)

    return asyncio.run(main())


class Once:
    """A service of a real cluster, which is closed after each step."""

    def __init__(self, namesrv: str, make: Callable[[ObservedCluster], Service]) -> None:
        self._namesrv = namesrv
        self._make = make

    @property
    def kind(self) -> ServiceKind:
        return self._make(observed(self._namesrv)).kind

    async def step(self, work: Work) -> RunReport:
        cluster = observed(self._namesrv)
        try:
            return await self._make(cluster).step(work)
        finally:
            await cluster.close()
