"""Requests as bytes, written once: what a load generator that costs next to nothing sends.

The layout is that of Java's client: code 310 with fields `a` to `n`, JSON headers without blanks. `Generator`
keeps a fixed number of sends in flight over plain blocking sockets.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any, Final, Self

LENGTHS: Final = struct.Struct(">ii")
READ_BYTES: Final = 256 * 1024
ANSWER_SECONDS_MAX: Final = 20.0


def frame(code: int, fields: dict[str, Any], opaque: int, body: bytes = b"", flag: int = 0) -> bytes:
    """One request as Java's client writes it."""
    header = {
        "code": code,
        "extFields": {name: str(value) for name, value in fields.items()},
        "flag": flag,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": 513,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    return LENGTHS.pack(4 + len(text) + len(body), len(text)) + text + body


def send_frame(topic: str, queue_id: int, opaque: int, body: bytes, *, group: str = "bench_frames") -> bytes:
    """A send of one message."""
    unique = f"7F000001{opaque & 0xFFFF:04X}5FFD2B276905{opaque & 0xFFFFFFFF:08X}"
    fields = {
        "a": group,
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": 0,
        "g": int(time.time() * 1000),
        "h": 0,
        "i": f"UNIQ_KEY\x01{unique}\x02WAIT\x01true\x02",
        "j": 0,
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }
    return frame(310, fields, opaque, body)


def call(address: str, request: bytes, seconds: float) -> tuple[dict[str, Any], bytes]:
    """Send one frame over a connection of its own and give the answer's header and body."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), seconds) as sock:
        sock.settimeout(seconds)
        sock.sendall(request)
        with sock.makefile("rb") as stream:
            total, header = LENGTHS.unpack(_exactly(stream, 8))
            text = _exactly(stream, header & 0xFFFFFF)
            return json.loads(text), _exactly(stream, total - 4 - len(text))


def _exactly(stream: Any, size: int) -> bytes:
    data: bytes = stream.read(size)
    if len(data) != size:
        raise ConnectionError("the peer closed the connection")
    return data


@dataclass
class _Lane:
    """One connection with its ring of frames; frame i is sent again once its answer must have come."""

    sock: socket.socket
    ring: list[bytes]
    next: int = 0
    rest: bytes = b""

    def top_up(self, count: int) -> None:
        size = len(self.ring)
        picked = [self.ring[(self.next + i) % size] for i in range(count)]
        self.next = (self.next + count) % size
        self.sock.sendall(b"".join(picked))

    def answers(self) -> int:
        """Read what is there; the number of whole answers. Raises unless each has code 0."""
        data = self.rest + self.sock.recv(READ_BYTES)
        if not data:
            raise ConnectionError("the broker closed the connection")
        at, count, end = 0, 0, len(data)
        while end - at >= 4:
            size = int.from_bytes(data[at : at + 4], "big") + 4
            if end - at < size:
                break
            at += size
            count += 1
        if data.count(b'"code":0,', 0, at) != count:
            raise ConnectionError(f"an answer is an error: {data[:at]!r}")
        self.rest = data[at:]
        return count


class Generator:
    """`connections` connections with `in_flight` sends each, from one thread; a context manager."""

    def __init__(
        self, broker: str, topic: str, *, connections: int, in_flight: int, size: int, queues: int
    ) -> None:
        host, port = broker.rsplit(":", 1)
        self._in_flight = in_flight
        self._selector = selectors.DefaultSelector()
        self._lanes = []
        body = bytes(97 + i % 26 for i in range(size))
        for lane in range(connections):
            ring = [send_frame(topic, i % queues, 1_000_000 * lane + i, body) for i in range(in_flight)]
            sock = socket.create_connection((host, int(port)), 5)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._lanes.append(_Lane(sock, ring))
            self._selector.register(sock, selectors.EVENT_READ, self._lanes[-1])

    def start(self) -> None:
        """Fill the windows."""
        for lane in self._lanes:
            lane.top_up(self._in_flight)

    def run(self, seconds: float) -> int:
        """Keep the windows full for a time; the number of answers that came."""
        total, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            for key, _ in self._selector.select(ANSWER_SECONDS_MAX):
                lane: _Lane = key.data
                if count := lane.answers():
                    lane.top_up(count)
                    total += count
        return total

    def drain(self) -> int:
        """Wait for what is in flight; the number of answers that came."""
        total, wanted = 0, self._in_flight * len(self._lanes)
        while total < wanted:
            ready = self._selector.select(ANSWER_SECONDS_MAX)
            if not ready:
                raise TimeoutError(f"{wanted - total} sends had no answer within {ANSWER_SECONDS_MAX} s")
            total += sum(key.data.answers() for key, _ in ready)
        return total

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for lane in self._lanes:
            lane.sock.close()
        self._selector.close()
