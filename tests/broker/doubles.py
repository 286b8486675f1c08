"""Test doubles for handlers: a connection that records what is written, a clock that a test sets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from sparrowmq.core.ids import pack_host
from sparrowmq.protocol.frame import Command, FrameReader, decode, encode


class FakeConnection:
    """A client's connection; `written` contains the bytes, `answers()` the frames in them."""

    def __init__(self, port: int = 50_000) -> None:
        self.peer = ("127.0.0.1", port)
        self.address = f"127.0.0.1:{port}"
        self.born_host = pack_host("127.0.0.1", port)
        self.id = 0
        self.closed = False
        self.authenticated = True
        self.close_reason = ""
        self.written = b""
        self.notices: list[Command] = []
        self.calls: list[Command] = []
        self.charged = 0
        self.is_behind = False
        self.waiting: list[Any] = []
        self.is_short = False
        self.answer: Command | Exception | None = None

    @property
    def began(self) -> float:
        """Do nothing: each chunk starts when its handler asks."""
        return time.monotonic()

    @property
    def unsent_bytes(self) -> int:
        return len(self.written)

    def charge(self, size: int) -> bool:
        self.charged += size
        return True

    def put_off(self, frames: Sequence[Any]) -> None:
        """Keep them: the caller presents the chunk again."""
        self.waiting += frames

    def has_room(self, size: int) -> bool:
        return not self.is_short

    def owes_more_than(self, unsent_max: int) -> bool:
        return self.unsent_bytes > unsent_max or self.is_short

    def write(self, data: bytes) -> None:
        self.written += data

    def write_parts(self, parts: Sequence[bytes | memoryview], size: int) -> None:
        assert sum(map(len, parts)) == size
        self.write(b"".join(parts))

    def send(self, command: Command) -> None:
        self.write(encode(command))

    def call(self, command: Command, timeout: float) -> asyncio.Future[Command]:
        """Record the call; returns the prepared answer, or none."""
        self.calls.append(command)
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        if isinstance(self.answer, Command):
            future.set_result(self.answer)
        elif self.answer is not None:
            future.set_exception(self.answer)
        return future

    def notify(self, command: Command) -> None:
        self.notices.append(command)

    def close(self, reason: str) -> None:
        self.closed = True
        self.close_reason = reason

    def refuse(self, error: Exception) -> None:
        self.close(str(error))

    def answers(self) -> list[Command]:
        """The frames written since the last call."""
        data, self.written = self.written, b""
        return [decode(*frame) for frame in FrameReader().feed(data)]


class FakeClock:
    """A clock that a test moves."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.ms = now_ms
        self._set_by = 0

    def set_by(self, ms: int) -> None:
        """Somebody sets the wall clock ahead or back; no time passes."""
        self.ms += ms
        self._set_by += ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return (self.ms - self._set_by) / 1000


class FakeRegistration:
    """Counts registrations at name servers; `changed` completes when the test allows it."""

    def __init__(self) -> None:
        self.waited = 0
        self.soon = 0
        self.silent: dict[str, str] = {}
        self.known = asyncio.Event()
        self.known.set()

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def changed(self) -> None:
        self.waited += 1
        await self.known.wait()

    def changed_soon(self) -> None:
        self.soon += 1
