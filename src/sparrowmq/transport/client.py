"""The client side: one connection per address, shared by all calls."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from sparrowmq.core.errors import (
    ConnectError,
    ConnectionLostError,
    InvalidStateError,
    RequestTimeoutError,
)
from sparrowmq.protocol.codes import ResponseCode, request_name
from sparrowmq.protocol.frame import FLAG_ONEWAY, FRAME_BYTES_MAX, Command, encode
from sparrowmq.transport.address import parse_address
from sparrowmq.transport.client_connection import ClientConnection
from sparrowmq.transport.correlation import InFlight, OpaqueCounter
from sparrowmq.transport.dispatch import Dispatcher, Handler
from sparrowmq.transport.tls import HANDSHAKE_SECONDS_MAX, FollowedContext, handshake_failure

CONNECT_SECONDS_MAX: Final = 3.0
IN_FLIGHT_MAX: Final = 65535
"""Maximum calls in flight, as in RocketMQ's client (client:A-77)."""
IDLE_SECONDS: Final = 110.0
"""Shorter than the 120 s of servers, so that a call does not meet a connection that is being closed."""
SWEEP_SECONDS: Final = 10.0
PEER_REQUESTS_MAX: Final = 1000
"""Maximum concurrent requests from brokers."""

logger = logging.getLogger("sparrowmq.transport")


class RequestHook(Protocol):
    """Called around requests; an error that it raises fails the request (client:A-82)."""

    def before_request(self, address: str, command: Command) -> None:
        """Called before the request is encoded; its opaque is set."""

    def after_response(self, address: str, command: Command, answer: Command) -> None:
        """Called when the response arrived."""


