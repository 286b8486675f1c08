"""Apache Kafka on 127.0.0.1, one broker without anything else, and Spark's own source for it.

Maven fetches the jars once, in the versions of `kafka/*.xml` and with their checksums, into `.cache/`.
"""

from __future__ import annotations

import hashlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.interop.apache import MAVEN_SECONDS_MAX, check_tools, free_port, publish

from benchmarks.load import LoadError

HERE: Final = Path(__file__).resolve().parent / "kafka"
CACHE: Final = Path(__file__).resolve().parents[1] / ".cache" / "apache-kafka"
CLUSTER_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
BOOT_SECONDS_MAX: Final = 60.0


def jars(name: str) -> Path:
    """The directory with the jars of `kafka/<name>.xml`. Raises `LoadError` with Maven's last words."""
    pom = HERE / f"{name}.xml"
    target = CACHE / f"{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if target.is_dir():
        return target
    check_tools()
    CACHE.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="resolve-", dir=CACHE))
    try:
        shutil.copy(pom, work / "pom.xml")
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={work / 'lib'}"]
        _run(["mvn", "-q", "-B", "-C", "-f", str(work / "pom.xml"), *copy])
        publish(work / "lib", target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=MAVEN_SECONDS_MAX, check=False)
    if done.returncode != 0:
        raise LoadError(
            f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}"
        )


class KafkaPeer:
    """A running broker."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="bench-kafka-"))
        self._port, self._controller = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        """What `kafka.bootstrap.servers` takes."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it and return when it listens."""
        settings = self._directory / "server.properties"
        settings.write_text(
            "process.roles=broker,controller\nnode.id=1\nnum.partitions=4\n"
            f"controller.quorum.voters=1@127.0.0.1:{self._controller}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{self._controller}\n"
            f"advertised.listeners=PLAINTEXT://{self.servers}\n"
            "controller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT\n"
            f"log.dirs={self._directory / 'data'}\n"
            "offsets.topic.replication.factor=1\noffsets.topic.num.partitions=4\n"
            "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
            "share.coordinator.state.topic.replication.factor=1\n"
            "share.coordinator.state.topic.min.isr=1\ngroup.initial.rebalance.delay.ms=0\n"
        )
        java = ["java", f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}", "-cp", f"{jars('broker')}/*"]
        _run([*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(settings)])
        log = self._directory / "log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [*java[:1], "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", *java[1:], "kafka.Kafka", str(settings)],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + BOOT_SECONDS_MAX
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise LoadError(f"Kafka did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.05)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), 0.2).close()
        except OSError:
            return False
        return True

    @contextmanager
    def feeding(self, topic: str, rate: int, size: int) -> Iterator[None]:
        """So many messages a second during the block."""
        library = jars("spark")
        classes = CACHE / f"feed-{hashlib.sha256((HERE / 'Feed.java').read_bytes()).hexdigest()[:12]}"
        if not classes.is_dir():
            work = Path(tempfile.mkdtemp(prefix="compile-", dir=CACHE))
            _run(["javac", "-cp", f"{library}/*", "-d", str(work), str(HERE / "Feed.java")])
            publish(work, classes)
        path = f"{classes}:{library}/*:{jars('broker')}/*"
        command = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-cp", path, "Feed", self.servers, topic]
        with running([*command, str(rate), str(size)]):
            yield

    def close(self) -> None:
        """Stop it and remove its data."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)
            self._process = None
        shutil.rmtree(self._directory, ignore_errors=True)


@contextmanager
def running(command: list[str]) -> Iterator[None]:
    """A process during the block."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
        if process.poll() is not None:
            raise LoadError(f"{' '.join(command)} ended by itself with {process.returncode}")
    finally:
        process.kill()
        process.wait(20)
