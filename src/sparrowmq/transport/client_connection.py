"""One connection of a client: it writes calls once per turn of the loop, matches answers, and detects
connection loss.
"""

from __future__ import annotations

import asyncio
import io
import logging
import socket
from collections.abc import Callable
from typing import Final, Protocol, cast

from sparrowmq.core.errors import FrameError
from sparrowmq.protocol.frame import Command, FrameReader, LargeFrame, RawFrame, decode
from sparrowmq.transport.address import format_address, peer_of
from sparrowmq.transport.correlation import InFlight, PendingCalls
from sparrowmq.transport.tls import early_end

SILENCE_SECONDS_MAX: Final = 3.0
"""If a server was silent for this long since the start of an expired call, the connection counts as dead.
Held pulls do not count, because they may stay unanswered for longer.
"""
CLOSE_SECONDS_MAX: Final = 3.0
WRITE_HIGH_WATER: Final = 4 * 1024 * 1024
"""Unsent bytes above which new calls wait; below a quarter they continue."""
GATHER_BYTES_MAX: Final = 256 * 1024
"""Above this many bytes, writing does not wait for the end of the loop's turn, so that the high-water mark is
noticed in time.
"""

logger = logging.getLogger("sparrowmq.transport")


class ClientOwner(Protocol):
    """The client's side of a connection."""

    def serve(self, connection: ClientConnection, request: Command) -> None:
        """Handle a request of the server."""

    def forget(self, connection: ClientConnection) -> None:
        """The connection is closed or closing."""


