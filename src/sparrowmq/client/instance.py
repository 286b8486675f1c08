"""One client towards a cluster: identity, connections, routes, heartbeats, what brokers ask of it.

Producers, consumers and admin clients of one client id share one instance (`instances.shared_instance`);
unless they are given a name, each has its own. Members register by group; the instance keeps their routes
fresh and tells every broker that they are alive (client:A).
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, Protocol, TypeVar

from sparrowmq.client.address_server import DEFAULT_SUBGROUP, AddressServer, address_server_url
from sparrowmq.client.addresses import (
    DOMAIN_VARIABLE,
    SUBGROUP_VARIABLE,
    find_namesrv,
    local_address,
    resolve_namesrv,
)
from sparrowmq.client.heartbeats import Beat, Heartbeats
from sparrowmq.client.hooks import Hooks
from sparrowmq.client.nameservers import FOLLOW_FIRST_SECONDS, FOLLOW_SECONDS, NameServers
from sparrowmq.client.namespaces import NamespacedHandlers, namespace_in
from sparrowmq.client.request_reply import PendingReplies
from sparrowmq.client.requests import BrokerRequests, command, decode_route
from sparrowmq.client.routes import RouteTable
from sparrowmq.client.security import request_hooks, tls_context
from sparrowmq.client.settings import ClientSettings
from sparrowmq.client.tasks import TaskGroup, run_every
from sparrowmq.client.transaction_checks import TransactionChecks
from sparrowmq.core.clock import Clock, SystemClock
from sparrowmq.core.errors import GroupTakenError, InvalidStateError, SparrowError
from sparrowmq.core.ids import UniqueIds
from sparrowmq.core.names import TEMPLATE_TOPIC
from sparrowmq.core.route import QueueData, TopicRoute
from sparrowmq.core.subscription import TAG, SubscriptionData
from sparrowmq.protocol import bodies, headers
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.client import RemotingClient
from sparrowmq.transport.dispatch import Handler

M = TypeVar("M")

log = logging.getLogger("sparrowmq.client")

ROUTES_FIRST_SECONDS: Final = 0.01
"""When routes are refreshed for the first time (client:A-34)."""


class ProducerMember(Protocol):
    """What an instance needs of a producer."""

    def topics(self) -> Iterable[str]:
        """Topics whose routes it uses."""

    def route_changed(self, topic: str, route: TopicRoute) -> None:
        """A route it uses is new."""


class ConsumerMember(ProducerMember, Protocol):
    """What an instance needs of a consumer."""

    def heartbeat_data(self) -> bodies.ConsumerData:
        """Group, model and subscriptions for heartbeats."""

    def wake_rebalance(self) -> None:
        """Members or subscriptions of the group changed."""


class InstanceState(Enum):
    """Where an instance is in its life (client:A.4)."""

    CREATED = "created"
    FAILED = "failed"
    RUNNING = "running"
    CLOSED = "closed"


def client_id(settings: ClientSettings, *, stream: bool = False, address: str = "") -> str:
    """What brokers know a client by: address, instance name and unit (client:A-01 to A-04).

    Without a name each call makes another one, of process id and time.
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

    Whoever uses it holds it: `hold` adds a holder, `close` takes one away, and the last one ends it.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        stream: bool = False,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """`stream` marks pull clients, whose id ends with `@STREAM` (client:A-01)."""
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.rng = rng or random.Random()
        address = settings.client_ip or local_address()
        self.client_id = client_id(settings, stream=stream, address=address)
        self.client_address = address
        self.state = InstanceState.CREATED
        self.hooks = Hooks(request_hooks(settings))
        self.namespace = namespace_in(settings)
        """The name space that names on the wire are in (client:B.23)."""
        self.replies = PendingReplies(self.clock)
        self.checks = TransactionChecks(self.namespace)
        self.on_request: dict[int, Handler[str]] = {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._consumer_ids_changed,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self.replies.receive,
            RequestCode.CHECK_TRANSACTION_STATE: self.checks.receive,
        }
        """What answers requests of brokers, by code: functions of the broker's address and the request."""
        self.on_close: list[Callable[[], None]] = []
        """Called when the last holder is gone."""
        self.on_lost: list[Callable[[str], None]] = []
        """Called with the address of a connection that was lost."""
        self._holders = 1
        self._follows = False
        self.unique_ids = UniqueIds(address)
        self.remoting = RemotingClient(
            connect_timeout=settings.connect_timeout,
            on_request=NamespacedHandlers(self.on_request, self.namespace)
            if self.namespace
            else self.on_request,
            on_connected=self._connected,
            on_lost=self._connection_lost,
            hooks=self.hooks.rpc,
            tls=tls_context(settings),
        )
        self.brokers = BrokerRequests(self.remoting)
        addresses, source = _name_server_list(settings)
        self.name_servers = NameServers(addresses, self.remoting, self.rng, source)
        self.routes = RouteTable()
        self.broker_versions: dict[str, int] = {}
        """Version code by broker address, from answers to heartbeats (client:A-22, A-60)."""
        self._producers: dict[str, ProducerMember] = {}
        self._consumers: dict[str, ConsumerMember] = {}
        self._updates: dict[tuple[str, int | None], asyncio.Future[TopicRoute | None]] = {}
        self._heartbeats = Heartbeats(self.client_id, version_2=settings.heartbeat_v2)
        self._tell_all = False
        self._heartbeat_lock = asyncio.Lock()
        self._heartbeats_begun = 0
        self._heartbeat_ended = (0, False)
        """Number of the last one that ended, and whether a broker took it."""
        self.tasks = TaskGroup(self._task_died)

    def __repr__(self) -> str:
        return f"<ClientInstance {self.client_id} {self.name_servers!r} {self.routes!r}>"

    def hold(self) -> None:
        """One more uses this instance; it must close it."""
        self._holders += 1

    @property
    def is_shared(self) -> bool:
        """Whether somebody else holds it, so that closing does not end it."""
        return self._holders > 1

    def start(self) -> None:
        """Begin the scheduled tasks. Nothing happens when they run or the instance is closed (client:A-27).

        Raises `InvalidStateError` when an earlier start failed (client:A-28).
        """
        if self.state in (InstanceState.RUNNING, InstanceState.CLOSED):
            return
        if self.state is InstanceState.FAILED:
            raise InvalidStateError(
                f"the client {self.client_id} could not be started before; make a new one"
            )
        self.state = InstanceState.FAILED  # unless all below succeeds
        self._start_tasks()
        self.state = InstanceState.RUNNING

    def _start_tasks(self) -> None:
        settings = self.settings
        refresh = run_every(
            settings.route_interval, self.refresh_routes, first=ROUTES_FIRST_SECONDS, name="refreshing routes"
        )
        self.tasks.start(refresh, "routes")
        self.tasks.start(
            run_every(settings.heartbeat_interval, self._beat, first=1.0, name="heartbeat"), "heartbeat"
        )
        self.follow_name_servers()

    def follow_name_servers(self) -> None:
        """Look the list of name servers up from time to time, when it was not given (client:A-33)."""
        if self.name_servers.is_followed and not self._follows:
            self._follows = True
            work = run_every(
                FOLLOW_SECONDS,
                self.name_servers.follow,
                first=FOLLOW_FIRST_SECONDS,
                name="looking up name servers",
            )
            self.tasks.start(work, "name servers")

    async def close(self) -> None:
        """Let go. With the last holder the scheduled tasks stop and the connections close (client:A-93)."""
        self._holders -= 1
        if self._holders > 0 or self.state is InstanceState.CLOSED:
            return
        self.state = InstanceState.CLOSED
        for call in self.on_close:
            call()
        try:
            await self.tasks.close()
        finally:  # who closes may be cancelled meanwhile
            await self.remoting.close()

    # Members

    def register_producer(self, group: str, member: ProducerMember) -> None:
        """Take a producer into heartbeats and route refreshes. Raises `ClientError` for a group it has."""
        _register(self._producers, "producer", group, member, self.client_id)

    def producer(self, group: str) -> ProducerMember | None:
        """The producer of `group`, if this client has one."""
        return self._producers.get(group)

    def register_consumer(self, group: str, member: ConsumerMember) -> None:
        """Take a consumer into heartbeats and route refreshes. Raises `ClientError` for a group it has."""
        _register(self._consumers, "consumer", group, member, self.client_id)

    def forget_consumer(self, group: str, member: ConsumerMember) -> None:
        """Take a consumer out without telling brokers; one that was not taken in is none of them."""
        if self._consumers.get(group) is member:
            del self._consumers[group]

    def consumer(self, group: str) -> ConsumerMember | None:
        """The consumer of `group`, if this client has one."""
        return self._consumers.get(group)

    async def unregister(self, *, producer: str | None = None, consumer: str | None = None) -> None:
        """Take a group out and tell every broker; those that cannot be reached notice by themselves."""
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
            log.info("%s could not be told that %s leaves: %s", address, self.client_id, error)

    # Routes

    async def update_route(
        self, topic: str, *, template_queues: int | None = None, template: str = TEMPLATE_TOPIC
    ) -> TopicRoute | None:
        """Ask a name server for the route of `topic` and spread it; None when it knows no broker for it.

        With `template_queues` the route of the template topic is taken for it instead, cut to so many
        queues a broker (client:A-42). Calls for the same topic at the same time share one request.
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
            task.exception()  # its callers have it; marks it as seen when all of them were cancelled

    async def find_route(self, topic: str) -> TopicRoute | None:
        """The stored route of `topic`, else the name server's."""
        return self.routes.get(topic) or await self.update_route(topic)

    async def refresh_routes(self) -> None:
        """Renew the routes of every topic a member uses; one that fails keeps what is known."""
        members: list[ProducerMember] = [*self._producers.values(), *self._consumers.values()]
        for topic in dict.fromkeys(topic for member in members for topic in member.topics()):
            try:
                await self.update_route(topic)
            except SparrowError as error:
                log.warning("the route of %s could not be refreshed: %s", topic, error)

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
        """Ask a broker of each topic whether it takes the SQL92 filter; raise its refusal (client:D.2-14).

        Raises `BrokerError`, `InvalidExpressionError` or `TransportError`.
        """
        for data in subscriptions:
            address = self.routes.any_broker(data.topic, self.rng)
            if data.expression_type != TAG and address is not None:
                timeout = self.settings.request_timeout
                await self.brokers.check_filter(address, group, self.client_id, data, timeout)

    async def heartbeat(self) -> bool:
        """Tell every broker who is here (only masters when there is no consumer); whether one took it.

        Whoever asks for one wants all to be told. While one is under way, all that are asked for share the
        one that follows it: what changed meanwhile is told, where RocketMQ's client leaves it to the next
        round (client:A-59).
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
        """Tell one broker who is here unless it was told before: it may make groups with a heartbeat."""
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
            log.info("the broker at %s is in no route any more", address)
            self.broker_versions.pop(address, None)
        await self._tell()

    def _connected(self, address: str) -> None:
        """A connection came up: a broker must know its members before they pull (client:A-62)."""
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
    """Put a member into its table; a group has one of a kind in a client (client:A-17, A-18, A-31)."""
    if group in table:
        raise GroupTakenError(
            f"the client {client} has a {kind} of group {group!r} already; choose another group name, or "
            "give this one another instance_name"
        )
    table[group] = member


def _name_server_list(settings: ClientSettings) -> tuple[tuple[str, ...], AddressServer | None]:
    """Name servers by setting or environment; without them the address server, if there is one (client:A-68).

    Raises `NoNameServerError` when nothing is named.
    """
    domain = settings.namesrv_domain or os.environ.get(DOMAIN_VARIABLE)
    if not domain:
        return resolve_namesrv(settings.namesrv), None
    if found := find_namesrv(settings.namesrv):
        return found, None
    subgroup = settings.namesrv_subgroup or os.environ.get(SUBGROUP_VARIABLE) or DEFAULT_SUBGROUP
    return (), AddressServer(address_server_url(domain, subgroup, settings.unit_name))


def _cut_template(route: TopicRoute, queues: int) -> TopicRoute:
    """The template topic's route with at most `queues` queues a broker, for a topic to be created."""
    cut = tuple(
        QueueData(q.broker_name, number, number, q.perm, q.topic_sys_flag)
        for q in route.queues
        for number in (min(queues, q.read_queue_nums),)
    )
    return TopicRoute(cut, route.brokers, route.order_topic_conf)
