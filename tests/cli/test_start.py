"""Ctrl-C before a command runs: status 130 and not a word."""

from __future__ import annotations

import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from sparrowmq.cli import start

INTERRUPTED_AT = """
import os, signal, sys

where, before = sys.argv[1:3]
del sys.argv[1:3]

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == where:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
if before == "ignored":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
from sparrowmq.cli.start import main
main()
"""
"""A program that gets Ctrl-C when it comes to a module."""


def interrupted_at(module: str, before: str = "", *command: str) -> subprocess.CompletedProcess[str]:
    return python(INTERRUPTED_AT, module, before, *(command or ["--version"]))


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("module", ["sparrowmq.cli.main", "typer", "sparrowmq.cli.coordinator.watching"])
def test_ctrl_c_while_modules_are_imported_is_quiet(module: str) -> None:
    """A command's own module is imported when the command is known."""
    done = interrupted_at(module, "", "alarm", "list")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_what_is_started_to_ignore_ctrl_c_goes_on() -> None:
    done = interrupted_at("typer", "ignored")
    assert (done.returncode, done.stdout.split()[:1], done.stderr) == (0, ["sparrow"], "")


def test_nothing_is_imported_before_ctrl_c_is_seen_to() -> None:
    known = "import sys, importlib, logging, signal, typing; known = set(sys.modules); "
    done = python(known + "import sparrowmq.cli.start; print(*sorted(set(sys.modules) - known))")
    assert done.stdout.split() == ["sparrowmq", "sparrowmq.cli", "sparrowmq.cli.start"]


def test_the_command_begins_here() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"sparrow": f"{start.__name__}:{start.main.__name__}"}


@pytest.fixture
def handler() -> Iterator[None]:
    """What sees Ctrl-C is as before after the test."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["sparrow", *arguments])
    with pytest.raises(SystemExit):
        start.main()


@pytest.mark.usefixtures("handler")
def test_a_command_that_runs_sees_ctrl_c_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr("sparrowmq.cli.cluster.topics.with_admin", lambda *_: see())

    def see() -> list[str]:
        seen.append(signal.getsignal(signal.SIGINT))
        return []

    signal.signal(signal.SIGINT, signal.default_int_handler)
    run_main(monkeypatch, "topic", "list")
    assert seen == [signal.default_int_handler]


@pytest.mark.usefixtures("handler")
def test_a_handler_of_somebody_else_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def theirs(number: int, frame: FrameType | None) -> None:
        raise AssertionError("nobody pressed Ctrl-C")

    signal.signal(signal.SIGINT, theirs)
    run_main(monkeypatch, "topic", "--help")
    assert signal.getsignal(signal.SIGINT) is theirs
