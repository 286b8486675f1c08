"""A client's HTTP/2 connection: its socket, its turns, and its memory.

The work of one turn of the loop is bounded: a connection with many frames or calls continues in later turns
(`transport.turns`). The memory account of the listener (`transport.account`) counts its incomplete and
waiting requests, open calls, and answers that the client does not read.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, Final, Protocol, cast

from sparrowmq.proxy.http2 import frames, grpc
from sparrowmq.proxy.http2.calls import Call
from sparrowmq.proxy.http2.frames import FrameCutter, Http2Error
from sparrowmq.proxy.http2.session import REQUEST_ROUNDS, Http2Session
from sparrowmq.transport.account import SMALL_DEBT, Debt, MemoryAccount
from sparrowmq.transport.address import format_address, peer_of
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.places import source_of
from sparrowmq.transport.stall_watch import LoopWatch
from sparrowmq.transport.turns import PART_SECONDS, turns_of

PART_OF_TURN_SECONDS: Final = 0.002
"""How long a connection may read frames without a break."""
FRAMES_BETWEEN_LOOKS: Final = 16
"""The clock is read after this many small frames, and after each larger one."""
SMALL_FRAME_BYTES: Final = 2 * 1024
CALL_SECONDS: Final = 0.000_2
"""Estimated time of a started call, which runs later in the same turn of the loop."""
CALLS_OF_TURN: Final = 32
PING_ROUNDS: Final = 4
"""A client is sent a PING after this many idle sweeps without traffic."""
GIVES_WAY_ROUNDS: Final = 4
CLOSE_SECONDS_MAX: Final = 5.0
FLUSH_BYTES: Final = 256 * 1024
"""Answers of this many bytes are sent at once, so that a client that does not read is noticed."""
_ANSWERS, _TURN, _ROOM = 1, 2, 4
"""Reasons to pause reading: the client does not read, its part of the turn is used up, the
account is full.
"""

logger = logging.getLogger("sparrowmq.proxy")


class Http2Owner(Protocol):
    """The listener's side of a connection."""

    account: MemoryAccount
    occasional: OccasionalLog
    watch: LoopWatch
    write_high_water: int
    unsent_bytes_max: int
    serve: Callable[[Call], Coroutine[Any, Any, None]]
    serve_now: Callable[[Call], bool] | None
    calls: int
    calls_max: int
    calls_of: Counter[str]
    strangers: bool

    def admit(self, conn: Http2Connection) -> str | None:
        """Register the connection; the text is the reason to close it immediately."""

    def forget(self, conn: Http2Connection) -> None:
        """The connection was lost."""


