"""The tables of the name server and every decision about them (broker:11, remoting:2.2). No I/O, no clock.

    topic        -> broker name -> how many queues, and what they permit
    broker name  -> its cluster and the addresses of its members by broker id
    (cluster, address) -> when it was last heard, over which connection, and the version of its topics

Times are seconds of a monotonic clock, passed in. A connection is a number chosen by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from sparrowmq.core.errors import InvalidNameError, NoRoomError
from sparrowmq.core.route import MASTER_ID, PERM_READ, PERM_WRITE, BrokerData, QueueData, TopicRoute
from sparrowmq.protocol.bodies import ClusterInfo, DataVersion, TopicConfig, TopicConfigTable, TopicList
from sparrowmq.protocol.headers import RegisterBrokerRequest

BROKER_SECONDS: Final = 120.0
"""A broker without a heartbeat for this long is dropped, unless its registration specified another time."""
TOPICS_PER_STEP: Final = 100
"""Topics of a registration that are processed together."""
BROKERS_MAX: Final = 10_000
"""Maximum number of processes, broker names and clusters, each."""
TOPICS_MAX: Final = 200_000
"""Default limit of topics of all brokers; one takes about 500 bytes."""
ROUTES_MAX: Final = 500_000
"""Default limit of pairs of a topic and a broker that serves it; one takes about 200 bytes."""
MEMBERS_MAX: Final = 256
"""Maximum number of processes, a master and its slaves, that share a broker name, and of ids that rivals
claim."""
RIVAL_SECONDS: Final = 150.0
"""Claims of a name and id that are further apart are not counted together."""
CLAIMS_MIN: Final = 3
"""From this many claims on, two processes have one name and id, and not one that moved."""
NAME_CHARS_MAX: Final = 255
"""Maximum length of a name, an address or a zone."""
FLAG_UNIT: Final = 1
FLAG_UNIT_SUB: Final = 2


@dataclass(frozen=True, slots=True)
class RegistrationResult:
    """The answer to a registration: for a slave, the address of its master.

    `left_out` of its topics were not registered, because there are too many or their names are too long.
    `displaced` is the address of a live member that had the same broker name and id until now; `kept` that of
    one that keeps them, because its state version is greater.
    """

    master_address: str | None = None
    ha_address: str | None = None
    left_out: int = 0
    displaced: str | None = None
    kept: str | None = None


@dataclass(frozen=True, slots=True)
class LiveBroker:
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


@dataclass(frozen=True, slots=True)
class _Claims:
    """Registrations of a broker name and id under other addresses than the one before.

    `rival` is the address that does not have it now; `at` is the time of the last of them.
    """

    rival: str
    number: int
    at: float


@dataclass(slots=True)
class _Broker:
    """The processes that share a broker name."""

    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)
    acting_master: bool = False
    zone: str | None = None
    claims: dict[int, _Claims] = field(default_factory=dict)

    def claimed(self, number: int, rival: str, now: float) -> None:
        """Note that two live processes claim an id, and which of them does not have it."""
        self.claims = {i: one for i, one in self.claims.items() if now - one.at <= RIVAL_SECONDS}
        before = self.claims.get(number)
        if before is not None or len(self.claims) < MEMBERS_MAX:
            self.claims[number] = _Claims(rival, 1 if before is None else before.number + 1, now)

    def rivals(self, now: float) -> dict[int, str]:
        """Addresses of other processes that keep claiming an id. One that moved claims it once."""
        return {
            number: one.rival
            for number, one in sorted(self.claims.items())
            if one.number >= CLAIMS_MIN
            and now - one.at <= RIVAL_SECONDS
            and one.rival not in self.addresses.values()
        }

    def data(self) -> BrokerData:
        return BrokerData(self.cluster, self.name, dict(sorted(self.addresses.items())))


class Registry:
    """The live brokers and the topics they serve. Beyond `topics_max` topics and `routes_max` pairs of a
    topic and a broker, further ones are left out.
    """

    def __init__(self, topics_max: int = TOPICS_MAX, routes_max: int = ROUTES_MAX) -> None:
        self.topics_max = topics_max
        self.routes_max = routes_max
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, _Broker] = {}
        self._clusters: dict[str, dict[str, None]] = {}
        self._clusters_of: dict[str, dict[str, None]] = {}
        """The clusters of each broker name: one, unless its processes disagree."""
        self._members: dict[tuple[str, str], LiveBroker] = {}
        self._on_connection: dict[int, dict[tuple[str, str], None]] = {}
        self._served: dict[str, dict[str, None]] = {}
        """The topics of each broker name."""
        self._routes = 0
        """Pairs of a topic and a broker name."""

    def __repr__(self) -> str:
        return f"<Registry {len(self._members)} brokers, {len(self._topics)} topics>"

    @property
    def broker_count(self) -> int:
        """Number of registered brokers."""
        return len(self._members)

    @property
    def topic_count(self) -> int:
        """Number of topics that a broker serves."""
        return len(self._topics)

    @property
    def route_count(self) -> int:
        """Pairs of a topic and a broker name."""
        return self._routes

    # Registration

    def register(
        self,
        request: RegisterBrokerRequest,
        table: TopicConfigTable,
        *,
        connection: int,
        now: float,
        zone: str | None = None,
    ) -> RegistrationResult | None:
        """All steps of `registering` at once."""
        steps = self.registering(request, table, connection=connection, now=now, zone=zone)
        try:
            while True:  # ends after the last topic
                next(steps)
        except StopIteration as end:
            found: RegistrationResult | None = end.value
            return found

    def registering(
        self,
        request: RegisterBrokerRequest,
        table: TopicConfigTable,
        *,
        connection: int,
        now: float,
        zone: str | None = None,
    ) -> Generator[None, None, RegistrationResult | None]:
        """Process a registration, a few topics per step; returns None to refuse it.

        An unknown member with exactly one topic is refused: this looks like a topic change that arrived
        before the first registration. An address is ignored, but answered normally, if a live member with the
        same id has a greater state version. If the member disappears or registers again, its other topics are
        skipped. Topics beyond the limits are left out, so that a broker is not lost because of them.

        Raises `InvalidNameError` for names that are too long, `NoRoomError` when there are too many
        brokers.
        """
        self._check(request, zone)
        name, number, address = request.broker_name, request.broker_id, request.broker_addr
        broker = self._brokers.get(name)
        known = {} if broker is None else broker.addresses
        addresses = {i: known[i] for i in known if known[i] != address or i == number}
        rival = addresses.get(number, address)
        holder = None if rival == address else self._members.get((request.cluster_name, rival))
        if holder is not None and holder.version.state_version > table.data_version.state_version:
            self._forget_member((request.cluster_name, address))
            self._brokers[name].claimed(number, address, now)
            return RegistrationResult(kept=holder.address)
        displaced = None if holder is None else holder.address
        first = number not in addresses
        if first and len(table.topic_config_table) == 1:
            return None
        if broker is None:
            broker = self._brokers[name] = _Broker(request.cluster_name, name)
        self._join(request.cluster_name, name)
        addresses[number] = address
        broker.addresses = addresses
        broker.acting_master = bool(request.enable_acting_master)
        broker.zone = zone
        if displaced is not None:
            broker.claimed(number, displaced, now)
        topics = self._topics_to_take(request, table, broker, first)
        member = _live_broker(request, table.data_version, connection, now)
        key = (request.cluster_name, address)
        before = self._members.get(key)
        if before is not None and before.broker_name != name:
            self.unregister(before.cluster, before.broker_name, address)
        self._forget_member(key)
        self._members[key] = member
        self._on_connection.setdefault(connection, {})[key] = None
        left_out = 0
        for number, (topic, config, mask) in enumerate(topics):
            if number % TOPICS_PER_STEP == TOPICS_PER_STEP - 1:
                yield
                if not self._is_current(key, broker, table.data_version):
                    break
            left_out += not self._serve(topic, _queue_data(name, config, mask))
        return replace(self._master_for(request), left_out=left_out, displaced=displaced)

    def _check(self, request: RegisterBrokerRequest, zone: str | None) -> None:
        """Check that the names are valid, and that there is room for one more broker."""
        cluster, name, address = request.cluster_name, request.broker_name, request.broker_addr
        for text in (cluster, name, address, request.ha_server_addr, zone or ""):
            if len(text) > NAME_CHARS_MAX:
                raise InvalidNameError(
                    f"a cluster, a broker, an address and a zone have at most {NAME_CHARS_MAX} characters; "
                    f"{text[:80]!r}… has {len(text)}",
                    value=text,
                    limit=NAME_CHARS_MAX,
                )
        for what, key, known in (
            ("brokers", (cluster, address), self._members),
            ("names of brokers", name, self._brokers),
            ("clusters", cluster, self._clusters),
        ):
            if len(known) >= BROKERS_MAX and key not in known:
                raise NoRoomError(
                    f"{len(known)} {what} are registered and the limit is {BROKERS_MAX}: a new one is "
                    f"accepted when others leave",
                    limit=BROKERS_MAX,
                )
        broker = self._brokers.get(name)
        members = {} if broker is None else broker.addresses
        if len(members) >= MEMBERS_MAX and request.broker_id not in members:
            raise NoRoomError(
                f"{len(members)} processes are registered as broker {name[:80]!r} and the limit is "
                f"{MEMBERS_MAX}: give this one another brokerName",
                limit=MEMBERS_MAX,
            )

    def _serve(self, topic: str, data: QueueData) -> bool:
        """Record that a broker serves a topic; False, without a change, when there are too many."""
        queues, name = self._topics.get(topic), data.broker_name
        if queues is None:
            is_full = len(self._topics) >= self.topics_max or self._routes >= self.routes_max
            if is_full or len(topic) > NAME_CHARS_MAX:
                return False
            queues = self._topics[topic] = {}
        if name not in queues:
            if self._routes >= self.routes_max:
                return False
            self._routes += 1
            self._served.setdefault(name, {})[topic] = None
        queues[name] = data
        return True

    def _is_current(self, key: tuple[str, str], broker: _Broker, version: DataVersion) -> bool:
        """Whether a member's registration is still current."""
        member = self._members.get(key)
        return member is not None and member.version == version and self._brokers.get(broker.name) is broker

    def _topics_to_take(
        self, request: RegisterBrokerRequest, table: TopicConfigTable, broker: _Broker, first: bool
    ) -> Iterator[tuple[str, TopicConfig, int]]:
        """Topics are accepted from the master, or from the first slave if it knows the role."""
        master = request.broker_id == MASTER_ID
        if not master and (
            request.enable_acting_master is None or request.broker_id != min(broker.addresses)
        ):
            return iter(())
        mask = ~0 if master or not broker.acting_master else ~PERM_WRITE
        before = self._members.get((request.cluster_name, request.broker_addr))
        changed = first or before is None or before.version != table.data_version
        self._served.setdefault(broker.name, {})
        return (
            (topic, config, mask)
            for topic, config in table.topic_config_table.items()
            if changed or broker.name not in self._topics.get(topic, ())
        )

    def _master_for(self, request: RegisterBrokerRequest) -> RegistrationResult:
        if request.broker_id == MASTER_ID:
            return RegistrationResult()
        address = self._brokers[request.broker_name].addresses.get(MASTER_ID)
        master = None if address is None else self._members.get((request.cluster_name, address))
        return (
            RegistrationResult() if master is None else RegistrationResult(master.address, master.ha_address)
        )

    def unregister(self, cluster: str, broker_name: str, address: str) -> None:
        """A broker unregistered: remove the topics that only it served."""
        self._forget_member((cluster, address))
        broker = self._brokers.get(broker_name)
        if broker is None:
            return
        broker.addresses = {i: a for i, a in broker.addresses.items() if a != address}
        broker.claims = {i: one for i, one in broker.claims.items() if one.rival != address}
        if not broker.addresses:
            del self._brokers[broker_name]
            self._forget_cluster_member(broker_name)
            self._forget_topics_of([broker_name], list(self._served.get(broker_name, ())))
            self._served.pop(broker_name, None)
        elif broker.acting_master and MASTER_ID not in broker.addresses:
            self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def connection_lost(self, connection: int) -> Iterator[LiveBroker]:
        """Drop the brokers that registered on the connection; each step drops one."""
        return self._dropping(
            list(self._on_connection.get(connection, ())), lambda member: member.connection == connection
        )

    def expire(self, now: float) -> Iterator[LiveBroker]:
        """Drop the brokers without a recent heartbeat; each step drops one."""

        def is_silent(member: LiveBroker) -> bool:
            return now - member.last_heard > member.timeout

        return self._dropping([key for key, member in self._members.items() if is_silent(member)], is_silent)

    def _dropping(
        self, keys: list[tuple[str, str]], is_gone: Callable[[LiveBroker], bool]
    ) -> Iterator[LiveBroker]:
        """Drop these brokers, except those that were heard again between two steps."""
        for key in keys:
            member = self._members.get(key)
            if member is not None and is_gone(member):
                self.unregister(member.cluster, member.broker_name, member.address)
                yield member

    def heard(self, cluster: str, address: str, now: float) -> None:
        """Process a heartbeat of a broker; ignored if the broker is unknown."""
        member = self._members.get((cluster, address))
        if member is not None:
            self._members[(cluster, address)] = replace(member, last_heard=now)

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """The version of the topics a broker registered."""
        member = self._members.get((cluster, address))
        return None if member is None else member.version

    # Queries

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

    def rivals(self, now: float) -> dict[str, dict[int, str]]:
        """By broker name and id, the address of another live process that claims both."""
        found = {name: broker.rivals(now) for name, broker in self._brokers.items()}
        return {name: rivals for name, rivals in found.items() if rivals}

    def member_group(self, cluster: str, broker_name: str) -> BrokerData:
        """The members of a broker name; empty if it is unknown."""
        broker = self._brokers.get(broker_name)
        return BrokerData(cluster, broker_name, {}) if broker is None else broker.data()

    def topics(self) -> list[str]:
        """Every topic."""
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Topics served by brokers of the cluster."""
        names = self._clusters.get(cluster, {})
        return [topic for topic, queues in self._topics.items() if not names.keys().isdisjoint(queues)]

    def system_topics(self) -> TopicList:
        """Names of clusters and brokers, which are also topics, and the address of one broker."""
        names = [name for cluster, brokers in self._clusters.items() for name in (cluster, *brokers)]
        address = next((a for broker in self._brokers.values() for a in broker.addresses.values()), None)
        return TopicList(list(dict.fromkeys(names)), address)

    def topics_by_flag(self, wanted: Callable[[int], bool]) -> list[str]:
        """Topics whose `topicSysFlag` on any broker satisfies `wanted`."""
        return [
            topic
            for topic, queues in self._topics.items()
            if any(wanted(data.topic_sys_flag) for data in queues.values())
        ]

    # Administration

    def wipe_write_perm(self, broker_name: str) -> int:
        """Remove the write permission from all topics of a broker name; returns the number of topics.

        It is restored by `add_write_perm`, or when the broker registers another version of its topics.
        """
        return self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Allow reading and writing of all topics of a broker name; returns the number of topics."""
        return self._change_perm(broker_name, lambda perm: PERM_READ | PERM_WRITE)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic from all brokers, or from those of one cluster."""
        queues = self._topics.get(topic)
        if queues is not None:
            self._forget_topics_of(
                list(queues) if cluster is None else self._clusters.get(cluster, {}), [topic]
            )

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> bool:
        """Register one topic's queues; False, without a change, when a broker is unknown.

        Raises `NoRoomError` when there are too many topics.
        """
        taken = {data.broker_name: data for data in queues}
        if not taken or not taken.keys() <= self._brokers.keys():
            return False
        for data in taken.values():
            if not self._serve(topic, data):
                raise NoRoomError(
                    f"the topic was not registered: the name server has {len(self._topics)} topics and "
                    f"{self._routes} pairs of a topic and a broker, the limits are "
                    f"{self.topics_max} (topicsMax) and {self.routes_max} (routesMax), and a name has at "
                    f"most {NAME_CHARS_MAX} characters",
                    limit=self.topics_max,
                )
        return True

    # Inside

    def _forget_member(self, key: tuple[str, str]) -> None:
        member = self._members.pop(key, None)
        if member is not None:
            keys = self._on_connection[member.connection]
            del keys[key]
            if not keys:
                del self._on_connection[member.connection]

    def _change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        served = self._served.get(broker_name, {})
        for topic in served:
            queues = self._topics[topic]
            queues[broker_name] = replace(queues[broker_name], perm=change(queues[broker_name].perm))
        return len(served)

    def _forget_topics_of(self, broker_names: Iterable[str], topics: Iterable[str]) -> None:
        for topic in topics:
            queues = self._topics[topic]
            for name in broker_names:
                if queues.pop(name, None) is not None:
                    self._routes -= 1
                    served = self._served[name]
                    del served[topic]
                    if not served:
                        del self._served[name]
            if not queues:
                del self._topics[topic]

    def _join(self, cluster: str, broker_name: str) -> None:
        self._clusters.setdefault(cluster, {})[broker_name] = None
        self._clusters_of.setdefault(broker_name, {})[cluster] = None

    def _forget_cluster_member(self, broker_name: str) -> None:
        for cluster in self._clusters_of.pop(broker_name, ()):
            names = self._clusters[cluster]
            del names[broker_name]
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


def _live_broker(
    request: RegisterBrokerRequest, version: DataVersion, connection: int, now: float
) -> LiveBroker:
    timeout = request.heartbeat_timeout_millis
    return LiveBroker(
        cluster=request.cluster_name,
        broker_name=request.broker_name,
        broker_id=request.broker_id,
        address=request.broker_addr,
        ha_address=request.ha_server_addr,
        connection=connection,
        version=version,
        timeout=BROKER_SECONDS if timeout is None else timeout / 1000,
        last_heard=now,
    )
