"""Renewed versions: what uv is asked for, the file that is made of its answer, and what has changed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from scripts import renew_lock
from scripts.generate_constraints import ELSEWHERE, pins, requirements
from scripts.renew_lock import asked, changes, main, proposed

WRITES = "scripts/generate_constraints.py"
COMPILED = "msgspec==0.21.0\npytest==10.0\n"


def test_uv_is_asked_for_everything_that_pyproject_lists() -> None:
    lines = asked(requirements()).splitlines()
    assert lines == sorted(set(lines))
    assert {"msgspec>=0.19", "setuptools>=77", "sqlalchemy<3,>=2.0.36"} <= set(lines)
    assert asked([Requirement("b>=2"), Requirement("a"), Requirement("a")]) == "a\nb>=2\n"


def test_the_file_has_what_uv_found_and_what_others_need() -> None:
    text = proposed(COMPILED)
    assert pins(text) == {**ELSEWHERE, "msgspec": "0.21.0", "pytest": "10.0"}
    assert text.splitlines()[2:] == sorted(text.splitlines()[2:])
    assert pins(proposed("uv==99.0\n"))["uv"] == "99.0", "what was resolved is newer"


def test_changes_name_both_versions() -> None:
    before, after = {"a": "1", "b": "1", "c": "1"}, {"a": "1", "b": "2", "d": "1"}
    assert changes(before, after) == ["b: 1 -> 2", "c: 1 -> none", "d: none -> 1"]
    assert changes(after, after) == []


@pytest.mark.parametrize(
    ("tests", "ran", "last"),
    [
        (
            0,
            ["uv", "full", "scripts/generate_constraints.py"],
            "all tests pass; commit constraints.txt alone",
        ),
        (1, ["uv", "full"], "it failed, see above"),
    ],
)
def test_versions_are_written_only_when_all_tests_pass(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    tests: int,
    ran: list[str],
    last: str,
) -> None:
    target, commands = tmp_path / "constraints.txt", list[str]()
    target.write_text("msgspec==0.20.0\n")
    monkeypatch.setattr(renew_lock, "TARGET", target)

    def fake(command: tuple[str, ...], **options: Any) -> subprocess.CompletedProcess[str]:
        name = next(one for one in ("uv", "full", WRITES) if one in command)
        commands.append(name)
        return subprocess.CompletedProcess(command, tests if name == "full" else 0, COMPILED)

    monkeypatch.setattr(subprocess, "run", fake)
    assert (main(), commands) == (tests, ran)
    lines = capsys.readouterr().out.splitlines()
    assert ("msgspec: 0.20.0 -> 0.21.0" in lines, lines[-1]) == (True, last)
