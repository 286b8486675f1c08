"""`Coordinator`: one process's coordinator on the running loop. Its services, and the HTTP API beside
them.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI
from starlette.types import ASGIApp

from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.alarms.senders import Smtp, check_address, senders
from sparrowmq.coordinator.api.app import make_app
from sparrowmq.coordinator.api.shared import Context
from sparrowmq.coordinator.cluster.bodies.body_schemas import BodySchemas
from sparrowmq.coordinator.cluster.clients import ClusterClients
from sparrowmq.coordinator.cluster.explorer import Explorer
from sparrowmq.coordinator.cluster.flow import Flow, FlowView
from sparrowmq.coordinator.cluster.offsets import GroupOffsets
from sparrowmq.coordinator.cluster.survey import Survey, SurveyView
from sparrowmq.coordinator.cluster.view import ClusterView, ObservedCluster
from sparrowmq.coordinator.database import migrate
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database_watch import DatabaseWatch
from sparrowmq.coordinator.groups.members import Port
from sparrowmq.coordinator.leases.rules import LeaseTimes, Owner
from sparrowmq.coordinator.operated import OperatedCoordinator
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.coordinator.replicas.group_watch import GroupBrokers
from sparrowmq.coordinator.replicas.remote_brokers import RemoteBrokers
from sparrowmq.coordinator.services.base import board
from sparrowmq.coordinator.services.base.runner import Service, ServiceRunner
from sparrowmq.coordinator.services.brokers import broker_check, capacity, replica_election, retention
from sparrowmq.coordinator.services.groups import handlers, inactive, lag, plans, rebalance, unassigned
from sparrowmq.coordinator.services.housekeeping import cleanup, consistency, governance, recorder
from sparrowmq.coordinator.services.housekeeping.notices import Notices
from sparrowmq.coordinator.users import passwords, people
from sparrowmq.coordinator.users.people import PersonUpdate
from sparrowmq.core.clock import Clock, Sleep, SystemClock
from sparrowmq.core.errors import DatabaseVersionError, ListenError, RefusedError
from sparrowmq.core.figures.exposition import Operated, Starting
from sparrowmq.core.settings.servers import CoordinatorSettings, split_addresses
from sparrowmq.core.stalls import StallBook
from sparrowmq.httpd.serving import HttpServer, first_request
from sparrowmq.transport.address import format_address, parse_address
from sparrowmq.transport.stall_watch import LoopWatch, watch_of
from sparrowmq.transport.tls import server_tls

STOP_SECONDS: Final = 5.0
THREADS: Final = 10
"""Requests processed concurrently: each may hold the interpreter for 5 ms before the loop runs."""
Front = Callable[[FastAPI], ASGIApp]
"""Wraps the API's application; the wrapper may pass requests on to it."""


@dataclass(frozen=True, slots=True)
class Started:
    """Address of the API. `first_password` is that of the person `admin` if it was just created."""

    url: str
    first_password: str | None


