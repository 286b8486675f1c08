"""`sparrow pipe …` as a process that a scheduler watches. Needs nothing but Python: any scheduler may use it.

It relies on docs/scheduling.md: JSON lines on standard output, exit statuses, SIGTERM to stop.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

WRONG_USAGE = 2


class PipeError(Exception):
    """A pipeline failed. `again` says whether a further try may do better: not after a wrong option."""

    def __init__(self, status: int, text: str, *, again: bool) -> None:
        super().__init__(text or f"it ended with status {status}")
        self.status = status
        self.again = again


class Pipe:
    """One pipeline: `Pipe(["archive", "Orders", "--to", "/data/archive"])`."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        sparrow: str = "sparrow",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.command = [sparrow, "pipe", *arguments]
        self.environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[str] | None = None

    def run(self, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Run it to its end and tell its progress; the result. Raises `PipeError`."""
        last: dict[str, Any] = {}
        with tempfile.TemporaryFile("w+", errors="replace") as said:
            self._process = subprocess.Popen(
                [*self.command, "--progress", "json", "--json"],
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                env=self.environment,
                start_new_session=True,
            )
            with self._process as process:
                for line in process.stdout or ():
                    last = json.loads(line)
                    tell(last)
            self._check(process.returncode, said)
        return last

    def waiting(self) -> int:
        """How many messages wait for it now; starts no Spark. Raises `PipeError`."""
        with tempfile.TemporaryFile("w+", errors="replace") as said:
            done = subprocess.run(
                [*self.command, "--plan", "--json"],
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                env=self.environment,
                check=False,
            )
            self._check(done.returncode, said)
        return int(json.loads(done.stdout)["rows"] or 0)

    def stop(self, seconds: float) -> None:
        """Ask for the end after the batch in hand; after so many seconds end it. What is done stays done."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)

    def _check(self, status: int, said: Any) -> None:
        if status == 0:
            return
        said.seek(0)
        ours = [line for line in said.read().splitlines() if line.strip()]
        # an audit that could not be judged may be judged later; its status is that of a wrong option
        again = status != WRONG_USAGE or self.command[2] == "audit"
        raise PipeError(status, "\n".join(ours[-3:]), again=again)
