"""Dispatch of requests to handlers by code, and conversion of errors to answers.

`Dispatcher` is used on both ends: by `CommandHandler` for requests of clients to a server, and by
`RemotingClient` for requests of a broker to its clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from sparrowmq.core.errors import FrameError, SparrowError
from sparrowmq.core.rights import Right, Without
from sparrowmq.protocol.codes import ResponseCode, request_name, request_word, response_word
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command, RawFrame, decode, encode
from sparrowmq.protocol.refusals import Refused, refusal_remark
from sparrowmq.transport.connection import Connection
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.transport.request_watch import RequestWatch

ANSWER_SECONDS_MAX: Final = 60.0
"""How long a handler may take; peers give up after at most 30 s, so this only ends hung handlers."""
TURN_SECONDS: Final = 0.005
"""How long the requests of one chunk may keep others waiting; the remaining ones wait for another turn."""
RUNNING_MAX: Final = 10_000
"""Maximum number of handlers that wait at once."""
SHARE: Final = 4
"""One peer may use a quarter of the free handlers. So a peer without any still gets one, no matter how many
busy peers there are.
"""

WAITING_BYTES: Final = 2048
"""Overhead of a waiting request in addition to its body."""
_NO_ROOM: Final = (
    "the server's memory for this client or for all clients is exhausted (connectionMemoryMax); read the "
    "pending responses, or try again later"
)

logger = logging.getLogger("sparrowmq.transport")

P = TypeVar("P")
Answer = Command | None
Handler = Callable[[P, Command], Answer | Awaitable[Answer]]
"""Takes the peer and its request; returns the answer, None for no answer, or an awaitable of these."""


def refusal(code: int, remark: str) -> Command:
    """An error answer."""
    return Command(code=code, flag=FLAG_RESPONSE, remark=remark)


def check_rows(codes: Iterable[int], rows: Mapping[int, Right], where: str, *, guarded: bool) -> None:
    """Raise `LookupError` for codes that have handlers but no row in a server's table of rights, or that a
    server without access control must not serve.

    `where` is the module of the table; `guarded`: whether the server has access control.
    """
    missing = sorted(code for code in codes if code not in rows)
    if missing:
        raise LookupError(
            f"{', '.join(map(request_name, missing))}: these requests have handlers, but no row in RIGHTS of "
            f"{where}; say there what they need and what they are about"
        )
    open_to_all = sorted(code for code in codes if not guarded and rows[code].without is Without.NOBODY)
    if open_to_all:
        raise LookupError(
            f"{', '.join(map(request_name, open_to_all))}: these requests are not for a server without "
            "access control; register them with a gate only"
        )


class Dispatcher(Generic[P]):
    """Calls the handler of a request's code and writes its answer.

    One-way requests are never answered; unknown codes are answered with code 3. A `Refused` becomes its
    answer, a `SparrowError` one with its text and a fitting code (see `Refused.of`); any other exception is
    logged and becomes code 1: one faulty request harms no other. Waiting requests are charged with `charge`,
    which returns False when the limit is reached; `has_room` returns whether an answer of a given size may be
    buffered. Without room the answer is code 2.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler[P]],
        *,
        answer_seconds_max: float = ANSWER_SECONDS_MAX,
        running_max: int = RUNNING_MAX,
        has_room: Callable[[P, int], bool] | None = None,
        charge: Callable[[P, int], bool] | None = None,
        requests: RequestWatch | None = None,
    ) -> None:
        self._requests = requests
        self._has_room = has_room
        self._charge = charge
        self._handlers = handlers
        self._answer_seconds_max = answer_seconds_max
        self._running_max = running_max
        self._running: set[asyncio.Task[None]] = set()
        self._of_peer: dict[P, int] = {}
        self._occasional = OccasionalLog(logger)

    def serve(self, peer: P, request: Command, write: Callable[[bytes], None]) -> None:
        """Handle one request; its answer goes to `write`, immediately or later. Answers to closed connections
        are dropped.
        """
        if request.is_response:
            return
        handler = self._handlers.get(request.code)
        if handler is None:
            self._refuse(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
            text = refusal_remark(request.code)
            self._answer(peer, request, refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text), write)
            return
        began = monotonic()
        try:
            result = handler(peer, request)
        except Exception as error:
            result = self._failure(request, error)
        if result is None or isinstance(result, Command):
            self._answer(peer, request, result, write)
            self._count(request, result, began)
        else:
            self._wait(peer, request, result, write)

    def _count(self, request: Command, answer: Answer, began: float) -> None:
        """Count an answered request; sends are counted where they are stored."""
        watch = self._requests
        if watch is None or not watch.counts or answer is None or request.is_oneway:
            return
        watch.add(request_word(request.code), response_word(answer.code), monotonic() - began)

    def _refuse(self, request: Command, code: int) -> None:
        """Count a refused request."""
        if self._requests is not None:
            self._requests.refused(request.code, code)

    def _wait(
        self, peer: P, request: Command, result: Awaitable[Answer], write: Callable[[bytes], None]
    ) -> None:
        size = len(request.body) + WAITING_BYTES
        busy, mine = "", self._of_peer.get(peer, 0)
        if mine >= max(1, self._free // SHARE):
            busy = (
                f"{mine} requests of this client are in progress, and {len(self._running)} in all; one "
                f"client may use a quarter of the remaining part of {self._running_max}; try again later"
            )
        elif not self._free:
            busy = f"{self._running_max} requests are in progress, which is the limit; try again later"
        elif self._charge is not None and not self._charge(peer, size):
            busy = f"a request of {len(request.body)} bytes would have to wait, and {_NO_ROOM}"
        if busy:
            # Close it because it is never awaited: it must neither run nor cause a warning. Sliced work is a
            # future here; it would otherwise continue and keep its memory.
            end = getattr(result, "close", None) or getattr(result, "cancel", None)
            if end is not None:
                end()
            self._refuse(request, ResponseCode.SYSTEM_BUSY)
            write(_answered(request, refusal(ResponseCode.SYSTEM_BUSY, busy)))
            return
        name = f"{request_name(request.code)} of {getattr(peer, 'address', peer)}"
        work = self._finish(peer, request, result, write)
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        self._of_peer[peer] = mine + 1
        task.add_done_callback(lambda done: self._ended(done, peer, size))

    @property
    def running(self) -> int:
        """Number of handlers that wait for something."""
        return len(self._running)

    @property
    def _free(self) -> int:
        return max(0, self._running_max - len(self._running))

    def _ended(self, task: asyncio.Task[None], peer: P, size: int) -> None:
        self._running.discard(task)
        left = self._of_peer[peer] - 1
        if left:
            self._of_peer[peer] = left
        else:
            del self._of_peer[peer]
        if self._charge is not None:
            self._charge(peer, -size)

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
        self, peer: P, request: Command, result: Awaitable[Answer], write: Callable[[bytes], None]
    ) -> None:
        answer: Answer
        began = monotonic()
        try:
            async with asyncio.timeout(self._answer_seconds_max) as limit:
                answer = await result
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                text = f"{request_name(request.code)} was not completed within {self._answer_seconds_max:g} s"
                answer = refusal(ResponseCode.SYSTEM_ERROR, text)
            else:
                answer = self._failure(request, error)
        self._answer(peer, request, answer, write)
        self._count(request, answer, began)
        if self._requests is not None and answer is not None:
            self._requests.waited(request, str(getattr(peer, "address", peer)), monotonic() - began)

    def _failure(self, request: Command, error: Exception) -> Command:
        if not isinstance(error, Refused | SparrowError):
            name = request_name(request.code)
            self._occasional.write(
                logging.ERROR, f"{name} {type(error).__name__}", f"error while handling {name}", error=error
            )
        return Refused.of(error).answer()

    def _answer(self, peer: P, request: Command, answer: Answer, write: Callable[[bytes], None]) -> None:
        if answer is None or request.is_oneway:
            return
        data = _answered(request, answer)
        if self._has_room is not None and not self._has_room(peer, len(data)):
            text = f"an answer of {len(data)} bytes would have to wait until it is read, and {_NO_ROOM}"
            self._refuse(request, ResponseCode.SYSTEM_BUSY)
            data = _answered(request, refusal(ResponseCode.SYSTEM_BUSY, text))
        write(data)


