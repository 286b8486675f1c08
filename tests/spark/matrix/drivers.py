"""Drivers as processes, ready before they are needed; who kills what of them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

import psutil
from tests.spark.counted import descendants, kill, process_line, python_workers
from tests.spark.matrix.plan import Plan
from tests.spark.spark_home import quick_environment

ROOT: Final = Path(__file__).resolve().parents[3]


class Driver:
    """A driver's process, its JVM below it."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._file: IO[bytes] = log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.matrix.driver"],
            cwd=ROOT,
            env={
                **os.environ,
                **quick_environment(),
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_SUBMIT_ARGS": "--driver-memory 768m pyspark-shell",
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            stdin=subprocess.PIPE,
            stdout=self._file,
            stderr=self._file,
            start_new_session=True,
        )
        self._plan: Plan | None = None
        self._left: list[psutil.Process] = []

    def run(self, plan: Plan) -> None:
        """Give it a plan."""
        assert self._process.stdin is not None
        self._plan = plan
        self._process.stdin.write(plan.to_json().encode() + b"\n")
        self._process.stdin.flush()

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process.poll() is None

    @property
    def answer(self) -> str | None:
        """The error that ended its plan, empty for none; None while it is at it."""
        assert self._plan is not None
        try:
            return str(json.loads(Path(self._plan.answer).read_text())["error"])
        except FileNotFoundError:
            return None if self.alive else f"the driver ended with status {self._process.poll()}"

    def jvm(self) -> psutil.Process | None:
        """Its JVM."""
        found = [one for one in descendants(self._process.pid) if "deploy.SparkSubmit" in process_line(one)]
        return found[0] if found else None

    def kill(self) -> None:
        """kill -9 of driver and JVM; its Python workers find out by themselves."""
        jvm = self.jvm()
        self._left += descendants(self._process.pid)
        kill([psutil.Process(self._process.pid), *([jvm] if jvm else [])] if self.alive else [])
        self._process.wait()

    def kill_executor(self, rng: random.Random) -> bool:
        """kill -9 of one of its executors; whether there was one."""
        below = descendants(self._process.pid)
        found = [one for one in below if "CoarseGrainedExecutorBackend" in process_line(one)]
        return bool(found) and kill([rng.choice(found)]) == 1

    def kill_worker(self, rng: random.Random) -> bool:
        """kill -9 of one of its Python workers; whether there was one."""
        jvm = self.jvm()
        found = python_workers(jvm.pid) if jvm else []
        return bool(found) and kill([rng.choice(found)]) == 1

    def end(self) -> None:
        """End it and all that it left."""
        if self.alive:
            self._left += descendants(self._process.pid)
            kill([psutil.Process(self._process.pid)])
        self._process.wait()
        kill(one for one in self._left if one.is_running())
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        self._file.close()


class Drivers:
    """Drivers that are ready: a killed one is replaced while others are at work."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._count = 0
        self._ready: list[Driver] = []
        self._dead: list[Driver] = []

    def prepare(self, count: int) -> None:
        """Have so many starting or ready; what killed ones left behind ends now."""
        while self._dead:
            self._dead.pop().end()
        while len(self._ready) < count:
            self._count += 1
            self._ready.append(Driver(self._root / f"driver-{self._count}.log"))

    def take(self) -> Driver:
        """The one that is ready for the longest time."""
        if not self._ready:
            self.prepare(1)
        return self._ready.pop(0)

    def give_back(self, driver: Driver) -> None:
        """One that may take another plan; a killed one's Python workers live on until the next round."""
        if driver.alive:
            self._ready.insert(0, driver)
        else:
            self._dead.append(driver)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._ready or self._dead:
            (self._ready or self._dead).pop().end()