class ClientConnection(asyncio.Protocol):
    """A connection to `address`. `paused`: it accepts no bytes for now; `closed`: nothing can be sent."""

    _transport: asyncio.Transport

    def __init__(
        self,
        owner: ClientOwner,
        address: str,
        loop: asyncio.AbstractEventLoop,
        in_flight: InFlight,
        frame_bytes_max: int,
    ) -> None:
        self.address = address
        self.paused = False
        self.closed = False
        self._owner = owner
        self._loop = loop
        self._pending = PendingCalls(address, in_flight, loop, self._call_expired)
        self._frame_bytes_max = frame_bytes_max
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._resumed: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] = loop.create_future()
        self._active = True
        self._heard = False
        self._used_at = loop.time()
        self._heard_at = self._silent_since = loop.time()
        self._reason = ""
        self._close_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        state = "closed" if self.closed else "paused" if self.paused else "open"
        return f"<ClientConnection to {self.address} {state}, {len(self._pending)} outstanding>"

    def start_call(
        self, opaque: int, data: bytes, timeout: float, code: int, waited: float = 0.0
    ) -> asyncio.Future[Command]:
        """Write an encoded request; the caller has acquired room in flight for it.

        `timeout` in seconds, of which `waited` have passed.
        """
        future = self._pending.start(opaque, timeout, code, waited)
        self.write(data)
        return future

    def write(self, data: bytes) -> None:
        """Queue bytes for the loop's next turn. Dropped when the connection is closed."""
        if self.closed:
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > GATHER_BYTES_MAX:
            self._flush()

    async def resumed(self) -> None:
        """Wait until the connection accepts bytes again or is closed."""
        if self._resumed is None:
            self._resumed = self._loop.create_future()
        await asyncio.shield(self._resumed)

    def sweep(self, now: float) -> float:
        """Seconds without traffic or calls in flight, since the first sweep that found none."""
        if self._active or self._pending:
            self._active = False
            self._used_at = now
        return now - self._used_at

    def close(self, reason: str) -> None:
        """Send pending bytes and close; calls in flight fail immediately. Idempotent."""
        if self.closed:
            return
        self._flush()
        self._leave(reason)
        self._transport.close()
        self._close_timer = self._loop.call_later(CLOSE_SECONDS_MAX, self._transport.abort)

    async def wait_closed(self, timeout: float) -> None:
        """Wait until the socket is closed; after `timeout` seconds it is aborted, and unsent bytes
        are lost.
        """
        await asyncio.wait({self._gone}, timeout=timeout)
        if not self._gone.done():
            self._transport.abort()
            await asyncio.wait({self._gone}, timeout=timeout)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected: disable the delay of small writes and limit unsent bytes."""
        self._transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own = transport.get_extra_info("sockname")
        if own:
            self._pending.connected_from(format_address(*peer_of(own)))
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        hands_over = transport.get_extra_info("ssl_object") is None
        self._reader = FrameReader(self._frame_bytes_max, hands_over=hands_over)

    def data_received(self, data: bytes) -> None:
        """Responses go to their calls, requests to the owner; an invalid frame closes the connection."""
        self._active = self._heard = True
        self._heard_at = self._loop.time()
        reader = self._reader
        try:
            for kind, header, body in reader.feed(data):
                command = decode(kind, header, body)
                if command.flag & 1:
                    self._pending.resolve(command)
                else:
                    self._owner.serve(self, command)
        except FrameError as error:
            logger.warning("closing the connection to %s: %s", self.address, error)
            self.close(str(error))
        if reader.large is not None:
            self._read_large(reader.hand_over())

    def _read_large(self, frame: LargeFrame) -> None:
        """Read the rest of a large frame's body with a separate protocol that copies nothing."""
        if not self._transport.is_closing():
            LargeBody(frame, self._transport, self, self._hear, self._take_large).begin()

    def _hear(self) -> None:
        self._active = self._heard = True
        self._heard_at = self._loop.time()

    def _take_large(self, frame: RawFrame) -> None:
        """Handle a large frame as `data_received` does."""
        try:
            command = decode(*frame)
        except FrameError as error:
            logger.warning("closing the connection to %s: %s", self.address, error)
            self.close(str(error))
            return
        if command.flag & 1:
            self._pending.resolve(command)
        else:
            self._owner.serve(self, command)

    def pause_writing(self) -> None:
        """Unsent bytes exceed the limit: senders wait."""
        self.paused = True

    def resume_writing(self) -> None:
        """Enough was sent: senders continue."""
        self.paused = False
        self._active = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket was closed: calls in flight fail with the reason."""
        if self._close_timer is not None:
            self._close_timer.cancel()
        if not self.closed:
            self._leave(self._end(exc))
        if not self._gone.done():
            self._gone.set_result(None)

    # Inside

    def _end(self, error: Exception | None) -> str:
        if not self._heard:
            return early_end(error, self._transport.get_extra_info("ssl_object") is not None)
        return "the server closed it" if error is None else str(error)

    def _flush(self) -> None:
        out = self._out
        if not out or self.closed:
            return
        self._active = True
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self._out_bytes = 0
        self._transport.write(data)

    def _leave(self, reason: str) -> None:
        """Make the connection unusable: remove it from the client's table, fail calls, wake
        waiting callers.
        """
        self.closed = True
        self.paused = False
        logger.debug("the connection to %s is closed: %s", self.address, reason)
        self._out.clear()
        self._owner.forget(self)
        self._pending.fail(reason)
        self._wake()

    def _wake(self) -> None:
        resumed, self._resumed = self._resumed, None
        if resumed is not None and not resumed.done():
            resumed.set_result(None)

    def _call_expired(self, seconds: float) -> None:
        """A call expired after `seconds`."""
        now = self._loop.time()
        if self._silent_since <= self._heard_at:  # the first since the server last sent something
            self._silent_since = max(now - seconds, self._heard_at)
        if round(now - self._silent_since, 3) >= SILENCE_SECONDS_MAX and not self.closed:
            self._leave(f"it was silent for {SILENCE_SECONDS_MAX:g} s")
            self._transport.abort()


class LargeBody(asyncio.BufferedProtocol):
    """Reads a large body from the socket directly into its final buffer: it has several megabytes, and in
    pieces every byte would be copied twice after the system call.

    It is the protocol of `transport` until the body of `frame` is complete; then `done` gets the frame.
    `owner`, the protocol before and after, gets all other events; `heard` is called on it for every read.
    """

    def __init__(
        self,
        frame: LargeFrame,
        transport: asyncio.Transport,
        owner: asyncio.Protocol,
        heard: Callable[[], None],
        done: Callable[[RawFrame], None],
    ) -> None:
        self._frame = frame
        self._transport = transport
        self._owner = owner
        self._heard = heard
        self._done = done
        self._loop = asyncio.get_running_loop()
        # A BytesIO's buffer can be written in place, and is returned without a copy once no view of it
        # exists; a loop holds the view it reads into until `buffer_updated` returns.
        self._body = io.BytesIO(bytes(frame.size))
        self._rest = self._body.getbuffer()
        self._filled(frame.start)

    def _filled(self, start: bytes) -> None:
        self._rest[: len(start)] = start
        self._rest = self._rest[len(start) :]

    def begin(self) -> None:
        """Take over the transport's data."""
        self._switch(self)

    def _switch(self, protocol: asyncio.BaseProtocol) -> None:
        """Called by a transport that asks for its protocol when it starts to read."""
        self._transport.pause_reading()
        self._transport.set_protocol(protocol)
        self._transport.resume_reading()

    # asyncio.BufferedProtocol

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the missing bytes."""
        return self._rest

    def buffer_updated(self, nbytes: int) -> None:
        """`nbytes` more have arrived. When the body is complete, the owner continues as soon as the loop
        releases the buffer.
        """
        self._heard()
        self._rest = self._rest[nbytes:]
        if not self._rest:
            self._transport.pause_reading()
            self._loop.call_soon(self._finish)

    def _finish(self) -> None:
        self._rest.release()
        if not self._transport.is_closing():
            self._switch(self._owner)
        self._done((self._frame.kind, self._frame.header, self._body.getvalue()))

    def eof_received(self) -> bool | None:
        """The peer closed in the middle of a frame."""
        return self._owner.eof_received()

    def pause_writing(self) -> None:
        """The socket accepts no more data for now."""
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        """The socket accepts data again."""
        self._owner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._owner.connection_lost(exc)
