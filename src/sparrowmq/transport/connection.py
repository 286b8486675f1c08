"""One connection of a server: chunks in, frames to the handler, answers gathered into one write.

A chunk is what one read of the socket brought. Its requests go to the handler together, and everything the
handler writes meanwhile leaves in one write at the end of the chunk. What is written at other times (to a
pull that was held, say) is gathered until the next turn of the loop.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

from sparrowmq.core.errors import FrameError, TooManyRequestsError
from sparrowmq.protocol.frame import (
    FLAG_ONEWAY,
    Command,
    FrameReader,
    RawFrame,
    decode,
    encode,
)
from sparrowmq.transport.address import format_address, pack_host, peer_of
from sparrowmq.transport.correlation import InFlight, OpaqueCounter, PendingCalls
from sparrowmq.transport.occasional import OccasionalLog

CALLS_IN_FLIGHT_MAX: Final = 1024
"""Calls towards one client that may be outstanding; a client answers a handful at a time."""
SEPARATE_BYTES_MIN: Final = 8 * 1024
"""Parts that are as long on average go to the socket as they are; shorter ones are joined before."""
CLOSE_SECONDS_MAX: Final = 5.0
"""How long a closed connection may take to hand over what was written."""

logger = logging.getLogger("sparrowmq.transport")


class ServerHandler(Protocol):
    """What a server does with its connections. Every method is called on the loop and must not block."""

    def connection_made(self, conn: Connection) -> None:
        """A client connected."""

    def connection_lost(self, conn: Connection) -> None:
        """The connection is gone; called once for each `connection_made`."""

    def frames_received(self, conn: Connection, frames: list[RawFrame]) -> None:
        """The requests of one chunk, in order. An exception closes the connection."""


class ConnectionOwner(Protocol):
    """The server's side of a connection."""

    handler: ServerHandler
    frame_bytes_max: int
    write_high_water: int
    unsent_bytes_max: int
    occasional: OccasionalLog

    def admit(self, conn: Connection) -> str | None:
        """Note the connection; the text says why it must close at once."""

    def forget(self, conn: Connection) -> None:
        """The connection is gone."""


