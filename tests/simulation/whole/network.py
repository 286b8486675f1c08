"""An event loop with a virtual clock and a network in memory: whole servers and clients in one thread.

Bytes arrive in order, half a millisecond later. What would run in a thread runs at once. A part of the
world is cut off by the name of the machine in whose context it was started.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar, TypeVarTuple

from tests.client.churn import VirtualLoop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
MACHINE: ContextVar[str] = ContextVar("machine", default="")
"""The machine on which the running code is; tasks and callbacks inherit it."""
UNSENT_MAX = 64 * 1024
LATENCY = 0.0005
CLOSED = b""
"""What arrives when the other end is closed."""


class End(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self, loop: NetworkLoop, protocol: Any, here: tuple[str, int], there: tuple[str, int]
    ) -> None:
        super().__init__({"peername": there, "sockname": here})
        self._loop = loop
        self._protocol = protocol
        self._context = copy_context()
        self.other: End
        self._arriving: deque[bytes | Exception] = deque()
        self._is_reading = True
        self._is_closing = False
        self._is_lost = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing:
            self.other.later(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def later(self, what: bytes | Exception) -> None:
        """Something of the other end is on its way."""
        self._arriving.append(what)
        self._loop.call_later(LATENCY, self._arrive)

    def _arrive(self) -> None:
        if self._is_lost or not self._is_reading or not self._arriving:
            return
        what = self._arriving.popleft()
        if isinstance(what, Exception):
            self.lose(what)
        elif what:
            self._context.run(self._protocol.data_received, what)
        elif not self._is_closing:
            self.lose(None)

    def begin(self) -> None:
        """The connection is made."""
        self._context.run(self._protocol.connection_made, self)

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self.other.later(CLOSED)
            self._loop.call_soon(self.lose, None)

    def abort(self) -> None:
        self._is_closing = True
        self._loop.call_soon(self.lose, None)
        self.other.later(reset())

    def lose(self, error: Exception | None) -> None:
        """The connection is lost at this end."""
        if not self._is_lost:
            self._is_lost = self._is_closing = True
            self._loop.ends.discard(self)
            self._context.run(self._protocol.connection_lost, error)

    @property
    def machine(self) -> str:
        """The machine that it belongs to."""
        return self._context.get(MACHINE, "")

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        for _ in self._arriving:
            self._loop.call_soon(self._arrive)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def get_write_buffer_size(self) -> int:
        return 0

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return 0, UNSENT_MAX

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


def reset() -> ConnectionResetError:
    """The error of a connection whose other end went away."""
    return ConnectionResetError(104, "Connection reset by peer")


class Port:
    """A bound socket that nobody outside of the loop can reach."""

    def __init__(self, number: int) -> None:
        self.number = number

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", self.number

    def fileno(self) -> int:
        """No file has this number, so no loop reads it."""
        return 1_000_000 + self.number

    def setblocking(self, flag: bool) -> None: ...

    def close(self) -> None: ...


class Listening:
    """What `create_server` returns."""

    def __init__(self, loop: NetworkLoop, factory: Callable[[], Any], port: Port) -> None:
        self.factory = factory
        self.sockets = [port]
        self.context = copy_context()
        self._loop = loop

    async def start_serving(self) -> None:
        self._loop.listening[self.sockets[0].number] = self

    def close(self) -> None:
        number = self.sockets[0].number
        if self._loop.listening.get(number) is self:
            del self._loop.listening[number]

    async def wait_closed(self) -> None: ...


class NetworkLoop(VirtualLoop):
    """Servers are reached by their ports, of one machine or another."""

    def __init__(self) -> None:
        super().__init__()
        self.listening: dict[int, Listening] = {}
        self.ends: set[End] = set()
        self.cut: set[str] = set()
        self._ports = itertools.count(40_000)

    def port(self, number: int) -> Port:
        """A bound socket; 0 takes a free one."""
        return Port(number or next(self._ports))

    def cut_off(self, machine: str) -> None:
        """Its listeners and connections end at once, and it can open no more."""
        self.cut.add(machine)
        for number, one in list(self.listening.items()):
            if one.context.get(MACHINE, "") == machine:
                del self.listening[number]
        for end in list(self.ends):
            if end.machine == machine:
                end.lose(reset())
                end.other.later(reset())

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    async def create_server(self, protocol_factory: Any, *_: Any, sock: Any = None, **given: Any) -> Any:
        made = Listening(self, protocol_factory, sock)
        if given.get("start_serving", True):
            await made.start_serving()
        return made

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        await asyncio.sleep(LATENCY)
        server = self.listening.get(port)
        if server is None or MACHINE.get() in self.cut:
            raise ConnectionRefusedError(111, "Connection refused")
        here, there = ("127.0.0.1", next(self._ports)), ("127.0.0.1", port)
        protocol = protocol_factory()
        mine = End(self, protocol, here, there)
        theirs = server.context.run(lambda: End(self, server.factory(), there, here))
        mine.other, theirs.other = theirs, mine
        self.ends |= {mine, theirs}
        mine.begin()
        theirs.begin()
        return mine, protocol
