"""One connection of a server: it reads chunks, passes frames to the handler, and collects answers into one
write.

A chunk is the data of one socket read. Its requests go to the handler together, and everything that the
handler writes in the meantime is sent with one write at the end of the chunk. Writes at other times (for
example to a held pull) are collected until the next turn of the loop.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from sparrowmq.core.errors import FrameError, NoRoomError
from sparrowmq.protocol.frame import FLAG_ONEWAY, Command, FrameReader, RawFrame, decode, encode
from sparrowmq.transport.account import FRAME_OVERHEAD, SMALL_DEBT, Debt, MemoryAccount
from sparrowmq.transport.address import format_address, pack_host, peer_of
from sparrowmq.transport.correlation import InFlight, OpaqueCounter, PendingCalls
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.turns import NOTED_SECONDS, PART_SECONDS, turns_of

if TYPE_CHECKING:
    from sparrowmq.transport.request_watch import RequestWatch
    from sparrowmq.transport.stall_watch import LoopWatch

CALLS_IN_FLIGHT_MAX: Final = 1024
"""Maximum calls to one client in flight; a client answers only a few at a time."""
SEPARATE_BYTES_MIN: Final = 8 * 1024
"""Parts of at least this average length go to the socket separately; shorter parts are joined first."""
FLUSH_BYTES: Final = 4 * 1024 * 1024
"""After this many bytes, answers are sent before the chunk's end."""
GIVES_WAY_ROUNDS: Final = 4
"""Half the idle sweeps that close a connection; after these, a new connection may take its place."""
CLOSE_SECONDS_MAX: Final = 5.0
"""How long a closing connection may take to send pending bytes."""

_ANSWERS, _REQUESTS, _ROOM = 1, 2, 4
"""Reasons to pause reading: the client does not read its answers, its requests wait, the server is full."""

logger = logging.getLogger("sparrowmq.transport")
_NO_FRAMES: Final[list[RawFrame]] = []


class ServerHandler(Protocol):
    """Handles the connections of a server. Every method is called on the loop and must not block."""

    def connection_made(self, conn: Connection) -> None:
        """A client connected."""

    def connection_lost(self, conn: Connection) -> None:
        """The connection was lost; called once for each `connection_made`."""

    def frames_received(self, conn: Connection, frames: list[RawFrame]) -> None:
        """The requests of one chunk, in order. An exception closes the connection."""


class ConnectionOwner(Protocol):
    """The server's side of a connection."""

    handler: ServerHandler
    account: MemoryAccount
    frame_bytes_max: int
    write_high_water: int
    unsent_bytes_max: int
    occasional: OccasionalLog
    watch: LoopWatch
    requests: RequestWatch

    def admit(self, conn: Connection) -> str | None:
        """Register the connection; the text is the reason to close it immediately."""

    def forget(self, conn: Connection) -> None:
        """The connection was lost."""


