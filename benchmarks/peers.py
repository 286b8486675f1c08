"""The two peers: our servers and Apache RocketMQ's, each as users start them, on free ports of 127.0.0.1."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from tests.interop.apache import BENCHMARK_HEAP, ApacheCluster, free_port

from benchmarks.process import Memory, children, memory
from sparrowmq import aio
from sparrowmq.core.errors import NoRouteError
from sparrowmq.runtime.broker_plan import PORT_STEP

OURS: Final = "ours"
APACHE: Final = "apache"
KAFKA: Final = "kafka"
BOOT_SECONDS_MAX: Final = 60.0
DISPATCH_SECONDS_MAX: Final = 30.0


class Servers(Protocol):
    """A running cluster of one name server and one broker."""

    name: str
    namesrv: str
    broker_address: str

    @property
    def broker_pid(self) -> int:
        """The process whose processor time a message costs, with that of its children."""

    def memory(self) -> Memory:
        """Memory of all its processes."""

    def start(self) -> None:
        """Start it and return when it serves."""

    def close(self) -> None:
        """Stop it and remove its data."""


class Peer(Servers, Protocol):
    """Servers that can be killed and started again."""

    @property
    def log_directory(self) -> Path:
        """Where the broker's log is."""

    def launch(self) -> None:
        """Start its processes without waiting for them."""

    def kill(self) -> None:
        """`kill -9` to its broker, whose data stay; `launch_broker` starts it again."""

    def launch_broker(self) -> None:
        """Start the broker that was killed, without waiting for it."""


class OurPeer:
    """`sparrow up` as a process of its own; several brokers are its children."""

    name = OURS

    def __init__(
        self,
        brokers: int = 1,
        *,
        metrics_port: int | None = None,
        proxy: bool = False,
        settings: Mapping[str, str | int] | None = None,
    ) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="bench-ours-"))
        nameserver, broker = free_port(), free_port([PORT_STEP * number for number in range(brokers)])
        self.namesrv = f"127.0.0.1:{nameserver}"
        self.broker_address = f"127.0.0.1:{broker}"
        self._command = [sys.executable, "-m", "sparrowmq.cli.main", "up", "--no-coordinator"]
        self._command += ["--nameserver-port", str(nameserver), "--broker-port", str(broker)]
        self._command += ["--data", str(self._directory / "data"), "--brokers", str(brokers)]
        proxy_port = free_port()
        self.endpoints = f"127.0.0.1:{proxy_port}"
        self._command += ["--proxy-port", str(proxy_port)] if proxy else ["--no-proxy"]
        self._says = "gRPC proxy" if proxy else "Ctrl-C stops"
        if metrics_port is not None:
            self._command += ["--metrics-port", str(metrics_port)]
        for setting, value in (settings or {}).items():
            self._command += ["--set", f"{setting}={value}"]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log_directory(self) -> Path:
        """Where the (first) broker's log is."""
        return self._directory / "data" / "store" / "commitlog"

    @property
    def broker_pid(self) -> int:
        """Name server and broker are one process, or a process and its children."""
        assert self._process is not None
        return self._process.pid

    def memory(self) -> Memory:
        """Memory of the process and its children."""
        found = memory(self.broker_pid)
        for child in children(self.broker_pid):
            found += memory(child)
        return found

    def launch(self) -> None:
        """Start the process without waiting for it."""
        with (self._directory / "out").open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=subprocess.STDOUT)

    def start(self) -> None:
        """Start the process and wait until it says that it serves."""
        self.launch()
        assert self._process is not None
        deadline = time.monotonic() + BOOT_SECONDS_MAX
        while self._says not in (said := (self._directory / "out").read_text()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"our servers did not start:\n{said}")
            time.sleep(0.02)

    def kill(self) -> None:
        """`kill -9` to name server and broker, which are one process."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(20)

    def launch_broker(self) -> None:
        """Start both again without waiting for them."""
        self.launch()

    def close(self) -> None:
        """Stop the process and remove its data."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(20)
            self._process = None
        shutil.rmtree(self._directory, ignore_errors=True)


class ApachePeer:
    """Apache's name server and broker, two processes."""

    name = APACHE

    def __init__(self, settings: Mapping[str, str | int] | None = None) -> None:
        self._cluster = ApacheCluster(heap=BENCHMARK_HEAP, settings=settings or {})
        self.namesrv = self._cluster.namesrv
        self.broker_address = self._cluster.broker_address

    @property
    def log_directory(self) -> Path:
        """Where the broker's log is."""
        assert self._cluster.broker.store is not None
        return self._cluster.broker.store / "commitlog"

    @property
    def broker_pid(self) -> int:
        """The broker's process."""
        return self._cluster.broker.pid

    def memory(self) -> Memory:
        """Memory of both processes."""
        return memory(self.broker_pid) + memory(self._cluster.name_server.pid)

    def launch(self) -> None:
        """Start both without waiting for the broker; it needs its name server to be up."""
        self._cluster.name_server.start()
        self._cluster.name_server.ready()
        self._cluster.broker.start()

    def start(self) -> None:
        """Start both processes and wait until they serve."""
        self._cluster.__enter__()

    def kill(self) -> None:
        """`kill -9` to the broker."""
        self._cluster.broker.kill()

    def launch_broker(self) -> None:
        """Start the broker again without waiting for it."""
        self._cluster.broker.start()

    def close(self) -> None:
        """Stop both and remove their data."""
        self._cluster.close()


def make_peer(name: str, settings: Mapping[str, str | int] | None = None) -> Peer:
    """A peer by name, not started; `settings` are its broker's, by RocketMQ's names."""
    return OurPeer(settings=settings) if name == OURS else ApachePeer(settings)


@contextmanager
def running(names: Sequence[str], settings: Mapping[str, str | int] | None = None) -> Iterator[list[Peer]]:
    """The named peers, all running; an idle one costs the other next to nothing."""
    with ExitStack() as stack:
        peers: list[Peer] = []
        for name in names:
            peer = make_peer(name, settings)
            stack.callback(peer.close)
            peer.start()
            peers.append(peer)
        yield peers


def create_topic(peer: Servers, topic: str, queues: int) -> None:
    """Make a topic; the name server gives its route when this returns."""

    async def create() -> None:
        async with aio.Admin(namesrv=peer.namesrv) as admin:
            await admin.topics.create(topic, queues=queues)

    asyncio.run(create())


def stored(peer: Servers, topic: str, expected: int = 0) -> list[int]:
    """The number of messages in each queue of a topic: largest offsets, as nothing is ever deleted here.

    Apache's broker acknowledges before it enters a message into its queue: wait until `expected` are in, at
    most `DISPATCH_SECONDS_MAX`, then give what there is.
    """

    async def count() -> list[int]:
        async with aio.Admin(namesrv=peer.namesrv) as admin:
            deadline = time.monotonic() + DISPATCH_SECONDS_MAX
            while True:
                ends: list[int] = []
                with suppress(NoRouteError):  # a broker that was started again has not registered yet
                    ends = [status.max_offset for status in await admin.topics.status(topic)]
                if sum(ends) >= expected or time.monotonic() > deadline:
                    return ends
                await asyncio.sleep(0.05)

    return asyncio.run(count())
