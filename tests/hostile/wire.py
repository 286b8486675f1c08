"""A bare connection for the hostile load, and a second client that pings meanwhile. Blocking sockets only."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sparrowmq.core.stalls import Stall, told_stalls
from sparrowmq.protocol.bodies import KVTable
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.frame import FLAG_ONEWAY, Command, FrameReader, decode, encode
from sparrowmq.transport.signing import Credentials, sign

ANSWER_SECONDS = 90.0
PING_SECONDS = 0.003
NO_CODE = 9999
"""Nobody has a handler for it: the answer costs the server as little as any can."""
SETTLE_SECONDS = 0.1
"""Long enough for a beat of the watch after the last answer."""


@dataclass(frozen=True)
class Ask:
    """One hostile request."""

    ext: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    oneway: bool = False
    compact: bool = False


class Wire:
    """One connection. It signs when it has credentials."""

    def __init__(self, address: str, credentials: Credentials | None = None) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS)
        self._reader = FrameReader(256 * 1024 * 1024)
        self._answers: list[Command] = []
        self._opaque = 0
        self._credentials = credentials

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def frames(self, code: int, asks: Iterable[Ask]) -> tuple[bytes, int]:
        """The bytes of requests, and how many answers come."""
        parts, answers = [], 0
        for ask in asks:
            self._opaque += 1
            command = Command(code, self._opaque, FLAG_ONEWAY if ask.oneway else 0, dict(ask.ext), ask.body)
            if self._credentials is not None:
                sign(command, self._credentials)
            parts.append(encode(command))
            answers += not ask.oneway
        return b"".join(parts), answers

    def answers(self, count: int) -> list[Command] | None:
        """The next answers; None when the server closed the connection instead."""
        found: list[Command] = []
        while len(found) < count:
            while self._answers and len(found) < count:
                found.append(self._answers.pop(0))
            if len(found) == count:
                break
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionError:
                return None
            if not data:
                return None
            self._answers += [decode(*frame) for frame in self._reader.feed(data)]
        return found

    def send(self, data: bytes) -> bool:
        """Whether the server took it all."""
        try:
            self.socket.sendall(data)
        except ConnectionError:
            return False
        return True

    def ask(self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"") -> Command:
        """One answer."""
        data, count = self.frames(code, [Ask(ext or {}, body)])
        assert self.send(data)
        answers = self.answers(count)
        assert answers is not None, f"the server closed the connection at {code}"
        return answers[0]

    def stalls(self) -> tuple[int, list[Stall]]:
        """How many the server counted, and the last of them."""
        table = KVTable.decode(self.ask(Code.GET_BROKER_RUNTIME_INFO).body).table
        return int(table["loopStalls"]), told_stalls(table, longest=False)


class Pings:
    """A second client, which asks again and again; `longest` is the longest answer took, in seconds."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pings")
        self.longest = 0.0
        self.count = 0

    def __enter__(self) -> Pings:
        self._thread.start()
        time.sleep(SETTLE_SECONDS)
        return self

    def __exit__(self, *exc: object) -> None:
        time.sleep(SETTLE_SECONDS)
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(PING_SECONDS):
            began = time.monotonic()
            self._wire.ask(NO_CODE)
            self.longest = max(self.longest, time.monotonic() - began)
            self.count += 1


def dumps(value: object) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()