class Http2Connection(asyncio.Protocol):
    """A client's connection; `peer` is its numeric address."""

    _transport: asyncio.Transport

    def __init__(self, owner: Http2Owner, loop: asyncio.AbstractEventLoop) -> None:
        self.peer = ("0.0.0.0", 0)
        self.address = format_address(*self.peer)
        """The client's `host:port`."""
        self.source = ""
        """The source that limits for one address count it for."""
        self.closed = False
        self.active = True
        self.used = 0.0
        self.debt = Debt(owner.account)
        if owner.strangers:
            self.debt.distrust()
        self.owner = owner
        self._account = owner.account
        self.loop = loop
        self.session = Http2Session(self)
        self._turns = turns_of(loop)
        self.cutter = FrameCutter()
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flush_planned = False
        self._working = False
        self._stops = 0
        self._in_turn = False
        self._admitted = False
        self._idle_rounds = 0
        self._unsent_seen = 0
        self._close_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Http2Connection from {self.address}, {len(self.session.calls)} calls>"

    @property
    def is_behind(self) -> bool:
        """Whether the client does not read what was sent: no more is sent now."""
        return bool(self._stops & _ANSWERS)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected: admit or refuse it."""
        self._transport = cast("asyncio.Transport", transport)
        self.peer = peer_of(transport.get_extra_info("peername"))
        self.address = format_address(*self.peer)
        self.source = source_of(self.peer[0])
        refusal = self.owner.admit(self)
        if refusal is not None:
            self.owner.occasional.write(logging.WARNING, "refused", f"refusing {self.address}: {refusal}")
            self.abort()
            return
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.set_write_buffer_limits(high=self.owner.write_high_water)
        self._admitted = True

    def data_received(self, data: bytes) -> None:
        """Handle received bytes, unless earlier ones wait for their turn."""
        if self.closed:
            return
        self.active = True
        self.cutter.feed(data)
        if self._in_turn:
            self._note_partial()
        elif self._turns.spent >= self._turns.seconds:
            self._note_partial()
            self._wait_for_turn()
        else:
            began = monotonic()
            self._work(began)
            took = monotonic() - began + self.session.begun * CALL_SECONDS
            self._turns.spent += took
            self._turns.note(self, took)

    def go_on(self) -> None:
        """Continue with the bytes that wait for their turn."""
        self._in_turn = False
        if not self.closed:
            self._work(monotonic())
            self._turns.spent += self.session.begun * CALL_SECONDS
            if not self._in_turn:
                self._go(_TURN)

    def eof_received(self) -> None:
        """The client has stopped sending: running calls are answered before the socket closes."""
        self._flush()

    def pause_writing(self) -> None:
        """The client does not read: stop reading from it."""
        self._unsent_seen = self._transport.get_write_buffer_size()
        self._stop(_ANSWERS)

    def resume_writing(self) -> None:
        """The client has read: continue."""
        self.active = True
        self._go(_ANSWERS)
        self.session.wake_blocked()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket was closed: end the calls."""
        self.closed = True
        if self._close_timer is not None:
            self._close_timer.cancel()
        for call in list(self.session.calls.values()):
            self.session.cancel(call)
        self._out.clear()
        self._out_bytes = 0
        self.debt.write_off(self)
        if self._admitted:
            self.owner.forget(self)

    # Frames in

    def _work(self, began: float) -> None:
        """Handle received frames, as many as one part of a turn allows."""
        watch = self.owner.watch
        watch.running, self._working, self.session.begun = self, True, 0
        try:
            if self.session.greeted or self.session.greet():
                self._take_frames(began)
        except Http2Error as error:
            self._refuse(error)
        finally:
            self._working = False
            self.cutter.trim()
            self._flush()
            self._note_partial()
            watch.running = None
            if monotonic() - began >= PART_SECONDS:
                watch.ended(self, [], began)

    def _take_frames(self, began: float) -> None:
        count = 0
        while not self.closed and (found := self.cutter.next()) is not None:
            self.session.take(found)
            count += 1
            looks = count % FRAMES_BETWEEN_LOOKS == 0 or len(found.payload) > SMALL_FRAME_BYTES
            if self.session.begun >= CALLS_OF_TURN or (looks and monotonic() - began > PART_OF_TURN_SECONDS):
                self._wait_for_turn()
                return

    def write(self, data: bytes) -> None:
        """Queue bytes: they are sent at the end of this part of a turn, or in the loop's next turn."""
        if self.closed:
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > FLUSH_BYTES:
            self._flush()
        elif not self._working and not self._flush_planned:
            self._flush_planned = True
            self.loop.call_soon(self._planned_flush)

    def _planned_flush(self) -> None:
        self._flush_planned = False
        self._flush()

    def _flush(self) -> None:
        out = self._out
        if not out or self.closed:
            return
        self.active = True
        size, data = self._out_bytes, b"".join(out) if len(out) > 1 else out[0]
        out.clear()
        self._out_bytes = 0
        self._transport.write(data)
        self.debt.wrote(self, size, size)
        if self._stops & _ANSWERS:
            unsent = self._transport.get_write_buffer_size()
            if unsent > self.owner.unsent_bytes_max:
                self.owner.occasional.write(
                    logging.WARNING,
                    "unread",
                    f"closing {self.address}: it does not read; {unsent} bytes wait for it, and the limit is "
                    f"{self.owner.unsent_bytes_max}",
                )
                self.abort()

    # Closing

    def leave(self, why: str) -> None:
        """Accept no more calls; close when the running ones are done."""
        if not self.session.leaving and not self.closed:
            self.session.leaving = True
            if self.session.greeted:
                self.write(frames.goaway_frame(self.session.last, frames.NO_ERROR, why))
            if not self.session.calls:
                self.close(why)

    def _refuse(self, error: Http2Error) -> None:
        self.owner.occasional.write(logging.WARNING, "http2", f"closing {self.address}: {error}")
        if self.session.greeted:
            self.write(frames.goaway_frame(self.session.last, error.code, str(error)))
        self.close(str(error))

    def close(self, reason: str) -> None:
        """Send pending bytes, then close. Idempotent."""
        if self.closed:
            return
        self._flush()
        self.closed = True
        logger.debug("closing %r: %s", self, reason)
        self._transport.close()
        self._close_timer = self.loop.call_later(CLOSE_SECONDS_MAX, self._transport.abort)

    def abort(self) -> None:
        """Close immediately; unsent bytes are lost."""
        self.closed = True
        self._transport.abort()

    # Called by the listener and TLS

    def replace_transport(self, transport: asyncio.Transport) -> None:
        """Continue over another transport: TLS has started on this connection."""
        self._transport = transport

    def gives_way(self) -> bool:
        """Whether a new connection may replace it: it has no call, and never had one or was idle for long."""
        return not self.session.calls and (not self.session.last or self._idle_rounds >= GIVES_WAY_ROUNDS)

    def heard(self) -> None:
        """The client sent something that is not a request: it is not idle."""
        self.active = True

    def idle_round(self, rounds_max: int) -> None:
        """Count a sweep without traffic; send a PING, and close after `rounds_max`."""
        for call in list(self.session.calls.values()):
            if not call.begun:
                call.age += 1
                if call.age > REQUEST_ROUNDS:
                    call.finish(grpc.DEADLINE_EXCEEDED, "the request was not completed in time")
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
            for call in list(self.session.calls.values()):
                self.session.cancel(call)
            self.leave("idle")
        elif (
            self._idle_rounds == PING_ROUNDS
            and self.session.greeted
            and self.session.calls
            and not self.closed
        ):
            self._transport.write(frames.frame(frames.PING, 0, 0, b"sparrow?"))

    # Called by the account

    @property
    def is_short(self) -> bool:
        """Whether the memory account is full and this connection uses some of it."""
        account = self._account
        if account.total <= account.limit or not account.full:
            return False
        return self.debt.total + self._out_bytes > SMALL_DEBT or account.total > account.hard_limit

    def change_debt(self, delta: int) -> None:
        """Add to the bytes that are kept for this connection; a negative number removes some."""
        if self.closed and not self.debt.total:
            return
        self.debt.change(self, delta)
        if delta > 0 and self._account.total > self._account.hard_limit:
            self._account.relieve()

    def _note_partial(self) -> None:
        held = self.session.held + self.cutter.buffered
        if held == self.debt.partial or self.closed:
            return
        account, shorter = self._account, held < self.debt.partial
        self.debt.set_partial(self, held)
        if account.total > account.limit or account.strangers > account.stranger_limit:
            account.brought(self)
        if shorter and account.reader is self:
            account.completed(self)

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
        self.owner.occasional.write(logging.WARNING, "memory", f"closing {self.address}: {why}")
        self.abort()

    # Inside

    def _wait_for_turn(self) -> None:
        self._stop(_TURN)
        if not self._in_turn:
            self._in_turn = True
            self._turns.wait(self)

    def _stop(self, why: int) -> None:
        if not self._stops and not self.closed:
            self._transport.pause_reading()
        self._stops |= why

    def _go(self, why: int) -> None:
        if self._stops and not self._stops & ~why and not self.closed:
            self._transport.resume_reading()
        self._stops &= ~why
