"""One call of a client: its request, and the response on its stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Final

from sparrowmq.proxy.http2 import frames, grpc

if TYPE_CHECKING:
    from sparrowmq.proxy.http2.session import Http2Session

REQUESTS_MAX: Final = 256
"""Messages of one streamed request that may wait to be read."""
REQUEST_BYTES_MAX: Final = 6 * 1024 * 1024
"""The largest message that a client may send: a body of 4 MiB with everything that may surround it."""
STREAM_WINDOW: Final = 1024 * 1024
"""How much a client may send on one stream before it is read."""
CALL_BYTES: Final = 4 * 1024
"""The size of an open call in the memory account, without its messages."""
_ENDS: Final = frames.END_HEADERS | frames.END_STREAM


class Call:
    """A call: `path` (`/service/method`), the metadata by name, the client's address (`host:port`)."""

    __slots__ = (
        "__weakref__",
        "_arrival",
        "_ended",
        "_half_closed",
        "_headers_sent",
        "_held",
        "_requests",
        "_session",
        "_wire",
        "address",
        "age",
        "begun",
        "cutter",
        "ends_at",
        "metadata",
        "number",
        "partial",
        "path",
        "room",
        "task",
        "timed_out",
        "timer",
        "ungranted",
        "window",
    )

    def __init__(self, session: Http2Session, number: int, headers: Mapping[str, str]) -> None:
        self.number = number
        self.path = headers.get(":path", "")
        self.metadata = headers
        self.address = session.wire.address
        self.ends_at: float | None = None
        self.window = session.first_window
        """How much may be sent before the client reads more."""
        self.begun = False
        """Whether it is being answered: its request is complete, or its first message has come."""
        self.task: asyncio.Task[None] | None = None
        """What answers it; None for a call that is answered without a task."""
        self.timer: asyncio.TimerHandle | None = None
        self.timed_out = False
        self.age = 0
        """Rounds of the idle sweep without a complete request."""
        self.room: asyncio.Future[None] | None = None
        self.cutter: grpc.MessageCutter | None = None
        """The part of a message that came without its end, of `partial` bytes."""
        self.partial = 0
        self.ungranted = 0
        self._session = session
        self._wire = session.wire
        self._requests: deque[bytes] = deque()
        self._arrival: asyncio.Future[None] | None = None
        self._half_closed = False
        self._headers_sent = False
        self._ended = False
        self._held = CALL_BYTES
        session.wire.change_debt(CALL_BYTES)

    def __repr__(self) -> str:
        return f"<Call {self.number} {self.path} of {self.address}>"

    @property
    def method(self) -> str:
        """The name of the method."""
        return self.path.rpartition("/")[2]

    @property
    def remaining(self) -> float | None:
        """Seconds until the client's deadline; None without one."""
        return None if self.ends_at is None else self.ends_at - self._wire.loop.time()

    @property
    def ended(self) -> bool:
        """Whether the response is complete, or the client has given up the call."""
        return self._ended

    @property
    def half_closed(self) -> bool:
        """Whether the client has finished its request."""
        return self._half_closed

    @property
    def is_short(self) -> bool:
        """Whether memory is full and this client has a share of it: no large answers now."""
        return self._wire.is_short

    def trust(self) -> None:
        """The caller is authenticated."""
        self._wire.debt.trust()

    def hold(self, size: int) -> None:
        """Count bytes that are kept for this call; a negative size releases them. The end releases all."""
        if not self._ended:
            self._held += size
            self._wire.change_debt(size)

    # The request

    @property
    def first_message(self) -> bytes | None:
        """The first message of the request that was not taken yet; None when there is none."""
        return self._requests[0] if self._requests else None

    async def requests(self) -> AsyncIterator[bytes]:
        """The messages of the request."""
        while True:
            while self._requests:
                message = self._requests.popleft()
                if self.wants_more:
                    self._session.grant(self)
                yield message
            if self._half_closed:
                return
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival

    @property
    def wants_more(self) -> bool:
        """Whether the client may send more: few of its messages wait."""
        return not self._half_closed and len(self._requests) < REQUESTS_MAX // 2

    def arrived(self, message: bytes) -> None:
        """A message arrived. Raises `GrpcError` when too many wait."""
        if len(self._requests) >= REQUESTS_MAX:
            raise grpc.GrpcError(
                grpc.RESOURCE_EXHAUSTED, f"{REQUESTS_MAX} messages of this stream wait to be handled"
            )
        self.hold(len(message))
        self._requests.append(message)
        if self._arrival is not None:
            self._wake()

    def half_close(self) -> None:
        """The client has finished its request."""
        self._half_closed = True
        if self._arrival is not None:
            self._wake()

    def _wake(self) -> None:
        arrival, self._arrival = self._arrival, None
        if arrival is not None and not arrival.done():
            arrival.set_result(None)

    # The response

    async def send(self, message: bytes) -> None:
        """Send one message, as soon as the client has room for it."""
        self._start()
        data = grpc.prefixed(message)
        if self._session.fits(self, len(data)):
            self._session.take_room(self, len(data))
            self._wire.write(frames.frame(frames.DATA, 0, self.number, data))
            return
        del message  # the client may take long
        rest, held = memoryview(data), 0
        try:
            while rest:
                size = self._session.take_room(self, len(rest))
                if not size:
                    if not held:  # all of it is kept until the client has read the end
                        held = len(data)
                        self.hold(held)
                    await self._session.wait_for_room(self)
                    continue
                self._wire.write(frames.frame(frames.DATA, 0, self.number, bytes(rest[:size])))
                rest = rest[size:]
        finally:
            self.hold(-held)

    async def respond(self, message: bytes) -> None:
        """Send the only message of a response and end the call."""
        if not self.respond_now(message):
            await self.send(message)
            self.finish(grpc.OK)

    def answer(self, message: bytes) -> None:
        """Send the only message of a response and end the call, from outside of a task. Without effect when
        the call is over.
        """
        if not self._ended and not self.respond_now(message):
            self._session.respond_later(self, message)

    def respond_now(self, message: bytes) -> bool:
        """The same as `respond`; False, with nothing done, when the client has no room for the response."""
        size = len(message) + grpc.PREFIX_BYTES
        session = self._session
        if self._headers_sent or not session.fits(self, size):
            return False
        session.take_room(self, size)
        self._headers_sent = True
        self._wire.write(_response(self.number, message))
        self._end()
        return True

    def finish(self, code: int, text: str = "") -> None:
        """End the call with a status of gRPC. Idempotent."""
        if self._ended:
            return
        block = grpc.trailers(code, text) if self._headers_sent else grpc.only_trailers(code, text)
        self.end_with(block)

    def end_with(self, block: bytes) -> None:
        """End the call with a block of headers."""
        self._wire.write(frames.frame(frames.HEADERS, _ENDS, self.number, block))
        self._end()

    def _start(self) -> None:
        if not self._headers_sent:
            self._headers_sent = True
            head = frames.frame(frames.HEADERS, frames.END_HEADERS, self.number, grpc.RESPONSE_HEADERS)
            self._wire.write(head)

    def _end(self) -> None:
        if not self._half_closed:  # it need not send the rest
            self._wire.write(frames.reset_frame(self.number, frames.NO_ERROR))
        self._session.forget_call(self)

    def drop(self) -> None:
        """The call has ended: release its memory. Called once by its connection."""
        self._ended = True
        if self.timer is not None:
            self.timer.cancel()
        if self.room is not None and not self.room.done():
            self.room.cancel()
        self._wire.change_debt(-self._held)
        self._held = 0
        self._requests.clear()


def _response(number: int, message: bytes) -> bytes:
    """The frames of a whole response: headers, one message, trailers."""
    head, size = frames.frame_head, len(message)
    return b"%b%b%b\0%b%b%b%b" % (
        head(len(grpc.RESPONSE_HEADERS), frames.HEADERS, frames.END_HEADERS, number),
        grpc.RESPONSE_HEADERS,
        head(size + grpc.PREFIX_BYTES, frames.DATA, 0, number),
        size.to_bytes(4, "big"),
        message,
        head(len(grpc.TRAILERS_OK), frames.HEADERS, _ENDS, number),
        grpc.TRAILERS_OK,
    )
