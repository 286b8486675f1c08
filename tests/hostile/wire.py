"""A bare connection for the hostile load, and a second client that pings meanwhile. Blocking sockets only."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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

    def exchange(self, code: int, asks: Sequence[Ask]) -> bool:
        """Send requests at once and read the answers; False when the server closed the connection."""
        data, count = self.frames(code, asks)
        return self.send(data) and self.answers(count) is not None

    def ping(self) -> None:
        """Ask what costs a server as little as any request can."""
        self.ask(NO_CODE)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def stalls(self) -> tuple[int, list[Stall]]:
        """How many the server counted, and the last of them."""
        table = KVTable.decode(self.ask(Code.GET_BROKER_RUNTIME_INFO).body).table
        return int(table["loopStalls"]), told_stalls(table, longest=False)


class Pings:
    """A second client, which asks again and again. `held` has, for each answer, the seconds that the server's
    loop computed between the question and the answer: what others were served first.
    """

    def __init__(self, ping: Callable[[], None], pid: int) -> None:
        self._ping = ping
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pings")
        self.held: list[float] = []

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
            began = computed(self._pid)
            self._ping()
            self.held.append(computed(self._pid) - began)

    @property
    def p99(self) -> float:
        """Seconds that one answer in a hundred took longer than."""
        return sorted(self.held)[-1 - len(self.held) // 100]


def computed(pid: int) -> float:
    """Processor time in seconds of a process' first thread, which runs the loop; 0 where Linux does not tell
    it.
    """
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9
    except FileNotFoundError:
        return 0.0


def dumps(value: object) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()