class Connection(asyncio.Protocol):
    """A client's connection as the server sees it.

    `peer` is its numeric address, `born_host` the same packed as records store it (8 or 20 bytes), `id` a
    number that this server never reuses, `context` the handler's state, `debt` its debt in the server's
    memory account, `began` the start time (`time.monotonic`) of the current chunk. `authenticated` is false
    until a handler that requires authentication has identified the client.
    """

    __slots__ = (
        "_account",
        "_admitted",
        "_awaited",
        "_calls",
        "_charged",
        "_close_timer",
        "_copies",
        "_corked",
        "_flush_planned",
        "_handler",
        "_idle_rounds",
        "_in_flight",
        "_in_turn",
        "_loop",
        "_mapped",
        "_opaques",
        "_out",
        "_out_bytes",
        "_owner",
        "_put_off_at",
        "_reader",
        "_served",
        "_stops",
        "_transport",
        "_turns",
        "_unsent_seen",
        "_waiting",
        "_waiting_bytes",
        "_watch",
        "active",
        "began",
        "born_host",
        "closed",
        "context",
        "debt",
        "id",
        "peer",
        "used",
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
        self._account = owner.account
        self.debt = Debt(owner.account)
        self._handler = owner.handler
        self._watch = owner.watch
        self._loop = loop
        self._turns = turns_of(loop)
        self.used = self.began = self._put_off_at = 0.0
        self._reader = FrameReader(owner.frame_bytes_max)
        self._out: list[bytes | memoryview] = []
        self._out_bytes = 0
        self._mapped = 0
        self._copies = False
        self._waiting: list[RawFrame] = []
        self._waiting_bytes = 0
        self._corked = False
        self._flush_planned = False
        self._stops = 0
        self._in_turn = False
        self._charged = 0
        self._admitted = False
        self._awaited = 0
        self._calls: PendingCalls | None = None
        self._in_flight = InFlight(CALLS_IN_FLIGHT_MAX)
        self._opaques = OpaqueCounter()
        self._idle_rounds = 0
        self._served = False
        self._unsent_seen = 0
        self._close_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        state = "closed" if self.closed else "paused" if self._stops else "open"
        return f"<Connection {self.id} from {self.address} {state}>"

    @property
    def address(self) -> str:
        """The client's `host:port`."""
        return format_address(*self.peer)

    @property
    def unsent_bytes(self) -> int:
        """Bytes written but not yet accepted by the socket; when high, handlers hold back large answers."""
        return self._out_bytes + (0 if self.closed else self._transport.get_write_buffer_size())

    @property
    def authenticated(self) -> bool:
        """Whether the client is authenticated, or need not be."""
        return self.debt.trusted

    @authenticated.setter
    def authenticated(self, known: bool) -> None:
        if known:
            self.debt.trust()
        else:
            self.debt.distrust()

    @property
    def is_behind(self) -> bool:
        """Whether the client reads its answers too slowly, or is disconnected: its next requests wait."""
        return self.unsent_bytes > self._owner.write_high_water or self._transport.is_closing()

    @property
    def is_short(self) -> bool:
        """Whether the server's memory account is full and this connection has a share of it."""
        account = self._account
        if account.total <= account.limit or not account.full:
            return False
        return self.debt.total + self._out_bytes > SMALL_DEBT or account.total > account.hard_limit

    def owes_more_than(self, unsent_max: int) -> bool:
        """Whether more than `unsent_max` bytes are unsent, or less while `is_short`."""
        unsent = self._out_bytes + (0 if self.closed else self._transport.get_write_buffer_size())
        account = self._account
        return unsent > unsent_max or (account.total > account.limit and self.is_short)

    def has_room(self, size: int) -> bool:
        """Whether an answer of `size` bytes may be buffered for the client; small ones nearly always may."""
        if size <= SMALL_DEBT:
            return self._account.total <= self._account.hard_limit
        return not (self.is_behind or self._account.full)

    # What handlers call

    def charge(self, size: int) -> bool:
        """Charge `size` bytes for a waiting request, if there is room; see `MemoryAccount`.

        One client may use at most as much as is left for others.
        """
        if (size > 0 and self._charged + size > self._account.chargeable) or not self._account.charge(size):
            return False
        self._charged += size
        return True

    def put_off(self, frames: Sequence[RawFrame]) -> None:
        """Handle these requests in a later turn of the loop, or when the client has read answers. Until then
        nothing more is read."""
        if self.closed:
            return
        size = sum(len(header) + len(body) + FRAME_OVERHEAD for _, header, body in frames)
        if not self._waiting:
            self._put_off_at = monotonic()
        self._waiting += frames
        self._waiting_bytes += size
        self.debt.change(self, size)

    def write(self, data: bytes) -> None:
        """Queue bytes: they are sent with the current chunk's answers, or in the loop's next turn."""
        if self.closed:
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > FLUSH_BYTES:
            self._flush()
        elif not self._corked and not self._flush_planned:
            self._plan_flush()

    def write_parts(self, parts: Sequence[bytes | memoryview], size: int) -> None:
        """The same for parts with `size` bytes in all. Long parts are not copied, so they must
        never change.
        """
        if size < len(parts) * SEPARATE_BYTES_MIN:
            self.write(b"".join(parts))
        elif not self.closed:
            self._out += parts
            self._out_bytes += size
            self._mapped += sum(len(part) for part in parts if isinstance(part, memoryview))
            if self._out_bytes > FLUSH_BYTES:
                self._flush()
            elif not self._corked and not self._flush_planned:
                self._plan_flush()

    def send(self, command: Command) -> None:
        """Encode and write one command."""
        self.write(encode(command))

    def notify(self, command: Command) -> None:
        """Send a one-way request to the client; dropped if the client reads too slowly."""
        if self.is_behind or not self.has_room(len(command.body)):
            logger.debug("notification %d to %r dropped: the client is too slow", self, command.code)
            return
        command.opaque = self._opaques.take()
        command.flag = FLAG_ONEWAY
        self.write(encode(command))

    def call(self, command: Command, timeout: float) -> asyncio.Future[Command]:
        """Send a request to the client; the future returns the response, whatever its code.

        It fails with `RequestTimeoutError` after `timeout` seconds and with `ConnectionLostError` when the
        connection closes. Raises `NoRoomError` when 1024 calls to this client are in flight, or the
        client reads too slowly.
        """
        if not self.closed and (self.is_behind or not self.has_room(len(command.body))):
            raise NoRoomError(
                f"{self.unsent_bytes} bytes wait for client {self.address} to read them; try again later",
                what="unsent",
            )
        if not self._in_flight.try_acquire():
            raise NoRoomError(
                f"{CALLS_IN_FLIGHT_MAX} calls to client {self.address} are outstanding; try again later",
                limit=CALLS_IN_FLIGHT_MAX,
            )
        if self._calls is None:
            self._calls = PendingCalls(self.address, self._in_flight, self._loop)
        command.opaque = self._opaques.take()
        command.flag = 0
        future = self._calls.start(command.opaque, timeout, command.code)
        if self.closed:
            self._calls.fail("it was already closed")
        else:
            self._awaited += 1
            self.write(encode(command))
        return future

    def close(self, reason: str) -> None:
        """Send pending bytes, then close. `reason` is logged at debug level. Idempotent."""
        if self.closed:
            return
        self._flush()
        self.closed = True
        logger.debug("closing %r: %s", self, reason)
        self._transport.close()
        self._close_timer = self._loop.call_later(CLOSE_SECONDS_MAX, self._transport.abort)

    def refuse(self, error: FrameError) -> None:
        """Close because of invalid bytes, and log it at most once a minute."""
        self._owner.occasional.write(logging.WARNING, "garbage", f"closing {self.address}: {error}")
        self.close(str(error))

    def abort(self) -> None:
        """Close immediately; unsent bytes are lost."""
        self.closed = True
        self._transport.abort()

    # Called by the server

    def replace_transport(self, transport: asyncio.Transport) -> None:
        """Continue over another transport: TLS has started on this connection."""
        self._transport = transport
        self._copies = True

    def gives_way(self) -> bool:
        """Whether a new connection may replace it: it never sent a request, or was idle for long."""
        return not self._served or self._idle_rounds >= GIVES_WAY_ROUNDS

    def heard(self) -> None:
        """The client sent something that is not a request: it is not idle."""
        self.active = True

    def idle_round(self, rounds_max: int) -> None:
        """Count a sweep without traffic, and close after `rounds_max` of them in a row."""
        if self._stops & _ANSWERS:
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

    # Called by the account

    def unsent_socket_bytes(self) -> int:
        """Bytes that the socket has not sent yet."""
        return self._transport.get_write_buffer_size()

    def stop_for_room(self) -> None:
        """Stop reading until `go_on_with_room`."""
        self._stop(_ROOM)

    def go_on_with_room(self) -> None:
        """Resume reading."""
        self.active = True
        self._go(_ROOM)

    def close_for_debt(self, why: str) -> None:
        """Close immediately: the memory account is full and this client has a debt."""
        self._owner.occasional.write(logging.WARNING, "memory", f"closing {self.address}: {why}")
        self.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected: admit it and notify the handler, or refuse it."""
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
        """Pass frames to the handler and send its answers in one write; invalid data is refused."""
        self.active = True
        watch, frames = self._watch, _NO_FRAMES
        watch.running = self
        self.began = began = monotonic()
        try:
            frames = self._reader.feed(data)
            if self._reader.buffered != self.debt.partial:
                self._note_partial(self._reader.buffered)
            if self._awaited:
                frames = self._take_answers(frames)
            if frames:
                self._served = True
                watch.frames = frames
                self._serve(frames)
        except FrameError as error:
            self.refuse(error)
        finally:
            watch.frames, watch.running = _NO_FRAMES, None
            took = monotonic() - began
            turns = self._turns
            turns.spent += took
            if turns.spent >= NOTED_SECONDS:
                turns.note(self, took)
                if took >= PART_SECONDS:
                    watch.ended(self, frames, began)
                    self._owner.requests.chunk(self, frames, took, 0.0)

    def _note_partial(self, held: int) -> None:
        account, shorter = self._account, held < self.debt.partial
        self.debt.set_partial(self, held)
        if account.total > account.limit or account.strangers > account.stranger_limit:
            account.brought(self)
        if shorter and account.reader is self:
            account.completed(self)

    def _serve(self, frames: list[RawFrame]) -> None:
        """Pass a chunk to the handler and send its answers in one write.

        Deferred requests wait until the client has read its answers and other connections had their turn.
        """
        if self._waiting:
            self.put_off(frames)
            return
        turns = self._turns
        if turns.spent >= turns.seconds:
            self.put_off(frames)
            self._wait_for_turn()
            return
        self._corked = True
        try:
            self._handler.frames_received(self, frames)
        except Exception as error:
            text = f"error while serving {self.address}; closing the connection"
            self._owner.occasional.write(logging.ERROR, type(error).__name__, text, error=error)
            self.close("an error while serving it")
        finally:
            self._corked = False
            if self._out:
                self._flush()
        if self._waiting:
            self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        self._stop(_REQUESTS)
        if not self._stops & _ANSWERS and not self._in_turn:
            self._in_turn = True
            self._turns.wait(self)

    def go_on(self) -> None:
        """Handle the deferred requests."""
        self._in_turn = False
        frames, self._waiting = self._waiting, []
        if not frames or self.closed:
            return
        self.debt.change(self, -self._waiting_bytes)
        self._waiting_bytes = 0
        watch, began = self._watch, monotonic()
        queued = began - self._put_off_at
        self.began = began
        watch.frames, watch.running = frames, self
        try:
            self._serve(frames)
        finally:
            watch.frames, watch.running = _NO_FRAMES, None
            took = monotonic() - began
            if took >= PART_SECONDS:
                watch.ended(self, frames, began)
            self._owner.requests.chunk(self, frames, took, queued)
        if not self._waiting:
            self._go(_REQUESTS)

    def eof_received(self) -> None:
        """The client sends no more: send pending answers before the socket closes."""
        self._flush()

    def pause_writing(self) -> None:
        """The client does not read its answers: stop reading from it."""
        self._unsent_seen = self._transport.get_write_buffer_size()
        self._stop(_ANSWERS)

    def resume_writing(self) -> None:
        """The client has read its answers: resume reading."""
        self.active = True
        self._go(_ANSWERS)
        if self._waiting and not self._corked:
            self._wait_for_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket was closed: fail calls to the client, notify the handler."""
        self.closed = True
        if self._close_timer is not None:
            self._close_timer.cancel()
        self._out.clear()
        self._out_bytes = self._mapped = 0
        self._waiting.clear()
        self.debt.write_off(self)
        if self._calls is not None:
            self._calls.fail("the client disconnected" if exc is None else str(exc))
        if self._admitted:
            watch, began = self._watch, monotonic()
            watch.frames, watch.running = None, self
            try:
                self._owner.forget(self)
                self._handler.connection_lost(self)
            finally:
                watch.running = None
                watch.frames = _NO_FRAMES
                if monotonic() - began >= PART_SECONDS:
                    watch.ended(self, None, began)

    # Inside

    def _stop(self, why: int) -> None:
        if not self._stops and not self.closed:
            self._transport.pause_reading()
        self._stops |= why

    def _go(self, why: int) -> None:
        if self._stops and not self._stops & ~why and not self.closed:
            self._transport.resume_reading()
        self._stops &= ~why

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
        size = counted = self._out_bytes
        if len(out) == 1:
            self._transport.write(out[0])
        elif size < len(out) * SEPARATE_BYTES_MIN:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)
            if not self._copies:
                counted -= self._mapped
        out.clear()
        self._out_bytes = self._mapped = 0
        self.debt.wrote(self, size, counted)
        if self._stops & _ANSWERS:
            unsent = self._transport.get_write_buffer_size()
            if unsent > self._owner.unsent_bytes_max:
                self._owner.occasional.write(
                    logging.WARNING,
                    "unread",
                    f"closing {self.address}: it does not read; {unsent} bytes wait for it, and the limit is "
                    f"{self._owner.unsent_bytes_max}",
                )
                self.abort()

    def _take_answers(self, frames: list[RawFrame]) -> list[RawFrame]:
        """Resolve calls made on this connection with their answers; return the requests in `frames`."""
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