class Connection(asyncio.Protocol):
    """A client's connection as the server sees it.

    `peer` is its numeric address, `born_host` the same packed as records store it (8 or 20 bytes), `id` a
    number never used again by this server, `context` a place for the handler's own state.
    """

    __slots__ = (
        "_admitted",
        "_awaited",
        "_calls",
        "_close_timer",
        "_corked",
        "_flush_planned",
        "_handler",
        "_idle_rounds",
        "_in_flight",
        "_loop",
        "_opaques",
        "_out",
        "_out_bytes",
        "_owner",
        "_paused",
        "_reader",
        "_transport",
        "_unsent_seen",
        "active",
        "born_host",
        "closed",
        "context",
        "id",
        "peer",
    )

    _transport: asyncio.Transport

    def __init__(self, owner: ConnectionOwner, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self.id = number
        self.peer = ("0.0.0.0", 0)
        self.born_host = bytes(8)
        self.closed = False
        self.active = True
        self.context: Any = None
        self._owner = owner
        self._handler = owner.handler
        self._loop = loop
        self._reader = FrameReader(owner.frame_bytes_max)
        self._out: list[bytes | memoryview] = []
        self._out_bytes = 0
        self._corked = False
        self._flush_planned = False
        self._paused = False
        self._admitted = False
        self._awaited = 0
        self._calls: PendingCalls | None = None
        self._in_flight = InFlight(CALLS_IN_FLIGHT_MAX)
        self._opaques = OpaqueCounter()
        self._idle_rounds = 0
        self._unsent_seen = 0
        self._close_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        state = "closed" if self.closed else "paused" if self._paused else "open"
        return f"<Connection {self.id} from {self.address} {state}>"

    @property
    def address(self) -> str:
        """The client's `host:port`."""
        return format_address(*self.peer)

    @property
    def unsent_bytes(self) -> int:
        """Bytes written that the socket has not taken yet; handlers keep big answers back when it is high."""
        return self._out_bytes + (0 if self.closed else self._transport.get_write_buffer_size())

    # What handlers call

    def write(self, data: bytes) -> None:
        """Queue bytes: they leave with the current chunk's answers, or in the loop's next turn."""
        if self.closed:
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if not self._corked and not self._flush_planned:
            self._plan_flush()

    def write_parts(self, parts: Sequence[bytes | memoryview], size: int) -> None:
        """The same for parts with `size` bytes in all. Long ones are not copied: they must never change."""
        if size < len(parts) * SEPARATE_BYTES_MIN:
            self.write(b"".join(parts))
        elif not self.closed:
            self._out += parts
            self._out_bytes += size
            if not self._corked and not self._flush_planned:
                self._plan_flush()

    def send(self, command: Command) -> None:
        """Encode and write one command."""
        self.write(encode(command))

    def notify(self, command: Command) -> None:
        """Send a one-way request to the client."""
        command.opaque = self._opaques.take()
        command.flag = FLAG_ONEWAY
        self.write(encode(command))

    def call(self, command: Command, timeout: float) -> asyncio.Future[Command]:
        """Send a request to the client; the future gives its answer, whatever its code.

        It fails with `RequestTimeoutError` after `timeout` seconds and with `ConnectionLostError` when the
        connection closes. Raises `TooManyRequestsError` when 1024 calls to this client are outstanding.
        """
        if not self._in_flight.try_acquire():
            raise TooManyRequestsError(
                f"{CALLS_IN_FLIGHT_MAX} calls to client {self.address} are outstanding; try again later"
            )
        if self._calls is None:
            self._calls = PendingCalls(self.address, self._in_flight, self._loop)
        command.opaque = self._opaques.take()
        command.flag = 0
        future = self._calls.start(command.opaque, timeout, command.code)
        if self.closed:
            self._calls.fail("it was closed before")
        else:
            self._awaited += 1
            self.write(encode(command))
        return future

    def close(self, reason: str) -> None:
        """Hand over what was written, then close. `reason` goes to the log at debug level. Idempotent."""
        if self.closed:
            return
        self._flush()
        self.closed = True
        logger.debug("closing %r: %s", self, reason)
        self._transport.close()
        self._close_timer = self._loop.call_later(CLOSE_SECONDS_MAX, self._transport.abort)

    def refuse(self, error: FrameError) -> None:
        """Close because of bytes that cannot be read, with a line in the log, at most one a minute."""
        self._owner.occasional.write(logging.WARNING, "garbage", f"closing {self.address}: {error}")
        self.close(str(error))

    def abort(self) -> None:
        """Close at once; what was written and not sent is lost."""
        self.closed = True
        self._transport.abort()

    # What the server calls

    def replace_transport(self, transport: asyncio.Transport) -> None:
        """Go on over another transport: TLS began on this connection."""
        self._transport = transport

    def idle_round(self, rounds_max: int) -> None:
        """Count a sweep without traffic, and close after `rounds_max` of them in a row."""
        if self._paused:
            unsent = self._transport.get_write_buffer_size()
            self.active = self.active or unsent < self._unsent_seen
            self._unsent_seen = unsent
        if self.active:
            self.active = False
            self._idle_rounds = 0
            return
        self._idle_rounds += 1
        if self._idle_rounds > rounds_max:
            self.close("idle")

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came: admit it and tell the handler, or refuse it."""
        self._transport = cast("asyncio.Transport", transport)
        self.peer = peer_of(transport.get_extra_info("peername"))
        self.born_host = pack_host(*self.peer)
        refusal = self._owner.admit(self)
        if refusal is not None:
            self._owner.occasional.write(logging.WARNING, "refused", f"refusing {self.address}: {refusal}")
            self.abort()
            return
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.set_write_buffer_limits(high=self._owner.write_high_water)
        self._admitted = True
        self._handler.connection_made(self)

    def data_received(self, data: bytes) -> None:
        """Frames for the handler, whose answers to them go out in one write; a bad one is refused."""
        self.active = True
        try:
            frames = self._reader.feed(data)
        except FrameError as error:
            self.refuse(error)
            return
        if self._awaited:
            frames = self._take_answers(frames)
        if not frames:
            return
        self._corked = True
        try:
            self._handler.frames_received(self, frames)
        except Exception as error:
            text = f"a fault while serving {self.address}; the connection is closed"
            self._owner.occasional.write(logging.ERROR, type(error).__name__, text, error=error)
            self.close("a fault while serving it")
        finally:
            self._corked = False
            if self._out:
                self._flush()

    def eof_received(self) -> None:
        """The client sends no more: what was answered goes out before the socket closes."""
        self._flush()

    def pause_writing(self) -> None:
        """The client does not take its answers: read nothing more from it."""
        self._paused = True
        self._unsent_seen = self._transport.get_write_buffer_size()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The client took its answers: read on."""
        self._paused = False
        self.active = True
        if not self.closed:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone: calls to the client fail, the handler is told."""
        self.closed = True
        if self._close_timer is not None:
            self._close_timer.cancel()
        self._out.clear()
        self._out_bytes = 0
        if self._calls is not None:
            self._calls.fail("the client went away" if exc is None else str(exc))
        if self._admitted:
            self._owner.forget(self)
            self._handler.connection_lost(self)

    # Inside

    def _plan_flush(self) -> None:
        self._flush_planned = True
        self._loop.call_soon(self._planned_flush)

    def _planned_flush(self) -> None:
        self._flush_planned = False
        if self._out and not self._corked:
            self._flush()

    def _flush(self) -> None:
        out = self._out
        if not out or self.closed:
            return
        self.active = True
        if len(out) == 1:
            self._transport.write(out[0])
        elif self._out_bytes < len(out) * SEPARATE_BYTES_MIN:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)
        out.clear()
        self._out_bytes = 0
        if self._paused:
            unsent = self._transport.get_write_buffer_size()
            if unsent > self._owner.unsent_bytes_max:
                self._owner.occasional.write(
                    logging.WARNING,
                    "unread",
                    f"closing {self.address}: it does not read, {unsent} bytes wait for it and the limit is "
                    f"{self._owner.unsent_bytes_max}",
                )
                self.abort()

    def _take_answers(self, frames: list[RawFrame]) -> list[RawFrame]:
        """Give answers to the calls made on this connection; the requests among `frames` are returned."""
        requests = []
        for raw in frames:
            try:
                command = decode(*raw)
            except FrameError as error:
                self.refuse(error)
                return []
            if not command.is_response:
                requests.append(raw)
                continue
            self._awaited = max(0, self._awaited - 1)
            if self._calls is not None:
                self._calls.resolve(command)
        return requests
