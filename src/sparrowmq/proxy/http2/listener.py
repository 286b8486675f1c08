"""The listening socket for gRPC: plain and TLS on one port, with the limits of `transport`'s listeners."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Unpack

from sparrowmq.proxy.http2.calls import Call
from sparrowmq.proxy.http2.connection import Http2Connection
from sparrowmq.transport.server import Listener, ListenerOptions


class Http2Listener(Listener[Http2Connection]):
    """Runs `serve` for each call, in a separate task.

    `serve_now` is asked first, with the call's first message. If it returns True, it has taken the call and
    answers it later (`Call.answer`), without a task.

    `strangers`: callers must be authenticated, so that connections without such a caller get little memory
    (`Call.trust`). `calls` is the number of running calls, `calls_max` its limit, `calls_of` the number of
    each source (`places.source_of`).
    """

    def __init__(
        self,
        serve: Callable[[Call], Coroutine[Any, Any, None]],
        *,
        serve_now: Callable[[Call], bool] | None = None,
        strangers: bool = False,
        calls_max: int,
        **options: Unpack[ListenerOptions],
    ) -> None:
        super().__init__(**options)
        self.serve = serve
        self.serve_now = serve_now
        self.strangers = strangers
        self.calls_max = calls_max
        self.calls = 0
        self.calls_of: Counter[str] = Counter()

    def _make(self, number: int, loop: asyncio.AbstractEventLoop) -> Http2Connection:
        return Http2Connection(self, loop)

    async def leave(self, seconds: float) -> None:
        """Stop listening; running calls get this many seconds, then their connections are closed."""
        await self.stop_listening()
        for conn in list(self.connections):
            conn.leave("the proxy stops")
        await self.wait_until_empty(seconds)
        await self.close()
