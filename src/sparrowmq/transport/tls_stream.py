"""TLS and plain connections on one port, distinguished by their first byte (remoting:1.6).

A plain frame starts with 0x00, a TLS handshake with 0x16. `FirstByte` is between the socket and the
connection until that byte arrives, and is then removed, so plain connections have no extra cost. For TLS,
`TlsStream` is both the socket's protocol and the connection's transport.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Any, Final, Protocol, cast

from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.places import source_of
from sparrowmq.transport.tls import HANDSHAKE_SECONDS_MAX, PortTls

HANDSHAKE: Final = 0x16
"""The first byte of a TLS connection."""
_READ_BYTES: Final = 256 * 1024
HANDSHAKES_MAX: Final = 1000
"""Maximum concurrent handshakes at one server; each takes some 50 KB before authentication."""


class ServedConnection(Protocol):
    """What a listener, and TLS between it and the socket, need of a connection, whatever its protocol.

    `peer` is the client's numeric address. The last methods are those of `asyncio.Protocol`.
    """

    peer: tuple[str, int]
    closed: bool

    @property
    def address(self) -> str:
        """The client's `host:port`."""

    def gives_way(self) -> bool:
        """Whether a new connection may replace it."""

    def idle_round(self, rounds_max: int) -> None:
        """Count a sweep without traffic, and close after `rounds_max` of them in a row."""

    def heard(self) -> None:
        """The client sent something that is not a request: it is not idle."""

    def close(self, reason: str) -> None:
        """Send pending bytes, then close. Idempotent."""

    def abort(self) -> None:
        """Close immediately; unsent bytes are lost."""

    def replace_transport(self, transport: asyncio.Transport) -> None:
        """Continue over another transport: TLS has started on this connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""

    def data_received(self, data: bytes) -> None:
        """Bytes came."""

    def eof_received(self) -> bool | None:
        """The client sends no more."""

    def pause_writing(self) -> None:
        """The socket's buffer is full."""

    def resume_writing(self) -> None:
        """The socket's buffer has room again."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket was closed."""


