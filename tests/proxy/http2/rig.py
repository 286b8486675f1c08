"""A listener with a small application, and a client that speaks HTTP/2 frame by frame."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import hpack

from sparrowmq.proxy.http2 import frames, grpc
from sparrowmq.proxy.http2.calls import Call
from sparrowmq.proxy.http2.frames import Frame
from sparrowmq.proxy.http2.listener import Http2Listener

MIB = 1024 * 1024
PIECE = bytes(64 * 1024)


class App:
    """`echo` answers with its request, `each` with every message of it, `big` with 256 messages of 64 KiB;
    `wait` waits for `go_on`. `held` has no task: the code that takes it from `calls` answers it."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.calls: list[Call] = []
        self.given_up = 0

    def serve_now(self, call: Call) -> bool:
        """Take the `held` calls that have a message."""
        if call.method != "held" or call.first_message is None:
            return False
        self.calls.append(call)
        return True

    async def serve(self, call: Call) -> None:
        """Answer one call."""
        self.calls.append(call)
        if call.method == "big":
            for _ in range(256):
                await call.send(PIECE)
            return
        if call.method == "wait":
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.given_up += 1
                raise
            return
        if call.method == "fail":
            raise ValueError("a fault of the application")
        async for message in call.requests():
            if call.method == "echo":
                await call.respond(message)
                return
            await call.send(message)


class H2Peer:
    """A client that sends exactly the frames a test asks for."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.encoder: Any = hpack.Encoder()
        self.decoder: Any = hpack.Decoder()

    async def greet(self, settings: dict[int, int] | None = None) -> None:
        """Send the preface, and read the server's settings and window."""
        self.write(frames.PREFACE + frames.settings_frame(settings or {}))
        kinds = [(await self.frame()).kind for _ in range(3)]
        assert sorted(kinds) == [frames.SETTINGS, frames.SETTINGS, frames.WINDOW_UPDATE]

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def headers(self, stream: int, path: str = "/t/echo", *, ends: bool = False, **more: Any) -> bytes:
        """The frame that opens a stream; `more` replaces or adds headers, `_` for `-`."""
        fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x"}
        fields |= {"te": "trailers", "content-type": "application/grpc"}
        for name, value in more.items():
            fields[{"method": ":method"}.get(name, name.replace("_", "-"))] = value
        flags = frames.END_HEADERS | (frames.END_STREAM if ends else 0)
        return frames.frame(frames.HEADERS, flags, stream, self.encoder.encode(list(fields.items())))

    def call(self, stream: int, path: str = "/t/echo", body: bytes = b"hello", **more: Any) -> bytes:
        """A complete request."""
        data = frames.frame(frames.DATA, frames.END_STREAM, stream, grpc.prefixed(body))
        return self.headers(stream, path, **more) + data

    async def frame(self) -> Frame:
        """The next frame."""
        async with asyncio.timeout(20):
            head = await self.reader.readexactly(frames.HEAD_BYTES)
            payload = await self.reader.readexactly(int.from_bytes(head[:3], "big"))
        return Frame(head[3], head[4], int.from_bytes(head[5:9], "big"), payload)

    async def until(self, kind: int) -> Frame:
        """The next frame of a type."""
        while (found := await self.frame()).kind != kind:
            if found.kind == frames.HEADERS:
                self.decoder.decode(found.payload)
        return found

    async def response(self) -> tuple[bytes, dict[str, str]]:
        """The data and the headers of the next call that ends; calls must not be interleaved."""
        data, told = b"", dict[str, str]()
        while True:
            found = await self.frame()
            if found.kind == frames.DATA:
                data += found.payload
            elif found.kind == frames.HEADERS:
                told |= dict(self.decoder.decode(found.payload))
                if found.flags & frames.END_STREAM:
                    return data, told

    async def closed_with(self) -> list[Frame]:
        """The frames that arrive before the server closes the connection."""
        found = []
        try:
            while True:
                found.append(await self.frame())
        except (asyncio.IncompleteReadError, ConnectionError):
            return found

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            pass


@asynccontextmanager
async def listening(app: App, *, calls_max: int = 1000, **options: Any) -> AsyncIterator[Http2Listener]:
    """A started listener on a free port."""
    listener = Http2Listener(app.serve, serve_now=app.serve_now, calls_max=calls_max, **options)
    await listener.start()
    listener.begin_watch()
    try:
        yield listener
    finally:
        await listener.close()


@asynccontextmanager
async def peer_of(listener: Http2Listener, *, greets: bool = True) -> AsyncIterator[H2Peer]:
    """A connection to the listener."""
    peer = H2Peer(*await asyncio.open_connection("127.0.0.1", listener.port))
    try:
        if greets:
            await peer.greet()
        yield peer
    finally:
        await peer.close()
