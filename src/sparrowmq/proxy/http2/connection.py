"""A client's HTTP/2 connection: its socket, its turns, and its memory.

The work of one turn of the loop is bounded: a connection with many frames or calls continues in later turns
(`transport.turns`). The memory account of the listener (`transport.account`) counts its incomplete and
waiting requests, open calls, and answers that the client does not read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, Final, Protocol

from sparrowmq.proxy.http2 import frames, grpc
from sparrowmq.proxy.http2.calls import Call
from sparrowmq.proxy.http2.frames import FrameCutter, Http2Error
from sparrowmq.proxy.http2.session import REQUEST_ROUNDS, Http2Session
from sparrowmq.transport.accounted_connection import (
    ANSWERS,
    GIVES_WAY_ROUNDS,
    REQUESTS,
    AccountedConnection,
    AccountedOwner,
)
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
FLUSH_BYTES: Final = 256 * 1024
"""Answers of this many bytes are sent at once, so that a client that does not read is noticed."""


class Http2Owner(AccountedOwner, Protocol):
    """The listener's side of a connection."""

    watch: LoopWatch
    serve: Callable[[Call], Coroutine[Any, Any, None]]
    serve_now: Callable[[Call], bool] | None
    calls: int
    calls_max: int
    calls_of: Counter[str]
    strangers: bool


class Http2Connection(AccountedConnection):
    """A client's connection that speaks HTTP/2."""

    owner: Http2Owner

    def __init__(self, owner: Http2Owner, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(owner, loop)
        self.source = ""
        """The source that limits for one address count it for."""
        self.used = 0.0
        if owner.strangers:
            self.debt.distrust()
        self.session = Http2Session(self)
        self._turns = turns_of(loop)
        self.cutter = FrameCutter()
        self._out: list[bytes] = []
        self._flush_planned = False
        self._working = False
        self._in_turn = False

    def __repr__(self) -> str:
        return f"<Http2Connection from {self.address}, {len(self.session.calls)} calls>"

    @property
    def is_behind(self) -> bool:
        """Whether the client does not read what was sent: no more is sent now."""
        return bool(self._stops & ANSWERS)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected: admit it, or refuse it."""
        super().connection_made(transport)
        self.source = source_of(self.peer[0])

    def data_received(self, data: bytes) -> None:
        """Handle received bytes, unless earlier ones wait for their turn."""
        if self.closed:
            return
        self.active = True
        self.cutter.feed(data)
        if self._in_turn:
            self._note_held()
        elif self._turns.spent >= self._turns.seconds:
            self._note_held()
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
                self._go(REQUESTS)

    def resume_writing(self) -> None:
        """The client has read: continue."""
        super().resume_writing()
        self.session.wake_blocked()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket was closed: end the calls."""
        self.closed = True
        for call in list(self.session.calls.values()):
            self.session.cancel(call)
        self._out.clear()
        super().connection_lost(exc)
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
            self._note_held()
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
        if self._stops & ANSWERS:
            self._close_if_unread()

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

    # Called by the listener

    def gives_way(self) -> bool:
        """Whether a new connection may replace it: it has no call, and never had one or was idle for long."""
        return not self.session.calls and (not self.session.last or self._idle_rounds >= GIVES_WAY_ROUNDS)

    def idle_round(self, rounds_max: int) -> None:
        """Count a sweep without traffic; send a PING, and close after `rounds_max`."""
        for call in list(self.session.calls.values()):
            if not call.begun:
                call.age += 1
                if call.age > REQUEST_ROUNDS:
                    call.finish(grpc.DEADLINE_EXCEEDED, "the request was not completed in time")
        rounds = self._idle_sweep()
        if rounds > rounds_max:
            for call in list(self.session.calls.values()):
                self.session.cancel(call)
            self.leave("idle")
        elif rounds == PING_ROUNDS and self.session.greeted and self.session.calls and not self.closed:
            self._transport.write(frames.frame(frames.PING, 0, 0, b"sparrow?"))

    def change_debt(self, delta: int) -> None:
        """Add to the bytes that are kept for this connection; a negative number removes some."""
        if self.closed and not self.debt.total:
            return
        self.debt.change(self, delta)
        if delta > 0 and self._account.total > self._account.hard_limit:
            self._account.relieve()

    def _note_held(self) -> None:
        held = self.session.held + self.cutter.buffered
        if held != self.debt.partial and not self.closed:
            self._note_partial(held)

    # Inside

    def _wait_for_turn(self) -> None:
        self._stop(REQUESTS)
        if not self._in_turn:
            self._in_turn = True
            self._turns.wait(self)
