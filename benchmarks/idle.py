"""Idle connections: how much memory thousands of connected producers take above the empty broker."""

from __future__ import annotations

import json
import resource
import socket
import time
from contextlib import ExitStack
from typing import Final

from benchmarks.frames import LENGTHS, frame
from benchmarks.load import LoadError
from benchmarks.options import Options
from benchmarks.peers import Peer, make_peer
from benchmarks.report import MOST, Floor, Report
from sparrowmq.transport.server import OPEN_FILES_SHARE

HEART_BEAT: Final = 34
SETTLE_SECONDS: Final = 3.0
ANSWER_SECONDS_MAX: Final = 20.0
CONNECTIONS_MORE: Final = 100
"""Connections beside the idle ones: the name server's, those that measure."""
COUNT: Final = "idle connections"
ABOVE: Final = "memory of idle connections, above the empty broker"
EACH: Final = "memory of an idle connection"

FLOORS: Final = [Floor(EACH, MOST, 30.0, absolute=True)]  # 5,000 of them: 150 MB


def heartbeat(number: int) -> bytes:
    """What a client with one producer sends when it connects."""
    body = {
        "clientID": f"127.0.0.1@{number}",
        "producerDataSet": [{"groupName": f"idle_{number % 100}"}],
        "consumerDataSet": [],
        "heartbeatFingerprint": 0,
        "isWithoutSub": False,
    }
    return frame(HEART_BEAT, {}, number, json.dumps(body).encode())


def connect(peer: Peer, number: int) -> socket.socket:
    """A connection whose heartbeat was answered."""
    host, port = peer.broker_address.rsplit(":", 1)
    sock = socket.create_connection((host, int(port)), ANSWER_SECONDS_MAX)
    try:
        sock.sendall(heartbeat(number))
        data = b""
        while len(data) < LENGTHS.size or len(data) < LENGTHS.unpack_from(data)[0] + 4:
            part = sock.recv(65536)
            if not part:
                raise LoadError(f"{peer.name} closed connection {number}")
            data += part
    except BaseException:
        sock.close()
        raise
    if b'"code":0' not in data:
        raise LoadError(f"{peer.name} refused a heartbeat: {data!r}")
    return sock


def measure(name: str, connections: int, report: Report) -> None:
    """One life of a peer: empty, then with so many connections."""
    peer = make_peer(name)
    try:
        peer.start()
        with ExitStack() as stack:
            stack.enter_context(connect(peer, 0))  # what the first one loads is the broker's
            time.sleep(SETTLE_SECONDS)
            empty = peer.memory().resident
            for number in range(1, connections + 1):
                stack.enter_context(connect(peer, number))
            time.sleep(SETTLE_SECONDS)
            above = peer.memory().resident - empty
        report.add(COUNT, "", name, connections)
        report.add(ABOVE, "MB", name, above)
        report.add(EACH, "kB", name, above * 1000 / connections)
    finally:
        peer.close()


def affordable(wanted: int) -> int:
    """The wanted connections, or as many as the limit of open files allows our broker."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = max(soft, OPEN_FILES_SHARE * (wanted + CONNECTIONS_MORE))
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(wanted, hard // OPEN_FILES_SHARE - CONNECTIONS_MORE)


def main(options: Options, report: Report) -> None:
    """One peer after the other."""
    connections = affordable(options.connections)
    if connections < 1:
        raise LoadError("the limit of open files leaves no connection; raise it with `ulimit -Hn`")
    for name in options.peers:
        measure(name, connections, report)
