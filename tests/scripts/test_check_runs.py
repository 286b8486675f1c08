"""Checks as processes: their order and their output, how they are counted and how they are ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from scripts.check_runs import Finished, Process, Run, run_all
from scripts.reports import Count, Report
from tests.support import until_sync


@dataclass
class Scripted:
    """A check that ends when the others that were started are `after` so many."""

    name: str
    started: list[str]
    ended: list[str]
    after: int = 0
    calls: list[str] = field(default_factory=list)

    def has_ended(self) -> bool:
        if len(self.started) >= self.after and self.name not in self.ended:
            self.ended.append(self.name)
        return self.name in self.ended

    def interrupt(self) -> None:
        self.calls.append("interrupt")

    def end(self, seconds: float) -> None:
        self.calls.append("end")

    def output(self) -> str:
        return f"lines of {self.name}\n"

    def count(self) -> Count:
        return Count(passed=1, failed=len(self.name) - 1)

    def report(self) -> Report:
        return Report(self.count())

    def failed(self) -> set[str]:
        return set()


def counts(found: list[Finished]) -> dict[str, Count]:
    return {one.run.name: one.count for one in found}


class Script:
    """Scripted checks and what was said about them."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.ended: list[str] = []
        self.running: list[int] = []
        self.said: list[str] = []
        self.runs: dict[str, Scripted] = {}

    def check(self, name: str, after: int = 0) -> Callable[[], Run]:
        def begin() -> Run:
            self.started.append(name)
            self.running.append(len(self.started) - len(self.ended))
            self.runs[name] = Scripted(name, self.started, self.ended, after)
            return self.runs[name]

        return begin


def test_one_after_the_other() -> None:
    script = Script()
    found = run_all([script.check("a"), script.check("bb")], 1, script.said.append)
    assert script.said == [
        "=== a begins",
        "\nlines of a\n=== a: 1 passed, 0 failed in 0 s\n",
        "=== bb begins",
        "\nlines of bb\n=== bb: 1 passed, 1 failed in 0 s\n",
    ]
    assert (counts(found), script.running) == ({"a": Count(1), "bb": Count(1, 1)}, [1, 1])


def test_side_by_side_each_output_is_whole_and_comes_at_its_end() -> None:
    script = Script()
    checks = [script.check("a", after=3), script.check("b"), script.check("c", after=3), script.check("d")]
    found = run_all(checks, 2, script.said.append)
    assert (script.started, max(script.running)) == (["a", "b", "c", "d"], 2)
    assert counts(found) == {name: Count(1) for name in "abcd"}
    assert [line.split("===")[1].split(":")[0].strip() for line in script.said] == [
        *("a begins", "b begins", "b", "c begins", "a", "c", "d begins", "d"),
    ]


def test_nothing_to_run_is_nothing() -> None:
    assert run_all([], 2, lambda text: None) == []


def test_a_check_that_cannot_start_ends_those_that_run() -> None:
    script = Script()

    def broken() -> Run:
        raise OSError("no more processes")

    with pytest.raises(OSError, match="no more processes"):
        run_all([script.check("a", after=9), broken], 2, script.said.append)
    assert script.runs["a"].calls == ["interrupt", "end"]
    assert script.said == ["=== a begins", "\nlines of a\n=== a: interrupted\n"]


ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}


def process(root: Path, code: str) -> Process:
    (root / "made.py").write_text(code)
    return Process("made", ["made"], root, root, environment=ENVIRONMENT, counts=False)


def pytest_of(root: Path, test: str) -> Process:
    (root / "test_it.py").write_text(test)
    arguments = ["pytest", "test_it.py"]
    return Process("unit", arguments, root, root, environment=ENVIRONMENT, counts=True)


@pytest.mark.parametrize(
    ("code", "count"), [("raise SystemExit(0)", Count(1, 0)), ("raise SystemExit(3)", Count(0, 1))]
)
def test_other_checks_count_one(tmp_path: Path, code: str, count: Count) -> None:
    assert process(tmp_path, code).count() == count


