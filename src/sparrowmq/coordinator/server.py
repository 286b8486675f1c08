"""`Coordinator`: one process's coordinator on the running loop. Its services, and the HTTP API beside
them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.alarms.senders import Smtp, check_address, senders
from sparrowmq.coordinator.api.app import make_app
from sparrowmq.coordinator.api.serving import ApiServer
from sparrowmq.coordinator.api.shared import Context
from sparrowmq.coordinator.audit import Actor
from sparrowmq.coordinator.cluster.survey import Survey, SurveyView
from sparrowmq.coordinator.cluster.view import Cluster, ClusterView
from sparrowmq.coordinator.database import migrate
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.groups.members import Port
from sparrowmq.coordinator.leases.rules import LeaseTimes, Owner
from sparrowmq.coordinator.services import (
    board,
    brokers,
    capacity,
    cleanup,
    consistency,
    governance,
    handlers,
    inactive,
    lag,
    plans,
    rebalance,
    retention,
    unassigned,
)
from sparrowmq.coordinator.services.frame import Service, ServiceRunner
from sparrowmq.coordinator.services.notices import Notices
from sparrowmq.coordinator.users import passwords, people
from sparrowmq.coordinator.users.people import Change
from sparrowmq.core.clock import Clock, SystemClock
from sparrowmq.core.errors import DatabaseVersionError, ListenError, RefusedError
from sparrowmq.core.settings import CoordinatorSettings, split_addresses
from sparrowmq.transport.address import parse_address
from sparrowmq.transport.tls import server_tls

STOP_SECONDS: Final = 5.0
VERSION_SECONDS: Final = 5.0
"""How often it is looked whether another release has migrated the database under this one."""
_log = logging.getLogger("sparrowmq.coordinator")


@dataclass(frozen=True, slots=True)
class Started:
    """Where the API is. `first_password` is that of the person `admin` when it was made just now."""

    url: str
    first_password: str | None


class Coordinator:
    """A coordinator. `cluster` and `survey` are what its services look at; by default what `namesrvAddr`
    names.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        *,
        clock: Clock | None = None,
        cluster: ClusterView | None = None,
        survey: SurveyView | None = None,
    ) -> None:
        """Raises `SettingsError` for an address or lease times that cannot be."""
        self.settings = settings
        self.times = LeaseTimes(settings.lease_time, settings.lease_renew_interval, settings.lease_margin)
        self.owner = Owner(secrets.token_hex(16), f"{socket.gethostname()}:{os.getpid()}")
        self._clock = clock or SystemClock()
        self._channels, self._smtp = _channels(settings)
        self._cluster = cluster or Cluster(settings.namesrv_addr)
        self._port = _members_port(settings)
        self._survey = survey or Survey(settings.namesrv_addr, self._clock)
        self._database: Database | None = None
        self._notices: Notices | None = None
        self._runners: list[ServiceRunner] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._server: ApiServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._listening: socket.socket | None = None
        self.failed: asyncio.Future[None] | None = None
        """Set once the coordinator cannot go on, with the error; made by `start`."""

    def __repr__(self) -> str:
        return f"<Coordinator {self.owner.label}>"

    async def start(self) -> Started:
        """Migrate the database, take part in the elections, and serve the API.

        Raises the `DatabaseError` family and `ListenError`; what was started is stopped again.
        """
        self.failed = asyncio.get_running_loop().create_future()
        self._database = database = Database(self.settings.database_url)
        try:
            await database.run(lambda: migrate.upgrade(database))
            password = await database.run(lambda: _first_person(database))
            listening = _listen(self.settings.bind_address, self.settings.listen_port)
            self._listening = listening
            await self._start_services(database)
            self._serve(database, listening)
        except BaseException:
            await self.close()
            raise
        host, port = listening.getsockname()[:2]
        return Started(f"http://{host}:{port}", password)

    async def close(self) -> None:
        """Stop the API, give the leases back, let go of everything. Idempotent."""
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
        await self._cluster.close()
        await self._survey.close()
        database, self._database = self._database, None
        if database is not None:
            await asyncio.to_thread(database.close)
        if self.failed is not None and not self.failed.done():
            self.failed.cancel()

    def _services(self) -> Sequence[Service]:
        self._notices = Notices(senders(self._smtp))
        services: tuple[Service, ...] = (
            rebalance.Rebalance(self._cluster, self._port, self._clock),
            lag.LagAlarm(self._cluster, self._channels, self._clock),
            unassigned.QueueAlarm(self._cluster, self._channels),
            handlers.HandlerAlarm(self._cluster, self._channels),
            plans.PlanCheck(self._cluster, self._channels),
            inactive.InactiveSweep(self._cluster, self._channels),
            brokers.BrokerCheck(self._cluster, self._channels),
            capacity.Capacity(self._survey, self._channels),
            retention.Retention(self._survey, self._channels),
            consistency.Consistency(self._survey, self._channels),
            governance.Governance(self._survey, self._channels),
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
        self._tasks.append(asyncio.create_task(self._watch_version(database), name="sparrow-version"))

    async def _watch_version(self, database: Database) -> None:
        """Stop when another release has migrated the database: its tables are not those this one writes."""
        while True:
            await asyncio.sleep(VERSION_SECONDS)
            try:
                await database.run(lambda: migrate.check(database))
            except DatabaseVersionError as error:
                _log.error("%s", error)
                if self.failed is not None and not self.failed.done():
                    self.failed.set_exception(error)
                return
            except Exception as error:
                _log.warning("%s", error)

    def _serve(self, database: Database, listening: socket.socket) -> None:
        """Serve on a socket that listens: requests that come before the server is there wait in its queue."""
        loop, runners = asyncio.get_running_loop(), {one.service.kind.name: one for one in self._runners}

        def wake(name: str) -> None:
            loop.call_soon_threadsafe(runners[name].wake)

        context = Context(
            database=database,
            kinds={name: runner.service.kind for name, runner in runners.items()},
            channels=self._channels,
            owner=self.owner,
            times=self.times,
            clock=self._clock,
            survey=self._survey,
            wake=wake,
        )
        self._server = ApiServer(make_app(context), stop_seconds=STOP_SECONDS)
        self._serving = asyncio.create_task(self._server.serve([listening]), name="sparrow-api")


def _first_person(database: Database) -> str | None:
    """Make the person `admin` in a database without people; gives the random password, shown this once."""
    with database.write() as connection:
        if people.everyone(connection):
            return None
    password = passwords.new_password()
    hash_ = passwords.hashed(password)
    with database.write() as connection:
        try:
            actor = Actor("coordinator", "the first person")
            people.add(connection, people.FIRST, hash_, Change(role="admin"), actor)
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
            f"the coordinator cannot listen on {address}:{port}: {error.strerror}; give another port",
            address=f"{address}:{port}",
        ) from error
    listening.setblocking(False)
    return listening


def _members_port(settings: CoordinatorSettings) -> Port:
    """Where members are listened to. Raises `SettingsError` for TLS files that cannot be used."""
    told = settings.members_address
    if not told and settings.bind_address in ("0.0.0.0", "::"):
        told = _own_address(settings.namesrv_addr)
    tls = server_tls(settings.tls_config_file, settings.tls_server_mode)
    return Port(settings.bind_address, settings.members_port, told, tls)


def _own_address(namesrv: str) -> str:
    """This machine's address on the way to the name server; nothing is sent to find out."""
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
