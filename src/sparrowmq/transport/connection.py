"""One connection of a server: it reads chunks, passes frames to the handler, and collects answers into one
write.

A chunk is the data of one socket read. Its requests go to the handler together, and everything that the
handler writes in the meantime is sent with one write at the end of the chunk. Writes at other times (for
example to a held pull) are collected until the next turn of the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

from sparrowmq.core.errors import FrameError, NoRoomError
from sparrowmq.protocol.frame import FLAG_ONEWAY, Command, FrameReader, RawFrame, decode, encode
from sparrowmq.transport.account import FRAME_OVERHEAD, SMALL_DEBT
from sparrowmq.transport.accounted_connection import (
    ANSWERS,
    GIVES_WAY_ROUNDS,
    REQUESTS,
    AccountedConnection,
    AccountedOwner,
)
from sparrowmq.transport.address import pack_host
from sparrowmq.transport.correlation import InFlight, OpaqueCounter, PendingCalls
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


class ConnectionOwner(AccountedOwner, Protocol):
    """The server's side of a connection."""

    handler: ServerHandler
    frame_bytes_max: int
    watch: LoopWatch
    requests: RequestWatch


class Connection(AccountedConnection):
    """A client's connection as the server sees it.

    `peer` is its numeric address, `born_host` the same packed as records store it (8 or 20 bytes), `id` a
    number that this server never reuses, `context` the handler's state, `debt` its debt in the server's
    memory account, `began` the start time (`time.monotonic`) of the current chunk. `authenticated` is false
    until a handler that requires authentication has identified the client.
    """

    __slots__ = (
        "_awaited",
        "_calls",
        "_charged",
        "_copies",
        "_corked",
        "_flush_planned",
        "_handler",
        "_in_flight",
        "_in_turn",
        "_mapped",
        "_opaques",
        "_out",
        "_put_off_at",
        "_reader",
        "_served",
        "_turns",
        "_waiting",
        "_waiting_bytes",
        "_watch",
        "began",
        "born_host",
        "context",
        "id",
        "used",
    )

    owner: ConnectionOwner

    def __init__(self, owner: ConnectionOwner, number: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(owner, loop)
        self.id = number
        self.born_host = bytes(8)
        self.context: Any = None
        self._handler = owner.handler
        self._watch = owner.watch
        self._turns = turns_of(loop)
        self.used = self.began = self._put_off_at = 0.0
        self._reader = FrameReader(owner.frame_bytes_max)
        self._out: list[bytes | memoryview] = []
        self._mapped = 0
        self._copies = False
        self._waiting: list[RawFrame] = []
        self._waiting_bytes = 0
        self._corked = False
        self._flush_planned = False
        self._in_turn = False
        self._charged = 0
        self._awaited = 0
        self._calls: PendingCalls | None = None
        self._in_flight = InFlight(CALLS_IN_FLIGHT_MAX)
        self._opaques = OpaqueCounter()
        self._served = False

    def __repr__(self) -> str:
        state = "closed" if self.closed else "paused" if self._stops else "open"
        return f"<Connection {self.id} from {self.address} {state}>"

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
        return self.unsent_bytes > self.owner.write_high_water or self._transport.is_closing()

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
            self._calls = PendingCalls(self.address, self._in_flight, self.loop)
        command.opaque = self._opaques.take()
        command.flag = 0
        future = self._calls.start(command.opaque, timeout, command.code)
        if self.closed:
            self._calls.fail("it was already closed")
        else:
            self._awaited += 1
            self.write(encode(command))
        return future

    def refuse(self, error: FrameError) -> None:
        """Close because of invalid bytes, and log it at most once a minute."""
        self.owner.occasional.write(logging.WARNING, "garbage", f"closing {self.address}: {error}")
        self.close(str(error))

    # Called by the server

    def replace_transport(self, transport: asyncio.Transport) -> None:
        """Continue over another transport: TLS has started on this connection."""
        super().replace_transport(transport)
        self._copies = True

    def gives_way(self) -> bool:
        """Whether a new connection may replace it: it never sent a request, or was idle for long."""
        return not self._served or self._idle_rounds >= GIVES_WAY_ROUNDS

    def idle_round(self, rounds_max: int) -> None:
        """Count a sweep without traffic, and close after `rounds_max` of them in a row."""
        if self._idle_sweep() > rounds_max:
            self.close("idle")

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected: admit it and notify the handler, or refuse it."""
        super().connection_made(transport)
        if self._admitted:
            self.born_host = pack_host(*self.peer)
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
                    self.owner.requests.chunk(self, frames, took, 0.0)

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
            self.owner.occasional.write(logging.ERROR, type(error).__name__, text, error=error)
            self.close("an error while serving it")
        finally:
            self._corked = False
            if self._out:
                self._flush()
        if self._waiting:
            self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        self._stop(REQUESTS)
        if not self._stops & ANSWERS and not self._in_turn:
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
            self.owner.requests.chunk(self, frames, took, queued)
        if not self._waiting:
            self._go(REQUESTS)

    def resume_writing(self) -> None:
        """The client has read its answers: resume reading."""
        super().resume_writing()
        if self._waiting and not self._corked:
            self._wait_for_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket was closed: fail calls to the client, notify the handler."""
        super().connection_lost(exc)
        self._out.clear()
        self._mapped = 0
        self._waiting.clear()
        if self._calls is not None:
            self._calls.fail("the client disconnected" if exc is None else str(exc))
        if self._admitted:
            watch, began = self._watch, monotonic()
            watch.frames, watch.running = None, self
            try:
                self.owner.forget(self)
                self._handler.connection_lost(self)
            finally:
                watch.running = None
                watch.frames = _NO_FRAMES
                if monotonic() - began >= PART_SECONDS:
                    watch.ended(self, None, began)

    # Inside

    def _plan_flush(self) -> None:
        self._flush_planned = True
        self.loop.call_soon(self._planned_flush)

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
        if self._stops & ANSWERS:
            self._close_if_unread()

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
