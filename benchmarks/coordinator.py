"""A coordinator as a process of its own, on a SQLite file, which counts what it does.

    python -m benchmarks.coordinator NAMESRV DATABASE

It says where its API is and the password of `admin`, then, for each line it reads, how many requests of
members and statements there were so far. It reaches inside for these two counts, and for nothing else.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

from benchmarks.load import LoadError
from benchmarks.process import cpu_seconds

ROOT: Final = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Counts:
    """What a coordinator did so far."""

    requests: int
    statements: int
    cpu_seconds: float


class Counted:
    """The process, and its API as the person `admin`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        said = self._line()
        self._host, _, port = said["url"].removeprefix("http://").partition(":")
        self._port = int(port)
        self._token = ""
        answer = self.call("POST", "/login", {"name": "admin", "password": said["password"]})
        self._token = answer["token"]

    def counts(self) -> Counts:
        """What it did so far."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        said = self._line()
        return Counts(said["requests"], said["statements"], cpu_seconds(self._process.pid))

    def connect(self) -> HTTPConnection:
        """A connection of one's own to the API."""
        return HTTPConnection(self._host, self._port, timeout=60)

    def call(
        self, method: str, path: str, body: object = None, connection: HTTPConnection | None = None
    ) -> Any:
        """An answer of the API. Raises `LoadError` for one that is an error."""
        used = connection or self.connect()
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            data = None if body is None else json.dumps(body)
            used.request(method, f"/api/v1{path}", data, headers)
            answer = used.getresponse()
            text = answer.read()
        finally:
            if connection is None:
                used.close()
        if answer.status >= 400:
            raise LoadError(f"{method} {path}: {answer.status} {text!r}")
        return json.loads(text)

    def _line(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise LoadError("the coordinator has ended")
        return json.loads(line)


@contextmanager
def coordinator(namesrv: str) -> Iterator[Counted]:
    """A running coordinator with an empty database."""
    with tempfile.TemporaryDirectory(prefix="bench-coordinator-") as home:
        url = f"sqlite:///{home}/coordinator.db"
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.coordinator", namesrv, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        try:
            yield Counted(process)
        finally:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)
            process.stdout.close()


async def _main(namesrv: str, url: str) -> None:
    """The process: until standard input closes."""
    from sqlalchemy import Engine, event

    from sparrowmq.coordinator.groups.members import MemberServer
    from sparrowmq.coordinator.server import Coordinator
    from sparrowmq.core.settings.servers import CoordinatorSettings

    counts = {"requests": 0, "statements": 0}

    def counting(call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def counted(*arguments: Any) -> Any:
            counts["requests"] += 1
            return call(*arguments)

        return counted

    def executed(*_: object) -> None:
        counts["statements"] += 1

    for name in ("join", "report", "leave"):
        setattr(MemberServer, name, counting(getattr(MemberServer, name)))
    event.listen(Engine, "before_cursor_execute", executed)
    served = Coordinator(CoordinatorSettings(listen_port=0, namesrv_addr=namesrv, database_url=url))
    started = await served.start()
    try:
        print(json.dumps({"url": started.url, "password": started.first_password}), flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(counts), flush=True)
    finally:
        await served.close()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
