"""Start time until the first send is acknowledged; memory when idle and after a million messages."""

from __future__ import annotations

import time
from typing import Final

from benchmarks.frames import Generator, call, frame, send_frame
from benchmarks.load import LoadError
from benchmarks.options import Options
from benchmarks.peers import Peer, create_topic, make_peer, stored
from benchmarks.report import MOST, Floor, Report, alternate

TOPIC: Final = "BenchMemory"
TEMPLATE_TOPIC: Final = "TBW102"
ROUTE_REQUEST: Final = 105
QUEUES: Final = 8
FIRST_SEND_SECONDS_MAX: Final = 60.0
IDLE_SECONDS: Final = 3.0
SECONDS_MAX: Final = 300.0

START: Final = "start to first send"
IDLE: Final = "memory idle, name server and broker"
LOADED: Final = "anonymous memory after the messages"

FLOORS: Final = [
    Floor(START, MOST, 1.0, absolute=True),
    Floor(IDLE, MOST, 120.0, absolute=True),
    Floor(LOADED, MOST, 300.0, absolute=True),
]


def _answered(address: str, request: bytes) -> bool:
    try:
        return bool(call(address, request, 1.0)[0].get("code") == 0)
    except OSError:
        return False


def first_send(peer: Peer) -> float:
    """Launch the peer; seconds until a client got a route and an acknowledged send."""
    start = time.perf_counter()
    peer.launch()
    route = frame(ROUTE_REQUEST, {"topic": TEMPLATE_TOPIC}, 1)
    send = send_frame("BenchFirst", 0, 2, b"first")
    for address, request in ((peer.namesrv, route), (peer.broker_address, send)):
        wait_answered(peer, address, request, FIRST_SEND_SECONDS_MAX)
    return time.perf_counter() - start


def wait_answered(peer: Peer, address: str, request: bytes, seconds: float) -> None:
    """Send a request again and again until it is answered with success."""
    deadline = time.perf_counter() + seconds
    while not _answered(address, request):
        if time.perf_counter() > deadline:
            raise LoadError(f"{peer.name} did not answer within {seconds} s")
        time.sleep(0.005)


def fill(peer: Peer, messages: int) -> int:
    """Send at least so many messages and check that they are stored; returns how many."""
    create_topic(peer, TOPIC, QUEUES)
    sent, deadline = 0, time.monotonic() + SECONDS_MAX
    with Generator(
        peer.broker_address, TOPIC, connections=4, in_flight=64, size=100, queues=QUEUES
    ) as generator:
        generator.start()
        while sent < messages and time.monotonic() < deadline:
            sent += generator.run(0.2)
        sent += generator.drain()
    arrived = sum(stored(peer, TOPIC, sent))
    if arrived != sent or sent < messages:
        raise LoadError(f"{peer.name}: {sent} acknowledged, {arrived} stored")
    return sent


def measure(name: str, options: Options, report: Report, *, load: bool) -> None:
    """One life of a peer, from nothing."""
    peer = make_peer(name)
    try:
        report.add(START, "s", name, first_send(peer))
        time.sleep(IDLE_SECONDS)
        report.add(IDLE, "MB", name, peer.memory().resident)
        if load:
            fill(peer, options.memory_messages)
            report.add(LOADED, "MB", name, peer.memory().anonymous)
    finally:
        peer.close()


def main(options: Options, report: Report) -> None:
    """Starts in turns; the load comes once for each peer."""
    alternate(options.rounds, options.peers, lambda name: measure(name, options, report, load=False))
    for name in options.peers:
        measure(name, options, report, load=True)
