"""Large bodies read from the socket to where they stay, instead of in pieces that are joined in the end.

A bulk answer has megabytes. In pieces every byte is copied twice after the system call; here it is not.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable

from sparrowmq.protocol.frame import LargeFrame, RawFrame


class LargeBody(asyncio.BufferedProtocol):
    """The protocol of `transport` until the body of `frame` is whole; then `done` gets the frame.

    `owner`, the protocol before and after, hears of everything else; it is told with `heard` of every read.
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
        # The bytes inside a BytesIO can be written to in place, and are given without a copy once nobody
        # holds a view of them; a loop holds the one it reads to until `buffer_updated` is over.
        self._body = io.BytesIO(bytes(frame.size))
        self._rest = self._body.getbuffer()
        self._filled(frame.start)

    def _filled(self, start: bytes) -> None:
        self._rest[: len(start)] = start
        self._rest = self._rest[len(start) :]

    def begin(self) -> None:
        """Take the transport's bytes from now on."""
        self._switch(self)

    def _switch(self, protocol: asyncio.BaseProtocol) -> None:
        """A transport asks what its protocol is when it starts to read."""
        self._transport.pause_reading()
        self._transport.set_protocol(protocol)
        self._transport.resume_reading()

    # asyncio.BufferedProtocol

    def get_buffer(self, sizehint: int) -> memoryview:
        """Room for what is missing."""
        return self._rest

    def buffer_updated(self, nbytes: int) -> None:
        """So much more is there; with all of it the owner goes on, as soon as the loop has let go of it."""
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
        """The other side ended in the middle of a frame."""
        return self._owner.eof_received()

    def pause_writing(self) -> None:
        """The socket takes no more for now."""
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        """The socket takes bytes again."""
        self._owner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self._owner.connection_lost(exc)
