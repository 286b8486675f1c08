"""The tables of the name server and every decision about them (broker:11, remoting:2.2). No I/O, no clock.

    topic        -> broker name -> how many queues, and what they permit
    broker name  -> its cluster and the addresses of its members by broker id
    (cluster, address) -> when it was last heard, over which connection, and the version of its topics

Times are seconds of a monotonic clock, passed in. A connection is a number that the caller chose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from sparrowmq.core.route import MASTER_ID, PERM_READ, PERM_WRITE, BrokerData, QueueData, TopicRoute
from sparrowmq.protocol.bodies import ClusterInfo, DataVersion, TopicConfig, TopicConfigTable, TopicList
from sparrowmq.protocol.headers import RegisterBrokerRequest

BROKER_SECONDS: Final = 120.0
"""A broker that is not heard for this long is dropped, unless it named another time when it registered."""
FLAG_UNIT: Final = 1
FLAG_UNIT_SUB: Final = 2


@dataclass(frozen=True, slots=True)
class Registered:
    """What a registered broker is told: for a slave, where its master is."""

    master_address: str | None = None
    ha_address: str | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """One live broker process."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    connection: int
    version: DataVersion
    timeout: float
    last_heard: float


@dataclass(slots=True)
class _Broker:
    """The processes that share a broker name."""

    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)
    acting_master: bool = False
    zone: str | None = None

    def data(self) -> BrokerData:
        return BrokerData(self.cluster, self.name, dict(sorted(self.addresses.items())))


