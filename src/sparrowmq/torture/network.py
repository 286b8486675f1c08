"""The network between the parts of a cluster: relays of TCP connections that can be cut, slowed and torn.

Every server listens at 127.0.0.1 and is told to clients as 127.0.0.2, with the same port; there a relay
accepts connections. Whose connection it is, Linux tells by the port of the other end, so that one broker can
be cut off from all others, or from one, in one direction or both. Bytes that are held back arrive when the
cut ends, as TCP sends them again: late requests and late answers.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparrowmq.core.errors import ListenError

INSIDE: Final = "127.0.0.1"
"""Where servers listen."""
OUTSIDE: Final = "127.0.0.2"
"""Where relays listen."""
CLIENTS: Final = "clients"
"""The name of everybody who is no server of the cluster."""
READ_BYTES: Final = 64 * 1024
CHUNKS_MAX: Final = 64
"""Chunks that a relay holds back for one direction of one connection; then it reads no more."""
CONNECT_SECONDS: Final = 5.0
_PROC: Final = Path("/proc")


def is_possible() -> bool:
    """Whether relays can be used here: Linux, with the second loopback address."""
    if not (_PROC / "net" / "tcp").exists():
        return False
    with socket.socket() as probe:
        try:
            probe.bind((OUTSIDE, 0))
        except OSError:
            return False
    return True


@dataclass(frozen=True, slots=True)
class Trouble:
    """What happens to bytes from one part to another; an empty name is any part."""

    source: str = ""
    target: str = ""
    is_cut: bool = False
    delay: float = 0.0

    def concerns(self, source: str, target: str) -> bool:
        """Whether it is about this direction."""
        return self.source in ("", source) and self.target in ("", target)


class RelayedNetwork:
    """All relays of one cluster, and the troubles there are now.

    `who` gives the name of the part whose process has a pid; None for processes that are no part.
    """

    def __init__(self, who: Callable[[], dict[int, str]]) -> None:
        self._who = who
        self._relays: list[asyncio.Server] = []
        self._connections: set[_Connection] = set()
        self._troubles: list[Trouble] = []
        self._changed = asyncio.Condition()

    async def open(self, part: str, port: int) -> None:
        """Relay a port of a part from now on. Raises `ListenError`."""

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            source = self._source(writer.get_extra_info("peername")[1])
            await _Connection(self, source, part, reader, writer).run(port)

        try:
            self._relays.append(await asyncio.start_server(accepted, OUTSIDE, port))
        except OSError as error:
            address = f"{OUTSIDE}:{port}"
            text = f"{address} cannot be used for a relay: {error.strerror}"
            raise ListenError(text, address=address, value=error.errno) from None

    async def close(self) -> None:
        """End all relays and their connections. Idempotent."""
        relays, self._relays = self._relays, []
        for relay in relays:
            relay.close()
        for one in list(self._connections):
            one.tear()
        async with self._changed:
            self._troubles.clear()
            self._changed.notify_all()
        tasks = [one.task for one in self._connections if one.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=CONNECT_SECONDS)

    async def trouble(self, *troubles: Trouble) -> None:
        """Begin them."""
        async with self._changed:
            self._troubles += troubles

    async def end(self, *troubles: Trouble) -> None:
        """End them; what was held back goes on."""
        async with self._changed:
            for one in troubles:
                self._troubles.remove(one)
            self._changed.notify_all()

    def tear(self, part: str) -> int:
        """End all connections of a part after half of what they carry next; how many there are."""
        found = [one for one in self._connections if part in (one.source, one.target)]
        for one in found:
            one.is_torn = True
        return len(found)

    async def passed(self, source: str, target: str, since: float) -> None:
        """Wait until bytes that came at a time of the loop may go on."""
        loop = asyncio.get_running_loop()
        delay = max((one.delay for one in self._troubles if one.concerns(source, target)), default=0.0)
        if (wait := since + delay - loop.time()) > 0:
            await asyncio.sleep(wait)
        async with self._changed:
            await self._changed.wait_for(
                lambda: not any(one.is_cut and one.concerns(source, target) for one in self._troubles)
            )

    @contextmanager
    def kept(self, connection: _Connection) -> Iterator[None]:
        """Know a connection while it is open."""
        self._connections.add(connection)
        try:
            yield
        finally:
            self._connections.discard(connection)

    def _source(self, port: int) -> str:
        inode = _inode_of(port)
        if inode is None:
            return CLIENTS
        wanted = f"socket:[{inode}]"
        return next((name for pid, name in self._who().items() if _has(pid, wanted)), CLIENTS)


def _inode_of(port: int) -> str | None:
    """The number of the socket of this machine that has a local port and is connected to a relay."""
    ending = f":{port:04X}"
    for line in (_PROC / "net" / "tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(ending) and fields[2].startswith("0200007F:"):
            return fields[9]
    return None


def _has(pid: int, wanted: str) -> bool:
    with suppress(OSError):
        for path in (_PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                if str(path.readlink()) == wanted:
                    return True
    return False


class _Connection:
    """One relayed connection: two directions, each with a reader and a writer."""

    def __init__(
        self,
        network: RelayedNetwork,
        source: str,
        target: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.source = source
        self.target = target
        self.is_torn = False
        self.task: asyncio.Task[None] | None = None
        self._network = network
        self._reader = reader
        self._writers = [writer]

    async def run(self, port: int) -> None:
        """Carry bytes until both directions have ended, or one of them was torn."""
        self.task = asyncio.current_task()
        with self._network.kept(self):
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    reader, writer = await asyncio.open_connection(INSIDE, port)
            except (OSError, TimeoutError):
                self.tear()
                return
            self._writers.append(writer)
            ways = (
                asyncio.create_task(self._carry(self._reader, writer, self.source, self.target)),
                asyncio.create_task(self._carry(reader, self._writers[0], self.target, self.source)),
            )
            try:
                await asyncio.gather(*ways)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
                self.tear()

    def tear(self) -> None:
        """End both sides at once."""
        for writer in self._writers:
            writer.transport.abort()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: str, target: str
    ) -> None:
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_MAX)
        reading = asyncio.create_task(_read(reader, chunks))
        try:
            while True:
                since, data = await chunks.get()
                await self._network.passed(source, target, since)
                if self.is_torn:
                    writer.write(data[: len(data) // 2])
                    self.tear()
                    return
                if not data:
                    if writer.can_write_eof():
                        writer.write_eof()
                    return
                writer.write(data)
                await writer.drain()
        except (OSError, RuntimeError):  # uvloop raises the second one for a closed transport
            self.tear()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def _read(reader: asyncio.StreamReader, chunks: asyncio.Queue[tuple[float, bytes]]) -> None:
    """Note when each chunk came; an empty one is the end."""
    loop, data = asyncio.get_running_loop(), b"begin"
    while data:
        try:
            data = await reader.read(READ_BYTES)
        except OSError:
            data = b""
        await chunks.put((loop.time(), data))