def test_both_streams_are_the_output(tmp_path: Path) -> None:
    made = process(tmp_path, "import os; os.write(1, b'one '); os.write(2, b'two \\xff')")
    made.count()
    assert made.output() == "one two \ufffd"


def test_tests_are_counted(tmp_path: Path) -> None:
    run = pytest_of(
        tmp_path,
        "import pytest\n"
        "def test_a(): pass\n"
        "def test_b(): assert False\n"
        "@pytest.mark.skip\ndef test_c(): pass\n"
        "@pytest.fixture\ndef broken(): raise ValueError\n"
        "def test_e(broken): pass\n",
    )
    assert run.count() == Count(1, 2, 1)
    assert "assert False" in run.output()
    assert run.failed() == {"test_it.py::test_b", "test_it.py::test_e"}


@pytest.mark.parametrize("test", ["", "def test_(:"])
def test_no_test_at_all_is_a_failure(tmp_path: Path, test: str) -> None:
    assert pytest_of(tmp_path, test).count() == Count(0, 1, 0)


def test_an_empty_run_is_no_failure_where_it_may_be(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("")
    arguments = ["pytest", "test_it.py"]
    run = Process(
        "it", arguments, tmp_path, tmp_path, environment=ENVIRONMENT, counts=True, may_be_empty=True
    )
    assert run.count() == Count()


STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""
CLEANING = """
import signal, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    print("waits", flush=True)
    Path("waits").touch()
    time.sleep(600)
except KeyboardInterrupt:
    print("cleaned", flush=True)
"""


def test_an_interrupted_check_undoes_what_it_did(tmp_path: Path) -> None:
    run = process(tmp_path, CLEANING)
    until_sync(lambda: "waits" in run.output())
    run.interrupt()
    run.end(20.0)
    assert run.output().split() == ["waits", "cleaned"]
    run.interrupt()  # harmless when it has ended


def exists(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    if not state.parent.parent.joinpath("self").exists():  # no /proc on this system
        return subprocess.run(["ps", "-p", str(pid), "-o", "stat="], capture_output=True).stdout[:1] not in (
            *(b"", b"Z"),
        )
    return state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def test_a_check_that_does_not_end_is_killed_with_what_it_started(tmp_path: Path) -> None:
    run = process(tmp_path, STUBBORN)
    child = int(until_sync(lambda: run.output().strip()))
    run.interrupt()
    run.end(0.0)
    assert run.has_ended()
    until_sync(lambda: not exists(child))


PARENT = """
import os, signal, sys
from pathlib import Path
from scripts.check_runs import Process, run_all

def start():
    here = Path.cwd()
    return Process("made", ["made"], here, here, environment=os.environ, counts=False)

for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.SIG_IGN if sys.argv[1:] else signal.default_int_handler)
try:
    run_all([start], 2, lambda text: print(text, flush=True))
except KeyboardInterrupt:
    print("stopped")
"""


def stopped(root: Path, *signals: signal.Signals, arguments: tuple[str, ...] = ()) -> list[str]:
    """What a run of one check that waits prints when it gets the signals."""
    (root / "made.py").write_text(CLEANING)
    command = [sys.executable, "-c", PARENT, *arguments]
    environment = {**ENVIRONMENT, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        until_sync((root / "waits").exists)
        for number in signals:
            parent.send_signal(number)
        return parent.communicate(timeout=20)[0].splitlines()
    finally:
        parent.kill()
        parent.wait()


SAID = ["=== made begins", "", "waits", "cleaned", "=== made: interrupted", "", "stopped"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_what_runs_and_show_what_it_said(tmp_path: Path, number: signal.Signals) -> None:
    assert stopped(tmp_path, number) == SAID


def test_where_ctrl_c_is_ignored_the_checks_can_be_ended_all_the_same(tmp_path: Path) -> None:
    assert stopped(tmp_path, signal.SIGINT, signal.SIGTERM, arguments=("ignored",)) == SAID
