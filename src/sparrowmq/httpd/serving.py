"""The HTTP server: uvicorn, extended by deadlines for slow clients and a limit of connections.

A client that connects and sends nothing, sends its headers or body very slowly, or does not read its answer
occupies a connection: two hundred such clients would lock out everybody else. So each step of a request has a
deadline, one address has a limited share of the connections, and a new client replaces one that the server
waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sparrowmq.httpd.asgi import ASGIApp, Message, Receive, Scope, Send, respond
from sparrowmq.transport.address import peer_of
from sparrowmq.transport.places import Places
from sparrowmq.transport.slices import shared

CONNECTIONS_MAX: Final = 200
HEAD_SECONDS: Final = 10.0
"""Time from connecting, or from the last answer, until a client's headers are complete."""
BODY_SECONDS: Final = 10.0
"""Time for a body of at most 64 KiB, measured from its headers."""
REQUEST_SECONDS: Final = 60.0
"""Time from a request's headers to the last byte of its answer."""
KEEP_ALIVE_SECONDS: Final = 10
PIECE_BYTES: Final = 512
"""Bytes of a client processed in one step of `Slices`: a body may come in chunks of one byte each, and
reading a hundred such takes a millisecond."""
REST_BYTES_MAX: Final = 1024 * 1024
"""Maximum unprocessed input; a client that sends more without waiting is disconnected."""
REFUSED_MAX: Final = 50
"""Number of clients beyond the limit that get an error answer; more are closed without one."""


class PatientProtocol(H11Protocol):
    """One connection. It is closed when a request's head, its body, or the whole request takes too long, and
    when another client needs its place while the server waits for this one.
    """

    head_seconds = HEAD_SECONDS
    body_seconds = BODY_SECONDS
    request_seconds = REQUEST_SECONDS

    def __init__(self, *arguments: Any, places: Places[PatientProtocol], **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._places = places
        self._deadline: asyncio.TimerHandle | None = None
        self._body_deadline: asyncio.TimerHandle | None = None
        self._awaits_head = False
        self._rest = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place, or answer the first request that there is none; wait for its head."""
        super().connection_made(transport)
        loser, refusal = self._places.enter(self, peer_of(transport.get_extra_info("peername"))[0])
        if refusal:
            if len(self.connections) - len(self._places) > REFUSED_MAX:
                transport.abort()
                return
            self.app = _Refusing(refusal)
        elif loser is not None:
            loser.transport.abort()
        self._wait(head=True)

    def data_received(self, data: bytes) -> None:
        """Process new input in pieces. An incomplete head gets no extra time."""
        if self._rest:  # it was being processed when more could be read
            self._rest += data
            self.transport.pause_reading()
            if len(self._rest) > REST_BYTES_MAX:
                self.transport.abort()
            return
        if len(data) <= PIECE_BYTES:
            self._take(data)
        else:
            self._rest = data
            self.transport.pause_reading()
            shared().run(self._take_rest())

    def _take(self, piece: bytes) -> None:
        super().data_received(piece)
        self._look()

    def _take_rest(self) -> Iterator[None]:
        """Process waiting input; reading continues with the last piece, unless the request is already too
        large.
        """
        while self._rest and not self.transport.is_closing():
            piece, self._rest = self._rest[:PIECE_BYTES], self._rest[PIECE_BYTES:]
            if not self._rest and not self.flow.read_paused:
                self.transport.resume_reading()
            self._take(piece)
            yield

    def on_response_complete(self) -> None:
        """Wait for the next head."""
        super().on_response_complete()
        self._wait(head=True)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all waiting, and release the place."""
        self._places.leave(self)
        self._rest = b""
        for timer in (self._deadline, self._body_deadline):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def gives_way(self) -> bool:
        """Whether the server waits for the client: it has sent no complete request, or has its answer."""
        return self._awaits_head or self._awaits_body()

    def _awaits_body(self) -> bool:
        return bool(self.conn.their_state is h11.SEND_BODY)

    def _look(self) -> None:
        """A complete head ends its deadline; an incomplete body has its own."""
        is_answered = self.cycle is None or self.cycle.response_complete
        if self._awaits_head and not is_answered:
            self._wait(head=False)
            if self._awaits_body():
                self._body_deadline = self.loop.call_later(self.body_seconds, self._body_too_late)
        if self._body_deadline is not None and not self._awaits_body():
            self._body_deadline.cancel()
            self._body_deadline = None

    def _wait(self, *, head: bool) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._awaits_head = head
        seconds = self.head_seconds if head else self.request_seconds
        self._deadline = self.loop.call_later(seconds, self._too_late)

    def _body_too_late(self) -> None:
        if self._awaits_body():
            self.transport.abort()

    def _too_late(self) -> None:
        if self._awaits_head and self.transport.get_write_buffer_size():
            self._wait(head=False)  # it is still reading its last answer
        else:
            self.transport.abort()


class _Refusing:
    """Answers a client that got no place."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = json.dumps({"error": f"{self._why}; try again"}).encode()
        await respond(
            send, 503, "application/json", [body], [(b"connection", b"close"), (b"retry-after", b"1")]
        )


async def first_request(app: ASGIApp) -> None:
    """Send an application one request before it is served, for a path that does not exist.

    FastAPI builds its routes and loads modules in the first request. That takes the loop for 50 ms and more,
    in which no client should wait.
    """

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        """Discards the answer."""

    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "root_path": "",
        "headers": [],
        "client": None,
        "server": None,
    }
    await app(scope, receive, send)


class HttpServer(uvicorn.Server):
    """Serves an application. It installs no signal handlers: the process has its own."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        stop_seconds: float,
        connections_max: int = CONNECTIONS_MAX,
        connections_per_address_max: int = 0,
        protocol: type[PatientProtocol] = PatientProtocol,
    ) -> None:
        """At shutdown, running requests get `stop_seconds` to finish. One address may have
        `connections_per_address_max` connections, see `Places`. `protocol` has the deadlines."""
        self.places: Places[PatientProtocol] = Places(connections_max, connections_per_address_max)
        super().__init__(
            uvicorn.Config(
                app,
                http=cast("type[asyncio.Protocol]", partial(protocol, places=self.places)),
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",  # any client can cause any number of warnings
                access_log=False,
                server_header=False,
                proxy_headers=False,  # otherwise callers could choose the address in the audit log
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=int(stop_seconds),
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do not install signal handlers."""
        yield
