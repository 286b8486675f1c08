"""The operators' port: `/metrics`, `/health` and `/ready` of the servers of a process.

Only GET and HEAD are served, and bodies of requests are not read. Connections are few and have deadlines, and
few answers to `/metrics` exist at a time. So scrapers that never read, and unknown callers, cannot take
memory or time from the clients of a broker.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from sparrowmq.core.errors import ListenError
from sparrowmq.core.figures.exposition import (
    CONTENT_TYPE,
    OPENMETRICS_TYPE,
    Aside,
    Exposition,
    Operated,
    prefers_openmetrics,
)
from sparrowmq.httpd.asgi import Receive, Scope, Send, accepts_gzip, respond
from sparrowmq.httpd.serving import HttpServer, PatientProtocol, first_request
from sparrowmq.transport.address import format_address
from sparrowmq.transport.figures import collected
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.operators")

CONNECTIONS_MAX: Final = 32
TEXTS_MAX: Final = 4
"""Answers to `/metrics` that are sent at a time; a further request gets 503."""
CHUNK_BYTES: Final = 256 * 1024
"""Answers are sent in chunks of about this many bytes: many small ones would take much of the loop's time."""
GZIP_LEVEL: Final = 1
"""Prometheus asks for gzip. The least effort makes the text 30 times smaller, and so its sending cheap."""
GZIP_WBITS: Final = 31
"""zlib's largest window, with the header of gzip."""
REQUEST_SECONDS: Final = 10.0
"""Time to read an answer, which is Prometheus' default time limit; then the connection is closed."""
HEAD_SECONDS: Final = 5.0
STOP_SECONDS: Final = 1.0
PATHS: Final = {
    "/metrics": "metrics in Prometheus' text format, or in OpenMetrics' for those who prefer it",
    "/health": "whether the servers work: 200, or 503 with the reasons",
    "/ready": "whether clients should use the servers: 200, or 503 with the reasons",
}
JSON: Final = "application/json"


class OperatorProtocol(PatientProtocol):
    """A connection of the operators' port."""

    head_seconds = HEAD_SECONDS
    body_seconds = HEAD_SECONDS
    request_seconds = REQUEST_SECONDS


class OperatorApp:
    """Answers for these servers; `series_max` bounds the series of each metric.

    `servers` is called for each request, because a server may be started and stopped while the port is open.
    What takes long is done in a thread of its own, one answer after the other; `close` ends it.
    """

    def __init__(self, servers: Callable[[], Sequence[Operated]], series_max: int) -> None:
        self._servers = servers
        self._series_max = series_max
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sparrow-metrics")
        self.texts = 0
        """Answers to `/metrics` that are being made or sent."""
        self._occasional = OccasionalLog(log)
        self.refused = 0
        """Requests for `/metrics` that were refused because of `TEXTS_MAX`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        method, path = scope["method"], scope["path"]
        if method not in ("GET", "HEAD"):
            await self._tell(send, 405, {"error": f"{method} is not supported here; use GET"}, allow=True)
        elif path == "/metrics":
            await self._metrics(
                send,
                openmetrics=prefers_openmetrics(_header(scope, b"accept")),
                gzip=accepts_gzip(_header(scope, b"accept-encoding")),
            )
        elif path in ("/health", "/ready"):
            await self._state(send, ready=path == "/ready")
        else:
            await self._tell(send, 200 if path == "/" else 404, {"paths": PATHS})

    async def _tell(self, send: Send, status: int, value: object, *, allow: bool = False) -> None:
        body = json.dumps(value, indent=1).encode() + b"\n"
        await respond(send, status, JSON, [body], [(b"allow", b"GET, HEAD")] if allow else ())

    async def _state(self, send: Send, *, ready: bool) -> None:
        nodes = []
        for server in self._servers():
            reasons = server.faults() + (server.lacks() if ready else [])
            nodes.append({"node": server.node, "ok": not reasons, "reasons": reasons})
        is_well = bool(nodes) and all(node["ok"] for node in nodes)
        word = "ready" if ready else "healthy"
        body: dict[str, object] = {word: is_well, "nodes": nodes}
        await self._tell(send, 200 if is_well else 503, body)

    async def _metrics(self, send: Send, *, openmetrics: bool, gzip: bool) -> None:
        if self.texts >= TEXTS_MAX:
            self.refused += 1
            why = f"{TEXTS_MAX} answers to /metrics are being sent, which is the limit; try again"
            await respond(send, 503, JSON, [json.dumps({"error": why}).encode()], [(b"retry-after", b"1")])
            return
        self.texts += 1
        try:
            chunks = await self._text(openmetrics=openmetrics, gzip=gzip)
            headers = [(b"vary", b"accept, accept-encoding"), *([(b"content-encoding", b"gzip")] * gzip)]
            await respond(send, 200, OPENMETRICS_TYPE if openmetrics else CONTENT_TYPE, chunks, headers)
        finally:
            self.texts -= 1

    async def _text(self, *, openmetrics: bool, gzip: bool) -> list[bytes]:
        exposition = Exposition(self._series_max)
        for server in self._servers():
            await collected(server.collect(exposition), self._thread)
        refused = exposition.counter(
            "sparrow_metrics_refused_total", "Scrapes refused because too many others were being answered."
        )
        refused.add("", self.refused)
        chunks: list[bytes] = []
        rendering = _rendering(exposition, chunks, openmetrics=openmetrics, gzip=gzip)
        await collected([Aside(rendering)], self._thread)
        lacking = exposition.left_out()
        if lacking:
            self._occasional.write(
                logging.WARNING,
                "series",
                f"{sum(lacking.values())} series of {len(lacking)} metrics are left out of /metrics: the "
                f"limit of each is metricsSeriesMax={self._series_max}",
            )
        return chunks

    def close(self) -> None:
        """End the thread after its current work."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _header(scope: Scope, name: bytes) -> str:
    return b",".join(value for key, value in scope["headers"] if key == name).decode("latin-1")


