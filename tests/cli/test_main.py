"""The tree of commands, the version, and errors as one line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest
import typer

from sparrowmq.cli import main
from sparrowmq.cli.tree import MORE, SUBJECTS, CommandTable

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

COMMANDS = [
    ("up",),
    ("nameserver",),
    ("broker",),
    ("send",),
    ("consume",),
    ("topic", "create"),
    ("topic", "list"),
    ("topic", "route"),
    ("topic", "status"),
    ("topic", "delete"),
    ("cluster", "list"),
    ("group", "list"),
    ("group", "progress"),
    ("demo",),
]


def test_version(sparrow: Sparrow) -> None:
    assert sparrow("--version").out == f"sparrow {version('sparrowmq')}\n"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help(sparrow: Sparrow, command: tuple[str, ...]) -> None:
    assert "Usage:" in sparrow(*command, "--help").out


def test_help_shows_the_commands_by_subject(sparrow: Sparrow) -> None:
    shown = sparrow("--help").out
    places = [shown.index(f" {subject} ──") for subject in SUBJECTS]
    assert places == sorted(places)
    for start, end, names in zip(places, [*places[1:], len(shown)], SUBJECTS.values(), strict=True):
        lines = [line.strip("│ ").split() for line in shown[start:end].splitlines()]
        assert [line[0] for line in lines if line and line[0] in names] == list(names)


def test_each_command_is_where_the_table_says() -> None:
    table: Any = CommandTable()
    assert {name: table[name].name for name in table} == {name: name for name in table}
    for group, inner in MORE.items():
        assert inner.keys() <= table[group].commands.keys()


def test_the_shell_completes_commands_and_options() -> None:
    def completed(line: str) -> list[str]:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_SPARROW_COMPLETE": "complete_bash"}
        command = [sys.executable, "-c", "from sparrowmq.cli.main import app; app(prog_name='sparrow')"]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | words, check=False)
        return done.stdout.split()

    assert completed("sparrow gro") == ["group"]
    assert completed("sparrow topic up") == ["update"]
    assert "--read-queues" in completed("sparrow topic update --read")


def test_a_command_loads_no_module_of_others() -> None:
    code = (
        "import sys; from sparrowmq.cli.tree import CommandTable; CommandTable()['send']; "
        "print(*(name for name in sys.modules if name.startswith('sparrowmq.cli.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.removeprefix("sparrowmq.cli.") for name in done.stdout.split()}
    assert {name for name in loaded if not name.startswith("base")} == {"tree", "messages", "messages.sends"}


def test_an_unknown_command(sparrow: Sparrow) -> None:
    assert "No such command" in sparrow("tpoic", status=2).err


def test_without_a_terminal_no_password_is_asked_for() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sparrowmq.cli.main", "login"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # which has no terminal
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (1, f"sparrow: {main.NO_TERMINAL}\n")


def test_an_error_is_one_line_without_traceback(sparrow: Sparrow) -> None:
    outcome = sparrow("topic", "status", "NoSuchTopic", status=1)
    assert outcome.out == ""
    assert outcome.err.startswith("sparrow: no broker serves topic 'NoSuchTopic'")
    assert len(outcome.err.splitlines()) == 1


def test_ctrl_c_is_130(sparrow: Sparrow, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(namesrv: Any, work: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("sparrowmq.cli.cluster.topics.with_admin", interrupted)
    interrupted_run = sparrow("topic", "list", status=130)
    assert "Traceback" not in interrupted_run.out + interrupted_run.err


def test_no_name_server(sparrow: Sparrow) -> None:
    outcome = sparrow("topic", "list", "--namesrv", "127.0.0.1:1", status=1)
    assert "127.0.0.1:1" in outcome.err
    assert len(outcome.err.splitlines()) == 1


@pytest.mark.parametrize(
    "module", ["sparrowmq.runtime", "sparrowmq.broker", "sparrowmq.client", "pyarrow", "pyspark"]
)
def test_what_is_heavy_is_not_imported_at_start(module: str) -> None:
    code = f"import sys, {main.__name__}; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_module_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sparrowmq.cli.main", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("sparrow ")


WITHOUT_JSON = {
    *("up", "nameserver", "proxy", "demo", "serve", "coordinator migrate", "coordinator password"),
    *("cluster export", "message export", "dlq export", "store dump", "mcp"),  # they print JSON, or write it
    "consume",  # with --format
}
"""Servers, and commands that have another way."""


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, one in getattr(command, "commands", {}).items():
        if not one.hidden:
            yield from leaves(one, (*path, name))
    if path and not getattr(command, "commands", {}):
        yield " ".join(path), command


def test_every_command_that_tells_something_can_print_json() -> None:
    found = {
        name
        for name, command in leaves(typer.main.get_command(main.app))
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert found == WITHOUT_JSON


def test_changes_tell_what_they_came_to(sparrow: Sparrow) -> None:
    def told(*arguments: str) -> Any:
        (found,) = sparrow(*arguments, "--json").values
        return found

    made = {"topic": "ChangesTold", "queues": 2, "perm": 6, "brokers": ["broker-a"], "changed": {}}
    assert told("topic", "create", "ChangesTold", "--queues", "2") == made
    held = {"topic": "ChangesTold", "group": "changes_told", "hours": 5, "size_max": 0}
    assert told("group", "create", "changes_told", "--retries", "3") == {
        "group": "changes_told",
        "retries": 3,
        "enabled": True,
        "broadcast": True,
        "changed": {},
    }
    assert told("hold", "set", "ChangesTold", "changes_told", "--hours", "5") == held
    assert told("hold", "release", "ChangesTold") == {"released": "ChangesTold"}
    assert told("group", "delete", "changes_told") == {"deleted": "changes_told", "offsets_kept": False}
    assert told("topic", "delete", "ChangesTold") == {"deleted": "ChangesTold"}
