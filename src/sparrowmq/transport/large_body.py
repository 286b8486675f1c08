"""Large bodies are read from the socket directly into their final buffer, instead of in pieces that are
joined at the end.

A bulk answer has several megabytes. With pieces, every byte would be copied twice after the system call.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable

from sparrowmq.protocol.frame import LargeFrame, RawFrame


class LargeBody(asyncio.BufferedProtocol):
    """The protocol of `transport` until the body of `frame` is complete; then `done` gets the frame.

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
