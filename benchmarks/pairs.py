"""Masters with a slave, ours and Apache's: name server, master and slave, each in a process of its own."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol, Self

from tests.interop.apache import BENCHMARK_HEAP, ApacheBroker, ApacheNameServer, ask, free_port

from benchmarks.frames import LENGTHS, frame
from benchmarks.load import LoadError
from benchmarks.peers import BOOT_SECONDS_MAX, OURS, Servers
from benchmarks.process import Memory, memory
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command

Settings = Mapping[str, str | int]
STOP_SECONDS_MAX: Final = 20.0
ANSWER_SECONDS_MAX: Final = 20.0
POLL_SECONDS: Final = 0.02
SLAVE_SETTLE_SECONDS: Final = 2.0
"""How long a new topic may take until the slave has it."""
PATIENT: Final[Settings] = {"waitTimeMillsInSendQueue": 20_000, "osPageCacheBusyTimeOutMills": 20_000}
"""Apache's brokers do not refuse sends that wait for a slave or for the disk."""
SLAVE: Final[Settings] = {"brokerId": 1, "brokerRole": "SLAVE", "slaveReadEnable": "true"}


class Pair(Servers, Protocol):
    """A name server, a master and perhaps its slave. `broker_pid` is the master's."""

    @property
    def slave_address(self) -> str:
        """The slave's `host:port`."""

    def start_slave(self) -> None:
        """Start the slave without waiting for it; its store is as `stop_slave` left it, or empty."""

    def stop_slave(self) -> None:
        """End the slave and remove its store."""


class _Process:
    """One of our servers, with its output in a file."""

    def __init__(self, directory: Path, name: str, *arguments: str) -> None:
        self._directory = directory
        self._name = name
        self._command = [sys.executable, "-m", "sparrowmq.cli.main", *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        with (self._directory / f"{self._name}.out").open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=subprocess.STDOUT)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS_MAX)


class OurPair:
    """`sparrow nameserver` and one or two `sparrow broker`; `settings` are the master's."""

    name = OURS

    def __init__(self, settings: Settings, *, slave: bool = True) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="bench-pair-"))
        self._has_slave = slave
        names, master, other = free_port(), free_port((0, 1)), free_port((0, 1))
        self.namesrv = f"127.0.0.1:{names}"
        self.broker_address, self.slave_address = f"127.0.0.1:{master}", f"127.0.0.1:{other}"
        self._names = _Process(self._directory, "nameserver", "nameserver", "--port", str(names))
        self._master = self._broker("master", master, settings)
        self._slave = self._broker("slave", other, SLAVE)

    def _broker(self, directory: str, port: int, settings: Settings) -> _Process:
        given = {"storePathRootDir": self._directory / directory, **settings}
        sets = [text for name, value in given.items() for text in ("--set", f"{name}={value}")]
        where = ["--namesrv", self.namesrv, "--port", str(port)]
        return _Process(self._directory, directory, "broker", *where, *sets)

    @property
    def broker_pid(self) -> int:
        """The master's process."""
        return self._master.pid

    def memory(self) -> Memory:
        """Memory of name server and master."""
        return memory(self._names.pid) + memory(self._master.pid)

    def start(self) -> None:
        """Start the processes and wait until they serve, and the slave follows."""
        self._names.start()
        until(lambda: is_listening(self.namesrv), "our name server does not listen")
        self._master.start()
        until(lambda: is_registered(self.namesrv, self.broker_address), "our master does not register")
        if self._has_slave:
            self.start_slave()
            until(lambda: is_registered(self.namesrv, self.slave_address), "our slave does not register")

    def start_slave(self) -> None:
        """Start the slave without waiting for it."""
        self._slave.start()

    def stop_slave(self) -> None:
        """End the slave and remove its store."""
        self._slave.stop()
        shutil.rmtree(self._directory / "slave", ignore_errors=True)

    def close(self) -> None:
        """Stop all processes and remove their data."""
        for process in (self._slave, self._master, self._names):
            process.stop()
        shutil.rmtree(self._directory, ignore_errors=True)


