"""A listening socket and its connections: limits, closing of idle connections, graceful shutdown."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import os
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, TypedDict, TypeVar, Unpack, cast

from sparrowmq.core.errors import InvalidStateError, ListenError
from sparrowmq.protocol.frame import FRAME_BYTES_MAX
from sparrowmq.transport.account import MEMORY_MAX, UNAUTHENTICATED_MEMORY_MAX, MemoryAccount
from sparrowmq.transport.address import format_address
from sparrowmq.transport.connection import Connection, ServerHandler
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.places import Places
from sparrowmq.transport.request_watch import RequestWatch
from sparrowmq.transport.stall_watch import LoopWatch, watch_of
from sparrowmq.transport.tls import HANDSHAKE_SECONDS_MAX, PortTls
from sparrowmq.transport.tls_stream import FirstByte, Handshakes, ServedConnection

IDLE_SECONDS: Final = 120.0
"""Both Java sides close after this time without a byte in either direction (remoting:1.6)."""
IDLE_ROUNDS: Final = 8
CONNECTIONS_MAX: Final = 10_000
WRITE_HIGH_WATER: Final = 4 * 1024 * 1024
"""Unsent bytes of a connection above which its requests are no longer read, until a quarter is left."""
UNSENT_BYTES_MAX: Final = 256 * 1024 * 1024
"""Unsent bytes of one connection above which it is closed: answers to held pulls are written even if the
client does not read.
"""
BACKLOG: Final = 1024
DISCONNECT_SECONDS: Final = 0.005
"""How often `disconnect` checks whether the connections are closed."""
OPEN_FILES_SHARE: Final = 5
"""Share of the process's open-file limit for one server's connections: half is for the store, and name server
and broker may share a process.
"""

logger = logging.getLogger("sparrowmq.transport")
C = TypeVar("C", bound=ServedConnection)


def connections_with_open_files() -> int:
    """How many connections the open-file limit of this process allows."""
    if sys.platform == "win32":
        return CONNECTIONS_MAX
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else max(1, soft // OPEN_FILES_SHARE)


async def close_listener(listener: asyncio.Server) -> None:
    """Accept no more connections. Those accepted in this turn of the loop still come to their protocol.

    asyncio drops such a connection without closing it if `Server.close` comes first (gh-109564): its other
    side waits until the garbage collector finds it.
    """
    loop = asyncio.get_running_loop()
    try:
        if isinstance(loop, asyncio.SelectorEventLoop):  # uvloop does not do that
            for listening in listener.sockets:
                loop.remove_reader(listening)
            await asyncio.sleep(0)
    finally:
        listener.close()


class ListenerOptions(TypedDict, total=False):
    """The arguments of a `Listener`; it says what they mean."""

    host: str
    port: int
    frame_bytes_max: int
    connections_max: int
    connections_per_address_max: int
    idle_seconds: float
    write_high_water: int
    unsent_bytes_max: int
    memory_max: int
    unauthenticated_memory_max: int
    tls: PortTls | None
    handshake_seconds: float
    shares_port: bool


@dataclass(frozen=True, slots=True)
class _Options:
    """The same with their defaults."""

    host: str = "127.0.0.1"
    port: int = 0
    frame_bytes_max: int = FRAME_BYTES_MAX
    connections_max: int = CONNECTIONS_MAX
    connections_per_address_max: int = 0
    idle_seconds: float = IDLE_SECONDS
    write_high_water: int = WRITE_HIGH_WATER
    unsent_bytes_max: int = UNSENT_BYTES_MAX
    memory_max: int = MEMORY_MAX
    unauthenticated_memory_max: int = UNAUTHENTICATED_MEMORY_MAX
    tls: PortTls | None = None
    handshake_seconds: float = HANDSHAKE_SECONDS_MAX
    shares_port: bool = False


class Listener(Generic[C]):
    """Listens on one address; `_make` makes the connections.

    Port 0 takes a free port; `port` is the actual port once started. A client that sends invalid data, is
    silent for `idle_seconds`, or exceeds `connections_max`, is closed; others are not affected. A low limit
    of open files lowers `connections_max` at the start, so that the store can still open its own.
    `memory_max` bounds the bytes kept for all connections together, see `MemoryAccount`; with authentication,
    partial requests of unauthenticated connections may take `unauthenticated_memory_max`. One address may
    have `connections_per_address_max` connections; 0 means half of all, or all for the local machine. At the
    limit a new connection replaces an idle one, see `Places`. With `tls` the port accepts TLS too, or only
    TLS; a handshake may take `handshake_seconds`. With `shares_port` other processes may listen on the same
    address; each gets some of the connections.
    """

    def __init__(self, **options: Unpack[ListenerOptions]) -> None:
        given = _Options(**options)
        self.account = MemoryAccount(
            given.memory_max, given.unauthenticated_memory_max, given.frame_bytes_max
        )
        self.tls = given.tls
        self.host = given.host
        self.port = given.port
        self.frame_bytes_max = given.frame_bytes_max
        self.connections_max = given.connections_max
        self.idle_seconds = given.idle_seconds
        self.write_high_water = given.write_high_water
        self.unsent_bytes_max = given.unsent_bytes_max
        self.occasional = OccasionalLog(logger)
        self.connections: set[C] = set()
        self.places: Places[C] = Places(given.connections_max, given.connections_per_address_max)
        self._handshake_seconds = given.handshake_seconds
        self._shares_port = given.shares_port
        self._handshakes = Handshakes(self.occasional)
        self._numbers = itertools.count(1)
        self._listener: asyncio.Server | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._empty: asyncio.Event | None = None
        self._stopping = False
        self._watched = False
        self.watch: LoopWatch
        """The watch over its loop, from `start` on."""

    def __repr__(self) -> str:
        state = "stopped" if self._stopping else "listening" if self._listener else "new"
        return f"<{type(self).__name__} {self.address} {state}, {len(self.connections)} connections>"

    @property
    def address(self) -> str:
        """`host:port`, with the real port once started."""
        return format_address(self.host, self.port)

    async def start(self) -> None:
        """Listen. Raises `ListenError` if the address cannot be bound, `InvalidStateError` the
        second time.
        """
        if self._listener is not None or self._stopping:
            text = f"the server on {self.address} was started before; make a new one"
            raise InvalidStateError(text, what="started")
        loop = asyncio.get_running_loop()
        self.watch = watch_of(loop)
        sock = await self._bind(loop)
        try:
            # Without start_serving there is no await before `_listener` is set, so cancellation leaves no
            # listening port behind.
            self._listener = await loop.create_server(
                lambda: self._protocol(loop), sock=sock, backlog=BACKLOG, start_serving=False
            )
            await self._listener.start_serving()
        except OSError as error:
            self._let_go(sock)
            raise self._listen_error(error) from None
        except BaseException:
            self._let_go(sock)
            raise
        self.port = self._listener.sockets[0].getsockname()[1]
        self.connections_max = min(self.connections_max, connections_with_open_files())
        self.places.limit(self.connections_max)
        self._empty = asyncio.Event()
        self._empty.set()
        self.account.start(loop)
        self._plan_sweep(loop)

    def begin_watch(self) -> None:
        """Record stalls of the loop until `close`; call it when the server is ready for clients."""
        if not self._watched and not self._stopping:
            self._watched = True
            self.watch.hold()

    async def stop_listening(self) -> None:
        """Accept no more connections; those that are open stay."""
        self._stopping = True
        if self._listener is not None:
            await close_listener(self._listener)

    async def wait_until_empty(self, seconds: float) -> None:
        """Wait until no connection is left, at most so long."""
        if self._empty is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), seconds)

    def end_watch(self) -> None:
        """No longer record stalls, because the server does nothing for clients for a while."""
        if self._watched:
            self._watched = False
            self.watch.release()

    async def close(self, timeout: float = 3.0) -> None:
        """Stop listening, send pending bytes within `timeout` seconds, close. Idempotent."""
        self._stopping = True
        self.end_watch()
        if self._listener is None or self._empty is None:
            return
        listener = self._listener
        await close_listener(listener)
        self.account.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for conn in list(self.connections):
            conn.close("the server stops")
        try:
            await asyncio.wait_for(self._empty.wait(), timeout)
        except TimeoutError:
            for conn in list(self.connections):
                conn.abort()
            await asyncio.wait_for(self._empty.wait(), timeout)
        await listener.wait_closed()

    async def disconnect(self, reason: str, timeout: float = 3.0) -> None:
        """Close all connections, within `timeout` seconds; the server keeps running and accepts new ones."""
        before = list(self.connections)
        for conn in before:
            conn.close(reason)
        deadline = asyncio.get_running_loop().time() + timeout
        while self.connections.intersection(before):
            if asyncio.get_running_loop().time() >= deadline:
                for conn in self.connections.intersection(before):
                    conn.abort()
                deadline += timeout
            await asyncio.sleep(DISCONNECT_SECONDS)

    # What connections call

    def admit(self, conn: C) -> str | None:
        """Register a new connection; the text is the reason to close it immediately."""
        if self._stopping:
            return "the server stops"
        loser, refusal = self.places.enter(conn, conn.peer[0])
        if refusal:
            return f"{refusal}{self._step()}"
        if loser is not None:
            self.occasional.write(
                logging.WARNING,
                "place",
                f"closing the idle connection {loser.address} to make room for {conn.address} "
                f"({self.connections_max} connections, {self.places.share_of(conn.peer[0])} of one address)"
                f"{self._step()}",
            )
            loser.abort()
        self.connections.add(conn)
        if self._empty is not None:
            self._empty.clear()
        return None

    @staticmethod
    def _step() -> str:
        small = connections_with_open_files() < CONNECTIONS_MAX
        return "; a higher limit of open files (ulimit -n) allows more" if small else ""

    def forget(self, conn: C) -> None:
        """A connection was closed."""
        self.connections.discard(conn)
        self.places.leave(conn)
        if not self.connections and self._empty is not None:
            self._empty.set()

    # Inside

    def _make(self, number: int, loop: asyncio.AbstractEventLoop) -> C:
        """A new connection."""
        raise NotImplementedError

    def _let_go(self, sock: socket.socket) -> None:
        if self._listener is None:
            sock.close()
        else:
            self._listener.close()

    def _protocol(self, loop: asyncio.AbstractEventLoop) -> asyncio.Protocol:
        conn = self._make(next(self._numbers), loop)
        if self.tls is None:
            return cast("asyncio.Protocol", conn)
        return FirstByte(conn, self.tls, loop, self.occasional, self._handshakes, self._handshake_seconds)

    async def _bind(self, loop: asyncio.AbstractEventLoop) -> socket.socket:
        try:
            found = await loop.getaddrinfo(
                self.host or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except OSError as error:
            raise self._listen_error(error) from None
        family, kind, protocol, _, name = min(found, key=lambda info: info[0] != socket.AF_INET)
        sock = socket.socket(family, kind, protocol)
        try:
            # On POSIX this only lets a restarted server bind the port despite lingering connections; two
            # listeners still exclude each other. On Windows they could share the port, so request exclusive
            # use.
            if os.name == "posix":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if self._shares_port:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            else:
                sock.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_EXCLUSIVEADDRUSE", 0), 1)
            if family == socket.AF_INET6 and self.host == "::":
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.setblocking(False)
            sock.bind(name)
            sock.listen(BACKLOG)
        except OSError as error:
            sock.close()
            raise self._listen_error(error) from None
        return sock

    def _listen_error(self, error: OSError) -> ListenError:
        if error.errno == errno.EADDRINUSE:
            text = (
                "is in use by another process; stop it or choose another port "
                f"(`ss -ltnp 'sport = :{self.port}'` names it)"
            )
        elif error.errno == errno.EACCES:
            text = "may not be used by this user; choose a port above 1023"
        elif error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
            text = f"is not an address of this machine ({error.strerror}); choose one that is, or 127.0.0.1"
        else:
            text = f"cannot be listened on: {error}"
        return ListenError(f"{self.address} {text}", address=self.address, value=error.errno)

    def _plan_sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweep_timer = loop.call_later(self.idle_seconds / IDLE_ROUNDS, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        for conn in list(self.connections):
            conn.idle_round(IDLE_ROUNDS)
        self._plan_sweep(loop)


class Server(Listener[Connection]):
    """Gives each chunk of requests of RocketMQ's remoting protocol to `handler`. `requests` notes how long
    requests take; the other arguments are those of `Listener`.
    """

    def __init__(
        self,
        handler: ServerHandler,
        *,
        requests: RequestWatch | None = None,
        **options: Unpack[ListenerOptions],
    ) -> None:
        super().__init__(**options)
        self.handler = handler
        self.requests = requests or RequestWatch()

    def _make(self, number: int, loop: asyncio.AbstractEventLoop) -> Connection:
        return Connection(self, number, loop)
