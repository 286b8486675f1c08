"""The asyncio admin client: topics, clusters, groups (client:F). Works with SparrowMQ and Apache servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from sparrowmq.client.admin.access import AccessAdmin
from sparrowmq.client.admin.clients import ClientAdmin
from sparrowmq.client.admin.dead_letters import DeadLetterAdmin
from sparrowmq.client.admin.groups import GroupAdmin
from sparrowmq.client.admin.holds import HoldAdmin
from sparrowmq.client.admin.messages import MessageAdmin
from sparrowmq.client.admin.name_servers import NameServerAdmin
from sparrowmq.client.admin.policies import PolicyAdmin
from sparrowmq.client.admin.producers import ProducerAdmin
from sparrowmq.client.admin.replicas import ReplicaAdmin
from sparrowmq.client.admin.replication import ReplicationAdmin
from sparrowmq.client.admin.tables import OFFSETS_INLINE_BYTES, TableAdmin, all_apart, apart
from sparrowmq.client.admin.trace import TraceAdmin
from sparrowmq.client.admin.types import (
    BrokerStatus,
    GroupConnections,
    GroupMemberInfo,
    QueueProgress,
    QueueStatus,
    Rate,
    Rates,
)
from sparrowmq.client.base.lifecycle import Lifecycle, State
from sparrowmq.client.base.settings import ClientSettings, check_range, settings_of
from sparrowmq.client.cluster.broker_api import check, command, need_address
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.cluster.instances import shared_instance
from sparrowmq.core.backoff import Backoff
from sparrowmq.core.clock import epoch_ms
from sparrowmq.core.errors import (
    BrokerError,
    ClientError,
    InvalidNameError,
    NoRouteError,
    RequestTimeoutError,
    SparrowError,
)
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    check_group,
    check_topic,
    is_system_group,
    is_system_topic,
    retry_topic,
)
from sparrowmq.core.route import TopicRoute
from sparrowmq.core.settings.text import parse_properties
from sparrowmq.protocol import bodies, call_headers, headers
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.topic_attributes import changes_text

if TYPE_CHECKING:
    from sparrowmq.client.base.options import ClientOptions

PERM_READ_WRITE: Final = 6
TIMEOUT: Final = 5.0
"""Seconds for one admin request (client:F-01)."""
_ROUTE_WAIT: Final = 10.0
"""How many seconds to wait until the name server knows a new topic."""


class Admin(
    AccessAdmin,
    ClientAdmin,
    DeadLetterAdmin,
    GroupAdmin,
    HoldAdmin,
    MessageAdmin,
    NameServerAdmin,
    PolicyAdmin,
    ProducerAdmin,
    ReplicaAdmin,
    ReplicationAdmin,
    TableAdmin,
    TraceAdmin,
):
    """Queries and administers clusters.

        async with Admin(name_server="127.0.0.1:9876") as admin:
            await admin.create_topic("TopicTest", queues=8)

    Errors: `BrokerError` with the server's response code, `TransportError`, `NoRouteError` for unknown
    topics.
    """

    def __init__(
        self,
        name_servers: str | None = None,
        *,
        settings: ClientSettings | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """`name_servers`, or the keyword `name_server`, is `host:port` (several: separated by `;`), by
        default from the environment. `options` are the fields of `ClientSettings`; they override `settings`.
        """
        given: dict[str, Any] = {**options}
        if name_servers is not None:  # by the name that is free, so that two addresses are refused
            given["namesrv" if given.get("name_server") is not None else "name_server"] = name_servers
        self.settings = settings_of(ClientSettings, settings, given)
        self._life = Lifecycle("admin client")
        self._instance: ClientInstance | None = None

    def __repr__(self) -> str:
        return f"<Admin {self.state.value} {self._instance.name_servers if self._instance else ''!r}>"

    @property
    def state(self) -> State:
        """The lifecycle state."""
        return self._life.state

    async def start(self) -> None:
        """Start. Raises `NoNameServerError`, or `InvalidStateError` when it was started before."""
        self._life.to(State.STARTING)
        try:
            self._instance = shared_instance(self.settings)
            self._instance.follow_name_servers()
        except BaseException:
            self._life.to(State.FAILED)
            raise
        self._life.to(State.RUNNING)

    async def close(self) -> None:
        """Close the connections. Idempotent; a second call waits for the first."""
        await self._life.settled()
        if self.state in (State.CREATED, State.FAILED):
            self._life.to(State.CLOSED)
        if self.state is State.RUNNING:
            instance = self._running()
            self._life.to(State.CLOSING)
            try:
                await instance.close()
            finally:
                self._life.to(State.CLOSED)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Topics

    async def topic_list(self, *, system: bool = False) -> list[str]:
        """Names of all topics, sorted; `system` includes retry, dead letter and RocketMQ's system topics."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        names = (await apart(bodies.TopicList.decode, await self._ask_name_server(code))).topic_list
        if not system:
            cluster = await self.cluster_info()
            hidden = {
                *cluster.brokers,
                *cluster.clusters,
                *(f"{name}_REPLY_TOPIC" for name in cluster.clusters),
            }
            names = [n for n in names if not _is_hidden(n) and n not in hidden]
        return sorted(names)

    async def topic_route(self, topic: str) -> TopicRoute:
        """Queues and brokers of `topic`, fresh from a name server. Raises `NoRouteError`."""
        check_topic(topic)
        route = await self._running().update_route(topic)
        if route is None:
            raise NoRouteError(
                f"no broker serves topic {topic!r}; see the names with `sparrow topic list` or create it "
                f"with `sparrow topic create {topic}`",
                topic=topic,
            )
        return route

    async def topic_status(self, topic: str) -> list[QueueStatus]:
        """Offsets and last update of every queue, sorted; asks every master of the topic."""
        route = await self.topic_route(topic)
        header = headers.GetTopicStatsInfoRequest(topic=topic)
        answers = await asyncio.gather(
            *(self._ask(address, RequestCode.GET_TOPIC_STATS_INFO, header) for address in _masters(route))
        )
        return await all_apart(_queue_statuses, answers, OFFSETS_INLINE_BYTES)

    async def create_topic(
        self,
        name: str,
        queues: int | None = None,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        cluster: str | None = None,
        attributes: Mapping[str, str | None] | None = None,
        force: bool = False,
    ) -> TopicRoute:
        """Create or change a topic on every master of `cluster` (all clusters by default); returns its route.

        Returns when the name server knows the topic on these brokers. Omitted settings keep each broker's
        value; a new topic gets 8 queues to read and write. `queues` is per broker; `read_queues` and
        `write_queues` set the two numbers apart. More queues to write than to read are refused
        (`ClientError`), and SparrowMQ's brokers refuse fewer queues to read while the others have unread
        messages (`BrokerError` with their number), unless `force`. `perm` bits are 2 write and 4 read.
        `attributes` (RocketMQ 5) sets the named attributes, and None removes one; brokers
        refuse unknown attributes. Raises `InvalidNameError` for illegal and reserved names.
        """
        instance = self._running()
        check_topic(name)
        if is_system_topic(name):
            raise InvalidNameError(f"the topic {name!r} is RocketMQ's own; choose another name")
        given: dict[str, int] = {}
        for what, number in (("read_queues", read_queues), ("write_queues", write_queues)):
            number = queues if number is None else number
            if number is not None:
                check_range("queues" if number == queues else what, number, 1, 65535)
                given[f"{what.removesuffix('s')}_nums"] = number
        if perm is not None:
            check_range("perm", perm, 0, 7)
            given["perm"] = perm
        masters = await self._cluster_masters(cluster)
        change = changes_text(attributes or {})
        changes = (
            self._change_topic(address, name, given, change, force=force) for address in masters.values()
        )
        wanted = dict(zip(masters, await asyncio.gather(*changes), strict=True))
        deadline = asyncio.get_running_loop().time() + _ROUTE_WAIT
        for pause in Backoff(first=0.01, most=0.25).delays(instance.rng):
            route = await instance.update_route(name)
            if route is not None and _has_queues(route, wanted):
                return route
            if asyncio.get_running_loop().time() > deadline:
                break
            await instance.sleep(pause)
        raise RequestTimeoutError(
            f"topic {name!r} was created on {', '.join(masters)}, but the name server did not list it "
            f"within {_ROUTE_WAIT:g} s; check that the brokers are registered with it",
            address=instance.name_servers.current,
        )

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its messages from every broker, then from every name server.

        Raises `InvalidNameError` for reserved names and `NoRouteError` for unknown ones.
        """
        instance = self._running()
        if is_system_topic(name):
            raise InvalidNameError(f"the topic {name!r} is RocketMQ's own and cannot be deleted")
        route = await self.topic_route(name)
        header = headers.DeleteTopicRequest(topic=name)
        addresses = [address for broker in route.brokers for address in broker.addresses.values()]
        code = RequestCode.DELETE_TOPIC_IN_BROKER
        await asyncio.gather(*(self._ask(address, code, header) for address in addresses))
        from_names = headers.DeleteTopicFromNamesrvRequest(topic=name)
        for address in await instance.name_servers.known():
            await self._ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, from_names)
        instance.routes.forget(name)

    # Clusters

    async def cluster_info(self) -> bodies.ClusterInfo:
        """Brokers by name, broker names by cluster, as the name server has them."""
        return bodies.ClusterInfo.decode(await self._ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO))

    async def broker_list(self) -> list[BrokerStatus]:
        """Every broker of every cluster, with its runtime information."""
        info = await self.cluster_info()
        found = [
            BrokerStatus(
                cluster, name, broker_id, address, rival=info.rivals.get(name, {}).get(broker_id, "")
            )
            for cluster, names in sorted(info.clusters.items())
            for name in sorted(names)
            if name in info.brokers
            for broker_id, address in sorted(info.brokers[name].addresses.items())
        ]
        return list(await asyncio.gather(*(self._with_runtime(status) for status in found)))

    async def _with_runtime(self, status: BrokerStatus) -> BrokerStatus:
        try:
            body = await self._ask(status.address, RequestCode.GET_BROKER_RUNTIME_INFO)
            return replace(status, runtime=bodies.KVTable.decode(body).table)
        except SparrowError as error:
            return replace(status, error=str(error))

    async def broker_info(self, broker: str) -> dict[str, str]:
        """Runtime information of a broker (code 28), given by name or `host:port`: rates, offsets, disk, …"""
        address = await self._broker_address(broker)
        return bodies.KVTable.decode(await self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)).table

    async def broker_stats(self, broker: str, name: str, key: str) -> Rates | None:
        """Rates measured by a broker (code 315), for example `TOPIC_PUT_NUMS` of a topic; None if it has
        none.

        `GROUP_GET_NUMS` takes `topic@group`, `BROKER_PUT_NUMS` the name of the cluster.
        """
        header = headers.ViewBrokerStatsDataRequest(stats_name=name, stats_key=key)
        code = RequestCode.VIEW_BROKER_STATS_DATA
        try:
            data = bodies.BrokerStatsData.decode(
                await self._ask(await self._broker_address(broker), code, header)
            )
        except BrokerError as error:
            if error.code == ResponseCode.SYSTEM_ERROR and "not exist" in error.remark:
                return None
            raise
        items = (data.stats_minute, data.stats_hour, data.stats_day)
        return Rates(*(Rate(item.sum, item.tps, item.avgpt) for item in items))

    async def broker_progress(self, broker: str) -> dict[str, list[QueueProgress]]:
        """The offsets of all groups in the queues of one broker (code 317), by group.

        A group is listed with the topics for which it has offsets and which, while online, it subscribes to.
        """
        header = call_headers.GetBrokerConsumeStatsRequest(is_order=False)
        code = RequestCode.GET_BROKER_CONSUME_STATS
        body = await self._ask(await self._broker_address(broker), code, header)
        return await apart(_progress_by_group, body)

    async def broker_settings(self, broker: str) -> dict[str, str]:
        """The current settings of a broker (code 26), by name."""
        body = await self._ask(await self._broker_address(broker), RequestCode.GET_BROKER_CONFIG)
        return parse_properties(body.decode("utf-8", "replace"))

    async def change_broker_settings(self, broker: str, changes: Mapping[str, str]) -> None:
        """Change settings of a running broker (code 25).

        A SparrowMQ broker accepts settings that can change at run time and keeps them until it stops;
        `BrokerError` names the others.
        """
        body = "".join(f"{name}={_escaped(value)}\n" for name, value in changes.items()).encode()
        address, code = await self._broker_address(broker), RequestCode.UPDATE_BROKER_CONFIG
        await self._running().brokers.ask(address, code, body=body, timeout=TIMEOUT)

    async def delete_expired_files(self, broker: str) -> None:
        """Have a broker delete data older than its `fileReservedTime` now (code 329)."""
        await self._ask(await self._broker_address(broker), RequestCode.DELETE_EXPIRED_COMMITLOG)

    async def clean_expired_queues(self, broker: str) -> None:
        """Have a broker delete queues whose messages are all deleted (code 306)."""
        await self._ask(await self._broker_address(broker), RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    async def clean_unused_topics(self, broker: str) -> None:
        """Have a broker delete queues of topics that no longer exist (code 316)."""
        await self._ask(await self._broker_address(broker), RequestCode.CLEAN_UNUSED_TOPIC)

    # Groups

    async def group_list(self, *, system: bool = False) -> list[str]:
        """Names of all consumer groups of all brokers, sorted; `system` includes RocketMQ's system groups."""
        masters = await self._cluster_masters(None)
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        answers = await asyncio.gather(*(self._ask(address, code) for address in masters.values()))
        names = await all_apart(_group_names, answers)
        return sorted(name for name in names if system or not is_system_group(name))

    async def group_progress(self, group: str, topic: str | None = None) -> list[QueueProgress]:
        """The group's progress in every queue for which it has offsets, sorted; only of `topic` when given.

        Raises `BrokerError` when no broker knows the group.
        """
        check_group(group)
        masters = await self._group_masters(group)
        header = headers.GetConsumeStatsRequest(consumer_group=group, topic=topic)
        answers = await asyncio.gather(
            *(self._ask(address, RequestCode.GET_CONSUME_STATS, header) for address in masters)
        )
        return await all_apart(_progress, answers, OFFSETS_INLINE_BYTES)

    async def group_connections(self, group: str) -> GroupConnections | None:
        """Members and subscriptions of the group; None when no member is online."""
        check_group(group)
        header = headers.GetConsumerConnectionListRequest(consumer_group=group)
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        for address in await self._group_masters(group):
            try:
                found = await apart(bodies.ConsumerConnection.decode, await self._ask(address, code, header))
            except BrokerError as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
                continue
            return GroupConnections(
                [
                    GroupMemberInfo(c.client_id, c.client_addr, c.language, c.version)
                    for c in found.connections
                ],
                dict(found.subscriptions),
                found.consume_type.value,
                found.message_model.value,
                found.consume_from_where.value,
            )
        return None

    async def group_members(self, group: str) -> dict[str, list[GroupMemberInfo]]:
        """The members connected to each master that knows the group, by the master's address; the list may be
        empty.

        Each member should be connected to all of them.
        """
        check_group(group)
        masters = await self._group_masters(group)
        return dict(
            zip(masters, await asyncio.gather(*(self._at(one, group) for one in masters)), strict=True)
        )

    async def topic_groups(self, topic: str) -> list[str]:
        """Groups with offsets or members on `topic`, sorted."""
        route = await self.topic_route(topic)
        header = headers.QueryTopicConsumeByWhoRequest(topic=topic)
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        answers = await asyncio.gather(*(self._ask(address, code, header) for address in _masters(route)))
        lists = [await apart(bodies.GroupList.decode, answer) for answer in answers]
        return sorted({name for one in lists for name in one.group_list})

    # Offsets

    async def committed(self, group: str, queue: MessageQueue, *, stored_only: bool = False) -> int | None:
        """The group's committed offset in a queue, or None.

        Where none is stored and the queue's first message is there and young, brokers answer 0, because new
        members begin there; with `stored_only` it is None (brokers of 4.9 answer 0 even then).
        """
        check_group(group)
        address = await self._master_of(queue)
        return await self._running().brokers.query_offset(address, group, queue, stored_only=stored_only)

    async def commit(
        self, group: str, queue: MessageQueue, offset: int, *, generation: int | None = None
    ) -> None:
        """Set the next offset the group will read. A member that is online keeps its current position.

        In a managed group `generation` must be that of the queue; its broker refuses others with code 90011.
        """
        check_group(group)
        check_range("offset", offset, 0, 2**63 - 1)
        await self._running().brokers.update_offset(
            await self._master_of(queue), group, queue, offset, oneway=False, generation=generation
        )

    async def search_offset(self, queue: MessageQueue, timestamp: datetime | int) -> int:
        """The offset of the first message stored at or after `timestamp`, an aware datetime or epoch
        milliseconds; if there is none, the next offset. Raises `SettingsError` for other times.
        """
        at = epoch_ms("timestamp", timestamp)
        address = await self._master_of(queue)
        return await self._running().brokers.search_offset(address, queue, at)

    # Inside

    def _running(self) -> ClientInstance:
        self._life.need_running()
        assert self._instance is not None
        return self._instance

    async def _ask(self, address: str, code: RequestCode, header: headers.Header | None = None) -> bytes:
        return (await self._running().brokers.ask(address, code, header, timeout=TIMEOUT)).body

    async def _ask_name_server(self, code: RequestCode) -> bytes:
        name_servers = self._running().name_servers
        answer = await name_servers.call(command(code), TIMEOUT)
        return check(answer, name_servers.current, code).body

    async def _broker_address(self, broker: str) -> str:
        """The address of a broker's master, given its name; an address is returned unchanged."""
        if ":" in broker:
            return broker
        found = (await self.cluster_info()).brokers.get(broker)
        if found is None or found.master is None:
            text = f"there is no broker {broker!r}; see the names with `sparrow cluster list`"
            raise ClientError(text, what="broker", value=broker)
        return found.master

    async def _cluster_masters(self, cluster: str | None) -> dict[str, str]:
        """Broker name to master address, of one cluster or of all. Raises `ClientError` without any."""
        info = await self.cluster_info()
        if cluster is not None and cluster not in info.clusters:
            known = ", ".join(sorted(info.clusters)) or "none"
            raise ClientError(f"there is no cluster {cluster!r}; the name server knows: {known}")
        names = sorted(info.brokers) if cluster is None else sorted(info.clusters[cluster])
        masters = {n: m for n in names if n in info.brokers and (m := info.brokers[n].master) is not None}
        if not masters:
            raise ClientError("no broker with a master is registered with the name server; start one first")
        return masters

    async def _group_masters(self, group: str) -> list[str]:
        """Masters that know the group: those with its retry topic, or else all (remoting:2.7)."""
        route = await self._running().update_route(retry_topic(group))
        if route is not None and (found := _masters(route)):
            return found
        return list((await self._cluster_masters(None)).values())

    async def _master_of(self, queue: MessageQueue) -> str:
        address = await self._running().master_of(queue)
        if address is None:
            await self.topic_route(queue.topic)  # its error says that there is no such topic
        return need_address(address, queue, "master")


