"""A way to a server that can be cut and mended, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress


class Line:
    """Carries bytes between whoever connects to `port` and a server; `with Line(host, port) as line: …`.

    While it is cut it carries nothing in either direction, and nobody is told: connections stay open, new
    ones are accepted, what is sent waits. Mended, it carries what waited, or has lost all of it.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="line", daemon=True)
        self._carries = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    def __enter__(self) -> Line:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Carry nothing from now on."""
        self._loop.call_soon_threadsafe(self._carries.clear)

    def mend(self, *, lost: bool) -> None:
        """Carry again; with `lost`, connections of before are gone with all that was in them."""
        if lost:
            asyncio.run_coroutine_threadsafe(self._drop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._carries.set)

    async def _open(self) -> None:
        self._carries.set()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._drop()

    async def _drop(self) -> None:
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        try:
            await self._carries.wait()
            there, back = await asyncio.open_connection(*self._target)
            try:
                async with asyncio.TaskGroup() as ways:
                    ways.create_task(self._carry(reader, back))
                    ways.create_task(self._carry(there, writer))
            finally:
                back.transport.abort()
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._connections.discard(connection)

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            await self._carries.wait()
            target.write(data)
            await target.drain()
        with suppress(OSError):
            target.write_eof()