class Registry:
    """Who is alive and serves what."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, _Broker] = {}
        self._clusters: dict[str, dict[str, None]] = {}
        self._members: dict[tuple[str, str], Member] = {}

    def __repr__(self) -> str:
        return f"<Registry {len(self._members)} brokers, {len(self._topics)} topics>"

    # Registration

    def register(
        self,
        request: RegisterBrokerRequest,
        table: TopicConfigTable,
        *,
        connection: int,
        now: float,
        zone: str | None = None,
    ) -> Registered | None:
        """Take a registration; None refuses it.

        Refused is a member not known yet that brings exactly one topic: it looks like notice of one changed
        topic that overtook the first registration. Ignored, but answered like any other, is an address for an
        id that a live member with a greater state version has.
        """
        name, number, address = request.broker_name, request.broker_id, request.broker_addr
        broker = self._brokers.get(name)
        known = {} if broker is None else broker.addresses
        addresses = {i: known[i] for i in known if known[i] != address or i == number}
        holder = self._members.get((request.cluster_name, addresses.get(number, address)))
        if (
            holder is not None
            and holder.address != address
            and holder.version.state_version > table.data_version.state_version
        ):
            self._members.pop((request.cluster_name, address), None)
            return Registered()
        first = number not in addresses
        if first and len(table.topic_config_table) == 1:
            return None
        if broker is None:
            broker = self._brokers[name] = _Broker(request.cluster_name, name)
        self._clusters.setdefault(request.cluster_name, {})[name] = None
        addresses[number] = address
        broker.addresses = addresses
        broker.acting_master = bool(request.enable_acting_master)
        broker.zone = zone
        self._take_topics(request, table, broker, first)
        timeout = request.heartbeat_timeout_millis
        self._members[(request.cluster_name, address)] = Member(
            cluster=request.cluster_name,
            broker_name=name,
            broker_id=number,
            address=address,
            ha_address=request.ha_server_addr,
            connection=connection,
            version=table.data_version,
            timeout=BROKER_SECONDS if timeout is None else timeout / 1000,
            last_heard=now,
        )
        return self._master_for(request)

    def _take_topics(
        self, request: RegisterBrokerRequest, table: TopicConfigTable, broker: _Broker, first: bool
    ) -> None:
        """Topics count when they come from the master, or from the first slave if it knows the role."""
        master = request.broker_id == MASTER_ID
        if not master and (
            request.enable_acting_master is None or request.broker_id != min(broker.addresses)
        ):
            return
        mask = ~0 if master or not broker.acting_master else ~PERM_WRITE
        before = self._members.get((request.cluster_name, request.broker_addr))
        changed = first or before is None or before.version != table.data_version
        for topic, config in table.topic_config_table.items():
            queues = self._topics.setdefault(topic, {})
            if changed or broker.name not in queues:
                queues[broker.name] = _queue_data(broker.name, config, mask)

    def _master_for(self, request: RegisterBrokerRequest) -> Registered:
        if request.broker_id == MASTER_ID:
            return Registered()
        address = self._brokers[request.broker_name].addresses.get(MASTER_ID)
        master = None if address is None else self._members.get((request.cluster_name, address))
        return Registered() if master is None else Registered(master.address, master.ha_address)

    def unregister(self, cluster: str, broker_name: str, address: str) -> None:
        """A broker said goodbye: what only it served is gone."""
        self._members.pop((cluster, address), None)
        broker = self._brokers.get(broker_name)
        if broker is None:
            return
        broker.addresses = {i: a for i, a in broker.addresses.items() if a != address}
        if not broker.addresses:
            del self._brokers[broker_name]
            self._forget_cluster_member(broker_name)
            self._forget_topics_of([broker_name], list(self._topics))
        elif broker.acting_master and MASTER_ID not in broker.addresses:
            self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def connection_lost(self, connection: int) -> list[Member]:
        """Drop every broker that registered on the connection; gives them."""
        return self._drop(m for m in self._members.values() if m.connection == connection)

    def expire(self, now: float) -> list[Member]:
        """Drop every broker that was not heard in time; gives them."""
        return self._drop(m for m in self._members.values() if now - m.last_heard > m.timeout)

    def _drop(self, members: Iterable[Member]) -> list[Member]:
        dropped = list(members)
        for member in dropped:
            self.unregister(member.cluster, member.broker_name, member.address)
        return dropped

    def heard(self, cluster: str, address: str, now: float) -> None:
        """A sign of life of a broker; of an unknown one it means nothing."""
        member = self._members.get((cluster, address))
        if member is not None:
            self._members[(cluster, address)] = replace(member, last_heard=now)

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """The version of the topics a broker registered."""
        member = self._members.get((cluster, address))
        return None if member is None else member.version

    # Questions

    def route(
        self, topic: str, *, order_conf: str | None = None, zone: str | None = None
    ) -> TopicRoute | None:
        """Where a topic is served, or None.

        With a `zone`, brokers of other zones that have a master are left out.
        """
        found = self._topics.get(topic, {})
        brokers = [self._brokers[name] for name in found if name in self._brokers]
        if zone is not None:
            brokers = [b for b in brokers if MASTER_ID not in b.addresses or _same_zone(b.zone, zone)]
        if not brokers:
            return None
        return TopicRoute(
            queues=tuple(found[broker.name] for broker in brokers),
            brokers=tuple(broker.data() for broker in brokers),
            order_topic_conf=order_conf,
        )

    def cluster_info(self) -> ClusterInfo:
        """All brokers by name, and the names by cluster."""
        return ClusterInfo(
            {name: broker.data() for name, broker in self._brokers.items()},
            {cluster: list(names) for cluster, names in self._clusters.items()},
        )

    def member_group(self, cluster: str, broker_name: str) -> BrokerData:
        """The members of a broker name; of an unknown one there are none."""
        broker = self._brokers.get(broker_name)
        return BrokerData(cluster, broker_name, {}) if broker is None else broker.data()

    def topics(self) -> list[str]:
        """Every topic."""
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Topics served by a broker of the cluster."""
        names = self._clusters.get(cluster, {})
        return [topic for topic, queues in self._topics.items() if not names.keys().isdisjoint(queues)]

    def system_topics(self) -> TopicList:
        """Names of clusters and brokers, which are topics, too, and the address of some broker."""
        names = [name for cluster, brokers in self._clusters.items() for name in (cluster, *brokers)]
        address = next((a for broker in self._brokers.values() for a in broker.addresses.values()), None)
        return TopicList(list(dict.fromkeys(names)), address)

    def topics_by_flag(self, wanted: Callable[[int], bool]) -> list[str]:
        """Topics for whose `topicSysFlag` on some broker `wanted` is true."""
        return [
            topic
            for topic, queues in self._topics.items()
            if any(wanted(data.topic_sys_flag) for data in queues.values())
        ]

    # Administration

    def wipe_write_perm(self, broker_name: str) -> int:
        """Take the write bit off all topics of a broker name; gives how many it has.

        It comes back with `add_write_perm`, or when the broker registers another version of its topics.
        """
        return self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Let all topics of a broker name be read and written; gives how many it has."""
        return self._change_perm(broker_name, lambda perm: PERM_READ | PERM_WRITE)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or on the brokers of one cluster."""
        if cluster is None:
            self._topics.pop(topic, None)
        elif topic in self._topics:
            self._forget_topics_of(self._clusters.get(cluster, {}), [topic])

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> bool:
        """Take one topic's queues; False, and nothing taken, when a broker is unknown."""
        taken = {data.broker_name: data for data in queues}
        if not taken or not taken.keys() <= self._brokers.keys():
            return False
        self._topics.setdefault(topic, {}).update(taken)
        return True

    # Inside

    def _change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        count = 0
        for queues in self._topics.values():
            data = queues.get(broker_name)
            if data is not None:
                queues[broker_name] = replace(data, perm=change(data.perm))
                count += 1
        return count

    def _forget_topics_of(self, broker_names: Iterable[str], topics: Iterable[str]) -> None:
        for topic in topics:
            queues = self._topics[topic]
            for name in broker_names:
                queues.pop(name, None)
            if not queues:
                del self._topics[topic]

    def _forget_cluster_member(self, broker_name: str) -> None:
        for cluster, names in list(self._clusters.items()):
            names.pop(broker_name, None)
            if not names:
                del self._clusters[cluster]


def _queue_data(broker_name: str, config: TopicConfig, mask: int) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm & mask,
        topic_sys_flag=config.topic_sys_flag,
    )


def _same_zone(zone: str | None, wanted: str) -> bool:
    return zone is not None and zone.casefold() == wanted.casefold()
