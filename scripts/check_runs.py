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

from scripts.reports import Count, Report, read_report
from scripts.second_look import failed_tests

POLL_SECONDS: Final = 0.05
TESTS_FAILED: Final = 1
NO_TESTS: Final = 5
"""Exit statuses of pytest: some tests failed, and no test was collected. Others mean that the run broke."""
END_SECONDS_MAX: Final = 30.0
"""How long a check that was interrupted may take to undo what it did; then its processes are killed."""


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

    def report(self) -> Report:
        """What it says of each test, once it has ended; empty if it has no tests."""

    def failed(self) -> set[str]:
        """The tests that failed, once it has ended; none if the run itself broke."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A check that has ended, its results and how long it took."""

    run: Run
    count: Count
    seconds: float


class Process:
    """One check as a process, which leads a process group so that it can be ended whole.

    `arguments` are those of `python -m`. With `counts` they are pytest's, and each test counts; otherwise the
    check counts as one. Output, report and what pytest notes of failures are kept below `directory`. With
    `may_be_empty` a run without tests is no failure.
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
        cache: Path | None = None,
        may_be_empty: bool = False,
    ) -> None:
        self.name = name
        self.report_file = directory / f"{name}.xml"
        self._output = directory / f"{name}.out"
        # Where pytest notes what failed. In the directory of the sources, checks side by side would share it.
        self._cache = cache or directory / f"{name}.cache"
        self._counts, self._may_be_empty = counts, may_be_empty
        command = [sys.executable, "-m", *arguments]
        if counts:
            # A directory of its own: pytest processes that share one clean up what others still use.
            files = directory / name.replace(" ", "-")
            command += ["-q", f"--junit-xml={self.report_file}", f"--basetemp={files}"]
            command += ["-o", f"cache_dir={self._cache}"]
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
        found = self.report().count
        if status != 0 and found.failed == 0 and not (status == NO_TESTS and self._may_be_empty):
            found.failed = 1  # nothing was collected, or pytest itself failed
        return found

    def report(self) -> Report:
        """What pytest reported; empty without `counts`."""
        return read_report(self.report_file) if self._counts else Report()

    def failed(self) -> set[str]:
        """The tests that failed, once it has ended; none if the run itself broke."""
        if not self._counts or self._process.wait() != TESTS_FAILED:
            return set()
        return failed_tests(self._cache) or set()


def run_all(starts: Sequence[Callable[[], Run]], jobs: int, say: Callable[[str], None]) -> list[Finished]:
    """Run checks in this order, at most `jobs` at a time; those that have ended, in the order of their ends.

    `say` gets a line when a check begins, its output and its count when it has ended. After Ctrl-C or SIGTERM
    those that run are ended, and what they printed is said, before `KeyboardInterrupt` goes on.
    """
    waiting, running, results = deque(starts), list[tuple[Run, float]](), list[Finished]()
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
                    result = Finished(run, run.count(), time.monotonic() - started)
                    results.append(result)
                    say(_shown(run, f"{result.count} in {result.seconds:.0f} s"))
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
