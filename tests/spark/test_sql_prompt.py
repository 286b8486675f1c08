"""`sparrow sql` at a terminal: a table completed, a query, a wrong one, one that is stopped, the end."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from tests.spark.support import Topics

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
SECONDS = 90
PROMPT = "sql>"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")
_WHERE_IS_THE_CURSOR = b"\x1b[6n"


class Terminal:
    """A process with a terminal of its own, and what is on it."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._mine, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (50, 200))
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),  # makes it the one that controls
        )
        os.close(theirs)
        self.shown = ""
        self._seen = 0

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._mine, text.encode())

    def wait(self, pattern: str) -> str:
        """Wait for something after what was waited for before; what stands before it."""
        deadline = time.monotonic() + SECONDS
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
        self.shown += _ESCAPES.sub("", found.decode(errors="replace"))
        return bool(found)

    def end(self) -> int:
        """Read to the end; the exit status."""
        while self._read():
            pass
        return self.process.wait(SECONDS)

    def close(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.wait()
        os.close(self._mine)


def test_a_prompt_goes_on_after_errors_and_ctrl_c(topics: Topics, topic: str, tmp_path: Path) -> None:
    topics.send(topic, 12)
    command = [sys.executable, "-m", "sparrowmq.cli.main", "sql", "--namesrv", topics.cluster.namesrv]
    environment = {**os.environ, "HOME": str(tmp_path), "TERM": "xterm"}
    terminal = Terminal(command, environment)
    try:
        assert "Ctrl-D ends, Ctrl-C stops a query" in terminal.wait(PROMPT)
        terminal.type("select count(*) as n, max(text) as last\rfrom T")
        terminal.wait("   ->")
        terminal.type(f"{topic[1:-3]}\t")
        terminal.wait(topic[1:-3])
        terminal.wait(topic[-3:])  # came by itself
        terminal.type(";\r")
        terminal.wait(r"\n *12 +m9")
        terminal.wait(PROMPT)

        terminal.type("select nothing\rfrom range(1);\r")
        terminal.wait("   ->")
        assert "{" not in terminal.wait("\nsparrow: .*nothing"), "one line says it all"
        terminal.wait(PROMPT)

        terminal.type("select count(*) from range(10000000000000) where id % 7 = id % 11;\r")
        terminal.wait("sql ━")  # a bar: the prompt is over, and its way with keys
        terminal.type("\x03")
        terminal.wait("sparrow: stopped")
        terminal.wait(PROMPT)
        terminal.type("select 6 * 7 as answer;\r")
        terminal.wait(r"\n *42")
        terminal.wait(PROMPT)
        terminal.type("\\q\r")
        assert terminal.end() == 0, terminal.shown
    finally:
        terminal.close()
    history = (tmp_path / ".sparrow_sql_history").read_text()
    assert f"+from {topic};" in history and "+\\q" in history
