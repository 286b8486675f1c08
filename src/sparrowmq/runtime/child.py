"""Name server and broker in a child process, for the demo and for tests that kill servers.

The child reads its settings from the first line of its standard input, prints one line of JSON when it
listens, and stops cleanly when its standard input is closed, so it never outlives its parent. It is not in
the terminal's process group, so Ctrl-C reaches only the parent. A parent may ask for lines about the progress
of the start (`{"progress": "recovering: 3 of 40 log files"}`) before that one.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sparrowmq.core.errors import InvalidStateError, SparrowError

START_SECONDS: Final = 60.0
"""Recovery of a large store after a kill takes long; a normal start takes well under a second."""
STOP_SECONDS: Final = 30.0
LINE_BYTES_MAX: Final = 64 * 1024
PROGRESS_SECONDS: Final = 1.0
"""How often a child that starts looks whether there is progress to tell."""


@dataclass(slots=True)
class ChildServers:
    """Servers in a child process. `broker` and `nameserver` are texts by RocketMQ's names.

    `nameserver=None` starts a broker alone. Addresses are available after `start`.
    """

    broker: Mapping[str, str]
    nameserver: Mapping[str, str] | None = None
    log: Path | None = None
    """File the child's warnings are appended to; None writes them to this process's standard error."""
    nameserver_address: str = field(default="", init=False)
    broker_address: str = field(default="", init=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    @property
    def pid(self) -> int:
        """The child's process id; 0 when it does not run."""
        return self._process.pid if self._process is not None else 0

    @property
    def running(self) -> bool:
        """Whether the child runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the child and wait until it listens. Raises `SparrowError` with the child's error text."""
        if self._process is not None:
            raise InvalidStateError("the servers have been started")
        request = json.dumps(
            {"broker": dict(self.broker), "nameserver": self.nameserver and dict(self.nameserver)}
        )
        process = self._spawn()
        self._process = process
        assert process.stdin is not None
        try:
            # Not as an argument, because all users can see those, and settings contain secrets.
            process.stdin.write(request.encode() + b"\n")
            process.stdin.flush()
            answer = json.loads(_first_line(process))
        except BaseException:
            self.kill()
            raise
        if "error" in answer:
            self.kill()
            raise SparrowError(answer["error"])
        self.nameserver_address = answer["nameserver"] or ""
        self.broker_address = answer["broker"] or ""

    def _program(self) -> list[str]:
        """The arguments of Python for the child; it reads its request from standard input."""
        return ["-m", "sparrowmq.runtime.child"]

    def _spawn(self) -> subprocess.Popen[bytes]:
        errors = self.log.open("ab") if self.log is not None else None
        try:
            return subprocess.Popen(
                [sys.executable, *self._program()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        finally:
            if errors is not None:
                errors.close()

    def stop(self) -> int:
        """Stop cleanly and return the exit status; killed after 30 s. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return 0
        assert process.stdin is not None
        process.stdin.close()
        try:
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
        finally:
            _close_pipes(process)

    def kill(self) -> None:
        """End the child with SIGKILL, as a crash would. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            _close_pipes(process)

    def __enter__(self) -> ChildServers:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _first_line(process: subprocess.Popen[bytes]) -> bytes:
    """The line that the child prints when it listens or fails."""
    assert process.stdout is not None
    deadline = time.monotonic() + START_SECONDS
    handle, line = process.stdout.fileno(), b""
    while not line.endswith(b"\n"):
        wait = deadline - time.monotonic()
        if wait <= 0 or len(line) > LINE_BYTES_MAX:
            raise SparrowError(
                f"the servers' process {process.pid} did not listen within {START_SECONDS:g} s"
            )
        if not select.select([handle], [], [], min(wait, 1.0))[0]:
            continue
        part = os.read(handle, 4096)
        if not part:
            raise SparrowError(f"the servers' process ended with status {process.wait()} before it listened")
        line += part
    return line


async def tell_progress(progress: Callable[[], str], tell: Callable[[Mapping[str, Any]], None]) -> None:
    """Tell what the servers do whenever it changes, until cancelled."""
    told = ""
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        if (now := progress()) != told:
            told = now
            tell({"progress": now})


def _tell(answer: Mapping[str, Any]) -> None:
    print(json.dumps(dict(answer)), flush=True)  # noqa: T201 - the parent reads it


def _main() -> int:
    from sparrowmq.core.settings.servers import BrokerSettings, Layer, NameServerSettings, load
    from sparrowmq.loops.event_loop import run
    from sparrowmq.runtime.logs import set_levels, set_up_logging
    from sparrowmq.runtime.process import serve
    from sparrowmq.runtime.servers import Listening, LocalServers

    async def main() -> None:
        wanted = json.loads(sys.stdin.buffer.readline())
        broker = nameserver = None
        if wanted["broker"] is not None:
            broker, _ = load(BrokerSettings, [Layer("broker", wanted["broker"])])
        if wanted["nameserver"] is not None:
            nameserver, _ = load(NameServerSettings, [Layer("nameserver", wanted["nameserver"])])
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        def watch() -> None:
            while os.read(sys.stdin.fileno(), 4096):  # a buffered read would abort the interpreter's end
                pass
            loop.call_soon_threadsafe(stop.set)

        threading.Thread(target=watch, daemon=True, name="sparrow-parent").start()
        told = broker or nameserver or BrokerSettings()
        set_up_logging(told.log_format)
        set_levels(told.log_level)
        servers = LocalServers(nameserver, broker, any_metrics_port=True, log_levels=set_levels)
        telling = None
        if wanted.get("progress"):
            telling = asyncio.create_task(tell_progress(lambda: servers.progress, _tell))

        def ready(where: Listening) -> None:
            if telling is not None:
                telling.cancel()
            names = ("nameserver", "broker", "metrics", "ports")
            _tell({name: getattr(where, name) for name in names})

        await serve(servers, stop, ready)

    try:
        run(main())
    except SparrowError as error:
        _tell({"error": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    from sparrowmq.runtime.logs import set_up_logging

    set_up_logging()
    sys.exit(_main())
