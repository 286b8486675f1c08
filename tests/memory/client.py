"""Clients that ask and do not read, and what a server's memory does meanwhile."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from sparrowmq.protocol.frame import Command, FrameReader, decode, encode

LIMIT = 300_000_000
"""Bytes of anonymous memory that a server may have, whatever its clients do."""
ANSWER_SECONDS = 60.0
PUSH_SECONDS = 0.02
SETTLE_SECONDS = 0.2


def anonymous(pid: int) -> int:
    """The process' anonymous memory in bytes: what is its own, not a file's."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the system does not tell RssAnon")


class Client:
    """One connection. A `deaf` one has a small window and never reads."""

    def __init__(self, address: str, *, deaf: bool = False) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.socket()
        if deaf:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(ANSWER_SECONDS)
        self.socket.connect((host, int(port)))
        self._frames = FrameReader(256 * 1024 * 1024)
        self._answers: list[Command] = []

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def push(self, data: bytes, seconds: float) -> None:
        """Write as much as the server takes within the time."""
        self.socket.settimeout(seconds)
        with suppress(OSError):
            self.socket.sendall(data)

    def ask(self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"") -> Command:
        """One request and its answer."""
        self.socket.sendall(encode(Command(code, 1, ext=dict(ext or {}), body=body)))
        return self.answer()

    def answer(self) -> Command:
        """The next answer."""
        while not self._answers:
            data = self.socket.recv(1 << 20)
            assert data, "the server closed the connection"
            found = [decode(*frame) for frame in self._frames.feed(data)]
            self._answers += [command for command in found if command.is_response]
        return self._answers.pop(0)

    def close(self) -> None:
        """Reset the connection: nothing lingers."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class Watch:
    """The most anonymous memory that a process had while this was open, looked at every few ms."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="memory")
        self.most = anonymous(pid)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        self.most = max(self.most, anonymous(self._pid))

    def _look(self) -> None:
        while not self._stop.wait(0.004):
            with suppress(OSError, AssertionError):
                self.most = max(self.most, anonymous(self._pid))


@contextmanager
def clients(address: str, count: int, *, deaf: bool = False) -> Iterator[list[Client]]:
    """So many connections, reset in the end."""
    made: list[Client] = []
    try:
        for _ in range(count):
            made.append(Client(address, deaf=deaf))
        yield made
    finally:
        for client in made:
            client.close()


def settle(ping: Callable[[], object], seconds: float) -> None:
    """Give the server time to do what it was asked: the time given, and until it answers at once again."""
    end = time.monotonic() + seconds
    quick = 0
    while time.monotonic() < end or quick < 3:
        began = time.monotonic()
        ping()
        quick = quick + 1 if time.monotonic() - began < 0.05 else 0
        time.sleep(0.02)


def most(address: str, pid: int, ping: Callable[[], object], asked: bytes, count: int) -> int:
    """The most memory that a server has while so many clients ask, each the same, and do not read."""
    with Watch(pid) as watch, clients(address, count, deaf=True) as deaf:
        for client in deaf:
            client.push(asked, PUSH_SECONDS)
        settle(ping, SETTLE_SECONDS)
    return watch.most
