"""Load generators as processes of their own: Java's client, our clients, pre-encoded frames.

Each takes one JSON object a line and answers with the events `begin` and `end` around what is measured and a
`result`; see `java/LoadGen.java` and `pyload.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from tests.interop.apache import OPEN_MODULES, classes
from tests.interop.grpc_clients import JAVA as CLIENT5
from tests.interop.grpc_clients import python_packages

from benchmarks.peers import Servers
from benchmarks.process import cpu_seconds, tree_cpu_seconds

ROOT: Final = Path(__file__).resolve().parents[1]
JAVA: Final = "java"
PYTHON: Final = "python"
GRPC_JAVA: Final = "grpc-java"
GRPC_PYTHON: Final = "grpc-python"
RUN_SECONDS_MAX: Final = 900.0
FAILED_SHARE_MAX: Final = 0.001
FAILED_FEW: Final = 3
"""A broker on a busy machine may refuse a send; more than a few make a run worthless."""


class LoadError(RuntimeError):
    """A generator failed, or what it sent is not what is stored."""


@dataclass(frozen=True)
class Measured:
    """One run of one generator against one peer."""

    result: dict[str, Any]
    broker_cpu_seconds: float
    client_cpu_seconds: float

    @property
    def rate(self) -> float:
        """Messages a second."""
        return float(self.result["messages"] / self.result["seconds"])

    def check_arrived(self, what: str, arrived: int) -> None:
        """Raise `LoadError` unless all that was acknowledged arrived, and nothing that was not even tried."""
        least = self.result["acknowledged"]
        most = least + self.result.get("failed", 0)
        if not least <= arrived <= most:
            raise LoadError(f"{what}: {least} acknowledged, {most - least} failed, {arrived} arrived")

    @property
    def cpu_us(self) -> float:
        """Processor time of the broker for one message, in microseconds."""
        return self._each_us(self.broker_cpu_seconds)

    @property
    def client_cpu_us(self) -> float:
        """Processor time of the generator for one message, in microseconds."""
        return self._each_us(self.client_cpu_seconds)

    def _each_us(self, seconds: float) -> float:
        return float(seconds * 1e6 / max(1, self.result["messages"]))


class Load:
    """One generator process; a context manager."""

    def __init__(self, kind: str) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="bench-load-")
        self._errors = (Path(self._directory.name) / "stderr").open("wb")
        self._process = subprocess.Popen(
            self._command(kind, self._directory.name),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
        )
        self._expect("ready")

    @staticmethod
    def _command(kind: str, home: str) -> Sequence[str]:
        if kind == PYTHON:
            return [sys.executable, "-m", "benchmarks.pyload"]
        if kind == GRPC_PYTHON:
            return [sys.executable, "-m", "benchmarks.grpc_pyload", str(python_packages())]
        if kind == GRPC_JAVA:
            path = classes([Path(__file__).parent / "java" / "GrpcLoadGen.java"], CLIENT5)
            heap = ["-Xms512m", "-Xmx512m"]
            return ["java", *heap, f"-Duser.home={home}", *OPEN_MODULES, "-cp", path, "GrpcLoadGen"]
        path = classes([Path(__file__).parent / "java" / "LoadGen.java"])
        heap = ["-Xms1g", "-Xmx1g"]
        return ["java", *heap, f"-Duser.home={home}", *OPEN_MODULES, "-cp", path, "LoadGen"]

    def _expect(self, *wanted: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        event: dict[str, Any] = json.loads(line) if line else {"event": "error", "error": "it has ended"}
        if event["event"] not in wanted:
            said = Path(self._errors.name).read_text(errors="replace")[-3000:]
            raise LoadError(f"{self._process.args!r}: {event}\n{said}")
        return event

    def run(self, peer: Servers, op: str, **arguments: Any) -> Measured:
        """Do one operation; the processor times are taken between `begin` and `end`."""
        assert self._process.stdin is not None
        request = {"op": op, "namesrv": peer.namesrv, "broker": peer.broker_address, **arguments}
        watchdog = threading.Timer(RUN_SECONDS_MAX, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            used = [0.0, 0.0]
            while (event := self._expect("begin", "end", "result"))["event"] != "result":
                since = used if event["event"] == "end" else [0.0, 0.0]
                now = (tree_cpu_seconds(peer.broker_pid), cpu_seconds(self._process.pid))
                used = [at - before for at, before in zip(now, since, strict=True)]
        finally:
            watchdog.cancel()
        if event.get("failed", 0) > max(FAILED_FEW, FAILED_SHARE_MAX * event.get("acknowledged", 0)):
            raise LoadError(f"{op} on {peer.name}: {event['failed']} operations failed: {event}")
        return Measured(event, *used)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._process.stdout.close()
        self._errors.close()
        self._directory.cleanup()
