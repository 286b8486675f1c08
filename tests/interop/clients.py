"""Clients in other languages: RocketMQ's C++ client and `ali-ons` for Node.js, each in a process of its own.

They are installed once, in the versions that `foreign/` pins, into `.cache/` at the root of the repository.
A process takes commands as JSON lines and ends when its standard input closes.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.interop.apache import MissingToolError, PeerError, publish

FOREIGN: Final = Path(__file__).resolve().parent / "foreign"
CACHE: Final = FOREIGN.parents[2] / ".cache" / "foreign-clients"
INSTALL_SECONDS_MAX: Final = 300
CALL_SECONDS_MAX: Final = 40.0
NODE_HINT: Final = "install Node.js 18 or later with npm, e.g.: apt-get install -y nodejs npm"

NAMES: Final = (
    "node",
    *(("cpp",) if sys.platform == "linux" and platform.machine() == "x86_64" else ()),
)
"""The clients that there are for this machine: the C++ one is published for Linux on x86-64 only."""


class ForeignError(RuntimeError):
    """A call failed in the foreign client."""


def _installed(name: str, pins: Sequence[str], command: Sequence[str]) -> Path:
    """The directory in which `command` was run, with the files in `pins`; it is kept until they change."""
    stamp = hashlib.sha256(b"".join((FOREIGN / pin).read_bytes() for pin in pins)).hexdigest()[:12]
    target = CACHE / f"{name}-{stamp}"
    if target.is_dir():
        return target
    CACHE.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=CACHE))
    try:
        for pin in pins:
            shutil.copy(FOREIGN / pin, work)
        done = subprocess.run(
            command, cwd=work, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False
        )
        if done.returncode != 0:
            raise PeerError(
                f"{' '.join(command)} ended with {done.returncode}; is the package registry in reach?\n"
                f"{(done.stdout + done.stderr)[-4000:]}"
            )
        publish(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _node() -> list[str]:
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    if missing:
        raise MissingToolError(f"{' and '.join(missing)} not found on PATH: {NODE_HINT}")
    pins = ("package.json", "package-lock.json")
    directory = _installed("node", pins, ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"])
    # A program finds its modules in a directory above its own.
    driver = directory / "driver.js"
    driver.write_bytes((FOREIGN / "node_driver.js").read_bytes())
    return ["node", str(driver)]


def _cpp() -> list[str]:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    directory = _installed("cpp", ["requirements.txt"], [*pip, "--target", ".", "-r", "requirements.txt"])
    return [sys.executable, str(FOREIGN / "cpp_driver.py"), str(directory)]


class ForeignClient:
    """A process with the client called `name`, one of `NAMES`; thread safe. A context manager.

    Raises `MissingToolError` naming what to install, and `PeerError` when the client cannot be installed.
    """

    def __init__(self, name: str) -> None:
        command = _node() if name == "node" else _cpp()
        self.name = name
        self._directory = tempfile.TemporaryDirectory(prefix=f"{name}-client-")
        home = Path(self._directory.name)
        self._errors = (home / "driver.err").open("w+b")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            cwd=home,
            env={**os.environ, "HOME": str(home)},
        )
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._reader = threading.Thread(target=self._read, name=f"{name}-client", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                # The C++ client prints, too.
                if line.startswith('{"id"'):
                    self._answered(json.loads(line))
        finally:
            for left in self._waiting.values():
                if not left.done():
                    left.set_exception(PeerError("the client's process has ended"))

    def _answered(self, answer: dict[str, Any]) -> None:
        waiting = self._waiting.pop(answer["id"], None)
        if waiting is None:
            return
        if "error" in answer:
            waiting.set_exception(ForeignError(answer["error"]))
        else:
            waiting.set_result(answer["result"])

    def call(self, op: str, *, seconds: float = CALL_SECONDS_MAX, **arguments: Any) -> Any:
        """Do one operation of the driver. Raises `ForeignError` with what the client said, or `PeerError`."""
        waiting: Future[Any] = Future()
        try:
            with self._lock:
                request = {"id": next(self._ids), "op": op, **arguments}
                self._waiting[request["id"]] = waiting
                assert self._process.stdin is not None
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
            return waiting.result(seconds)
        except (PeerError, TimeoutError, OSError) as error:
            raise PeerError(f"{op} of {self.name} was not answered: {error}\n{self.stderr()}") from error

    def stderr(self) -> str:
        """The end of what the client complained about."""
        return Path(self._errors.name).read_text(errors="replace")[-4000:]

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._reader.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()
        self._directory.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
