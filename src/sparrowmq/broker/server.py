"""One broker: its store and its parts behind a listener, registered at name servers, on one loop."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.access.gate import make_gate
from sparrowmq.broker.base.periodic import Background
from sparrowmq.broker.base.registration import Registration
from sparrowmq.broker.base.routes import RouteLookup
from sparrowmq.broker.operated import OperatedBroker, broker_bounds
from sparrowmq.broker.parts import BrokerParts, Surroundings
from sparrowmq.broker.replication.following import ToMaster
from sparrowmq.broker.replication.master import listen
from sparrowmq.broker.replication.reign import Reign
from sparrowmq.broker.replication.slave import Addresses
from sparrowmq.core.clock import Clock, SystemClock, uptime
from sparrowmq.core.errors import InvalidStateError, ListenError, SettingsError, SparrowError
from sparrowmq.core.figures.bounds import bounds_table
from sparrowmq.core.figures.exposition import Operated, Starting
from sparrowmq.core.ids import pack_host
from sparrowmq.core.settings.servers import BrokerSettings, split_addresses
from sparrowmq.core.settings.tls import TlsSettings
from sparrowmq.protocol.frame import RawFrame
from sparrowmq.protocol.headers import RegisterBrokerRequest
from sparrowmq.store.base.progress import OpeningProgress
from sparrowmq.store.base.settings import StoreSettings
from sparrowmq.store.cut import cut_log
from sparrowmq.store.message_store import MessageStore
from sparrowmq.transport.client import RemotingClient
from sparrowmq.transport.figures import server_bounds
from sparrowmq.transport.request_watch import RequestWatch
from sparrowmq.transport.server import Server
from sparrowmq.transport.tls import FollowedContext, outgoing_tls, read_tls_settings, server_tls

if TYPE_CHECKING:
    from sparrowmq.transport.connection import Connection, ServerHandler

log = logging.getLogger("sparrowmq.broker")
AGAIN_SECONDS: Final = 1.0
"""Pause before a change of the role that failed is tried again."""
DISK_THREADS: Final = 3
"""Threads for work that waits for a disk: flushing log and queues, saving tables, asking how full it is."""


def store_settings(settings: BrokerSettings, may_write: Callable[[], None] = lambda: None) -> StoreSettings:
    """The store's settings, from the broker's settings; `may_write` is asked before each write."""
    return StoreSettings(
        root=settings.store_path_root_dir,
        commit_log_path=settings.store_path_commit_log,
        mapped_file_size_commit_log=settings.mapped_file_size_commit_log,
        mapped_file_size_consume_queue=settings.mapped_file_size_consume_queue,
        flush_disk_type=settings.flush_disk_type,
        max_message_size=settings.max_message_size,
        max_filter_message_size=settings.max_filter_message_size,
        disk_space_warning_level_ratio=settings.disk_space_warning_level_ratio,
        message_index_enable=settings.message_index_enable,
        max_hash_slot_num=settings.max_hash_slot_num,
        max_index_num=settings.max_index_num,
        delay_levels=settings.delay_levels,
        producers_max=settings.max_producer_states,
        producer_expire_hours=settings.producer_state_expire_hours,
        is_copy=settings.is_slave,
        may_write=may_write,
    )


def _nothing(*_: object) -> None:
    pass


class Broker:
    """A RocketMQ broker. `start` opens the store, listens and registers; `close` reverses this.

    When its role changes, its parts and its store are closed and opened again behind the same port; clients
    are disconnected meanwhile.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        clock: Clock | None = None,
        lease_clock: Callable[[], float] = uptime,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        log_levels: Callable[[str], None] = _nothing,
    ) -> None:
        """`lease_clock` tells seconds that go on while the process is frozen; `log_levels` is called with
        `logLevel` when an operator changes it."""
        self._settings = settings
        self._log_levels = log_levels
        self._clock = clock or SystemClock()
        self._lease_clock = lease_clock
        self._sleep = sleep
        self._handler = _HandlerSlot()
        self._reign: Reign | None = None
        self._change: asyncio.Task[None] | None = None
        self._cut_at: int | None = None
        self._is_open = False
        self._commits: tuple[int, ...] = ()
        """Half messages whose commits were copied last, when this broker was a slave."""
        self._server: Server | None = None
        self._parts: BrokerParts | None = None
        self._operated: OperatedBroker | None = None
        self._opening: OpeningProgress | None = None
        self._ha_socket: socket.socket | None = None
        self._ha_port = 0

    def __repr__(self) -> str:
        state = "closed" if self._server is None else f"listening on {self.address}"
        return f"<Broker {self.settings.broker_name} {state}>"

    @property
    def settings(self) -> BrokerSettings:
        """The current settings; operators may change some while the broker runs."""
        return self._settings if self._parts is None else self._parts.settings

    @property
    def parts(self) -> BrokerParts:
        """The parts of the broker. Raises `InvalidStateError` before it was started."""
        if self._parts is None:
            raise InvalidStateError("the broker was not started; call start() first", what="started")
        return self._parts

    @property
    def operated(self) -> Operated:
        """What operators see of the broker, also while it starts."""
        if self._operated is not None:
            return self._operated
        node = f"broker {self._settings.broker_name}"
        return Starting(node) if self._opening is None else Starting(node, str(self._opening))

    @property
    def port(self) -> int:
        """The port it listens on; 0 while it is not listening."""
        return 0 if self._server is None else self._server.port

    @property
    def address(self) -> str:
        """The `host:port` given to clients."""
        return f"{self.settings.broker_ip1}:{self.port}"

    @property
    def ha_address(self) -> str:
        """The `host:port` for slaves; at a slave, the one where it would listen as a master."""
        port = self.ha_port or self._settings.ha_listen_port or self.port + 1
        return f"{self.settings.broker_ip1}:{port}"

    @property
    def ha_port(self) -> int:
        """The port where slaves are accepted; 0 at a slave and while it is not listening."""
        return self._ha_port

    async def start(self) -> None:
        """Open the store, bind the port, register at the name servers.

        Raises the `StoreError` family for an unusable directory, the `TransportError` family for a port that
        cannot be bound, `SettingsError` for a name without an address; then all resources are released.
        """
        self._requests = RequestWatch(
            self._settings.slow_request_time,
            counts=self._settings.metrics_exporter_type != "DISABLE",
            last_put=lambda: (0.0, 0.0) if self._parts is None else self._parts.store.stats.last_slow,
        )
        self._server = server = self._listener(self._handler)
        try:
            await server.start()
            self._reign = Reign(
                self._settings,
                self.address,
                ha_address=lambda: self.ha_address,
                changed=self._role_changes,
                granted=self._granted,
                clock=self._lease_clock,
            )
            await self._open(server, self._reign)
        except BaseException:
            self._server = None
            await server.close()
            raise

    async def _open(self, server: Server, reign: Reign) -> None:
        """Make the parts of the role in force, and begin to serve. Raises like `start`."""
        settings = self._settings = reign.settings(self.settings)
        self._pool = ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="sparrow-disk")
        reign.write_in(self._pool)
        try:
            if not settings.is_slave:
                self._ha_socket = listen_for_slaves(settings, server.port)
                self._ha_port = int(self._ha_socket.getsockname()[1])
            store_host = pack_host(await _numeric(settings.broker_ip1), server.port)
            parts = await self._make_aside(server, reign, store_host)
            try:
                if self._server is not server:
                    raise InvalidStateError("the broker was closed while it opened its store", what="closed")
                self._parts = parts
                if parts.rivals is not None:
                    await parts.rivals.look()
                self._handler.fill(parts.handler)
                server.begin_watch()
            except BaseException:
                _discard(parts)
                raise
        except BaseException:
            self._close_ha_socket()
            self._parts = None
            self._pool.shutdown()
            raise
        self._is_open = True
        parts.start()
        try:
            if parts.slaves is not None and self._ha_socket is not None:
                await parts.slaves.start(self._ha_socket)
            await parts.registration.start()
        except BaseException:
            await self._shut(server)
            raise
        self._operated = OperatedBroker(parts, server)

    async def _make_aside(self, server: Server, reign: Reign, store_host: bytes) -> BrokerParts:
        """Open the store and make the parts in a thread: recovery may take minutes, and large tables seconds.
        Nothing else uses them meanwhile. Ends soon when cancelled or closed. Raises `StoreError`.
        """
        self._opening = progress = OpeningProgress()
        if self._server is not server:  # closed while the parts of the last role ended
            progress.stop()
        opening = asyncio.get_running_loop().run_in_executor(
            self._pool, self._make, server, reign, store_host, progress
        )
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            progress.stop()
            opening.add_done_callback(_discard_unused)
            await asyncio.wait([opening])
            raise
        finally:
            self._opening = None

    def _make(
        self, server: Server, reign: Reign, store_host: bytes, progress: OpeningProgress
    ) -> BrokerParts:
        store = MessageStore.open(
            store_settings(self._settings, reign.check),
            self._clock,
            store_host=store_host,
            commits=self._commits,
            progress=progress,
        )
        try:
            reign.opened(store.recovery.damaged)
            reign.begin(store.position)
            progress.step("it reads its tables")
            parts = self._make_parts(store, server, reign)
        except BaseException:
            store.close()
            raise
        return parts

    async def _shut(self, server: Server) -> int:
        """Undo `_open`, but go on listening; returns the end of the log. Raises `StoreError`."""
        parts, self._operated = self._parts, None
        if parts is None or not self._is_open:
            return 0
        self._is_open = False
        self._settings = parts.settings
        await parts.registration.close()
        self._handler.empty()
        await parts.stop()
        await server.disconnect("the broker's role changes; connect again")
        server.end_watch()
        self._close_ha_socket()
        await self._client.close()
        return await asyncio.to_thread(self._put_away, parts)

    def _put_away(self, parts: BrokerParts) -> int:
        """Save and close the stopped parts, in any thread: large tables take long to write, and other servers
        may share the loop. Returns the end of the log. Raises `StoreError`.
        """
        self._pool.shutdown()
        parts.save()
        end = parts.store.position
        self._commits = tuple(parts.store.copy.commits)
        parts.store.close()
        return end

    # The role

    def _granted(self) -> None:
        """A fenced master got a lease: name servers may know it."""
        if self._parts is not None:
            self._parts.registration.changed_soon()

    def _role_changes(self, cut_at: int | None) -> None:
        self._cut_at = cut_at
        self._change = asyncio.get_running_loop().create_task(self._change_role())

    async def _change_role(self) -> None:
        """Close the parts, cut the log if needed, and make the parts of the new role; tried again until it
        succeeds."""
        server, reign = self._server, self._reign
        if server is None or reign is None:
            return
        end = self.parts.store.position
        while self._server is not None:
            try:
                end = await self._shut(server) or end
                if self._cut_at is not None:
                    await self._cut(reign, self._cut_at, end)
                    self._cut_at = None
                await self._open(server, reign)
                return
            except (SparrowError, OSError) as error:
                if self._server is None:
                    log.warning("the broker was closed before its role had changed: %s", error)
                    return
                log.error("the role cannot change yet: %s; trying again in %g s", error, AGAIN_SECONDS)
                await self._sleep(AGAIN_SECONDS)

    async def _cut(self, reign: Reign, position: int, end: int) -> None:
        settings, now = store_settings(self._settings), self._clock.now_ms()
        self._commits = ()  # they may be behind the cut
        await asyncio.to_thread(cut_log, settings, position, end, now)
        await asyncio.to_thread(reign.was_cut, position)

    def _listener(self, handler: ServerHandler) -> Server:
        settings = self._settings
        return Server(
            handler,
            host=settings.bind_address,
            port=settings.listen_port,
            frame_bytes_max=settings.frame_bytes_max,
            connections_max=settings.connections_max,
            memory_max=settings.connection_memory_max,
            unauthenticated_memory_max=settings.unauthenticated_memory_max,
            connections_per_address_max=settings.connections_per_address_max,
            idle_seconds=settings.server_channel_max_idle_time_seconds,
            tls=server_tls(settings.tls_config_file, settings.tls_server_mode),
            requests=self._requests,
        )

    def _make_parts(self, store: MessageStore, server: Server, reign: Reign) -> BrokerParts:
        settings, record = self._settings, reign.record
        gate, signing = make_gate(settings, self._pool)
        self._client = RemotingClient(
            tls=_outgoing_tls(settings), hooks=() if signing is None else (signing,)
        )
        addresses = Addresses(settings.ha_master_address, ordered=record.master, ordered_ha=record.master_ha)
        to_master = ToMaster(self._client, addresses)
        name_servers = split_addresses(settings.namesrv_addr)
        return BrokerParts(
            self._settings,
            store,
            background=Background(self._clock, self._pool),
            registration=lambda topics: self._registration(topics, to_master, reign),
            reign=reign,
            gate=gate,
            to_master=to_master,
            routes=RouteLookup(self._client, name_servers, self._clock) if name_servers else None,
            around=Surroundings(
                figures=lambda: self._figures(server),
                requests=self._requests,
                log_levels=self._log_levels,
            ),
        )

    def _figures(self, server: Server) -> dict[str, str]:
        """Runtime information about the loop and the bounds."""
        bounds = [*broker_bounds(self.parts), *server_bounds(server)]
        return {**server.watch.book.table(), **bounds_table(bounds)}

    def _registration(self, topics: Callable[[], bytes], to_master: ToMaster, reign: Reign) -> Registration:
        settings = self._settings
        return Registration(
            self._client,
            split_addresses(settings.namesrv_addr),
            identity=RegisterBrokerRequest(
                broker_name=settings.broker_name,
                broker_addr=reign.address,
                cluster_name=settings.broker_cluster_name,
                ha_server_addr=self.ha_address,
                broker_id=settings.broker_id,
            ),
            body=topics,
            period=settings.register_name_server_period / 1000,
            timeout=settings.register_broker_timeout_mills / 1000,
            told=to_master.addresses.learn if settings.is_slave else None,
            may=reign.may_acknowledge,
        )

    async def close(self) -> None:
        """Stop accepting requests, release held pulls, unregister, close the store. Idempotent."""
        server, self._server = self._server, None
        if server is None:
            return
        if self._opening is not None:
            self._opening.stop()
        change, self._change = self._change, None
        if change is not None:
            await asyncio.gather(change, return_exceptions=True)
        try:
            await self._shut(server)
        finally:
            await server.close()

    def _close_ha_socket(self) -> None:
        listener, self._ha_socket, self._ha_port = self._ha_socket, None, 0
        if listener is not None:
            listener.close()