def _answered(request: Command, answer: Command) -> bytes:
    answer.opaque = request.opaque
    answer.flag = FLAG_RESPONSE
    return encode(answer)


class CommandHandler:
    """A `ServerHandler` that decodes every frame and answers by code.

    `on_connection_made` and `on_connection_lost` are called with each opened and closed connection.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler[Connection]],
        *,
        on_connection_made: Callable[[Connection], None] | None = None,
        on_connection_lost: Callable[[Connection], None] | None = None,
        answer_seconds_max: float = ANSWER_SECONDS_MAX,
        running_max: int = RUNNING_MAX,
        requests: RequestWatch | None = None,
    ) -> None:
        self._dispatcher = Dispatcher(
            handlers,
            requests=requests,
            answer_seconds_max=answer_seconds_max,
            running_max=running_max,
            has_room=Connection.has_room,
            charge=Connection.charge,
        )
        self._on_connection_made = on_connection_made
        self._on_connection_lost = on_connection_lost

    def connection_made(self, conn: Connection) -> None:
        """A client connected."""
        if self._on_connection_made is not None:
            self._on_connection_made(conn)

    def connection_lost(self, conn: Connection) -> None:
        """A client disconnected."""
        if self._on_connection_lost is not None:
            self._on_connection_lost(conn)

    def frames_received(self, conn: Connection, frames: list[RawFrame]) -> None:
        """Answer the requests in order; an invalid header closes the connection (remoting:1.1).

        The remaining requests wait once the client reads too slowly, or others waited for `TURN_SECONDS`.
        """
        serve, write, until = self._dispatcher.serve, conn.write, conn.began + TURN_SECONDS
        for at, (kind, header, body) in enumerate(frames):
            if conn.is_behind or (at and monotonic() > until):
                conn.put_off(frames[at:])
                return
            try:
                request = decode(kind, header, body)
            except FrameError as error:
                conn.refuse(error)
                return
            serve(conn, request, write)

    @property
    def running(self) -> int:
        """Number of handlers that wait for something."""
        return self._dispatcher.running

    async def close(self, timeout: float = 3.0) -> None:
        """Give handlers that still wait `timeout` seconds to end, then cancel them."""
        await self._dispatcher.close(timeout)