def _rendering(into: Exposition, chunks: list[bytes], *, openmetrics: bool, gzip: bool) -> Iterator[None]:
    packer = zlib.compressobj(GZIP_LEVEL, wbits=GZIP_WBITS) if gzip else None

    def add(chunk: bytes) -> None:
        if chunks and len(chunks[-1]) < CHUNK_BYTES:
            chunks[-1] += chunk
        else:
            chunks.append(chunk)

    for chunk in into.rendering(openmetrics=openmetrics):
        add(chunk if packer is None else packer.compress(chunk))
        yield
    if packer is not None:
        add(packer.flush())
    for family in into.families:  # freed here, and not on the loop: there may be 100,000 series
        family.points.clear()
        yield


class OperatorPort:
    """The port. `start` binds it; port 0 takes a free one."""

    def __init__(
        self, servers: Callable[[], Sequence[Operated]], *, host: str, port: int, series_max: int
    ) -> None:
        self._app = OperatorApp(servers, series_max)
        self._host = host
        self._port = port
        self._listening: socket.socket | None = None
        self._server: HttpServer | None = None
        self._serving: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<OperatorPort {self.address}>"

    @property
    def address(self) -> str:
        """`host:port`; after the start, with the actual port."""
        return format_address(self._host, self._port)

    @property
    def sending(self) -> int:
        """Answers to `/metrics` that are being made or sent."""
        return self._app.texts

    async def start(self) -> None:
        """Listen. Raises `ListenError` when the address cannot be bound."""
        try:
            family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
            listening = socket.create_server((self._host, self._port), family=family)
        except OSError as error:
            raise ListenError(
                f"the metrics port {self.address} cannot be opened: {error.strerror or error}; choose "
                f"another port with metricsPromExporterPort"
            ) from None
        listening.setblocking(False)
        self._listening = listening
        self._port = listening.getsockname()[1]
        await first_request(self._app)
        self._server = HttpServer(
            self._app, stop_seconds=STOP_SECONDS, connections_max=CONNECTIONS_MAX, protocol=OperatorProtocol
        )
        self._serving = asyncio.create_task(self._server.serve([listening]), name="sparrow-operators")

    async def close(self) -> None:
        """Stop. Idempotent."""
        serving, self._serving = self._serving, None
        if serving is not None and self._server is not None:
            self._server.should_exit = True
            done, _ = await asyncio.wait([serving], timeout=STOP_SECONDS + 4)
            if not done:
                serving.cancel()
        self._app.close()
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()
