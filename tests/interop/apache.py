"""Apache RocketMQ as a peer: its jars, and its name server and brokers as processes on 127.0.0.1.

The jars come from Maven Central through Maven, which checks their sums, once, into `.cache/` at the root of
the repository; our few Java sources are compiled beside them. Every server runs under `Peer`, which ends it
when our end of its standard input closes, so nothing outlives the process that started it.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command, decode, encode

HERE: Final = Path(__file__).resolve().parent
CACHE: Final = HERE.parents[1] / ".cache" / "apache-rocketmq"
JAVA_MAJOR_MIN: Final = 17
INSTALL_HINT: Final = (
    "install a JDK 17 or later and Maven, e.g.: apt-get install -y openjdk-17-jdk-headless maven"
)
OPEN_MODULES: Final = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
)
QUICK_START: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
MAVEN_SECONDS_MAX: Final = 600
BOOT_SECONDS_MAX: Final = 100
REGISTER_SECONDS_MAX: Final = 100
STOP_SECONDS_MAX: Final = 30


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Apache RocketMQ: the file that names its jars, and those of our Java sources it runs."""

    pom: str
    sources: Sequence[str] = ()

    @property
    def source_paths(self) -> list[Path]:
        """The Java sources of the interop tests for this release; all of them when none is named."""
        directory = HERE / "java"
        if self.sources:
            return [directory / name for name in self.sources]
        return sorted(directory.glob("*.java"))


NEW: Final = Release("pom.xml")
"""5.5.0, which everything runs with."""
OLD: Final = Release("pom-4.9.xml", ("Driver.java", "Exchanges.java", "Peer.java", "Security.java"))
"""4.9.7, for the short set of tests with servers and clients of the line before."""


class MissingToolError(RuntimeError):
    """A Java runtime, compiler or Maven is not there or too old; the text says what to install."""


class PeerError(RuntimeError):
    """A peer process did not do what it had to; the text holds the end of its output."""


def check_tools() -> None:
    """Raise `MissingToolError` unless `java`, `javac` (17 or later) and `mvn` can be run."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        raise MissingToolError(f"{', '.join(missing)} not found on PATH: {INSTALL_HINT}")
    for tool in ("java", "javac"):
        said = subprocess.run([tool, "-version"], capture_output=True, text=True, check=True, timeout=60)
        text = said.stdout + said.stderr
        found = re.search(r'(?:version "|javac )(?:1\.)?(\d+)', text)
        if found is None or int(found[1]) < JAVA_MAJOR_MIN:
            raise MissingToolError(
                f"{tool} is {text.splitlines()[0]!r}, {JAVA_MAJOR_MIN} is needed: {INSTALL_HINT}"
            )


def _run(command: Sequence[str], *, seconds: float) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode != 0:
        raise PeerError(
            f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}"
        )


def publish(made: Path, target: Path) -> None:
    """Move a finished directory into place; another process may have been first."""
    try:
        made.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        shutil.rmtree(made)


def jars(release: Release = NEW) -> Path:
    """The directory with Apache RocketMQ's jars, resolved by Maven when it is not there yet."""
    pom = HERE / "java" / release.pom
    target = CACHE / f"lib-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if target.is_dir():
        return target
    check_tools()
    CACHE.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="resolve-", dir=CACHE))
    try:
        shutil.copy(pom, work / "pom.xml")
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={work / 'lib'}"]
        _run(["mvn", "-q", "-B", "-C", "-f", str(work / "pom.xml"), *copy], seconds=MAVEN_SECONDS_MAX)
        publish(work / "lib", target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def classes(sources: Sequence[Path], release: Release = NEW) -> str:
    """A Java class path: the given sources, compiled when they changed, and Apache RocketMQ's jars."""
    library = jars(release)
    stamp = hashlib.sha256(library.name.encode())
    for source in sources:
        stamp.update(source.read_bytes())
    target = CACHE / f"classes-{stamp.hexdigest()[:12]}"
    if not target.is_dir():
        check_tools()
        work = Path(tempfile.mkdtemp(prefix="compile-", dir=CACHE))
        _run(
            ["javac", "-nowarn", "-cp", f"{library}/*", "-d", str(work), *map(str, sources)],
            seconds=MAVEN_SECONDS_MAX,
        )
        publish(work, target)
    return f"{target}{os.pathsep}{library}/*"


def class_path(release: Release = NEW) -> str:
    """The class path of the interop tests' own Java sources."""
    return classes(release.source_paths, release)


def free_port(around: Sequence[int] = (0,)) -> int:
    """A port outside the ephemeral range for which it and its neighbours at the given distances are free."""
    for _ in range(200):
        port = random.randrange(20_000, 32_000)
        try:
            for distance in around:
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port + distance))
        except OSError:
            continue
        return port
    raise PeerError("no free port between 20000 and 32000 after 200 tries")


