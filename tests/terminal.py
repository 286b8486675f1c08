"""A process at a terminal: keys are typed, and what is shown is waited for."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from pathlib import Path

SECONDS = 90
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")
_WHERE_IS_THE_CURSOR = b"\x1b[6n"


class Terminal:
    """A process with a terminal of its own, and what is on it."""

    def __init__(
        self, command: list[str], environment: dict[str, str], directory: Path | None = None
    ) -> None:
        self._mine, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (50, 200))
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            cwd=directory,
            start_new_session=True,
            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),  # makes it the one that controls
        )
        os.close(theirs)
        self.shown = ""
        self.written = ""
        """The same with everything that steers a terminal."""
        self._seen = 0

    @property
    def descriptor(self) -> int:
        """The terminal, to ask for its modes."""
        return self._mine

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._mine, text.encode())

    def wait(self, pattern: str, seconds: float = SECONDS) -> str:
        """Wait for something after what was waited for before; what stands before it."""
        deadline = time.monotonic() + seconds
        while not (found := re.compile(pattern).search(self.shown, self._seen)):
            assert time.monotonic() < deadline, f"no {pattern!r}:\n{self.shown}"
            assert self._read(), f"it ended before {pattern!r}:\n{self.shown}"
        before = self.shown[self._seen : found.start()]
        self._seen = found.end()
        return before

    def _read(self) -> bool:
        """Take what was written meanwhile; false at the end."""
        ready, _, _ = select.select([self._mine], [], [], 0.2)
        if not ready:
            return True
        try:
            found = os.read(self._mine, 65536)
        except OSError:  # the other side is closed
            return False
        if _WHERE_IS_THE_CURSOR in found:
            os.write(self._mine, b"\x1b[1;1R")
        self.written += found.decode(errors="replace")
        self.shown += _ESCAPES.sub("", found.decode(errors="replace"))
        return bool(found)

    def end(self) -> int:
        """Read to the end; the exit status."""
        while self._read():
            pass
        return self.process.wait(SECONDS)

    def close(self) -> None:
        """End it and its children, whatever they do."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._mine)
