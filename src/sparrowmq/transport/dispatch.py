"""Requests to handlers by code, and the answers that errors become.

`Dispatcher` is used on both ends: by `CommandHandler` for what clients ask a server, and by
`RemotingClient` for what a broker asks its clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Generic, TypeVar

from sparrowmq.core.errors import (
    BrokerError,
    FrameError,
    InvalidMessageError,
    InvalidNameError,
    SparrowError,
    StoreBusyError,
    StoreFullError,
    TooManyRequestsError,
)
from sparrowmq.protocol.codes import ResponseCode, request_name
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command, RawFrame, decode, encode
from sparrowmq.transport.connection import Connection
from sparrowmq.transport.occasional import OccasionalLog

ANSWER_SECONDS_MAX: Final = 60.0
"""How long a handler may take; peers give up after at most 30 s, so this only ends what has hung."""
RUNNING_MAX: Final = 10_000
"""Handlers that may be waiting for something at once."""

logger = logging.getLogger("sparrowmq.transport")

P = TypeVar("P")
Answer = Command | None
Handler = Callable[[P, Command], Answer | Awaitable[Answer]]
"""Takes the peer and its request; gives the answer, None for no answer, or an awaitable of these."""

_CODES: Final = (
    (InvalidMessageError, ResponseCode.MESSAGE_ILLEGAL),
    (InvalidNameError, ResponseCode.INVALID_PARAMETER),
    (StoreFullError, ResponseCode.SERVICE_NOT_AVAILABLE),
    (StoreBusyError, ResponseCode.SERVICE_NOT_AVAILABLE),
    (TooManyRequestsError, ResponseCode.SYSTEM_BUSY),
)


def refusal(code: int, remark: str) -> Command:
    """An error answer."""
    return Command(code=code, flag=FLAG_RESPONSE, remark=remark)


class Dispatcher(Generic[P]):
    """Calls the handler of a request's code and writes what it gives.

    One-way requests are never answered, unknown codes get 3. A `SparrowError` becomes an answer with its text
    and a fitting code; any other exception is logged and becomes code 1: one faulty request harms no other.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler[P]],
        *,
        answer_seconds_max: float = ANSWER_SECONDS_MAX,
        running_max: int = RUNNING_MAX,
    ) -> None:
        self._handlers = handlers
        self._answer_seconds_max = answer_seconds_max
        self._running_max = running_max
        self._running: set[asyncio.Task[None]] = set()
        self._occasional = OccasionalLog(logger)

    def serve(self, peer: P, request: Command, write: Callable[[bytes], None]) -> None:
        """Handle one request; its answer goes to `write`, at once or later. Answers to nobody are dropped."""
        if request.is_response:
            return
        handler = self._handlers.get(request.code)
        if handler is None:
            text = f" request type {request.code} not supported"
            self._answer(request, refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text), write)
            return
        try:
            result = handler(peer, request)
        except Exception as error:
            result = self._failure(request, error)
        if result is None or isinstance(result, Command):
            self._answer(request, result, write)
        elif len(self._running) >= self._running_max:
            # Never awaited, but closed: it must neither run nor be complained about.
            close = getattr(result, "close", None)
            if close is not None:
                close()
            text = f"{self._running_max} requests are being worked on, which is the limit; try again later"
            self._answer(request, refusal(ResponseCode.SYSTEM_BUSY, text), write)
        else:
            task = asyncio.get_running_loop().create_task(self._finish(request, result, write))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def close(self, timeout: float = 3.0) -> None:
        """Give running handlers `timeout` seconds to end, then cancel them."""
        if not self._running:
            return
        _, late = await asyncio.wait(self._running, timeout=timeout)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=timeout)

    async def _finish(
        self, request: Command, result: Awaitable[Answer], write: Callable[[bytes], None]
    ) -> None:
        answer: Answer
        try:
            async with asyncio.timeout(self._answer_seconds_max) as limit:
                answer = await result
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                text = f"{request_name(request.code)} was not done within {self._answer_seconds_max:g} s"
                answer = refusal(ResponseCode.SYSTEM_ERROR, text)
            else:
                answer = self._failure(request, error)
        self._answer(request, answer, write)

    def _failure(self, request: Command, error: Exception) -> Command:
        if isinstance(error, BrokerError):
            return refusal(error.code, error.remark)
        if isinstance(error, SparrowError):
            for kind, code in _CODES:
                if isinstance(error, kind):
                    return refusal(code, str(error))
            return refusal(ResponseCode.SYSTEM_ERROR, str(error))
        name = request_name(request.code)
        self._occasional.write(
            logging.ERROR, f"{name} {type(error).__name__}", f"a fault while handling {name}", error=error
        )
        return refusal(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")

    @staticmethod
    def _answer(request: Command, answer: Answer, write: Callable[[bytes], None]) -> None:
        if answer is None or request.is_oneway:
            return
        answer.opaque = request.opaque
        answer.flag = FLAG_RESPONSE
        write(encode(answer))


class CommandHandler:
    """A `ServerHandler` that decodes every frame and answers by code.

    `on_connection_made` and `on_connection_lost` are called with each connection that comes and goes.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler[Connection]],
        *,
        on_connection_made: Callable[[Connection], None] | None = None,
        on_connection_lost: Callable[[Connection], None] | None = None,
        answer_seconds_max: float = ANSWER_SECONDS_MAX,
        running_max: int = RUNNING_MAX,
    ) -> None:
        self._dispatcher = Dispatcher(
            handlers, answer_seconds_max=answer_seconds_max, running_max=running_max
        )
        self._on_connection_made = on_connection_made
        self._on_connection_lost = on_connection_lost

    def connection_made(self, conn: Connection) -> None:
        """A client connected."""
        if self._on_connection_made is not None:
            self._on_connection_made(conn)

    def connection_lost(self, conn: Connection) -> None:
        """A client is gone."""
        if self._on_connection_lost is not None:
            self._on_connection_lost(conn)

    def frames_received(self, conn: Connection, frames: list[RawFrame]) -> None:
        """Answer the requests in order; a header that cannot be read closes the connection (remoting:1.1)."""
        serve, write = self._dispatcher.serve, conn.write
        for kind, header, body in frames:
            try:
                request = decode(kind, header, body)
            except FrameError as error:
                conn.refuse(error)
                return
            serve(conn, request, write)

    async def close(self, timeout: float = 3.0) -> None:
        """Give handlers that still wait `timeout` seconds to end, then cancel them."""
        await self._dispatcher.close(timeout)