def _group_names(answers: Iterable[bytes]) -> set[str]:
    """The groups in bodies of code 201."""
    tables = map(bodies.SubscriptionGroupTable.decode, answers)
    return {name for table in tables for name in table.subscription_group_table}


def _queue_statuses(answers: Iterable[bytes]) -> list[QueueStatus]:
    """The queues in bodies of code 202, sorted."""
    found = [
        QueueStatus(queue, entry.min_offset, entry.max_offset, entry.last_update_timestamp)
        for answer in answers
        for queue, entry in bodies.TopicStatsTable.decode(answer).offset_table.items()
    ]
    return sorted(found, key=lambda status: status.queue)


def _progress(answers: Iterable[bytes]) -> list[QueueProgress]:
    """The offsets in bodies of code 208, sorted."""
    return _sorted_progress(map(bodies.ConsumeStats.decode, answers))


def _progress_by_group(body: bytes) -> dict[str, list[QueueProgress]]:
    """The offsets in a body of code 317, by group."""
    groups = bodies.BrokerConsumeStats.decode(body).groups
    return {group: _sorted_progress(tables) for group, tables in groups.items()}


def _sorted_progress(tables: Iterable[bodies.ConsumeStats]) -> list[QueueProgress]:
    found = [
        QueueProgress(queue, one.broker_offset, one.consumer_offset, one.last_timestamp, one.pull_offset)
        for table in tables
        for queue, one in table.offset_table.items()
    ]
    return sorted(found, key=lambda progress: progress.queue)


def _escaped(value: str) -> str:
    """A value escaped for a Java properties file."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _masters(route: TopicRoute) -> list[str]:
    return [broker.master for broker in route.brokers if broker.master is not None]


def _is_hidden(topic: str) -> bool:
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX, "RMQ_SYS_")) or is_system_topic(topic)


def _has_queues(route: TopicRoute, wanted: Mapping[str, bodies.TopicConfig]) -> bool:
    """Whether the route has the topic with these settings on all these brokers."""
    known = {q.broker_name: (q.read_queue_nums, q.write_queue_nums, q.perm) for q in route.queues}
    return all(
        known.get(name) == (config.read_queue_nums, config.write_queue_nums, config.perm)
        for name, config in wanted.items()
    )