class RemotingClient:
    """Calls to servers by address (`host:port`), answers matched to calls by their opaque.

    Connections are opened when first needed and shared; everything written in one turn of the loop is sent
    with one write. `on_request` has the handlers of brokers' requests, by request code; they get the broker's
    address and its request. `on_connected` is called with the address of every new connection. `hooks` run in
    order around every call made with a `Command` (encoded frames bypass them); a one-way request has only the
    call before. All methods belong to one event loop. Only the caller knows whether a call may be repeated,
    so calls are not repeated here, with one exception: a server that answers "go away" (1500) has not
    executed the request, which is sent again over a new connection (client:A-85).
    """

    def __init__(
        self,
        *,
        connect_timeout: float = CONNECT_SECONDS_MAX,
        on_request: Mapping[int, Handler[str]] | None = None,
        in_flight_max: int = IN_FLIGHT_MAX,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        idle_seconds: float = IDLE_SECONDS,
        on_connected: Callable[[str], None] | None = None,
        on_lost: Callable[[str], None] | None = None,
        hooks: Sequence[RequestHook] = (),
        tls: ssl.SSLContext | FollowedContext | None = None,
        handshake_seconds: float = HANDSHAKE_SECONDS_MAX,
    ) -> None:
        """`on_connected` and `on_lost` are called with the address of an opened or lost connection, except
        when this client is closed.

        With `tls` every connection uses TLS; a handshake may take `handshake_seconds`.
        """
        self._tls = tls
        self._handshake_seconds = handshake_seconds
        self._on_connected = on_connected
        self._on_lost = on_lost
        self._hooks = tuple(hooks)
        self._connect_timeout = connect_timeout
        self._frame_bytes_max = frame_bytes_max
        self._idle_seconds = idle_seconds
        self._dispatcher: Dispatcher[str] = Dispatcher(
            {} if on_request is None else on_request, running_max=PEER_REQUESTS_MAX
        )
        self._in_flight = InFlight(in_flight_max)
        self._opaques = OpaqueCounter()
        self._connections: dict[str, ClientConnection] = {}
        self._connecting: dict[str, asyncio.Task[ClientConnection]] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        addresses = ", ".join(self._connections) or "no connections"
        return f"<RemotingClient {state}, {addresses}, {self._in_flight.used} in flight>"

    @property
    def in_flight(self) -> int:
        """Number of calls in flight."""
        return self._in_flight.used

    @property
    def is_hooked(self) -> bool:
        """Whether requests must be passed as a `Command` because there are hooks."""
        return bool(self._hooks)

    def next_opaque(self) -> int:
        """A correlation number for a request that the caller encodes itself."""
        return self._opaques.take()

    async def call(self, addr: str, command: Command, timeout: float) -> Command:
        """The response to a request, whatever its code. `timeout` in seconds includes connecting.

        Sets the command's opaque. Raises `ConnectError`, `ConnectionLostError`, `RequestTimeoutError`, and
        `NoRoomError` when the in-flight limit was reached for the whole time. After
        `ConnectionLostError` and `RequestTimeoutError` the request may have been executed. Cancelling stops
        waiting; the request may still be executed.
        """
        answer = await self._call(addr, command, timeout)
        if answer.code == ResponseCode.GO_AWAY:
            self.disconnect(addr, "the server sent GO_AWAY")
            answer = await self._call(addr, command, timeout)
        return answer

    async def _call(self, addr: str, command: Command, timeout: float) -> Command:
        self._prepare(addr, command)
        answer = await self.call_encoded(addr, command.opaque, encode(command), timeout, command.code)
        for hook in self._hooks:
            hook.after_response(addr, command, answer)
        return answer

    def _prepare(self, addr: str, command: Command) -> None:
        command.opaque = self._opaques.take()
        for hook in self._hooks:
            hook.before_request(addr, command)

    async def call_encoded(
        self, addr: str, opaque: int, data: bytes, timeout: float, code: int = 0
    ) -> Command:
        """`call` for a frame already encoded with `opaque` from `next_opaque`; `code` is for error
        messages.
        """
        future = self.call_encoded_nowait(addr, opaque, data, timeout, code)
        if future is None:
            future = await self._call_later(addr, opaque, data, timeout, code)
        return await future

    def call_nowait(self, addr: str, command: Command, timeout: float) -> asyncio.Future[Command] | None:
        """The future of a response, or None when `call` would have to wait before sending.

        That is the case while the address is not connected, its connection is paused, or too many calls are
        in flight. The response is passed unchanged, including "go away".
        """
        if addr not in self._connections:
            return None
        self._prepare(addr, command)
        data = encode(command)
        answer = self.call_encoded_nowait(addr, command.opaque, data, timeout, command.code)
        if answer is None or not self._hooks:
            return answer
        seen: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda done: self._show(addr, command, done, seen))
        return seen

    def _show(
        self, addr: str, command: Command, done: asyncio.Future[Command], seen: asyncio.Future[Command]
    ) -> None:
        """Pass a response on after the hooks have seen it."""
        try:
            answer = done.result()
            for hook in self._hooks:
                hook.after_response(addr, command, answer)
        except asyncio.CancelledError:
            seen.cancel()
        except Exception as error:
            if not seen.done():
                seen.set_exception(error)
        else:
            if not seen.done():
                seen.set_result(answer)

    def call_encoded_nowait(
        self, addr: str, opaque: int, data: bytes, timeout: float, code: int = 0
    ) -> asyncio.Future[Command] | None:
        """`call_nowait` for a frame already encoded with `opaque` from `next_opaque`."""
        connection = self._connections.get(addr)
        if connection is None or connection.paused or not self._in_flight.try_acquire():
            return None
        return connection.start_call(opaque, data, timeout, code)

    async def notify(self, addr: str, command: Command, timeout: float = CONNECT_SECONDS_MAX) -> None:
        """Send a one-way request; returns when it is queued. `timeout` covers connecting and back-pressure.

        Raises `ConnectError`, and `RequestTimeoutError` when the connection stays paused.
        """
        command.flag = FLAG_ONEWAY
        self._prepare(addr, command)
        await self.notify_encoded(addr, encode(command), timeout, command.code)

    async def notify_encoded(self, addr: str, data: bytes, timeout: float, code: int = 0) -> None:
        """`notify` for a frame already encoded with the one-way flag and an opaque from `next_opaque`."""
        deadline = asyncio.get_running_loop().time() + timeout
        connection = await self._ready(addr, deadline, timeout, code)
        connection.write(data)

    async def connect(self, addr: str) -> None:
        """Open a connection if there is none. Raises `ConnectError`."""
        if addr not in self._connections:
            await self._connect(addr)

    def disconnect(self, addr: str, reason: str = "it is no longer needed") -> None:
        """Close the connection to the address, if there is one; its calls fail."""
        connection = self._connections.get(addr)
        if connection is not None:
            connection.close(reason)

    async def close(self, timeout: float = 3.0) -> None:
        """Close all connections; calls in flight fail with `ConnectionLostError`. Idempotent.

        Pending bytes are sent within `timeout` seconds.
        """
        self._closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        for task in list(self._connecting.values()):
            task.cancel()
        self._connecting.clear()
        connections = list(self._connections.values())
        for connection in connections:
            connection.close("this client was closed")
        try:
            await asyncio.gather(*(connection.wait_closed(timeout) for connection in connections))
        finally:
            await self._dispatcher.close(timeout)

    # What connections call

    def serve(self, connection: ClientConnection, request: Command) -> None:
        """Handle a request from a broker."""
        self._dispatcher.serve(connection.address, request, connection.write)

    def forget(self, connection: ClientConnection) -> None:
        """A connection is closed or closing."""
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]
            if self._on_lost is not None and not self._closed:
                self._on_lost(connection.address)

    # Inside

    async def _call_later(
        self, addr: str, opaque: int, data: bytes, timeout: float, code: int
    ) -> asyncio.Future[Command]:
        """Send as soon as the in-flight limit and the connection allow."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        deadline = started + timeout
        await self._in_flight.acquire(deadline)
        try:
            connection = await self._ready(addr, deadline, timeout, code)
        except BaseException:
            self._in_flight.release()
            raise
        return connection.start_call(opaque, data, timeout, code, loop.time() - started)

    async def _ready(self, addr: str, deadline: float, timeout: float, code: int) -> ClientConnection:
        """An open connection that is not paused, by the deadline (loop time)."""
        try:
            async with asyncio.timeout_at(deadline):
                connection = self._connections.get(addr) or await self._connect(addr)
                while connection.paused:
                    await connection.resumed()
        except TimeoutError:
            raise RequestTimeoutError(
                f"request {request_name(code)} could not be sent to {addr} within {timeout:.3g} s: "
                f"{'the connection accepts no data' if addr in self._connections else 'no connection yet'}",
                address=addr,
                value=code,
                limit=timeout,
            ) from None
        if connection.closed:
            raise ConnectionLostError(
                f"the connection to {addr} closed before request {request_name(code)} could be sent",
                address=addr,
                value=code,
            )
        return connection

    async def _connect(self, addr: str) -> ClientConnection:
        """A new connection; concurrent callers share it, and cancelling one of them does not stop it."""
        if self._closed:
            raise InvalidStateError("this client was closed; make a new one", what="closed")
        task = self._connecting.get(addr)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._open(addr))
            self._connecting[addr] = task
            # Retrieve the error here, in case all callers were cancelled.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if task.cancelled() and waiting is not None and not waiting.cancelling():
                raise ConnectionLostError("this client was closed while connecting", address=addr) from None
            raise

    async def _open(self, addr: str) -> ClientConnection:
        try:
            connection = await self._open_socket(addr)
        finally:
            self._connecting.pop(addr, None)
        if not connection.closed:
            self._connections[addr] = connection
            if self._sweep_timer is None:
                loop = asyncio.get_running_loop()
                self._sweep_timer = loop.call_later(SWEEP_SECONDS, self._sweep, loop)
            if self._on_connected is not None:
                self._on_connected(addr)
        return connection

    async def _open_socket(self, addr: str) -> ClientConnection:
        host, port = parse_address(addr)
        loop = asyncio.get_running_loop()
        tls = self._tls() if isinstance(self._tls, FollowedContext) else self._tls
        try:
            async with asyncio.timeout(self._connect_timeout):
                _, connection = await loop.create_connection(
                    lambda: ClientConnection(self, addr, loop, self._in_flight, self._frame_bytes_max),
                    host,
                    port,
                    ssl=tls,
                    server_hostname=None if tls is None else host,
                    ssl_handshake_timeout=None if tls is None else self._handshake_seconds,
                )
        except TimeoutError:
            raise ConnectError(
                f"no connection to {addr} within {self._connect_timeout:g} s; check that the address is "
                f"correct and reachable",
                address=addr,
                limit=self._connect_timeout,
            ) from None
        except OSError as error:
            raise ConnectError(_refusal(addr, error, tls is not None), address=addr) from None
        return connection

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        for connection in list(self._connections.values()):
            if connection.sweep(loop.time()) > self._idle_seconds:
                connection.close("idle")
        self._sweep_timer = loop.call_later(SWEEP_SECONDS, self._sweep, loop) if self._connections else None


def _refusal(addr: str, error: OSError, tls: bool) -> str:
    """The error for a failed connection."""
    if isinstance(error, ssl.SSLError):
        return handshake_failure(addr, error)
    if tls and isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError):
        return f"{addr} closed the connection during the TLS handshake; check that it uses TLS"
    return f"no connection to {addr}: {_reason(error)}; is it running there?"


def _reason(error: OSError) -> str:
    """Why a connection could not be made, in the operating system's words, without the addresses and numbers
    that event loops add.
    """
    if error.errno is not None and error.errno > 0 and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return error.strerror or str(error)
