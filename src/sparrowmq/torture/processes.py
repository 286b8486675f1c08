"""A server of the cluster in a child process that can be killed, frozen and started again."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sparrowmq.core.errors import SparrowError

START_SECONDS: Final = 60.0
END_SECONDS: Final = 10.0


class ServerProcess:
    """A program that reads its settings from the first line of its standard input and prints one line of JSON
    when it listens. It ends when its standard input is closed, so that it does not outlive this process.

    `request` is what it reads; `log` is the file to which what it writes to standard error is appended.
    """

    def __init__(self, name: str, module: str, request: Mapping[str, Any], log: Path) -> None:
        self.name = name
        self.request = dict(request)
        self.log = log
        self.is_frozen = False
        self._module = module
        self._process: asyncio.subprocess.Process | None = None

    def __repr__(self) -> str:
        return f"<ServerProcess {self.name} pid={self.pid}>"

    @property
    def pid(self) -> int:
        """The process id; 0 when it does not run."""
        return self._process.pid if self._process is not None else 0

    @property
    def is_running(self) -> bool:
        """Whether it runs; a frozen one does."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> dict[str, Any]:
        """Start it and wait until it listens; what it says then. Raises `SparrowError` with its error."""
        with self.log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self._module),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._process, self.is_frozen = process, False
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(self.request).encode() + b"\n")
            async with asyncio.timeout(START_SECONDS):
                line = await process.stdout.readline()
            answer: dict[str, Any] = json.loads(line) if line else {"error": f"it ended; see {self.log}"}
        except TimeoutError:
            await self.kill()
            raise SparrowError(
                f"{self.name} did not listen within {START_SECONDS:g} s; see {self.log}"
            ) from None
        except BaseException:
            await self.kill()
            raise
        if "error" in answer:
            await self.kill()
            raise SparrowError(f"{self.name} did not start: {answer['error']}")
        return answer

    def freeze(self) -> None:
        """Stop it where it is; its connections stay open."""
        if self._signal(signal.SIGSTOP):
            self.is_frozen = True

    def thaw(self) -> None:
        """Let a frozen one go on."""
        self._signal(signal.SIGCONT)
        self.is_frozen = False

    async def kill(self) -> None:
        """End it with SIGKILL, as a crash would. Idempotent."""
        process, self._process = self._process, None
        self.is_frozen = False
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if process.stdin is not None:
            process.stdin.close()

    async def stop(self) -> None:
        """Let it stop cleanly; killed after 10 s. Idempotent."""
        process = self._process
        if process is None or process.stdin is None:
            return
        self.thaw()
        process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
        await self.kill()

    def _signal(self, number: signal.Signals) -> bool:
        if self._process is None or self._process.returncode is not None:
            return False
        self._process.send_signal(number)
        return True
