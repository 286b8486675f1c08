"""RocketMQ's own clients for gRPC through a proxy: ours beside a broker, Apache's in one process with it.

Rates and times of sends, and of receives with acknowledgements; processor time, memory, start.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from tests.interop.apache import BENCHMARK_HEAP, ApacheNameServer
from tests.interop.apache_proxy import ApacheProxy

from benchmarks.load import GRPC_JAVA, GRPC_PYTHON, Load
from benchmarks.options import Options
from benchmarks.peers import APACHE, OURS, OurPeer, Servers, create_topic
from benchmarks.process import Memory, memory
from benchmarks.report import LEAST, MOST, Floor, Report, alternate
from sparrowmq import aio

TOPIC: Final = "BenchProxy"
GROUP: Final = "bench-proxy"
QUEUES: Final = 4
SIZE: Final = 128
IN_FLIGHT: Final = (1, 64)
CLIENTS: Final = {"Java": GRPC_JAVA, "Python": GRPC_PYTHON}
FLOORS: Final = [
    Floor("Java, send, 64 in flight: rate", LEAST, 1.0, only_goal=True),
    Floor("Java, send, 64 in flight: servers' CPU", MOST, 0.5, only_goal=True),
    Floor("Java, receive and ack, 64 in flight: rate", LEAST, 1.0, only_goal=True),
    Floor("Java, send, 1 in flight: p99", MOST, 1.0, only_goal=True),
]


class ProxyPeer(Servers, Protocol):
    """Servers with a proxy."""

    endpoints: str


class ApacheProxyPeer:
    """Apache's name server, and broker and proxy as one process."""

    name = APACHE

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="bench-apache-proxy-")
        path = Path(self._directory.name)
        self._name_server = ApacheNameServer(path, heap=BENCHMARK_HEAP)
        self.namesrv = self._name_server.address
        self._proxy = ApacheProxy(path, self.namesrv, heap=BENCHMARK_HEAP)
        self.broker_address = self._proxy.address
        self.endpoints = self._proxy.endpoints

    @property
    def broker_pid(self) -> int:
        """The process with broker and proxy."""
        return self._proxy.pid

    def memory(self) -> Memory:
        """Memory of both processes."""
        return memory(self.broker_pid) + memory(self._name_server.pid)

    def start(self) -> None:
        """Start both and wait until they serve."""
        self._name_server.start()
        self._name_server.ready()
        self._proxy.start()
        self._proxy.ready()

    def close(self) -> None:
        """Kill both, remove the data."""
        self._proxy.kill()
        self._name_server.kill()
        self._directory.cleanup()


def make(name: str) -> ProxyPeer:
    """A peer by name, not started."""
    return OurPeer(proxy=True) if name == OURS else ApacheProxyPeer()


def main(options: Options, report: Report) -> None:
    """Each peer in turn, with each client; then what the processes hold."""
    with ExitStack() as stack:
        peers: dict[str, ProxyPeer] = {}
        for name in options.peers:
            peer = peers[name] = make(name)
            stack.callback(peer.close)
            began = time.monotonic()
            peer.start()
            report.add("start", "s", name, time.monotonic() - began)
            create_topic(peer, TOPIC, QUEUES)
            create_group(peer)
            report.add("memory, idle", "MB", name, peer.memory().resident)
        for client, kind in CLIENTS.items():
            load = stack.enter_context(Load(kind))
            for name in options.peers:
                begin_group(load, peers[name])
                warm = options.java_warm if kind == GRPC_JAVA else options.warm
                turn(load, client, peers, name, options, Report(), warm)
            work = partial(_turn, load, client, peers, options, report)
            alternate(options.rounds, options.peers, work)
        for name, peer in peers.items():
            report.add("memory, after all", "MB", name, peer.memory().resident)


def create_group(peer: ProxyPeer) -> None:
    """Make the group of the receives."""

    async def create() -> None:
        async with aio.Admin(namesrv=peer.namesrv) as admin:
            await admin.groups.create(GROUP)

    asyncio.run(create())


def begin_group(load: Load, peer: ProxyPeer) -> None:
    """A first receive: a new group begins at the end of the queues."""
    where = {"endpoints": peer.endpoints, "topic": TOPIC, "group": GROUP}
    load.run(peer, "receive", **where, in_flight=1, warm=0.0, seconds=1.0)


def _turn(
    load: Load, client: str, peers: dict[str, ProxyPeer], options: Options, report: Report, name: str
) -> None:
    turn(load, client, peers, name, options, report, options.warm)


def turn(
    load: Load,
    client: str,
    peers: dict[str, ProxyPeer],
    name: str,
    options: Options,
    report: Report,
    warm: float,
) -> None:
    """Sends, then receives of what was sent, with each number in flight."""
    peer = peers[name]
    for operation, title in (("send", "send"), ("receive", "receive and ack")):
        for in_flight in IN_FLIGHT:
            measured = load.run(
                peer,
                operation,
                endpoints=peer.endpoints,
                topic=TOPIC,
                group=GROUP,
                size=SIZE,
                in_flight=in_flight,
                warm=warm,
                seconds=options.seconds,
            )
            what = f"{client}, {title}, {in_flight} in flight"
            report.add(f"{what}: rate", "messages/s", name, measured.rate)
            report.add(f"{what}: servers' CPU", "µs", name, measured.cpu_us)
            report.add(f"{what}: p50", "ms", name, measured.result["p50_ms"])
            report.add(f"{what}: p99", "ms", name, measured.result["p99_ms"])
