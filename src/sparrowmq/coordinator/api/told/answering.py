"""Answers that take much memory or time: they keep a place until they are sent, are sent piece by piece, and
their rows are made in slices of the loop.

If a client does not read its answer, the server must keep it. So a request that reads messages takes a place
before it reads them, and keeps it until the client has nearly all of the answer, or is disconnected after
`REQUEST_SECONDS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import IO, Final, TypeVar
from weakref import WeakKeyDictionary

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sparrowmq.coordinator.api.shared import ApiCaller
from sparrowmq.coordinator.cluster.room import Room
from sparrowmq.transport.slices import shared

R = TypeVar("R")
V = TypeVar("V")
PIECE_BYTES: Final = 64 * 1024
STEP_ROWS: Final = 50
_making: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]] = WeakKeyDictionary()
"""Held by the request, on each loop, that makes its rows."""
_UNTIL_SENT: ContextVar[AsyncExitStack | None] = ContextVar("until_sent", default=None)


@asynccontextmanager
async def look(who: ApiCaller, *, is_short: bool) -> AsyncIterator[None]:
    """A place for a request that reads messages: until it ends if its answer `is_short`, else until the
    answer is sent.

    Raises `RefusedError` (429, 503).
    """
    room = who.context.explorer.looks
    if is_short:
        async with room.place(who.person.name):
            yield
    else:
        await keep(room, who)
        yield


async def keep(room: Room, who: ApiCaller) -> None:
    """Take a place until the answer is sent. Raises `RefusedError` (429, 503)."""
    await _stack().enter_async_context(room.place(who.person.name))


def close_when_sent(file: IO[bytes]) -> None:
    """Close a file when the answer is sent or aborted."""
    _stack().callback(file.close)


async def shown(rows: Iterable[R], view: Callable[[R], V]) -> list[V]:
    """`view(row)` for each row.

    Thousands of rows take 10 ms, so others take turns after `STEP_ROWS`. One request makes its rows at a
    time: if several alternated, they would end in the same turn of the loop, and all be turned into JSON in
    it.
    """
    async with _making.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        return await shared().result(_views(rows, view))


def _views(rows: Iterable[R], view: Callable[[R], V]) -> Generator[None, None, list[V]]:
    found = []
    for number, row in enumerate(rows, 1):
        found.append(view(row))
        if number % STEP_ROWS == 0:
            yield
    return found


def _stack() -> AsyncExitStack:
    stack = _UNTIL_SENT.get()
    assert stack is not None, "the application has no InPieces"
    return stack


class InPieces:
    """Sends answers piece by piece, each when the client has read most of the previous ones; releases places
    after the last one.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

        async def sent(message: Message) -> None:
            body = message.get("body", b"")
            if message["type"] != "http.response.body" or len(body) <= PIECE_BYTES:
                await send(message)
                return
            for begin in range(0, len(body), PIECE_BYTES):
                more = message.get("more_body", False) or begin + PIECE_BYTES < len(body)
                await send({**message, "body": body[begin : begin + PIECE_BYTES], "more_body": more})

        async with AsyncExitStack() as stack:
            token = _UNTIL_SENT.set(stack)
            try:
                await self._app(scope, receive, sent)
            finally:
                _UNTIL_SENT.reset(token)
