"""Files of tests that a change touches."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from scripts.touched import FILES_MAX, touched_test_files


class Repository:
    """A git repository with one commit on `main`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q", "-b", "main")
        for name in ("tests/test_a.py", "tests/test_b.py", "tests/help.py", "src/test_c.py"):
            self.write(name)
        self.commit()

    def git(self, *arguments: str) -> None:
        who = ("-c", "user.name=x", "-c", "user.email=x@x")
        subprocess.run(("git", *who, *arguments), cwd=self.root, check=True, capture_output=True)

    def write(self, name: str, text: str = "") -> None:
        (self.root / name).parent.mkdir(exist_ok=True)
        (self.root / name).write_text(text)

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_files_of_the_branch_and_those_not_committed(repository: Repository) -> None:
    assert touched_test_files(repository.root) == []
    repository.git("checkout", "-q", "-b", "next")
    for name in ("tests/test_b.py", "tests/help.py", "src/test_c.py"):
        repository.write(name, "changed")
    repository.commit()
    repository.write("tests/test_new.py")
    repository.git("rm", "-q", "tests/test_a.py")
    assert touched_test_files(repository.root) == ["tests/test_b.py", "tests/test_new.py"]


def test_on_main_what_is_not_committed(repository: Repository) -> None:
    repository.write("tests/test_a.py", "changed")
    assert touched_test_files(repository.root) == ["tests/test_a.py"]


def test_a_clone_compares_with_where_main_was(
    repository: Repository, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A clone whose own main is ahead of the one that it was made from."""
    clone = tmp_path_factory.mktemp("clone")
    repository.git("clone", "-q", ".", str(clone))
    ahead = Repository.__new__(Repository)
    ahead.root = clone
    ahead.write("tests/test_b.py", "changed")
    ahead.commit()
    assert touched_test_files(clone) == ["tests/test_b.py"]


def test_a_change_of_many_files_touches_none(repository: Repository) -> None:
    for number in range(FILES_MAX + 1):
        repository.write(f"tests/test_{number}.py")
    assert touched_test_files(repository.root) == []


def test_without_git_nothing_is_touched(tmp_path: Path) -> None:
    assert touched_test_files(tmp_path) == []
