"""A handler that notes what happens, and a bare peer that reads and writes bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from sparrowmq.protocol.frame import FLAG_RESPONSE, Command, FrameReader, RawFrame, decode, encode
from sparrowmq.transport.connection import Connection
from sparrowmq.transport.server import Server


class EchoHandler:
    """Answers each request with its own body and fields, and keeps what it saw."""

    def __init__(self) -> None:
        self.made: list[Connection] = []
        self.lost: list[Connection] = []
        self.chunks: list[list[Command]] = []
        self.on_request: Callable[[Connection, Command], None] = self.echo

    def connection_made(self, conn: Connection) -> None:
        self.made.append(conn)

    def connection_lost(self, conn: Connection) -> None:
        self.lost.append(conn)

    def frames_received(self, conn: Connection, frames: list[RawFrame]) -> None:
        commands = [decode(*raw) for raw in frames]
        self.chunks.append(commands)
        for command in commands:
            self.on_request(conn, command)

    def echo(self, conn: Connection, request: Command) -> None:
        if not request.is_oneway:
            conn.send(answer_to(request))


def answer_to(request: Command, code: int = 0, remark: str | None = None) -> Command:
    """An answer that carries the request's body and fields back."""
    return Command(code, request.opaque, FLAG_RESPONSE, request.ext, request.body, remark)


class Peer:
    """The other end of a connection, without any of our code but the frame reader."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.reading: Any = writer.transport
        """For pauses; a stream's writer has it by its other half."""
        self._frames = FrameReader()
        self._read: list[RawFrame] = []

    async def send(self, *commands: Command) -> None:
        await self.send_bytes(b"".join(map(encode, commands)))

    async def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def command(self) -> Command:
        """The next command the other side sent."""
        async with asyncio.timeout(20):
            while not self._read:
                data = await self.reader.read(65536)
                assert data, "the connection closed before a frame came"
                self._read += self._frames.feed(data)
        return decode(*self._read.pop(0))

    async def closed_with(self) -> bytes:
        """What still came before the other side closed."""
        async with asyncio.timeout(20):
            try:
                return await self.reader.read(-1)
            except ConnectionResetError:
                return b""

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            pass


@asynccontextmanager
async def serving(handler: Any, **options: Any) -> AsyncIterator[Server]:
    """A started server on a free port."""
    server = Server(handler, **options)
    await server.start()
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def peer_of_server(server: Server) -> AsyncIterator[Peer]:
    """A bare connection to a server."""
    peer = Peer(*await asyncio.open_connection(server.host, server.port))
    try:
        yield peer
    finally:
        await peer.close()


@asynccontextmanager
async def scripted(script: Callable[[Peer], Coroutine[Any, Any, None]]) -> AsyncIterator[str]:
    """A server that runs `script` with each connection; gives its address."""
    peers: list[Peer] = []
    tasks: list[asyncio.Task[None]] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(Peer(reader, writer))
        tasks.append(asyncio.create_task(script(peers[-1])))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        for peer in peers:
            await peer.close()
        await server.wait_closed()
        faults = [end for end in ends if isinstance(end, Exception)]
        assert not faults, f"the script failed: {faults}"