def listen_for_slaves(settings: BrokerSettings, port: int) -> socket.socket:
    """The socket of a master's HA port; `port` is the port for clients.

    If the default port is in use, any free one is taken, with a warning: slaves learn it from the name
    server. Raises `ListenError` when the port cannot be bound.
    """
    wanted = settings.ha_listen_port or ((port + 1) % 65_536 if settings.listen_port else 0)
    try:
        try:
            return listen(settings.bind_address, wanted)
        except OSError as error:
            if settings.ha_listen_port or error.errno != errno.EADDRINUSE:
                raise
            free = listen(settings.bind_address, 0)
            log.warning(
                "port %d is in use, so slaves connect to port %d; set haListenPort to choose one",
                wanted,
                free.getsockname()[1],
            )
            return free
    except (OSError, OverflowError) as error:
        raise ListenError(
            f"cannot listen for slaves on {settings.bind_address}:{wanted}: {error}; set haListenPort to a "
            "free port",
            address=f"{settings.bind_address}:{wanted}",
            value=getattr(error, "errno", None),
        ) from error


def _discard_unused(opening: asyncio.Future[BrokerParts]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        _discard(opening.result())


def _discard(parts: BrokerParts) -> None:
    """Close parts that were not started."""
    parts.delayed.close()
    parts.store.close()


def _outgoing_tls(settings: BrokerSettings) -> FollowedContext | None:
    """TLS for connections to name servers: `useTLS`, with the settings `tls.client.…`."""
    if not settings.use_tls:
        return None
    path = settings.tls_config_file
    return outgoing_tls(TlsSettings() if path is None else read_tls_settings(path))


async def _numeric(name: str) -> str:
    """The address of `brokerIP1`, which may be a host name: records contain addresses. Prefers IPv4."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SettingsError(
            f"brokerIP1={name}: this name does not resolve ({error.strerror}); give an address such "
            "as 10.0.0.5",
            "brokerIP1",
            name,
        ) from None
    return str(min(found, key=lambda info: info[0] != socket.AF_INET)[4][0])


class _HandlerSlot:
    """Placeholder for the handler until the store is open: the port is bound first to learn its number."""

    def __init__(self) -> None:
        self.connection_made: Callable[[Connection], None] = _starting
        self.connection_lost: Callable[[Connection], None] = _nothing
        self.frames_received: Callable[[Connection, list[RawFrame]], None] = _nothing

    def empty(self) -> None:
        """Refuse new connections; those that are there are still served as before."""
        self.connection_made = _starting

    def fill(self, handler: ServerHandler) -> None:
        """Use this handler from now on, without an additional step per request."""
        self.connection_made = handler.connection_made
        self.connection_lost = handler.connection_lost
        self.frames_received = handler.frames_received


def _starting(conn: Connection) -> None:
    conn.close("the broker is starting; connect again")