def ask(address: str, command: Command) -> Command:
    """What a server answers, over a connection of its own."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 5) as sock, sock.makefile("rb") as stream:
        sock.sendall(encode(command))
        frame = stream.read(int.from_bytes(stream.read(4), "big"))
    body = 4 + int.from_bytes(frame[1:4], "big")
    return decode(frame[0], frame[4:body], frame[body:])


class JavaProcess:
    """A Java process under `Peer` with its output in a file."""

    def __init__(
        self,
        name: str,
        directory: Path,
        options: Sequence[str],
        arguments: Sequence[str],
        release: Release = NEW,
    ) -> None:
        self.name = name
        self.log = directory / f"{name}.out"
        path = class_path(release)
        command = ["java", f"-Duser.home={directory}", *OPEN_MODULES, *options, "-cp", path, "Peer"]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=directory,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def tail(self) -> str:
        """The end of what the process printed."""
        return self.log.read_text(errors="replace")[-4000:]

    def wait_for(self, text: str, seconds: float = BOOT_SECONDS_MAX) -> None:
        """Wait until the process has printed `text`; raises `PeerError` when it ends or the time is up."""
        deadline = time.monotonic() + seconds
        while text not in self.log.read_text(errors="replace"):
            if self._process.poll() is not None:
                raise PeerError(f"{self.name} ended with {self._process.returncode}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise PeerError(f"{self.name} did not print {text!r} within {seconds} s:\n{self.tail()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End the process with its shutdown hooks; kill it when that takes too long."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """`kill -9`."""
        self._process.kill()
        self._process.wait(STOP_SECONDS_MAX)
        assert self._process.stdin is not None
        self._process.stdin.close()


@dataclass
class HeapSettings:
    """JVM options of the two servers: small ones that start quickly; benchmarks use `BENCHMARK_HEAP`."""

    namesrv: Sequence[str] = ("-Xms64m", "-Xmx128m", *QUICK_START)
    broker: Sequence[str] = ("-Xms256m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m", *QUICK_START)


BENCHMARK_HEAP: Final = HeapSettings(
    namesrv=("-server", "-XX:+UseG1GC", "-XX:-OmitStackTraceInFastThrow", "-Xms256m", "-Xmx256m"),
    broker=(
        *("-server", "-XX:+UseG1GC", "-XX:-OmitStackTraceInFastThrow", "-Xms1g", "-Xmx1g"),
        "-XX:MaxDirectMemorySize=2g",
    ),
)
"""What Apache is measured with: heaps that a two-core machine affords, else as its start script says."""


PATIENT: Final[Mapping[str, str | int]] = {
    "waitTimeMillsInSendQueue": 20_000,
    "osPageCacheBusyTimeOutMills": 20_000,
    # 5.5 gathers ends of transactions; when there was none for this long, a thread turns without rest.
    "transactionOpBatchInterval": 86_400_000,
    "transactionOpMsgMaxSize": 1,
    # Each time it compares the 37 MiB of the timer wheel with what is on disk.
    "timerFlushIntervalMs": 10_000,
}
"""Settings with which a broker on a busy machine takes its time instead of refusing sends, and spares it.

Ends of transactions are written at once, one by one.
"""


def _home(directory: Path, server: str, release: Release) -> Path:
    """A server's home directory, with what this release wants to find there."""
    conf = directory / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    if release is OLD:
        (conf / f"logback_{server}.xml").write_text('<configuration><root level="OFF"/></configuration>\n')
    return directory


