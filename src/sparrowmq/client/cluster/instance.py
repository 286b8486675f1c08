"""A client instance: identity, connections, routes, heartbeats, and requests from brokers.

Producers, consumers and admin clients of one client id share one instance (`instances.shared_instance`);
without an instance name, each has its own. Members register by group; the instance keeps their routes up to
date and sends heartbeats to every broker (client:A).
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Iterable
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from sparrowmq.client.base.hooks import Hooks
from sparrowmq.client.base.settings import ClientSettings
from sparrowmq.client.base.tasks import TaskGroup, run_every
from sparrowmq.client.cluster.addresses import (
    DOMAIN_VARIABLE,
    SUBGROUP_VARIABLE,
    find_namesrv,
    local_address,
    resolve_namesrv,
)
from sparrowmq.client.cluster.broker_api import BrokerRequests, check, command, decode_route
from sparrowmq.client.cluster.heartbeats import Beat, Heartbeats
from sparrowmq.client.cluster.nameservers import FOLLOW_FIRST_SECONDS, FOLLOW_SECONDS, NameServers
from sparrowmq.client.cluster.namespaces import NamespacedHandlers, namespace_in
from sparrowmq.client.cluster.routes import RouteTable
from sparrowmq.client.cluster.security import request_hooks, tls_context
from sparrowmq.core.clock import Clock, Sleep, SystemClock
from sparrowmq.core.errors import GroupTakenError, InvalidStateError, SparrowError, TransportError
from sparrowmq.core.ids import UniqueIds
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import TEMPLATE_TOPIC
from sparrowmq.core.route import QueueData, TopicRoute
from sparrowmq.core.subscription import TAG, SubscriptionData
from sparrowmq.protocol import bodies, headers
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.client import RemotingClient
from sparrowmq.transport.dispatch import Handler

if TYPE_CHECKING:
    from sparrowmq.client.cluster.address_server import AddressServer
    from sparrowmq.client.cluster.delay_levels import BrokerLevels
    from sparrowmq.client.cluster.request_reply import PendingReplies
    from sparrowmq.client.cluster.transaction_checks import TransactionChecks

M = TypeVar("M")

log = logging.getLogger("sparrowmq.client")

ROUTES_FIRST_SECONDS: Final = 0.01
"""Delay before the first refresh of routes (client:A-34)."""
DOUBTED_MAX: Final = 1000
"""Topics whose last refresh of this kind is remembered."""
ROUTE_DOUBT_SECONDS: Final = 0.5
"""Pause between two refreshes of a topic's route because sends fail."""


class ProducerMember(Protocol):
    """What an instance needs from a producer."""

    def topics(self) -> Iterable[str]:
        """Topics whose routes the producer uses."""

    def route_changed(self, topic: str, route: TopicRoute) -> None:
        """The route of one of its topics changed."""


class ConsumerMember(ProducerMember, Protocol):
    """What an instance needs from a consumer."""

    def heartbeat_data(self) -> bodies.ConsumerData:
        """Group, model and subscriptions for heartbeats."""

    def wake_rebalance(self) -> None:
        """Members or subscriptions of the group changed."""


class InstanceState(Enum):
    """Lifecycle states of an instance (client:A.4)."""

    CREATED = "created"
    FAILED = "failed"
    RUNNING = "running"
    CLOSED = "closed"


def client_id(settings: ClientSettings, *, stream: bool = False, address: str = "") -> str:
    """The client id: address, instance name and unit (client:A-01 to A-04).

    Without a name each call returns a new id, made of process id and time.
    """
    address = address or settings.client_ip or local_address()
    name = settings.instance_name or f"{os.getpid()}#{time.perf_counter_ns()}"
    parts = [f"[{address}]" if ":" in address else address, name]
    if settings.unit_name and settings.unit_name.strip():
        parts.append(settings.unit_name)
    if stream:
        parts.append("STREAM")
    return "@".join(parts)


