"""A listening socket and its connections: limits, idle sweep, graceful end."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import os
import socket
import sys
from typing import Final

from sparrowmq.core.errors import InvalidStateError, ListenError
from sparrowmq.protocol.frame import FRAME_BYTES_MAX
from sparrowmq.transport.address import format_address
from sparrowmq.transport.connection import Connection, ServerHandler
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.tls import HANDSHAKE_SECONDS_MAX, ServerTls
from sparrowmq.transport.tls_stream import FirstByte

IDLE_SECONDS: Final = 120.0
"""Both Java sides close after this time without a byte in either direction (remoting:1.6)."""
IDLE_ROUNDS: Final = 8
CONNECTIONS_MAX: Final = 10_000
WRITE_HIGH_WATER: Final = 4 * 1024 * 1024
"""Unsent bytes of a connection above which its requests are no longer read, until a quarter is left."""
UNSENT_BYTES_MAX: Final = 256 * 1024 * 1024
"""Unsent bytes of one connection above which it is closed: held pulls are answered without being read for."""
BACKLOG: Final = 1024
OPEN_FILES_SHARE: Final = 5
"""A server's connections may take this part of the open files a process may have: half is the store's, and
name server and broker may share a process."""

logger = logging.getLogger("sparrowmq.transport")


def connections_with_open_files() -> int:
    """How many connections this process' limit of open files leaves room for."""
    if sys.platform == "win32":
        return CONNECTIONS_MAX
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS_MAX if soft == resource.RLIM_INFINITY else max(1, soft // OPEN_FILES_SHARE)


class Server:
    """Listens on one address and gives each chunk of requests to `handler`.

    Port 0 takes a free port; `port` tells which once started. A client that sends something else than frames,
    is silent for `idle_seconds`, or is one more than `connections_max`, is closed; no other one notices. A
    low limit of open files lowers `connections_max` at the start, so that the store can still open its own.
    With `tls` the port speaks TLS too, or only; a handshake may take `handshake_seconds`.
    """

    def __init__(
        self,
        handler: ServerHandler,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        connections_max: int = CONNECTIONS_MAX,
        idle_seconds: float = IDLE_SECONDS,
        write_high_water: int = WRITE_HIGH_WATER,
        unsent_bytes_max: int = UNSENT_BYTES_MAX,
        tls: ServerTls | None = None,
        handshake_seconds: float = HANDSHAKE_SECONDS_MAX,
    ) -> None:
        self.handler = handler
        self.tls = tls
        self.host = host
        self.port = port
        self.frame_bytes_max = frame_bytes_max
        self.connections_max = connections_max
        self.idle_seconds = idle_seconds
        self.write_high_water = write_high_water
        self.unsent_bytes_max = unsent_bytes_max
        self.occasional = OccasionalLog(logger)
        self.connections: set[Connection] = set()
        self._handshake_seconds = handshake_seconds
        self._numbers = itertools.count(1)
        self._listener: asyncio.Server | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._empty: asyncio.Event | None = None
        self._stopping = False

    def __repr__(self) -> str:
        state = "stopped" if self._stopping else "listening" if self._listener else "new"
        return f"<Server {self.address} {state}, {len(self.connections)} connections>"

    @property
    def address(self) -> str:
        """`host:port`, with the real port once started."""
        return format_address(self.host, self.port)

    async def start(self) -> None:
        """Listen. Raises `ListenError` if the address cannot be had, `InvalidStateError` the second time."""
        if self._listener is not None or self._stopping:
            raise InvalidStateError(f"the server on {self.address} was started before; make a new one")
        loop = asyncio.get_running_loop()
        sock = await self._bind(loop)
        try:
            # Without start_serving nothing waits before `_listener` is set: whoever cancels this leaves no
            # port behind that listens.
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
        self._empty = asyncio.Event()
        self._empty.set()
        self._plan_sweep(loop)

    async def close(self, timeout: float = 3.0) -> None:
        """Stop listening, hand over what was written within `timeout` seconds, close. Idempotent."""
        self._stopping = True
        if self._listener is None or self._empty is None:
            return
        listener = self._listener
        listener.close()
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

    # What connections call

    def admit(self, conn: Connection) -> str | None:
        """Note a new connection; the text says why it must close at once."""
        if self._stopping:
            return "the server stops"
        if len(self.connections) >= self.connections_max:
            return f"{self.connections_max} connections are open, which is the limit{self._step()}"
        self.connections.add(conn)
        if self._empty is not None:
            self._empty.clear()
        return None

    @staticmethod
    def _step() -> str:
        small = connections_with_open_files() < CONNECTIONS_MAX
        return "; a higher limit of open files (ulimit -n) allows more" if small else ""

    def forget(self, conn: Connection) -> None:
        """A connection is gone."""
        self.connections.discard(conn)
        if not self.connections and self._empty is not None:
            self._empty.set()

    # Inside

    def _let_go(self, sock: socket.socket) -> None:
        if self._listener is None:
            sock.close()
        else:
            self._listener.close()

    def _protocol(self, loop: asyncio.AbstractEventLoop) -> asyncio.Protocol:
        conn = Connection(self, next(self._numbers), loop)
        if self.tls is None:
            return conn
        return FirstByte(conn, self.tls, loop, self.occasional, self._handshake_seconds)

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
            # On POSIX this only lets a restart have the port of connections that linger; two listeners
            # still exclude each other. On Windows it would let them share, so exclusive use is asked for.
            if os.name == "posix":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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
        return ListenError(f"{self.address} {text}", address=self.address)

    def _plan_sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweep_timer = loop.call_later(self.idle_seconds / IDLE_ROUNDS, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        for conn in list(self.connections):
            conn.idle_round(IDLE_ROUNDS)
        self._plan_sweep(loop)