class ApachePair:
    """The same of Apache's servers."""

    name = "apache"

    def __init__(self, settings: Settings, *, slave: bool = True) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="bench-pair-apache-"))
        self._has_slave = slave
        for name in ("names", "master", "slave"):
            (self._directory / name).mkdir()
        self._names = ApacheNameServer(self._directory / "names", heap=BENCHMARK_HEAP)
        self.namesrv = self._names.address
        self._master = self._broker("master", settings)
        self._slave = self._broker("slave", SLAVE)
        self.broker_address, self.slave_address = self._master.address, self._slave.address

    def _broker(self, directory: str, settings: Settings) -> ApacheBroker:
        where = self._directory / directory
        return ApacheBroker(where, self.namesrv, settings={**PATIENT, **settings}, heap=BENCHMARK_HEAP)

    @property
    def broker_pid(self) -> int:
        """The master's process."""
        return self._master.pid

    def memory(self) -> Memory:
        """Memory of name server and master."""
        return memory(self._names.pid) + memory(self._master.pid)

    def start(self) -> None:
        """Start the processes and wait until they serve."""
        self._names.start()
        self._names.ready()
        self._master.start()
        self._master.ready()
        if self._has_slave:
            self._slave.start()
            self._slave.ready()

    def start_slave(self) -> None:
        """Start the slave without waiting for it."""
        self._slave.start()

    def stop_slave(self) -> None:
        """End the slave and remove its store."""
        self._slave.kill()
        assert self._slave.store is not None
        shutil.rmtree(self._slave.store, ignore_errors=True)

    def close(self) -> None:
        """Stop all processes and remove their data."""
        for process in (self._slave, self._master, self._names):
            process.kill()  # a clean stop of this broker takes ten seconds
        shutil.rmtree(self._directory, ignore_errors=True)


def make_pair(name: str, settings: Settings, *, slave: bool = True) -> Pair:
    """A pair by name, not started."""
    return OurPair(settings, slave=slave) if name == OURS else ApachePair(settings, slave=slave)


def until(condition: Callable[[], bool], why: str, seconds: float = BOOT_SECONDS_MAX) -> None:
    """Wait for a condition. Raises `LoadError` with `why` when the time is over."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise LoadError(f"{why} within {seconds:g} s")
        time.sleep(POLL_SECONDS)


def is_listening(address: str) -> bool:
    """Whether a server takes connections."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


def is_registered(namesrv: str, address: str) -> bool:
    """Whether a name server knows a broker."""
    return address.encode() in ask(namesrv, Command(RequestCode.GET_BROKER_CLUSTER_INFO)).body


class Asker:
    """Requests to one broker over one connection, one after the other; a context manager."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._sock = socket.create_connection((host, int(port)), ANSWER_SECONDS_MAX)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._sock.makefile("rb")
        self._address = address
        self._opaque = 0

    def _ask(self, code: int, **fields: str | int) -> tuple[dict[str, str], bytes]:
        self._opaque += 1
        self._sock.sendall(frame(code, fields, self._opaque))
        total, marked = LENGTHS.unpack(self._exactly(LENGTHS.size))
        size = marked & 0xFFFFFF
        header = json.loads(self._exactly(size))
        body = self._exactly(total - 4 - size)
        if header["code"] != 0:
            raise LoadError(f"{self._address} answers request {code}: {header}")
        return header.get("extFields") or {}, body

    def _exactly(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) != size:
            raise ConnectionError(f"{self._address} closed the connection")
        return data

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The end of a queue."""
        found, _ = self._ask(RequestCode.GET_MAX_OFFSET, topic=topic, queueId=queue_id)
        return int(found["offset"])

    def log_end(self) -> int:
        """The end of the log, in bytes."""
        _, body = self._ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        return int(json.loads(body)["table"]["commitLogMaxOffset"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._sock.close()


def log_end(address: str) -> int:
    """The end of a broker's log, in bytes; -1 while it does not serve."""
    try:
        with Asker(address) as asker:
            return asker.log_end()
    except (OSError, LoadError, ValueError):
        return -1
