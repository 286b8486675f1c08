"""Spark's standalone cluster from pyspark's own jars: one master and one worker, small, on 127.0.0.1.

Its workers' Python has every package of this environment but ours: what they know of it was sent to them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import site
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil
from tests.spark.counted import descendants, process_line
from tests.spark.spark_home import QUICK_JVM, compiled_spark_home, quick_environment
from tests.support import free_port, until_sync

ROOT: Final = Path(__file__).resolve().parents[2]
OURS: Final = ("sparrowmq", "pyspark_rocketmq", "__editable__")
START_SECONDS: Final = 60.0
CORES: Final = 4
PARENT_DEATH_SIGNAL: Final = 1


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 0.2).close()
    except OSError:
        return False
    return True


class Standalone:
    """A running cluster with four cores, whatever this machine has, and one gigabyte."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port = free_port()
        self.packages = root / "packages"
        """Site packages without ours."""
        self.python = root / "python"
        """An interpreter that sees only PYTHONPATH and the standard library."""

    @property
    def url(self) -> str:
        """What `master` takes."""
        return f"spark://127.0.0.1:{self._port}"

    @property
    def executors(self) -> list[psutil.Process]:
        """The executors' JVMs."""
        below = descendants(self._processes[-1].pid)
        return [process for process in below if "CoarseGrainedExecutorBackend" in process_line(process)]

    def environment(self, *packages: Path | str) -> dict[str, str]:
        """The environment of a process that has `packages` beside the foreign ones."""
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (*packages, self.packages))),
            "PYSPARK_PYTHON": str(self.python),
            **quick_environment(),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def driver(
        self, arguments: Sequence[str], *packages: Path | str, more: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """A driver's process with `packages`; its output is one stream."""
        return subprocess.Popen(
            [str(self.python), *arguments],
            cwd=ROOT,
            env={**self.environment(*packages), **(more or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        self.packages.mkdir()
        for directory in site.getsitepackages():
            for path in Path(directory).glob("*"):
                if not path.name.startswith(OURS):
                    (self.packages / path.name).symlink_to(path)
        self.python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
        self.python.chmod(0o755)
        here = ("--host", "127.0.0.1", "--webui-port", "0")
        self._start("master.Master", *here, "--port", str(self._port))
        until_sync(lambda: _listens(self._port), START_SECONDS)
        size = ("--cores", str(CORES), "--memory", "1g", "--work-dir", str(self._root / "work"))
        self._start("worker.Worker", *here, *size, self.url)
        return self

    def _start(self, name: str, *arguments: str) -> None:
        with (self._root / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [
                        str(compiled_spark_home() / "bin/spark-class"),
                        f"org.apache.spark.deploy.{name}",
                        *arguments,
                    ],
                    cwd=self._root,
                    env=self.environment(),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=_die_with_parent,
                )
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