class Coordinator:
    """A coordinator. `cluster`, `survey` and `flow` are queried by its services, `brokers` get orders; by
    default they use the cluster of `namesrvAddr`.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        *,
        clock: Clock | None = None,
        cluster: ClusterView | None = None,
        survey: SurveyView | None = None,
        explorer: Explorer | None = None,
        flow: FlowView | None = None,
        brokers: GroupBrokers | None = None,
        front: Front | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`front` puts something in front of the API: pages for people, on the same port.

        Raises `SettingsError` for an address or lease times that cannot be.
        """
        self.settings = settings
        self.times = LeaseTimes(settings.lease_time, settings.lease_renew_interval, settings.lease_margin)
        self.owner = Owner(secrets.token_hex(16), f"{socket.gethostname()}:{os.getpid()}")
        self._clock = clock or SystemClock()
        self._channels, self._smtp = _channels(settings)
        self._offsets = GroupOffsets(ClusterClients(settings.namesrv_addr), self._clock)
        self._cluster = cluster or ObservedCluster(self._offsets)
        self._port = _members_port(settings)
        self._survey = survey or Survey(self._offsets.clients, self._clock)
        asks = (self._cluster, self._survey, self._clock, BodySchemas.read(settings.body_schemas))
        self._explorer = explorer or Explorer(self._offsets, *asks)
        self._flow = flow or Flow(self._offsets)
        self._brokers = brokers or RemoteBrokers(settings.namesrv_addr)
        self._front = front
        self._sleep = sleep
        self._context: Context | None = None
        self._database: Database | None = None
        self._notices: Notices | None = None
        self._runners: list[ServiceRunner] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._server: HttpServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._listening: socket.socket | None = None
        self._watch: LoopWatch | None = None
        self._rebalance = rebalance.Rebalance(self._cluster, self._port, self._clock)
        self._database_watch: DatabaseWatch | None = None
        self._operated: OperatedCoordinator | None = None
        self.failed: asyncio.Future[None] | None = None
        """Set when the coordinator has failed, with the error; created by `start`."""

    def __repr__(self) -> str:
        return f"<Coordinator {self.owner.label}>"

    @property
    def operated(self) -> Operated:
        """Its state for operators."""
        return self._operated or Starting(f"coordinator {self._address}")

    @property
    def _address(self) -> str:
        """Where the API listens; before the start with the port of the settings."""
        listening, settings = self._listening, self.settings
        port = settings.listen_port if listening is None else listening.getsockname()[1]
        return format_address(settings.bind_address, port)

    async def start(self) -> Started:
        """Migrate the database, take part in the elections, and serve the API.

        Raises the `DatabaseError` family and `ListenError`; what was started is stopped again.
        """
        loop = asyncio.get_running_loop()
        self.failed = loop.create_future()
        self._database = database = Database(self.settings.database_url)
        try:
            await database.run(lambda: migrate.upgrade(database))
            password = await database.run(lambda: _first_person(database))
            listening = _listen(self.settings.bind_address, self.settings.listen_port)
            self._listening = listening
            await self._start_services(database)
            watch = watch_of(loop)
            app = self._make_app(database, watch.book)
            await first_request(app)
            await asyncio.to_thread(app.openapi)  # created once, which takes long
            served = app if self._front is None else await asyncio.to_thread(self._front, app)
            self._watch = watch
            self._watch.hold()
            self._operated = self._operate(self._serve(served, listening), watch.book)
        except BaseException:
            await self.close()
            raise
        host, port = listening.getsockname()[:2]
        return Started(f"http://{host}:{port}", password)

    async def close(self) -> None:
        """Stop the API, release the leases, close everything. Idempotent."""
        self._operated = None
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.release()
        if self._context is not None:
            self._context.stopping.set()
        serving, self._serving = self._serving, None
        if serving is not None and self._server is not None:
            self._server.should_exit = True
            await asyncio.wait([serving], timeout=STOP_SECONDS)
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_SECONDS)
        if self._notices is not None:
            self._notices.close()
        await self._explorer.close()
        await self._flow.close()
        await self._cluster.close()
        await self._survey.close()
        await self._offsets.close()
        await self._offsets.clients.close()
        await self._brokers.close()
        database, self._database = self._database, None
        if database is not None:
            await asyncio.to_thread(database.close)
        if self.failed is not None and not self.failed.done():
            self.failed.cancel()

    def _services(self) -> Sequence[Service]:
        self._notices = Notices(senders(self._smtp))
        services: tuple[Service, ...] = (
            self._rebalance,
            lag.LagAlarm(self._cluster, self._channels, self._clock),
            unassigned.QueueAlarm(self._cluster, self._channels),
            handlers.HandlerAlarm(self._cluster, self._channels),
            plans.PlanCheck(self._cluster, self._channels),
            inactive.InactiveSweep(self._cluster, self._channels),
            broker_check.BrokerCheck(self._cluster, self._channels),
            capacity.Capacity(self._survey, self._channels),
            retention.Retention(self._survey, self._channels),
            replica_election.ReplicaElection(self._brokers, self._channels, self._clock),
            consistency.Consistency(self._survey, self._channels),
            governance.Governance(self._survey, self._channels),
            recorder.Recorder(self._flow),
            self._notices,
        )
        names = (*(service.kind.name for service in services), cleanup.KIND.name)
        return (*services, cleanup.Cleanup(names))

    async def _start_services(self, database: Database) -> None:
        services = self._services()
        await database.run(lambda: board.ensure(database, [service.kind for service in services]))
        for service in services:
            runner = ServiceRunner(database, service, self.owner, self.times, self._clock)
            self._runners.append(runner)
            self._tasks.append(asyncio.create_task(runner.run(), name=f"sparrow-{service.kind.name}"))
        self._database_watch = watch = DatabaseWatch(database, self._sleep)
        self._tasks.append(asyncio.create_task(self._watch_database(watch), name="sparrow-database"))

    async def _watch_database(self, watch: DatabaseWatch) -> None:
        """Stop when another release has migrated the database."""
        try:
            await watch.run()
        except DatabaseVersionError as error:
            if self.failed is not None and not self.failed.done():
                self.failed.set_exception(error)

    def _operate(self, server: HttpServer, stalls: StallBook) -> OperatedCoordinator:
        assert self._database_watch is not None
        return OperatedCoordinator(
            self._address,
            self.settings.metrics_label,
            runners=self._runners,
            groups=lambda: self._rebalance.groups,
            database=self._database_watch,
            server=server,
            stalls=stalls,
        )

    def _make_app(self, database: Database, stalls: StallBook) -> FastAPI:
        """The API of this coordinator; `stalls` are recorded for its loop."""
        loop, runners = asyncio.get_running_loop(), {one.service.kind.name: one for one in self._runners}

        def wake(name: str) -> None:
            loop.call_soon_threadsafe(runners[name].wake)

        self._context = context = Context(
            database=database,
            kinds={name: runner.service.kind for name, runner in runners.items()},
            channels=self._channels,
            owner=self.owner,
            times=self.times,
            clock=self._clock,
            survey=self._survey,
            explorer=self._explorer,
            stalls=stalls,
            wake=wake,
            streams_max=self.settings.connections_max // 2,
        )
        return make_app(context)

    def _serve(self, app: ASGIApp, listening: socket.socket) -> HttpServer:
        """Serve on a listening socket: requests that arrive before the server is ready wait in its queue."""
        current_default_thread_limiter().total_tokens = THREADS
        self._server = HttpServer(
            app,
            stop_seconds=STOP_SECONDS,
            connections_max=self.settings.connections_max,
            connections_per_address_max=self.settings.connections_per_address_max,
        )
        self._serving = asyncio.create_task(self._server.serve([listening]), name="sparrow-api")
        return self._server


