"""Slow clients at a real socket: each gets its time, and then its place is free again."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import Receive, Scope, Send
from tests.support import run, until
from uvicorn.protocols.http.h11_impl import H11Protocol

from sparrowmq.httpd import serving
from sparrowmq.httpd.serving import PIECE_BYTES, HttpServer, PatientProtocol

LONG = "x" * 30_000_000
"""More than the buffers of both sides hold."""
GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Says how long a body was; `/long` gives much to read."""
    size = 0
    if scope["path"] == "/held":
        await asyncio.Event().wait()
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

    def __init__(
        self, server: HttpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
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
async def served(
    *, head: float, request: float, most: int = 200, share: int = 0
) -> AsyncIterator[Callable[..., Awaitable[Client]]]:
    """A server with these times and places, and what connects to it, from an address that may be given."""
    patched = pytest.MonkeyPatch()
    patched.setattr(PatientProtocol, "head_seconds", head)
    patched.setattr(PatientProtocol, "request_seconds", request)
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    server = HttpServer(echo, stop_seconds=1.0, connections_max=most, connections_per_address_max=share)
    serves = asyncio.create_task(server.serve([listening]))
    clients: list[Client] = []

    async def connect(source: str = "127.0.0.1") -> Client:
        streams = await asyncio.open_connection(*listening.getsockname(), local_addr=(source, 0))
        clients.append(Client(server, *streams))
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


def test_clients_that_send_no_or_an_endless_head_are_disconnected() -> None:
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


def test_a_body_of_tiny_chunks_is_taken_a_piece_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """To read 20,000 chunks at once would keep everybody waiting for a tenth of a second and more."""
    pieces: list[int] = []
    taken = H11Protocol.data_received

    def counted(protocol: H11Protocol, data: bytes) -> None:
        pieces.append(len(data))
        taken(protocol, data)

    monkeypatch.setattr(H11Protocol, "data_received", counted)

    async def main() -> None:
        async with served(head=10.0, request=30.0) as connect:
            client = await connect()
            head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
            client.writer.write(head + b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n" + GET + GET)
            assert await client.status() == 200
            assert [await client.status(), await client.status()] == [200, 200], "what came behind it"

    run(main())
    assert max(pieces) <= PIECE_BYTES
    assert sum(pieces) > 6 * 20_000


def test_silent_clients_keep_nobody_out() -> None:
    async def main() -> None:
        async with served(head=60.0, request=60.0, most=4) as connect:
            silent = [await connect() for _ in range(4)]
            answered = [await connect() for _ in range(3)]
            for client in answered:
                client.writer.write(GET)
                assert await client.status() == 200
            assert await silent[0].closed(), "the oldest gave its place"
            for client in answered:  # they wait for another request, and give way only when it is their turn
                client.writer.write(GET)
                assert await client.status() == 200

    run(main())


def _all_await_bodies(guests: Iterable[PatientProtocol]) -> bool:
    return all(guest._awaits_body() for guest in guests)


def test_clients_that_are_waited_for_amid_a_body_give_way_too() -> None:
    async def main() -> None:
        async with served(head=60.0, request=60.0, most=2) as connect:
            for _ in range(2):
                slow = await connect()
                slow.writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nx")
                places = slow.server.places
                await until(partial(_all_await_bodies, places._hosts))
            client = await connect()
            client.writer.write(GET)
            assert await client.status() == 200

    run(main())


def test_a_body_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PatientProtocol, "body_seconds", 0.3)

    async def main() -> None:
        async with served(head=60.0, request=60.0) as connect:
            slow, quick = await connect(), await connect()
            for client in (slow, quick):
                client.writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nx")
            quick.writer.write(b"y")
            assert await quick.status() == 200
            assert await slow.closed()
            assert not quick.reader.at_eof(), "its body was there in time"
            quick.writer.write(GET)
            assert await quick.status() == 200

    run(main())


def test_one_address_has_its_share_and_others_get_in() -> None:
    async def main() -> None:
        async with served(head=60.0, request=60.0, most=4, share=2) as connect:
            # Their answers do not come: nobody is waited for, so nobody gives way.
            held = [await connect("127.0.0.2") for _ in range(2)]
            for client in held:
                client.writer.write(b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
            places = held[0].server.places
            await until(lambda: len(places) == 2 and not any(one.gives_way() for one in places._hosts))
            third = await connect("127.0.0.2")
            third.writer.write(GET)
            assert await third.status() == 503
            other = await connect("127.0.0.3")
            other.writer.write(GET)
            assert await other.status() == 200
            held.append(await connect("127.0.0.3"))
            held[-1].writer.write(b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
            other.writer.write(b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
            await until(lambda: len(places) == 4 and not any(one.gives_way() for one in places._hosts))
            full = await connect("127.0.0.4")
            full.writer.write(GET)
            assert await full.status() == 503
            held[0].writer.close()
            await until(lambda: len(places) == 3)
            late = await connect("127.0.0.4")
            late.writer.write(GET)
            assert await late.status() == 200

    run(main())


def test_clients_that_wait_for_room_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "REFUSED_MAX", 3)

    async def main() -> None:
        async with served(head=60.0, request=60.0, most=2) as connect:
            for _ in range(2):
                held = await connect()
                held.writer.write(b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
            await until(lambda: len(held.server.places) == 2)
            await until(lambda: not any(one.gives_way() for one in held.server.places._hosts))
            for _ in range(10):
                more = await connect()
            assert await more.closed()
            assert len(held.server.server_state.connections) <= 2 + 3

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
