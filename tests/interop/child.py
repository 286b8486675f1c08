"""A process that takes commands as JSON lines on standard input and answers each on standard output.

A request is `{"id": 1, "op": "send", ...}`, its answer `{"id": 1, "result": ...}` or
`{"id": 1, "error": "..."}`.
The process ends when its standard input closes, so it does not outlive whoever started it.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.interop.apache import PeerError

CALL_SECONDS_MAX: Final = 40.0
END_SECONDS_MAX: Final = 10


class ChildError(RuntimeError):
    """A call failed in the child; `code` is RocketMQ's response code where there is one."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class Home:
    """A directory for one process, removed at its end."""

    def __init__(self, name: str) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix=f"{name}-")
        self.path = Path(self._directory.name)

    def remove(self) -> None:
        """Remove it with all it holds."""
        self._directory.cleanup()


class Child:
    """A process called `name` that takes commands; thread safe. A context manager.

    With `says_ready` it prints `{"ready": true}` first. `error` is what its failures are raised as.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        home: Home,
        *,
        environment: Mapping[str, str] | None = None,
        says_ready: bool = False,
        error: type[ChildError] = ChildError,
    ) -> None:
        self.name = name
        self._home = home
        self._error = error
        self._errors = (home.path / "child.err").open("w+b")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            cwd=home.path,
            env=None if environment is None else dict(environment),
        )
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._ready: Future[Any] = Future()
        if not says_ready:
            self._ready.set_result(None)
        self._reader = threading.Thread(target=self._read, name=name, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                if line.startswith('{"'):  # libraries print, too
                    self._answered(json.loads(line))
        finally:
            for left in (self._ready, *self._waiting.values()):
                if not left.done():
                    left.set_exception(PeerError(f"the process of {self.name} has ended"))

    def _answered(self, answer: dict[str, Any]) -> None:
        if "ready" in answer:
            self._ready.set_result(None)
        elif (waiting := self._waiting.pop(answer["id"], None)) is not None:
            if "error" in answer:
                waiting.set_exception(self._error(answer["error"], answer.get("code")))
            else:
                waiting.set_result(answer.get("result"))

    def stderr(self) -> str:
        """The end of what it printed beside its answers, without the chatter of Java's logging library."""
        lines = Path(self._errors.name).read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines if "|-INFO" not in line)[-4000:]

    def call(self, op: str, *, seconds: float = CALL_SECONDS_MAX, **arguments: Any) -> Any:
        """Do one operation of the child; raises a `ChildError` with what it said, else `PeerError`."""
        try:
            self._ready.result(CALL_SECONDS_MAX)
            waiting: Future[Any] = Future()
            with self._lock:
                request = {"id": next(self._ids), "op": op, **arguments}
                self._waiting[request["id"]] = waiting
                assert self._process.stdin is not None
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
            return waiting.result(seconds)
        except (PeerError, TimeoutError, OSError) as error:
            raise PeerError(f"{op} of {self.name} was not answered: {error}\n{self.stderr()}") from error

    def wait(self) -> int:
        """The exit status of a process that ends by itself."""
        return self._process.wait(END_SECONDS_MAX)

    def kill(self) -> None:
        """`kill -9` of the process with all its clients; `close` is still to be called."""
        self._process.kill()
        self._process.wait(END_SECONDS_MAX)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join(END_SECONDS_MAX)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()
        self._home.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