def _first_person(database: Database) -> str | None:
    """Create the person `admin` in a database without people; returns the random password, shown only now."""
    with database.write() as connection:
        if people.everyone(connection):
            return None
    password = passwords.new_password()
    hash_ = passwords.hashed(password)
    with database.write() as connection:
        try:
            actor = Actor("coordinator", "the first person")
            people.add(connection, people.FIRST, hash_, PersonUpdate(role="admin"), actor)
        except RefusedError:
            return None  # another coordinator was faster
    return password


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = socket.socket(family)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise ListenError(
            f"the coordinator cannot listen on {address}:{port}: {error.strerror}; choose another port",
            address=f"{address}:{port}",
        ) from error
    listening.setblocking(False)
    return listening


def _members_port(settings: CoordinatorSettings) -> Port:
    """Where to listen for members. Raises `SettingsError` for unusable TLS files."""
    told = settings.members_address
    if not told and settings.bind_address in ("0.0.0.0", "::"):
        told = _own_address(settings.namesrv_addr)
    tls = server_tls(settings.tls_config_file, settings.tls_server_mode)
    return Port(settings.bind_address, settings.members_port, told, tls)


def _own_address(namesrv: str) -> str:
    """The address of this machine from which it reaches the name server; nothing is sent to find it."""
    host, port = parse_address(split_addresses(namesrv)[0])
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(where)
            return str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()


def _channels(settings: CoordinatorSettings) -> tuple[Channels, Smtp | None]:
    receivers = tuple(check_address(one.strip()) for one in settings.alarm_email_to.split(",") if one.strip())
    smtp = None
    if settings.smtp_host:
        smtp = Smtp(
            settings.smtp_host,
            settings.smtp_port,
            check_address(settings.smtp_from),
            settings.smtp_tls,
            settings.smtp_user,
            settings.smtp_password,
        )
    return Channels(settings.alarm_webhook, smtp is not None, receivers), smtp