class ApacheNameServer:
    """Apache's name server on a free port; `start` first, `ready` waits until it serves."""

    def __init__(self, directory: Path, *, heap: HeapSettings | None = None, release: Release = NEW) -> None:
        self._release = release
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._directory = directory
        self._heap = heap or HeapSettings()
        self._process: JavaProcess | None = None

    @property
    def pid(self) -> int:
        """The process id; only while it runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process without waiting for it."""
        home = _home(self._directory / "namesrv", "namesrv", self._release)
        settings = home / "conf" / "namesrv.conf"
        settings.write_text(f"listenPort={self.port}\nscanNotActiveBrokerInterval=1000\n")
        options = [f"-Drocketmq.home.dir={home}", *self._heap.namesrv]
        main = ["org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(settings)]
        self._process = JavaProcess("namesrv", home, options, main, self._release)

    def ready(self) -> None:
        """Wait until it serves."""
        assert self._process is not None
        self._process.wait_for("boot success")

    def stop(self) -> None:
        """Stop it cleanly."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """`kill -9`."""
        if self._process is not None:
            self._process.kill()
            self._process = None


@dataclass
class ApacheBroker:
    """Apache's broker on free ports, with its store below `directory/store` (or at `store`).

    `settings` are added to its `broker.conf`.
    """

    directory: Path
    namesrv: str
    name: str = "broker-a"
    store: Path | None = None
    settings: Mapping[str, str | int] = field(default_factory=lambda: PATIENT)
    heap: HeapSettings = field(default_factory=HeapSettings)
    release: Release = NEW

    def __post_init__(self) -> None:
        self.port = free_port((-2, 0, 1))
        self.address = f"127.0.0.1:{self.port}"
        self.store = self.store or self.directory / "store"
        self._process: JavaProcess | None = None

    @property
    def pid(self) -> int:
        """The process id; only while it runs."""
        assert self._process is not None
        return self._process.pid

    def _conf(self) -> dict[str, str | int]:
        assert self.store is not None
        return {
            "brokerClusterName": "DefaultCluster",
            "brokerName": self.name,
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "listenPort": self.port,
            "namesrvAddr": self.namesrv,
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.store / "commitlog"),
            "autoCreateTopicEnable": "true",
            "autoCreateSubscriptionGroup": "true",
            "enablePropertyFilter": "true",
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": "ASYNC_FLUSH",
            **self.settings,
        }

    def start(self) -> None:
        """Start the process without waiting for it."""
        home = _home(self.directory / self.name, "broker", self.release)
        settings = home / "conf" / "broker.conf"
        settings.write_text("".join(f"{name}={value}\n" for name, value in self._conf().items()))
        options = [f"-Drocketmq.home.dir={home}", *self.heap.broker]
        main = ["org.apache.rocketmq.broker.BrokerStartup", "-c", str(settings)]
        name = f"broker-{int(time.monotonic() * 1000)}"
        self._process = JavaProcess(name, home, options, main, self.release)

    def ready(self) -> None:
        """Wait until it serves and its name server knows it; on a busy machine the first try may be late."""
        self._ready("boot success")

    def _ready(self, said: str) -> None:
        assert self._process is not None
        self._process.wait_for(said)
        deadline = time.monotonic() + REGISTER_SECONDS_MAX
        while not self._is_registered():
            if time.monotonic() > deadline:
                raise PeerError(f"{self.name} did not register within {REGISTER_SECONDS_MAX} s")
            time.sleep(0.05)

    def _is_registered(self) -> bool:
        """Whether the name server's cluster list has this broker's address."""
        return self.address.encode() in ask(self.namesrv, Command(RequestCode.GET_BROKER_CLUSTER_INFO)).body

    def stop(self) -> None:
        """Stop it cleanly: everything flushed, no `abort` file left."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """`kill -9`."""
        if self._process is not None:
            self._process.kill()
            self._process = None


class ApacheCluster:
    """A name server and one broker; a context manager that starts both and cleans up."""

    def __init__(
        self,
        directory: Path | None = None,
        *,
        heap: HeapSettings | None = None,
        settings: Mapping[str, str | int] = PATIENT,
        release: Release = NEW,
    ) -> None:
        self._temporary = None if directory else tempfile.TemporaryDirectory(prefix="apache-rocketmq-")
        self.directory = directory or Path(self._temporary.name if self._temporary else "")
        heap = heap or HeapSettings()
        self.name_server = ApacheNameServer(self.directory, heap=heap, release=release)
        self.broker = ApacheBroker(
            self.directory, self.namesrv, settings=settings, heap=heap, release=release
        )

    @property
    def namesrv(self) -> str:
        """`HOST:PORT` of the name server."""
        return self.name_server.address

    @property
    def broker_address(self) -> str:
        """`HOST:PORT` of the broker."""
        return self.broker.address

    def __enter__(self) -> Self:
        try:
            self.name_server.start()
            self.name_server.ready()
            self.broker.start()
            self.broker.ready()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Kill both (a clean stop of this broker takes ten seconds) and remove a temporary directory."""
        self.broker.kill()
        self.name_server.kill()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
