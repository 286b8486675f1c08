"""Checks as processes, some of them side by side: the output of each is shown whole when it has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

POLL_SECONDS: Final = 0.05
END_SECONDS_MAX: Final = 30.0
"""How long a check that was interrupted may take to undo what it did; then its processes are killed."""


@dataclass(slots=True)
class Count:
    """Results so far. Unsteady tests failed first and passed when they ran again; they have passed, too."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    unsteady: int = 0

    def add(self, other: Count) -> None:
        """Add the results of one check."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.unsteady += other.unsteady

    def repeated(self, again: Count) -> Count:
        """What counts when the tests that failed had these results in a second run."""
        if not again.passed:
            return self
        return Count(self.passed + again.passed, again.failed, self.skipped, self.unsteady + again.passed)

    def __str__(self) -> str:
        text = f"{self.passed} passed, {self.failed} failed"
        if self.skipped:
            text += f", {self.skipped} skipped"
        return f"{text}, {self.unsteady} unsteady" if self.unsteady else text


class Run(Protocol):
    """A check that was started."""

    @property
    def name(self) -> str:
        """The check's name."""

    def has_ended(self) -> bool:
        """Whether its results are there."""

    def interrupt(self) -> None:
        """Ask it to end early."""

    def end(self, seconds: float) -> None:
        """Wait so long for its end, then kill it with all it started."""

    def output(self) -> str:
        """What it printed so far."""

    def count(self) -> Count:
        """Its results; once it has ended."""


class Process:
    """One check as a process, which leads a process group so that it can be ended whole.

    `arguments` are those of `python -m`. With `counts` they are pytest's, and each test counts; otherwise the
    check counts as one. Output and report are kept below `directory`.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        root: Path,
        directory: Path,
        *,
        environment: Mapping[str, str],
        counts: bool,
    ) -> None:
        self.name = name
        self._output, self._report = directory / f"{name}.out", directory / f"{name}.xml"
        self._counts = counts
        command = [sys.executable, "-m", *arguments]
        if counts:
            # A directory of its own: pytest processes that share one clean up what others still use.
            files = directory / name.replace(" ", "-")
            command += ["-q", f"--junit-xml={self._report}", f"--basetemp={files}"]
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
            )

    def has_ended(self) -> bool:
        """Whether its results are there."""
        return self._process.poll() is not None

    def interrupt(self) -> None:
        """Ask it to end as after Ctrl-C; what it started is its own to end."""
        if not self.has_ended():
            self._process.send_signal(signal.SIGINT)

    def end(self, seconds: float) -> None:
        """Wait so long for its end, then kill it with all it started."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def output(self) -> str:
        """What it printed so far."""
        return self._output.read_text(errors="replace")

    def count(self) -> Count:
        """Its results; once it has ended."""
        status = self._process.wait()
        if not self._counts:
            return Count(passed=1) if status == 0 else Count(failed=1)
        found = read_report(self._report)
        if status != 0 and found.failed == 0:
            found.failed = 1  # nothing was collected, or pytest itself failed
        return found


def read_report(path: Path) -> Count:
    """The counts of a JUnit report; all zero when there is none."""
    import xml.etree.ElementTree as ElementTree

    if not path.is_file():
        return Count()
    count = Count()
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        count.add(Count(int(suite.get("tests", 0)) - failed - skipped, failed, skipped))
    return count


def run_all(starts: Sequence[Callable[[], Run]], jobs: int, say: Callable[[str], None]) -> dict[str, Count]:
    """Run checks in this order, at most `jobs` at a time; the results of each by its name.

    `say` gets a line when a check begins, its output and its count when it has ended. After Ctrl-C or SIGTERM
    those that run are ended, and what they printed is said, before `KeyboardInterrupt` goes on.
    """
    waiting, running, results = deque(starts), list[tuple[Run, float]](), dict[str, Count]()
    with _stops_as_interrupts():
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    run = waiting.popleft()()
                    running.append((run, time.monotonic()))
                    say(f"=== {run.name} begins")
                ended = [one for one in running if one[0].has_ended()]
                for run, started in ended:
                    running.remove((run, started))
                    count = results[run.name] = run.count()
                    say(_shown(run, f"{count} in {time.monotonic() - started:.0f} s"))
                if not ended:
                    time.sleep(POLL_SECONDS)
        finally:
            _end([run for run, _ in running], say)
    return results


def _shown(run: Run, result: str) -> str:
    output = run.output().strip("\n")
    return f"\n{output}\n=== {run.name}: {result}\n" if output else f"=== {run.name}: {result}\n"


def _end(running: Sequence[Run], say: Callable[[str], None]) -> None:
    """End what runs; a second Ctrl-C kills it at once."""
    for run in running:
        run.interrupt()
    deadline = time.monotonic() + END_SECONDS_MAX
    for run in running:
        try:
            run.end(max(0.0, deadline - time.monotonic()))
        except KeyboardInterrupt:
            deadline = time.monotonic()
            run.end(0.0)
        say(_shown(run, "interrupted"))


@contextmanager
def _stops_as_interrupts() -> Iterator[None]:
    """Take the signals that end a program as Ctrl-C, so that no check outlives it.

    Where Ctrl-C is to be ignored, as in the background of a script, it is, but not by the checks: a handler,
    even one that does nothing, is not passed on to them.
    """
    before: dict[int, Any] = {
        number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    if before[signal.SIGINT] == signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda number, frame: None)
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if before[ending] == signal.SIG_DFL:
            signal.signal(ending, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler in (signal.SIG_DFL, signal.SIG_IGN):
                signal.signal(number, handler)
