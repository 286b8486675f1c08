"""TLS and plain connections on one port, told apart by their first byte (remoting:1.6).

A plain frame starts with 0x00, a TLS handshake with 0x16. `FirstByte` stands between the socket and the
connection until that byte is there, then steps aside: plain connections pay nothing. `TlsStream` is then the
socket's protocol and the connection's transport in one.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Any, Final, cast

from sparrowmq.transport.connection import Connection
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.tls import HANDSHAKE_SECONDS_MAX, ServerTls

HANDSHAKE: Final = 0x16
"""The first byte of a TLS connection."""
_READ_BYTES: Final = 256 * 1024


class FirstByte(asyncio.Protocol):
    """Waits for the first byte of a connection; the idle limit ends one that stays silent."""

    _transport: asyncio.Transport

    def __init__(
        self,
        conn: Connection,
        tls: ServerTls,
        loop: asyncio.AbstractEventLoop,
        occasional: OccasionalLog,
        handshake_seconds: float = HANDSHAKE_SECONDS_MAX,
    ) -> None:
        self._conn = conn
        self._tls = tls
        self._loop = loop
        self._occasional = occasional
        self._handshake_seconds = handshake_seconds

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there: tell the connection, which writes plainly until TLS begins."""
        self._transport = cast("asyncio.Transport", transport)
        self._conn.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """A handshake begins TLS; anything else is plain, or refused where TLS is enforced."""
        conn, transport = self._conn, self._transport
        if conn.closed:
            return
        if data[0] == HANDSHAKE:
            stream = TlsStream(
                conn, transport, self._tls, self._loop, self._occasional, self._handshake_seconds
            )
            conn.replace_transport(stream)
            transport.set_protocol(stream)
            stream.data_received(data)
        elif self._tls.enforcing:
            self._occasional.write(
                logging.WARNING, "plain", f"closing {conn.address}: it does not speak TLS, which is enforced"
            )
            conn.close("it does not speak TLS")
        else:
            transport.set_protocol(conn)
            conn.data_received(data)

    def eof_received(self) -> None:
        """The client ended before it said anything."""
        self._conn.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone: so is the connection."""
        self._conn.connection_lost(exc)


class TlsStream(asyncio.Transport, asyncio.Protocol):
    """Decrypts what the socket brings for `conn`, encrypts what it writes; the handshake has a deadline."""

    def __init__(
        self,
        conn: Connection,
        raw: asyncio.Transport,
        tls: ServerTls,
        loop: asyncio.AbstractEventLoop,
        occasional: OccasionalLog,
        handshake_seconds: float,
    ) -> None:
        super().__init__()
        self._conn = conn
        self._raw = raw
        self._occasional = occasional
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl = tls.context().wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._open = False
        self._handshake_timer = loop.call_later(handshake_seconds, self._too_slow, handshake_seconds)

    def __repr__(self) -> str:
        state = self._ssl.version() if self._open else "handshake"
        return f"<TlsStream of {self._conn!r} {state}>"

    # The socket's protocol

    def data_received(self, data: bytes) -> None:
        """Go on with the handshake, or decrypt for the connection; what breaks TLS ends it."""
        self._incoming.write(data)
        plain: list[bytes] = []
        ended = False
        try:
            if not self._open:
                self._ssl.do_handshake()
                self._open = True
                self._handshake_timer.cancel()
            while not ended:
                part = self._ssl.read(_READ_BYTES)
                plain.append(part)
                ended = not part
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._flush()  # the alert that tells the client why
            self._refuse(error)
            return
        self._flush()
        if plain:
            self._conn.data_received(b"".join(plain) if len(plain) > 1 else plain[0])
        else:
            self._conn.active = True
        if ended:
            self._conn.close("the client ended TLS")

    def eof_received(self) -> None:
        """The client ended its side without a goodbye."""
        self._conn.eof_received()

    def pause_writing(self) -> None:
        """The socket's buffer is full: the connection stops reading."""
        self._conn.pause_writing()

    def resume_writing(self) -> None:
        """The socket's buffer has room again."""
        self._conn.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone: so is the connection, and no handshake is waited for."""
        self._handshake_timer.cancel()
        self._conn.connection_lost(exc)

    # The connection's transport

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Encrypt and send; nothing is sent before the handshake is done."""
        if not self._open or self._raw.is_closing():
            return
        rest = memoryview(data)
        while rest:
            rest = rest[self._ssl.write(rest) :]
        self._flush()

    def close(self) -> None:
        """Say goodbye, hand over what was written, close."""
        if self._open:
            try:
                self._ssl.unwrap()
            except ssl.SSLError:
                pass  # the client need not answer it
            self._flush()
        self._raw.close()

    def abort(self) -> None:
        """Close at once; what was written and not sent is lost."""
        self._raw.abort()

    def is_closing(self) -> bool:
        """Whether the socket is closed or about to be."""
        return self._raw.is_closing()

    def get_write_buffer_size(self) -> int:
        """Encrypted bytes that wait for the socket."""
        return self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Encrypted bytes at which writing is paused (`high`) and goes on (`low`)."""
        self._raw.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        """Read no more from the socket until `resume_reading`."""
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Read from the socket again."""
        self._raw.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`ssl_object` and `peercert` of TLS, else what the socket knows."""
        if name == "ssl_object":
            return self._ssl
        if name == "peercert":
            return self._ssl.getpeercert()
        return self._raw.get_extra_info(name, default)

    # Inside

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data and not self._raw.is_closing():
            self._raw.write(data)

    def _refuse(self, error: ssl.SSLError) -> None:
        what = "broke TLS" if self._open else "failed the TLS handshake"
        reason = getattr(error, "verify_message", "") or error.reason or str(error)
        self._open = False
        self._occasional.write(logging.WARNING, "tls", f"closing {self._conn.address}: it {what}: {reason}")
        self._conn.close(f"it {what}: {reason}")

    def _too_slow(self, seconds: float) -> None:
        self._occasional.write(
            logging.WARNING,
            "slow tls",
            f"closing {self._conn.address}: no TLS handshake within {seconds:g} s",
        )
        self._conn.abort()