class Handshakes:
    """The running handshakes at one server. Above `most` the oldest of the address with most of them is
    ended, because a normal handshake ends quickly.
    """

    def __init__(self, occasional: OccasionalLog, most: int = HANDSHAKES_MAX) -> None:
        self._occasional = occasional
        self._most = most
        self._streams: dict[str, dict[TlsStream, None]] = {}
        """By the source of the connection."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def begin(self, stream: TlsStream) -> None:
        """Register a handshake."""
        if self._count >= self._most:
            most = max(self._streams.values(), key=len)
            oldest = next(iter(most))
            self.end(oldest)
            oldest.give_way(
                f"{self._most} TLS handshakes are in progress, which is the limit, and this one is the "
                "oldest of the address with most of them"
            )
        self._streams.setdefault(stream.source, {})[stream] = None
        self._count += 1

    def end(self, stream: TlsStream) -> None:
        """The handshake ended, or the connection was lost. May be called twice."""
        mine = self._streams.get(stream.source, {})
        if stream not in mine:
            return
        del mine[stream]
        self._count -= 1
        if not mine:
            del self._streams[stream.source]


class FirstByte(asyncio.Protocol):
    """Waits for the first byte of a connection; the idle limit ends one that stays silent."""

    _transport: asyncio.Transport

    def __init__(
        self,
        conn: ServedConnection,
        tls: PortTls,
        loop: asyncio.AbstractEventLoop,
        occasional: OccasionalLog,
        handshakes: Handshakes,
        handshake_seconds: float = HANDSHAKE_SECONDS_MAX,
    ) -> None:
        self._conn = conn
        self._tls = tls
        self._loop = loop
        self._occasional = occasional
        self._handshakes = handshakes
        self._handshake_seconds = handshake_seconds

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected: notify the connection, which writes plain bytes until TLS starts."""
        self._transport = cast("asyncio.Transport", transport)
        self._conn.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """A handshake starts TLS; anything else is plain, or refused if TLS is enforced."""
        conn, transport = self._conn, self._transport
        if conn.closed:
            return
        if data[0] == HANDSHAKE:
            stream = TlsStream(
                conn,
                transport,
                self._tls,
                self._loop,
                self._occasional,
                self._handshakes,
                self._handshake_seconds,
            )
            conn.replace_transport(stream)
            transport.set_protocol(stream)
            stream.data_received(data)
        elif self._tls.enforcing:
            self._occasional.write(
                logging.WARNING, "plain", f"closing {conn.address}: it does not use TLS, which is required"
            )
            conn.close("it does not use TLS")
        else:
            transport.set_protocol(cast("asyncio.Protocol", conn))
            conn.data_received(data)

    def eof_received(self) -> None:
        """The client closed before it sent anything."""
        self._conn.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket was closed, and so is the connection."""
        self._conn.connection_lost(exc)


class TlsStream(asyncio.Transport, asyncio.Protocol):
    """Decrypts received bytes for `conn` and encrypts what it writes; the handshake has a deadline."""

    def __init__(
        self,
        conn: ServedConnection,
        raw: asyncio.Transport,
        tls: PortTls,
        loop: asyncio.AbstractEventLoop,
        occasional: OccasionalLog,
        handshakes: Handshakes,
        handshake_seconds: float,
    ) -> None:
        super().__init__()
        self._handshakes = handshakes
        self._conn = conn
        self._raw = raw
        self._occasional = occasional
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl = tls.context().wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._open = False
        self.source = source_of(conn.peer[0])
        """The source of the connection, as limits of addresses count."""
        self._handshake_timer = loop.call_later(handshake_seconds, self._too_slow, handshake_seconds)
        handshakes.begin(self)

    def __repr__(self) -> str:
        state = self._ssl.version() if self._open else "handshake"
        return f"<TlsStream of {self._conn!r} {state}>"

    # The socket's protocol

    def data_received(self, data: bytes) -> None:
        """Continue the handshake, or decrypt for the connection; a TLS error closes it."""
        self._incoming.write(data)
        plain: list[bytes] = []
        ended = False
        try:
            if not self._open:
                self._ssl.do_handshake()
                self._open = True
                self._handshake_ended()
            while not ended:
                part = self._ssl.read(_READ_BYTES)
                plain.append(part)
                ended = not part
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._flush()  # send the alert with the reason
            self._refuse(error)
            return
        self._flush()
        if plain:
            self._conn.data_received(b"".join(plain) if len(plain) > 1 else plain[0])
        else:
            self._conn.heard()
        if ended:
            self._conn.close("the client ended TLS")

    def eof_received(self) -> None:
        """The client closed its side without a TLS close alert."""
        self._conn.eof_received()

    def pause_writing(self) -> None:
        """The socket's buffer is full: the connection stops reading."""
        self._conn.pause_writing()

    def resume_writing(self) -> None:
        """The socket's buffer has room again."""
        self._conn.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket was closed: close the connection and end the handshake."""
        self._handshake_ended()
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
        """Send the close alert and pending bytes, close."""
        if self._open:
            try:
                self._ssl.unwrap()
            except ssl.SSLError:
                pass  # the client need not answer it
            self._flush()
        self._raw.close()

    def abort(self) -> None:
        """Close immediately; unsent bytes are lost."""
        self._raw.abort()

    def is_closing(self) -> bool:
        """Whether the socket is closed or about to be."""
        return self._raw.is_closing()

    def get_write_buffer_size(self) -> int:
        """Encrypted bytes that wait for the socket."""
        return self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Encrypted bytes at which writing is paused (`high`) and resumed (`low`)."""
        self._raw.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        """Stop reading from the socket until `resume_reading`."""
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Read from the socket again."""
        self._raw.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`ssl_object` and `peercert` of TLS, or else the socket's information."""
        if name == "ssl_object":
            return self._ssl
        if name == "peercert":
            return self._ssl.getpeercert()
        return self._raw.get_extra_info(name, default)

    def give_way(self, why: str) -> None:
        """End a handshake to make room."""
        self._occasional.write(logging.WARNING, "handshakes", f"closing {self._conn.address}: {why}")
        self._conn.abort()

    # Inside

    def _handshake_ended(self) -> None:
        self._handshake_timer.cancel()
        self._handshakes.end(self)

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