class ClientInstance:
    """Identity and shared machinery of one client. Lives on one event loop, between `start` and `close`.

    It is reference-counted: `hold` adds a user, `close` removes one, and the last `close` ends it.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        stream: bool = False,
        clock: Clock | None = None,
        sleep: Sleep = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        """`stream` marks pull clients, whose id ends with `@STREAM` (client:A-01). All parts of a client use
        `clock`, `sleep` and `rng`.
        """
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.sleep = sleep
        self.rng = rng or random.Random()
        address = settings.client_ip or local_address()
        self.client_id = client_id(settings, stream=stream, address=address)
        self.client_address = address
        self.state = InstanceState.CREATED
        self.hooks = Hooks(request_hooks(settings))
        self.namespace = namespace_in(settings)
        """The namespace of names on the wire (client:B.23)."""
        self.on_request: dict[int, Handler[str]] = {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._consumer_ids_changed,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: lambda at, asked: self.replies.receive(at, asked),
            RequestCode.CHECK_TRANSACTION_STATE: lambda at, asked: self.checks.receive(at, asked),
        }
        """Handlers of brokers' requests, by code: functions of the broker's address and the request."""
        self.on_close: list[Callable[[], None]] = []
        """Called when the last user has closed the instance."""
        self.on_lost: list[Callable[[str], None]] = []
        """Called with the address of a lost connection."""
        self._holders = 1
        self._follows = False
        self.unique_ids = UniqueIds(address)
        self.remoting = self._make_remoting()
        self.brokers = BrokerRequests(self.remoting)
        addresses, source = _name_server_list(settings)
        self.name_servers = NameServers(addresses, self.remoting, self.rng, source)
        self.routes = RouteTable()
        self.broker_versions: dict[str, int] = {}
        """Version code by broker address, from heartbeat responses (client:A-22, A-60)."""
        self._producers: dict[str, ProducerMember] = {}
        self._consumers: dict[str, ConsumerMember] = {}
        self._updates: dict[tuple[str, int | None], asyncio.Future[TopicRoute | None]] = {}
        self._heartbeats = Heartbeats(self.client_id, version_2=settings.heartbeat_v2)
        self._tell_all = False
        self._heartbeat_lock = asyncio.Lock()
        self._heartbeats_begun = 0
        self._heartbeat_ended = (0, False)
        """Number of the last completed heartbeat, and whether a broker accepted it."""
        self.tasks = TaskGroup(self._task_died)
        self._doubted: dict[str, float] = {}
        self._knows_all = False

    def _make_remoting(self) -> RemotingClient:
        handlers, namespace = self.on_request, self.namespace
        return RemotingClient(
            connect_timeout=self.settings.connect_timeout,
            on_request=NamespacedHandlers(handlers, namespace) if namespace else handlers,
            on_connected=self._connected,
            on_lost=self._connection_lost,
            hooks=self.hooks.rpc,
            tls=tls_context(self.settings),
        )

    def __repr__(self) -> str:
        return f"<ClientInstance {self.client_id} {self.name_servers!r} {self.routes!r}>"

    @cached_property
    def replies(self) -> PendingReplies:
        """Requests of this client that wait for a reply; loaded at the first request."""
        from sparrowmq.client.cluster.request_reply import PendingReplies

        return PendingReplies(self.clock)

    @cached_property
    def checks(self) -> TransactionChecks:
        """Answers transaction checks of brokers; loaded at the first use."""
        from sparrowmq.client.cluster.transaction_checks import TransactionChecks

        return TransactionChecks(self.namespace)

    @cached_property
    def delay_levels(self) -> BrokerLevels:
        """Delay levels of the brokers; loaded at the first use."""
        from sparrowmq.client.cluster.delay_levels import BrokerLevels

        levels = BrokerLevels(self.brokers)
        self.on_lost.append(levels.forget)
        return levels

    def hold(self) -> None:
        """Add a user, which must call `close`."""
        self._holders += 1

    @property
    def is_shared(self) -> bool:
        """Whether there are other users, so that `close` does not end the instance."""
        return self._holders > 1

    def start(self) -> None:
        """Start the scheduled tasks. Does nothing when they run or the instance is closed (client:A-27).

        Raises `InvalidStateError` when an earlier start failed (client:A-28).
        """
        if self.state in (InstanceState.RUNNING, InstanceState.CLOSED):
            return
        if self.state is InstanceState.FAILED:
            raise InvalidStateError(
                f"the client {self.client_id} could not be started earlier; create a new one",
                what="client",
                value=self.client_id,
            )
        self.state = InstanceState.FAILED  # until everything below has succeeded
        self._start_tasks()
        self.state = InstanceState.RUNNING

    def _start_tasks(self) -> None:
        settings = self.settings
        refresh = run_every(
            settings.route_interval,
            self.refresh_routes,
            first=ROUTES_FIRST_SECONDS,
            name="refreshing routes",
            sleep=self.sleep,
        )
        self.tasks.start(refresh, "routes")
        beat = run_every(
            settings.heartbeat_interval, self._beat, first=1.0, name="heartbeat", sleep=self.sleep
        )
        self.tasks.start(beat, "heartbeat")
        self.follow_name_servers()

    def follow_name_servers(self) -> None:
        """Refresh the list of name servers periodically if it was not configured (client:A-33)."""
        if self.name_servers.is_followed and not self._follows:
            self._follows = True
            work = run_every(
                FOLLOW_SECONDS,
                self.name_servers.follow,
                first=FOLLOW_FIRST_SECONDS,
                name="looking up name servers",
                sleep=self.sleep,
            )
            self.tasks.start(work, "name servers")

    async def close(self) -> None:
        """Remove a user. After the last one the scheduled tasks stop and the connections close
        (client:A-93).
        """
        self._holders -= 1
        if self._holders > 0 or self.state is InstanceState.CLOSED:
            return
        self.state = InstanceState.CLOSED
        for call in self.on_close:
            call()
        try:
            await self.tasks.close()
        finally:  # the caller may be cancelled meanwhile
            await self.remoting.close()

    # Members

    def register_producer(self, group: str, member: ProducerMember) -> None:
        """Include a producer in heartbeats and route refreshes. Raises `ClientError` if the client already
        has the group.
        """
        _register(self._producers, "producer", group, member, self.client_id)

    def producer(self, group: str) -> ProducerMember | None:
        """The producer of `group`, if this client has one."""
        return self._producers.get(group)

    def register_consumer(self, group: str, member: ConsumerMember) -> None:
        """Include a consumer in heartbeats and route refreshes. Raises `ClientError` if the client already
        has the group.
        """
        _register(self._consumers, "consumer", group, member, self.client_id)

    def forget_consumer(self, group: str, member: ConsumerMember) -> None:
        """Remove a consumer without notifying brokers. Does nothing if it was not registered."""
        if self._consumers.get(group) is member:
            del self._consumers[group]

    def consumer(self, group: str) -> ConsumerMember | None:
        """The consumer of `group`, if this client has one."""
        return self._consumers.get(group)

    async def unregister(self, *, producer: str | None = None, consumer: str | None = None) -> None:
        """Remove a group and notify every broker; unreachable brokers detect it themselves."""
        if producer is not None:
            self._producers.pop(producer, None)
        if consumer is not None:
            self._consumers.pop(consumer, None)
        await asyncio.gather(
            *(self._unregister_at(address, producer, consumer) for address in self.routes.all_addresses())
        )

    async def _unregister_at(self, address: str, producer: str | None, consumer: str | None) -> None:
        try:
            await self.brokers.unregister(
                address,
                self.client_id,
                producer_group=producer,
                consumer_group=consumer,
                timeout=self.settings.request_timeout,
            )
        except SparrowError as error:
            log.info("%s could not be notified that %s is leaving: %s", address, self.client_id, error)

    # Routes

    async def update_route(
        self, topic: str, *, template_queues: int | None = None, template: str = TEMPLATE_TOPIC
    ) -> TopicRoute | None:
        """Get the route of `topic` from a name server and pass it to the members; None if no broker has the
        topic.

        With `template_queues` the route of the template topic is used instead, limited to that many queues
        per broker (client:A-42). Concurrent calls for the same topic share one request.
        """
        key = (topic, template_queues)
        task = self._updates.get(key)
        if task is None:
            asked = topic if template_queues is None else template
            task = asyncio.ensure_future(self._fetch_route(topic, asked, template_queues))
            self._updates[key] = task
            task.add_done_callback(lambda done: self._update_ended(key, done))
        return await asyncio.shield(task)

    def _update_ended(self, key: tuple[str, int | None], task: asyncio.Future[TopicRoute | None]) -> None:
        del self._updates[key]
        if not task.cancelled():
            task.exception()  # marks the error as retrieved if all callers were cancelled

    async def find_route(self, topic: str) -> TopicRoute | None:
        """The stored route of `topic`, or else the name server's."""
        return self.routes.get(topic) or await self.update_route(topic)

    async def master_of(self, queue: MessageQueue) -> str | None:
        """The address of the master of `queue`, with an open connection if possible.

        When it is not known or cannot be connected, the broker may have moved: the route is got again, once.
        Raises `SparrowError` if that gives no other address.
        """
        address = self.routes.master(queue.broker_name)
        failure: TransportError | None = None
        if address is not None:
            try:
                await self.remoting.connect(address)
                return address
            except TransportError as error:
                failure = error
        try:
            await self.update_route(queue.topic)
        except SparrowError as error:
            raise failure or error from None
        found = self.routes.master(queue.broker_name)
        if failure is not None and found == address:
            raise failure
        return found

    def doubt_route(self, topic: str) -> None:
        """A broker did not take a message: another one may be master now. Get the route again, in the
        background and at most once in `ROUTE_DOUBT_SECONDS`."""
        now = asyncio.get_running_loop().time()
        if now - self._doubted.get(topic, float("-inf")) < ROUTE_DOUBT_SECONDS:
            return
        if len(self._doubted) >= DOUBTED_MAX:
            self._doubted.clear()
        self._doubted[topic] = now
        if self.state is InstanceState.RUNNING:
            self.tasks.start(self._get_again(topic), f"route of {topic}")

    async def _get_again(self, topic: str) -> None:
        try:
            await self.update_route(topic)
        except SparrowError as error:
            log.info("the route of %s is not known: %s", topic, error)

    async def refresh_routes(self) -> None:
        """Refresh the routes of all topics that members use; after a failure the old route is kept."""
        members: list[ProducerMember] = [*self._producers.values(), *self._consumers.values()]
        for topic in dict.fromkeys(topic for member in members for topic in member.topics()):
            try:
                await self.update_route(topic)
            except SparrowError as error:
                log.warning("the route of %s could not be refreshed: %s", topic, error)
        if self._knows_all:
            await self.know_all_brokers()

    async def know_all_brokers(self) -> None:
        """Send heartbeats to every broker from now on, not only to those in a route: each may have half
        messages of a transactional producer that has not sent anything yet."""
        self._knows_all = True
        code, servers = RequestCode.GET_BROKER_CLUSTER_INFO, self.name_servers
        try:
            answer = await servers.call(command(code), self.settings.request_timeout)
            info = bodies.ClusterInfo.decode(check(answer, servers.current, code).body)
        except SparrowError as error:
            log.warning("the brokers of transactions are not known now, the next refresh retries: %s", error)
        else:
            self.routes.keep(info.brokers.values())

    async def _fetch_route(self, topic: str, asked: str, template_queues: int | None) -> TopicRoute | None:
        answer = await self.name_servers.call(
            command(RequestCode.GET_ROUTEINFO_BY_TOPIC, headers.GetRouteInfoRequest(topic=asked)),
            self.settings.request_timeout,
        )
        route = decode_route(answer, asked)
        if route is None:
            return None
        if template_queues is not None:
            route = _cut_template(route, template_queues)
        self.routes.store(topic, route)
        for member in [*self._producers.values(), *self._consumers.values()]:
            member.route_changed(topic, route)
        return route

    # Heartbeats and requests of brokers

    async def check_filters(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Ask a broker of each topic whether it accepts the SQL92 filter; raise its error (client:D.2-14).

        Raises `BrokerError`, `InvalidExpressionError` or `TransportError`.
        """
        for data in subscriptions:
            address = self.routes.any_broker(data.topic, self.rng)
            if data.expression_type != TAG and address is not None:
                timeout = self.settings.request_timeout
                await self.brokers.check_filter(address, group, self.client_id, data, timeout)

    async def heartbeat(self) -> bool:
        """Send a full heartbeat to every broker (only masters if there is no consumer). Returns whether one
        accepted it.

        Calls during a running heartbeat share the next one, so that it includes all changes. RocketMQ's
        client leaves them to the next periodic heartbeat (client:A-59).
        """
        self._tell_all = True
        return await self._tell()

    async def _tell(self) -> bool:
        if not self._producers and not self._consumers:
            return False
        begun = self._heartbeats_begun
        async with self._heartbeat_lock:
            if self._heartbeat_ended[0] > begun:
                return self._heartbeat_ended[1]
            self._heartbeats_begun += 1
            number = self._heartbeats_begun
            addresses = self.routes.all_addresses() if self._consumers else self.routes.masters()
            if self._tell_all:
                self._tell_all = False
                self._heartbeats.forget()
            beat = self._next_beat()
            taken = await asyncio.gather(*(self._heartbeat_to(address, beat) for address in addresses))
            self._heartbeat_ended = (number, any(taken))
        return any(taken)

    async def introduce(self, address: str) -> None:
        """Send a heartbeat to one broker unless it had one before: a heartbeat may create groups."""
        if address not in self.broker_versions and (self._producers or self._consumers):
            await self._heartbeat_to(address, self._next_beat())

    def _next_beat(self) -> Beat:
        return self._heartbeats.beat(
            self._producers, [member.heartbeat_data() for member in self._consumers.values()]
        )

    async def _heartbeat_to(self, address: str, beat: Beat) -> bool:
        body = self._heartbeats.body(address, beat)
        try:
            answer = await self.brokers.heartbeat(address, body, self.settings.request_timeout)
        except SparrowError as error:
            self._heartbeats.forget(address)
            log.info("heartbeat of %s failed: %s", self.client_id, error)
            return False
        self._heartbeats.taken(address, beat, answer.ext)
        self.broker_versions[address] = answer.version
        return True

    async def _beat(self) -> None:
        for address in self.routes.drop_offline():
            log.info("no route contains the broker at %s any longer", address)
            self.broker_versions.pop(address, None)
        await self._tell()

    def _connected(self, address: str) -> None:
        """A connection was opened: a broker must know its members before they pull (client:A-62)."""
        if address in self.routes.all_addresses() and (self._producers or self._consumers):
            self.tasks.start(self._greet(address), f"heartbeat to {address}")

    def _connection_lost(self, address: str) -> None:
        self._heartbeats.forget(address)
        for call in self.on_lost:
            call(address)

    async def _greet(self, address: str) -> None:
        if await self._heartbeat_to(address, self._next_beat()):
            for member in self._consumers.values():
                member.wake_rebalance()

    def _consumer_ids_changed(self, address: str, request: Command) -> None:
        member = self._consumers.get(request.ext.get("consumerGroup", ""))
        if member is not None:
            member.wake_rebalance()

    def _task_died(self, name: str, error: BaseException) -> None:
        log.error("the background task %r of %s died", name, self.client_id, exc_info=error)


def _register(table: dict[str, M], kind: str, group: str, member: M, client: str) -> None:
    """Add a member to its table; a client has at most one member of each kind per group (client:A-17, A-18,
    A-31).
    """
    if group in table:
        raise GroupTakenError(
            f"the client {client} already has a {kind} of group {group!r}; choose another group name, or "
            f"give this one another instance_name",
            what=kind,
            value=group,
        )
    table[group] = member


def _name_server_list(settings: ClientSettings) -> tuple[tuple[str, ...], AddressServer | None]:
    """Name servers from the setting or the environment, or else from the address server, if any
    (client:A-68).

    Raises `NoNameServerError` when none of them is configured.
    """
    domain = settings.namesrv_domain or os.environ.get(DOMAIN_VARIABLE)
    if not domain:
        return resolve_namesrv(settings.namesrv), None
    if found := find_namesrv(settings.namesrv):
        return found, None
    from sparrowmq.client.cluster.address_server import DEFAULT_SUBGROUP, AddressServer, address_server_url

    subgroup = settings.namesrv_subgroup or os.environ.get(SUBGROUP_VARIABLE) or DEFAULT_SUBGROUP
    return (), AddressServer(address_server_url(domain, subgroup, settings.unit_name))


def _cut_template(route: TopicRoute, queues: int) -> TopicRoute:
    """The template topic's route with at most `queues` queues per broker, for a topic to be created."""
    cut = tuple(
        QueueData(q.broker_name, number, number, q.perm, q.topic_sys_flag)
        for q in route.queues
        for number in (min(queues, q.read_queue_nums),)
    )
    return TopicRoute(cut, route.brokers, route.order_topic_conf)
