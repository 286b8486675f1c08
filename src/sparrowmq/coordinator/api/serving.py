"""The HTTP server of the API: uvicorn, which by itself waits for slow clients without end, with deadlines.

A client that connects and says nothing, dribbles its headers or its body, or does not read its answer holds
one of `CONNECTIONS_MAX` places: two hundred of them would keep everybody else out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS_MAX: Final = 200
HEAD_SECONDS: Final = 10.0
"""How long a client may take, from connecting or from its last answer on, until its headers are whole."""
REQUEST_SECONDS: Final = 60.0
"""How long a request may take from its headers to the last byte of its answer."""
KEEP_ALIVE_SECONDS: Final = 10


class PatientProtocol(H11Protocol):
    """One connection. It is closed when a request's head, or all of the request, takes too long."""

    head_seconds = HEAD_SECONDS
    request_seconds = REQUEST_SECONDS

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._deadline: asyncio.TimerHandle | None = None
        self._awaits_head = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        self._wait(head=True)

    def data_received(self, data: bytes) -> None:
        """Take what came. A head that is not whole yet gets no more time by it."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next head."""
        super().on_response_complete()
        self._wait(head=True)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        is_answered = self.cycle is None or self.cycle.response_complete
        if self._awaits_head and not is_answered:
            self._wait(head=False)

    def _wait(self, *, head: bool) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._awaits_head = head
        seconds = self.head_seconds if head else self.request_seconds
        self._deadline = self.loop.call_later(seconds, self._too_late)

    def _too_late(self) -> None:
        if self._awaits_head and self.transport.get_write_buffer_size():
            self._wait(head=False)  # it still reads its last answer
        else:
            self.transport.abort()


class ApiServer(uvicorn.Server):
    """Serves an application. It has no handlers for signals: the process that runs it has its own."""

    def __init__(self, app: ASGIApp, *, stop_seconds: float) -> None:
        """`stop_seconds` is how long requests under way are waited for in the end."""
        super().__init__(
            uvicorn.Config(
                app,
                http=PatientProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",  # anybody may cause warnings, as many as they like
                access_log=False,
                server_header=False,
                proxy_headers=False,  # whoever calls would say where from, in the audit log, too
                limit_concurrency=CONNECTIONS_MAX,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=int(stop_seconds),
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield
