"""The state of one HTTP/2 connection: its calls, windows and header blocks. No socket.

It passes what it writes and what it counts to the connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.core.outside import one_line
from sparrowmq.proxy.http2 import frames, grpc
from sparrowmq.proxy.http2.calls import REQUEST_BYTES_MAX, STREAM_WINDOW, Call
from sparrowmq.proxy.http2.frames import Frame, Http2Error
from sparrowmq.proxy.http2.headers import HeaderDecoder
from sparrowmq.transport.places import is_own_machine

if TYPE_CHECKING:
    from sparrowmq.proxy.http2.connection import Http2Connection

CALLS_SHARE: Final = 2
"""One address may have a half of the calls, except the local machine."""
STREAMS_MAX: Final = 1_000
"""Calls at one time of one connection."""
METADATA_BYTES_MAX: Final = 16 * 1024
BLOCK_BYTES_MAX: Final = 64 * 1024
"""A larger header block closes the connection and is not decoded."""
HEADERS_BYTES_MAX: Final = 2 * METADATA_BYTES_MAX
"""Larger headers close the connection, because decoding them takes long."""
CONNECTION_WINDOW: Final = 4 * 1024 * 1024
"""How much a client may send on all streams before it is read here."""
REQUEST_ROUNDS: Final = 3
"""Idle sweeps that an incomplete request may take."""
_HTTP1: Final = (b"GET", b"POS", b"HEA", b"PUT", b"DEL", b"OPT", b"CON", b"PAT", b"TRA")
_HTTP1_ANSWER: Final = (
    b"HTTP/1.1 505 HTTP Version Not Supported\r\nContent-Type: text/plain\r\nConnection: close\r\n"
    b"Content-Length: 34\r\n\r\nThis port takes gRPC over HTTP/2.\n"
)


class Http2Session:
    """The calls of one client connection, and its windows."""

    def __init__(self, wire: Http2Connection) -> None:
        self.wire = wire
        self.calls: dict[int, Call] = {}
        self.first_window = frames.WINDOW_USUAL
        """The initial window of a new stream."""
        self.begun = 0
        """Calls begun in this part of a turn."""
        self.partial = 0
        """Bytes of incomplete messages."""
        self.greeted = False
        self.leaving = False
        self.last = 0
        """The last stream that the client opened."""
        self._decoder = HeaderDecoder(HEADERS_BYTES_MAX)
        self._block: tuple[int, int, bytes] | None = None
        """Stream, flags and bytes of a header block that continues in the next frame."""
        self._window = frames.WINDOW_USUAL
        self._frame_max = frames.FRAME_BYTES_USUAL
        self._ungranted = 0
        self._blocked: dict[Call, None] = {}
        """Calls that wait, in order, until the connection's window has room."""

    @property
    def held(self) -> int:
        """Bytes of incomplete messages, and of an incomplete header block."""
        return self.partial + (len(self._block[2]) if self._block is not None else 0)

    def greet(self) -> bool:
        """Whether the client's preface has arrived; answers it."""
        size = len(frames.PREFACE)
        if self.wire.cutter.buffered < size:
            start = self.wire.cutter.take(self.wire.cutter.buffered)
            self.wire.cutter.feed(start)
            self._check_start(start)
            return False
        start = self.wire.cutter.take(size)
        self._check_start(start)
        self.greeted = True
        told = {
            frames.CONCURRENT_STREAMS: STREAMS_MAX,
            frames.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
            frames.MAX_FRAME_SIZE: frames.FRAME_BYTES_MAX,
            frames.MAX_HEADER_LIST_SIZE: METADATA_BYTES_MAX,
        }
        more = CONNECTION_WINDOW - frames.WINDOW_USUAL
        self.wire.write(frames.settings_frame(told) + frames.window_frame(0, more))
        return True

    def _check_start(self, start: bytes) -> None:
        if frames.PREFACE.startswith(start):
            return
        if start.startswith(_HTTP1):
            self.wire.write(_HTTP1_ANSWER)
        raise Http2Error(frames.PROTOCOL_ERROR, "it does not speak HTTP/2")

    def take(self, found: Frame) -> None:
        """Handle a frame. Raises `Http2Error` for what breaks the protocol."""
        if self._block is not None and found.kind != frames.CONTINUATION:
            raise Http2Error(frames.PROTOCOL_ERROR, "another frame inside a header block")
        handler = _HANDLERS.get(found.kind)
        if handler is not None:  # frames of unknown kinds are ignored
            handler(self, found)

    def _headers(self, found: Frame) -> None:
        if not found.stream % 2:
            raise Http2Error(frames.PROTOCOL_ERROR, f"headers on stream {found.stream}")
        block = frames.unpadded(found.flags, found.payload)
        if found.flags & frames.WITH_PRIORITY:
            block = block[5:]
        self._block = (found.stream, found.flags, block)
        if found.flags & frames.END_HEADERS:
            self._block_complete()

    def _continuation(self, found: Frame) -> None:
        if self._block is None or self._block[0] != found.stream:
            raise Http2Error(frames.PROTOCOL_ERROR, "a CONTINUATION without headers before it")
        stream, flags, block = self._block
        if len(block) + len(found.payload) > BLOCK_BYTES_MAX or not found.payload:
            raise Http2Error(frames.ENHANCE_YOUR_CALM, f"headers of more than {BLOCK_BYTES_MAX} bytes")
        self._block = (stream, flags, block + found.payload)
        if found.flags & frames.END_HEADERS:
            self._block_complete()

    def _block_complete(self) -> None:
        assert self._block is not None
        stream, flags, block = self._block
        self._block = None
        headers, size = self._decoder.decode(block)
        call = self.calls.get(stream)
        if call is not None:  # trailers of the request
            if flags & frames.END_STREAM:
                self._half_close(call)
        elif stream > self.last:
            self.last = stream
            self._new_call(stream, headers, size, ends=bool(flags & frames.END_STREAM))

    def _new_call(self, stream: int, headers: dict[str, str], size: int, *, ends: bool) -> None:
        if self.leaving or len(self.calls) >= STREAMS_MAX:
            self.wire.write(frames.reset_frame(stream, frames.REFUSED_STREAM))
            return
        call = Call(self, stream, headers)
        self.calls[stream] = call
        owner = self.wire.owner
        owner.calls += 1
        owner.calls_of[self.wire.source] += 1
        if ends:
            call.half_close()
        refused = self._refusal(headers, size)
        if isinstance(refused, bytes):
            call.end_with(refused)
            return
        try:
            if refused is not None:
                raise refused
            seconds = grpc.timeout_seconds(headers.get("grpc-timeout", ""))
        except grpc.GrpcError as error:
            call.finish(error.code, str(error))
            return
        if seconds is not None:
            call.ends_at = self.wire.loop.time() + seconds
            call.timer = self.wire.loop.call_later(seconds, self._too_late, call)
        if ends:
            self._begin(call)

    def _refusal(self, headers: dict[str, str], size: int) -> grpc.GrpcError | bytes | None:
        if headers.get(":method") != "POST":
            return grpc.plain_status(405, [("allow", "POST")])
        if not headers.get("content-type", "").startswith(grpc.CONTENT_TYPE):
            return grpc.plain_status(415)
        if size > METADATA_BYTES_MAX:
            return grpc.GrpcError(
                grpc.RESOURCE_EXHAUSTED, f"the metadata have {size} bytes, the limit is {METADATA_BYTES_MAX}"
            )
        owner, host = self.wire.owner, self.wire.peer[0]
        if owner.calls > owner.calls_max:
            text = f"{owner.calls_max} calls run, which is the limit (callsMax)"
            return grpc.GrpcError(grpc.RESOURCE_EXHAUSTED, text)
        share = owner.calls_max // CALLS_SHARE
        if owner.calls_of[self.wire.source] > share and not is_own_machine(host):
            text = f"{share} calls of {host} run, which is the limit for one address (half of callsMax)"
            return grpc.GrpcError(grpc.RESOURCE_EXHAUSTED, text)
        return None

    def _data(self, found: Frame) -> None:
        size = len(found.payload)
        self._ungranted += size
        if self._ungranted > CONNECTION_WINDOW:
            raise Http2Error(frames.FLOW_CONTROL_ERROR, "more data than the window allows")
        if self._ungranted >= CONNECTION_WINDOW // 2:
            self.wire.write(frames.window_frame(0, self._ungranted))
            self._ungranted = 0
        call = self.calls.get(found.stream)
        if call is None:
            if found.stream > self.last:
                raise Http2Error(frames.PROTOCOL_ERROR, f"data on stream {found.stream}, which is not open")
            return  # it has ended, and the client did not know yet
        if call.half_closed:
            self._reset(call, frames.STREAM_CLOSED)
            return
        call.ungranted += size
        if call.ungranted > STREAM_WINDOW:
            self._reset(call, frames.FLOW_CONTROL_ERROR)
            return
        ends = found.flags & frames.END_STREAM
        if ends:
            call.half_close()
        try:
            self._take_data(call, frames.unpadded(found.flags, found.payload))
        except grpc.GrpcError as error:
            self._drop_partial(call)
            self._stop_task(call)
            call.finish(error.code, str(error))
            return
        if ends:
            if not call.begun:
                self._begin(call)
        elif call.wants_more:
            self.grant(call)

    def _take_data(self, call: Call, data: bytes) -> None:
        """Take a part of a request; most often it is one whole message. Raises `GrpcError`."""
        cutter = call.cutter
        if cutter is None:
            message = grpc.whole_message(data)
            if message is not None:
                self._arrived(call, message)
                return
            cutter = call.cutter = grpc.MessageCutter(REQUEST_BYTES_MAX)
        left = REQUEST_BYTES_MAX
        for compressed, message in cutter.feed(data):
            plain = grpc.unpacked(compressed, message, call.metadata.get("grpc-encoding", ""), left)
            left -= len(plain) if compressed else 0
            self._arrived(call, plain)
            if call.ended:
                return
        size = len(cutter)
        self.partial += size - call.partial
        call.partial = size
        if not size:
            call.cutter = None

    def _arrived(self, call: Call, message: bytes) -> None:
        call.arrived(message)
        if not call.begun:
            self._begin(call)

    def _drop_partial(self, call: Call) -> None:
        """Release the part of a message that came without its end."""
        self.partial -= call.partial
        call.partial = 0
        call.cutter = None

    def _half_close(self, call: Call) -> None:
        call.half_close()
        if not call.begun:
            self._begin(call)

    def grant(self, call: Call) -> None:
        """Let the client send more on a stream whose data was read."""
        if call.ungranted >= STREAM_WINDOW // 2 and not call.ended:
            self.wire.write(frames.window_frame(call.number, call.ungranted))
            call.ungranted = 0

    def _rst(self, found: Frame) -> None:
        frames.number_of(found.payload, "RST_STREAM")
        call = self.calls.get(found.stream)
        if call is not None:
            self.cancel(call)
        elif found.stream > self.last:
            raise Http2Error(frames.PROTOCOL_ERROR, f"stream {found.stream} is reset, but was never open")

    def _settings(self, found: Frame) -> None:
        if found.flags & frames.ACK:
            return
        window = self.first_window
        for number, value in frames.parse_settings(found.payload):
            if number == frames.INITIAL_WINDOW_SIZE:
                if value > frames.WINDOW_MAX:
                    raise Http2Error(frames.FLOW_CONTROL_ERROR, f"an initial window of {value}")
                window = value
            elif number == frames.MAX_FRAME_SIZE:
                if not frames.FRAME_BYTES_USUAL <= value < 2**24:
                    raise Http2Error(frames.PROTOCOL_ERROR, f"frames of {value} bytes")
                self._frame_max = min(value, frames.FRAME_BYTES_MAX)
        if window != self.first_window:
            self._change_windows(window - self.first_window)
            self.first_window = window
        self.wire.write(frames.frame(frames.SETTINGS, frames.ACK, 0))

    def _change_windows(self, delta: int) -> None:
        for call in self.calls.values():
            call.window += delta
            if call.window > frames.WINDOW_MAX:
                raise Http2Error(frames.FLOW_CONTROL_ERROR, "a window is larger than 2^31-1")
            self._wake(call)

    def _ping(self, found: Frame) -> None:
        if len(found.payload) != 8:
            raise Http2Error(frames.FRAME_SIZE_ERROR, f"PING of {len(found.payload)} bytes")
        if not found.flags & frames.ACK:
            self.wire.write(frames.frame(frames.PING, frames.ACK, 0, found.payload))

    def _goaway(self, found: Frame) -> None:
        """The client starts no more calls; it closes when its calls are done."""

    def _window_update(self, found: Frame) -> None:
        more = frames.number_of(found.payload, "WINDOW_UPDATE")
        if not found.stream:
            self._window += more
            if not more or self._window > frames.WINDOW_MAX:
                raise Http2Error(frames.FLOW_CONTROL_ERROR, f"the connection's window grows by {more}")
            self.wake_blocked()
            return
        call = self.calls.get(found.stream)
        if call is None:
            return
        call.window += more
        if not more or call.window > frames.WINDOW_MAX:
            self._reset(call, frames.FLOW_CONTROL_ERROR)
        else:
            self._wake(call)

    def _push(self, found: Frame) -> None:
        raise Http2Error(frames.PROTOCOL_ERROR, "clients do not push")

    # Calls

    def _begin(self, call: Call) -> None:
        call.begun = True
        owner = self.wire.owner
        if owner.serve_now is not None and owner.serve_now(call):
            return
        self.begun += 1
        call.task = self.wire.loop.create_task(
            self._serve(call, owner.serve), name=call.method[:40] if call.method.isalnum() else "call"
        )

    def respond_later(self, call: Call, message: bytes) -> None:
        """Respond to a call that has no task, as soon as the client has room for it."""
        work = self._serve(call, partial(Call.respond, message=message))
        call.task = self.wire.loop.create_task(work, name="respond")

    async def _serve(self, call: Call, serve: Callable[[Call], Coroutine[Any, Any, None]]) -> None:
        try:
            await serve(call)
            call.finish(grpc.OK)
        except grpc.GrpcError as error:
            call.finish(error.code, str(error))
        except asyncio.CancelledError:
            if call.timed_out and not self.wire.closed:
                call.finish(grpc.DEADLINE_EXCEEDED, "the deadline is over")
            raise
        except Exception as error:
            what = one_line(call.method)
            self.wire.owner.occasional.write(logging.ERROR, "call", f"{what} failed: {error!r}", error=error)
            call.finish(grpc.INTERNAL, f"{what} failed with {type(error).__name__}")
        finally:
            self.forget_call(call)

    def _too_late(self, call: Call) -> None:
        call.timed_out = True
        if call.task is not None:
            call.task.cancel()
        elif call.begun:
            call.finish(grpc.DEADLINE_EXCEEDED, "the deadline is over")
        else:
            call.finish(grpc.DEADLINE_EXCEEDED, "the request was not complete before the deadline")

    def cancel(self, call: Call) -> None:
        """The client has given up a call."""
        self.forget_call(call)
        self._stop_task(call)

    def _reset(self, call: Call, code: int) -> None:
        self.wire.write(frames.reset_frame(call.number, code))
        self.cancel(call)

    @staticmethod
    def _stop_task(call: Call) -> None:
        if call.task is not None and call.task is not asyncio.current_task():
            call.task.cancel()

    def forget_call(self, call: Call) -> None:
        """A call has ended. Idempotent."""
        if self.calls.pop(call.number, None) is None:
            return
        owner, source = self.wire.owner, self.wire.source
        owner.calls -= 1
        owner.calls_of[source] -= 1
        if not owner.calls_of[source]:
            del owner.calls_of[source]
        self._drop_partial(call)
        call.drop()
        if self.leaving and not self.calls:
            self.wire.close("its calls are done")

    # Frames out

    def fits(self, call: Call, size: int) -> bool:
        """Whether this many bytes of data can be sent at once, in one frame."""
        return (
            size <= call.window
            and size <= self._window
            and size <= self._frame_max
            and not self.wire.is_behind
            and not self.wire.closed
        )

    def take_room(self, call: Call, most: int) -> int:
        """How many of `most` bytes can be sent as one frame now; they are taken from the windows."""
        if self.wire.is_behind:
            return 0
        size = max(0, min(most, call.window, self._window, self._frame_max))
        call.window -= size
        self._window -= size
        return size

    async def wait_for_room(self, call: Call) -> None:
        """Wait until more can be sent for a call."""
        if call.ended or self.wire.closed:
            raise asyncio.CancelledError
        call.room = self.wire.loop.create_future()
        if call.window > 0:
            self._blocked[call] = None
        try:
            await call.room
        finally:
            call.room = None
            self._blocked.pop(call, None)
            if self._blocked:
                self.wire.loop.call_soon(self.wake_blocked)

    def _wake(self, call: Call) -> None:
        if call.room is not None and call.window > 0 and not call.room.done():
            call.room.set_result(None)

    def wake_blocked(self) -> None:
        """Let the first blocked call send; it then lets the next one send."""
        while self._blocked and self._window > 0 and not self.wire.is_behind:
            call = next(iter(self._blocked))
            del self._blocked[call]
            if call.room is not None and not call.room.done():
                call.room.set_result(None)
                return


_HANDLERS: Final[dict[int, Callable[[Http2Session, Frame], None]]] = {
    frames.DATA: Http2Session._data,
    frames.HEADERS: Http2Session._headers,
    frames.RST_STREAM: Http2Session._rst,
    frames.SETTINGS: Http2Session._settings,
    frames.PUSH_PROMISE: Http2Session._push,
    frames.PING: Http2Session._ping,
    frames.GOAWAY: Http2Session._goaway,
    frames.WINDOW_UPDATE: Http2Session._window_update,
    frames.CONTINUATION: Http2Session._continuation,
}
