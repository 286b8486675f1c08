"""Slow clients at a real socket: each gets its time, and then its place is free again."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import Receive, Scope, Send
from tests.support import run, until

from sparrowmq.coordinator.api import serving
from sparrowmq.coordinator.api.serving import ApiServer, PatientProtocol

LONG = "x" * 30_000_000
"""More than the buffers of both sides hold."""
GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Says how long a body was; `/long` gives much to read."""
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    answer = PlainTextResponse(LONG) if scope["path"] == "/long" else JSONResponse(size)
    await answer(scope, receive, send)


class Client:
    """A connection that speaks as slowly as it likes."""

    def __init__(self, server: ApiServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server, self.reader, self.writer = server, reader, writer

    async def status(self) -> int:
        """The next answer's, which is read whole."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await self.reader.readexactly(size)
        return int(head.split(b" ")[1])

    async def closed(self) -> bool:
        """Waits until the other side has closed."""
        async with asyncio.timeout(10):
            with suppress(ConnectionError):
                while await self.reader.read(65536):
                    pass
        return True

    async def dribble(self, text: bytes) -> None:
        """Send byte by byte for ever, until nobody listens."""
        with suppress(ConnectionError):
            while True:
                self.writer.write(text)
                await self.writer.drain()
                await asyncio.sleep(0.01)


@asynccontextmanager
async def served(*, head: float, request: float) -> AsyncIterator[Callable[[], Awaitable[Client]]]:
    """A server with these times, and what connects to it."""
    patched = pytest.MonkeyPatch()
    patched.setattr(PatientProtocol, "head_seconds", head)
    patched.setattr(PatientProtocol, "request_seconds", request)
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    server = ApiServer(echo, stop_seconds=1.0)
    serves = asyncio.create_task(server.serve([listening]))
    clients: list[Client] = []

    async def connect() -> Client:
        clients.append(Client(server, *await asyncio.open_connection(*listening.getsockname())))
        return clients[-1]

    try:
        yield connect
    finally:
        for client in clients:
            client.writer.transport.abort()
        server.should_exit = True
        await serves
        listening.close()
        patched.undo()


def test_who_says_nothing_or_never_ends_its_head_is_let_go() -> None:
    async def main() -> None:
        async with served(head=0.3, request=60.0) as connect:
            silent, slow = await connect(), await connect()
            slow.writer.write(b"GET / HTTP/1.1\r\nHost: ")
            dribbling = asyncio.create_task(slow.dribble(b"h"))
            assert await silent.closed()
            assert await slow.closed()
            await dribbling
            idle = await connect()
            idle.writer.write(GET)
            assert await idle.status() == 200
            assert await idle.closed(), "nothing came after its answer"
            await until(lambda: not idle.server.server_state.connections)

    run(main())


def test_a_body_and_an_answer_have_their_time_too() -> None:
    async def main() -> None:
        async with served(head=0.3, request=0.3) as connect:
            slow, deaf = await connect(), await connect()
            slow.writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n")
            dribbling = asyncio.create_task(slow.dribble(b"x"))
            deaf.reader._transport.pause_reading()  # type: ignore[attr-defined]
            deaf.writer.write(b"GET /long HTTP/1.1\r\nHost: h\r\n\r\n")
            assert await slow.closed()
            await dribbling
            await until(lambda: not deaf.server.server_state.connections)

    run(main())


def test_who_is_quick_enough_is_served_as_long_as_it_likes() -> None:
    async def main() -> None:
        async with served(head=30.0, request=30.0) as connect:
            client = await connect()
            client.writer.write(3 * GET)
            assert [await client.status() for _ in range(3)] == [200, 200, 200]
            client.writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nx")
            client.writer.write(b"y" + GET)
            assert [await client.status() for _ in range(2)] == [200, 200]
            (protocol,) = client.server.server_state.connections
            assert isinstance(protocol, PatientProtocol)
            assert protocol._awaits_head

    run(main())


def test_places_that_silent_clients_took_are_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "CONNECTIONS_MAX", 4)

    async def main() -> None:
        async with served(head=0.5, request=60.0) as connect:
            for _ in range(4):
                await connect()

            async def status() -> int:
                client = await connect()
                client.writer.write(GET)
                found = await client.status()
                client.writer.close()
                return found

            async def is_served() -> bool:
                return await status() == 200

            assert await status() == 503
            await until(is_served)

    run(main())


def test_garbage_is_refused_and_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with served(head=30.0, request=30.0) as connect:
            for text in (b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nx" * 9, b"\0" * 70_000):
                client = await connect()
                client.writer.write(text + b"\r\n\r\n")
                assert await client.closed()
            upgrade = await connect()
            upgrade.writer.write(GET[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            assert await upgrade.status() == 200, "it speaks HTTP alone"

    with caplog.at_level(logging.DEBUG):
        run(main())
    assert not [one for one in caplog.records if one.name.startswith("uvicorn")]
